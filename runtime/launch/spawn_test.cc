// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/spawn.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/process_group/init.h"
#include "runtime/process_group/objects.h"

namespace hekla::launch {
namespace {

TEST(Spawn, CopiesAreTheRanksOfARun) {
  const int before = 40;  // what the caller has is there
  const Status status = spawn(3, [&](int rank) {
    const auto group = process_group::init_process_group();
    if (!group.ok() || (*group)->rank() != rank || (*group)->size() != 3) return 1;
    const auto all = process_group::all_gather_objects(**group, std::string(rank, 'x'));
    if (!all.ok() || *all != std::vector<std::string>{"", "x", "xx"}) return 2;
    return before == 40 ? 0 : 3;
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(Spawn, TheFirstFailureIsNamedAndEndsTheRest) {
  const auto waits = [] {
    std::this_thread::sleep_for(std::chrono::seconds(100));
    return 0;
  };
  const Status failed = spawn(3, [&](int rank) { return rank == 1 ? 5 : waits(); });
  EXPECT_EQ(failed.code(), StatusCode::kAborted);
  EXPECT_EQ(failed.message(), "rank 1 of 3 failed first, with exit code 5");
  SpawnOptions options;
  options.grace = std::chrono::milliseconds(50);
  const Status killed = spawn(
      2,
      [&](int rank) {
        ::signal(SIGTERM, SIG_IGN);
        return rank == 0 ? ::raise(SIGKILL) : waits();
      },
      options);
  EXPECT_EQ(killed.message(), "rank 0 of 2 failed first, with signal 9 (Killed)");
  EXPECT_EQ(spawn(0, [](int) { return 0; }).code(), StatusCode::kInvalidArgument);
}

TEST(Spawn, AnExceptionOfABodyEndsItsCopyAlone) {
  const pid_t parent = ::getpid();
  const Status failed = spawn(2, [](int rank) -> int {
    if (rank == 1) throw std::runtime_error("no data");
    return 0;
  });
  ASSERT_EQ(::getpid(), parent);  // else this is the copy
  EXPECT_EQ(failed.message(), "rank 1 of 2 failed first, with exit code 1");
  EXPECT_EQ(spawn(1, [](int) { return 256; }).message(),
            "rank 0 of 1 failed first, with exit code 1");
}

TEST(Spawn, AnEndThatNobodyCanWaitForIsAFailure) {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGCHLD, &ignore, &before);
  const Status failed = spawn(2, [](int) { return 0; });
  ::sigaction(SIGCHLD, &before, nullptr);
  EXPECT_EQ(failed.code(), StatusCode::kAborted);
  EXPECT_NE(failed.message().find("could not wait for"), std::string::npos) << failed.message();
}

// Both end while the parent is stopped, so that it sees them in one look.
TEST(Spawn, OfTwoEndsAtOnceTheKilledOneIsToBlame) {
  const pid_t parent = ::getpid();
  const Status failed = spawn(2, [&](int rank) {
    const auto group = process_group::init_process_group();
    if (!group.ok()) return 9;
    if (rank == 0) {
      if (::fork() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        ::kill(parent, SIGCONT);
        ::_exit(0);
      }
      ::kill(parent, SIGSTOP);
    }
    if (!(*group)->barrier().wait().ok()) return 9;
    if (rank == 0) ::_exit(3);
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(failed.message(), "rank 1 of 2 failed first, with signal 9 (Killed)");
}

}  // namespace
}  // namespace hekla::launch
