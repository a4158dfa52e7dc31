// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "runtime/base/io/file.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"

namespace hekla::launch {
namespace {

struct Ended {
  int exit_code = 0;
  std::string output, errors;
  std::multiset<std::string> lines() const {
    std::istringstream stream(output);
    std::multiset<std::string> all;
    for (std::string line; std::getline(stream, line);) all.insert(line);
    return all;
  }
};

std::string text_of(const std::string& path) {
  const auto text = read_file(posix_io(), path, 1 << 20);
  return text.ok() ? *text : "";
}

// A launch of a shell script in a process of its own, which `meanwhile` gets.
Ended launched(const std::string& script, LaunchOptions options,
               const std::function<void(pid_t)>& meanwhile = nullptr) {
  const TemporaryFolder folder;
  options.command = {"sh", "-c", script, "sh", folder.path()};
  const pid_t child = start_child([&] {
    for (const auto& [name, to] : {std::pair{"output", 1}, std::pair{"errors", 2}}) {
      const int file = ::open(folder.file(name).c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(file, to);
    }
    const Result<int> code = launch(options);
    if (!code.ok()) fmt::print(stderr, "{}\n", code.status().to_string());
    std::fflush(stderr);
    return code.ok() ? *code : 111;
  });
  if (meanwhile) meanwhile(child);
  const int code = wait_for_child(child);
  return {code, text_of(folder.file("output")), text_of(folder.file("errors"))};
}

bool has(const Ended& ended, std::string_view text) {
  return ended.errors.find(text) != std::string::npos;
}

bool is_alive(pid_t process) { return ::kill(process, 0) == 0; }

bool waits_to_be_reaped(pid_t child) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

bool soon(const std::function<bool()>& is_so) {
  for (int i = 0; i < 2000 && !is_so(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is_so();
}

TEST(Launch, RanksHaveTheirVariablesAndLinesTheirRanks) {
  LaunchOptions options;
  options.nproc = 3;
  options.run_id = "job";
  const Ended ended = launched(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
      "$TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT; test $MASTER_PORT -gt 0; printf "
      "unfinished",
      options);
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  std::multiset<std::string> wanted;
  for (int r = 0; r < 3; ++r) {
    wanted.insert(fmt::format("[{0}] {0} {0} 3 3 0 127.0.0.1 job 0", r));
    wanted.insert(fmt::format("[{}] unfinished", r));
  }
  EXPECT_EQ(ended.lines(), wanted);
  EXPECT_EQ(ended.errors, "");
}

TEST(Launch, TheFirstFailureIsNamedAndEndsTheRest) {
  LaunchOptions options;
  options.nproc = 3;
  const Ended ended =
      launched("test $RANK = 1 || exec sleep 100; echo because >&2; exit 3", options);
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_TRUE(has(ended, "rank 1 failed first, after ")) << ended.errors;
  EXPECT_TRUE(has(ended, "with exit code 3; the others were ended; its last words:\n    because"))
      << ended.errors;
  const Ended killed = launched("test $RANK = 2 || exec sleep 100; kill -9 $$", options);
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
  EXPECT_TRUE(has(killed, "rank 2 failed first")) << killed.errors;
  EXPECT_TRUE(has(killed, "signal 9 (Killed)")) << killed.errors;
}

TEST(Launch, WhoDoesNotEndIsKilled) {
  LaunchOptions options;
  options.nproc = 2;
  options.grace = std::chrono::milliseconds(50);
  const Ended ended = launched(
      "if test $RANK = 1; then until test -e $1/armed; do sleep 0.01; done; exit 1; fi; "
      "trap '' TERM; : > $1/armed; while :; do sleep 0.01; done",
      options);
  EXPECT_EQ(ended.exit_code, 1) << ended.errors;
}

TEST(Launch, RestartsAreCountedAndPreemptionIsFree) {
  LaunchOptions options;
  options.nproc = 2;
  options.max_restarts = 1;
  // Attempts: preempted twice, then failing.
  const std::string script =
      "echo $TORCHELASTIC_RESTART_COUNT; test $RANK = 0 || exec sleep 100; "
      "test $TORCHELASTIC_RESTART_COUNT -ge 2 || exit 75; exit 4";
  const Ended ended = launched(script, options);
  EXPECT_EQ(ended.exit_code, 4);
  const auto lines = ended.lines();
  EXPECT_EQ(lines.count("[0] 3"), 1U);
  EXPECT_EQ(lines.count("[0] 4"), 0U);
  EXPECT_TRUE(has(ended, "costs no restart")) << ended.errors;
  EXPECT_TRUE(has(ended, "restart 1 of 1")) << ended.errors;
  EXPECT_TRUE(has(ended, "all 1 restarts are used up")) << ended.errors;
  const Ended mended = launched("test $TORCHELASTIC_RESTART_COUNT = 1", options);
  EXPECT_EQ(mended.exit_code, 0) << mended.errors;
}

TEST(Launch, EachAttemptHasAStoreOfItsOwn) {
  LaunchOptions options;
  options.nproc = 1;
  options.max_restarts = 1;
  const Ended ended = launched("echo $HEKLA_STORE; test $TORCHELASTIC_RESTART_COUNT = 1", options);
  const auto lines = ended.lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(*lines.begin(), *lines.rbegin());
  EXPECT_EQ(lines.begin()->rfind("[0] tcp:", 0), 0U);
}

TEST(Launch, SignalsArePassedOn) {
  LaunchOptions options;
  options.nproc = 2;
  const TemporaryFolder folder;
  const auto ready = [&](const char* rank) { return text_of(folder.file(rank)) == "1\n"; };
  const Ended ended = launched("trap 'echo saved; exit 75' TERM; echo 1 > " + folder.path() +
                                   "/$RANK; while :; do sleep 0.01; done",
                               options, [&](pid_t launcher) {
                                 EXPECT_TRUE(soon([&] { return ready("0") && ready("1"); }));
                                 ::kill(launcher, SIGTERM);
                               });
  EXPECT_EQ(ended.exit_code, kPreempted) << ended.errors;
  EXPECT_EQ(ended.lines(), (std::multiset<std::string>{"[0] saved", "[1] saved"}));
}

TEST(Launch, NothingIsLeftBehind) {
  LaunchOptions options;
  options.nproc = 2;
  const TemporaryFolder folder;
  const auto process = [&](const std::string& name) {
    return static_cast<pid_t>(std::atoi(text_of(folder.file(name)).c_str()));
  };
  // A child in the rank's group, and one that has left it.
  const std::string script = "sleep 1000 & echo $! > " + folder.path() +
                             "/near$RANK; setsid sh -c 'echo $$ > " + folder.path() +
                             "/far'$RANK'; exec sleep 1000' & until test -s " + folder.path() +
                             "/far$RANK; do sleep 0.01; done; ";
  const Ended ended = launched(script + "exit 0", options);
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  for (const char* name : {"near0", "near1", "far0", "far1"}) {
    ASSERT_GT(process(name), 0) << name;
    EXPECT_FALSE(is_alive(process(name))) << name;
  }
}

TEST(Launch, RanksDieWithTheLauncher) {
  LaunchOptions options;
  options.nproc = 2;
  const TemporaryFolder folder;
  const auto process = [&](const std::string& name) {
    return static_cast<pid_t>(std::atoi(text_of(folder.file(name)).c_str()));
  };
  const Ended ended =
      launched("echo $$ > " + folder.path() + "/$RANK; exec sleep 1000", options, [&](pid_t own) {
        EXPECT_TRUE(soon([&] { return process("0") > 0 && process("1") > 0; }));
        ::kill(own, SIGKILL);
      });
  EXPECT_EQ(ended.exit_code, -SIGKILL);
  for (const char* name : {"0", "1"}) EXPECT_TRUE(soon([&] { return !is_alive(process(name)); }));
}

// Two pipes nobody reads: neither holds up what ends ranks.
TEST(Launch, OutputThatNobodyReadsHoldsNothingUp) {
  const TemporaryFolder folder;
  int pipes[2][2];
  for (auto& pipe : pipes) ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = start_child([&] {
    ::dup2(pipes[0][1], STDOUT_FILENO);
    ::dup2(pipes[1][1], STDERR_FILENO);
    LaunchOptions options;
    options.grace = std::chrono::milliseconds(300);
    options.command = {
        "sh", "-c", "trap '' TERM; echo $$ > $1/rank; while :; do echo line; echo line >&2; done",
        "sh", folder.path()};
    const Result<int> code = launch(options);
    return code.ok() ? *code : 111;
  });
  ASSERT_TRUE(soon([&] { return !text_of(folder.file("rank")).empty(); }));
  // Until all that holds lines is full.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const auto rank = static_cast<pid_t>(std::atoi(text_of(folder.file("rank")).c_str()));
  ASSERT_TRUE(is_alive(rank));
  ::kill(child, SIGTERM);
  EXPECT_TRUE(soon([&] { return !is_alive(rank); }));
  const bool has_ended = soon([&] { return ::kill(child, 0) != 0 || waits_to_be_reaped(child); });
  EXPECT_TRUE(has_ended);
  if (!has_ended) ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for_child(child), 128 + SIGTERM);
  for (const auto& pipe : pipes) {
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

TEST(Launch, WhoReadsLateMissesNothing) {
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const pid_t child = start_child([&] {
    ::dup2(pipe[1], STDOUT_FILENO);
    LaunchOptions options;
    options.grace = std::chrono::milliseconds(100);
    options.command = {"sh", "-c", "i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done"};
    const Result<int> code = launch(options);
    return code.ok() ? *code : 111;
  });
  ::close(pipe[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  std::string text, expected;
  char bytes[65536];
  for (ssize_t count = 1; (count = ::read(pipe[0], bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  EXPECT_EQ(wait_for_child(child), 0);
  ::close(pipe[0]);
  for (int i = 0; i < 40000; ++i) expected += fmt::format("[0] {}\n", i);
  EXPECT_TRUE(text == expected) << text.size() << " of " << expected.size() << " bytes";
}

TEST(Launch, WhatCannotBeStartedIsSaid) {
  LaunchOptions options;
  EXPECT_EQ(launch(options).status().code(), StatusCode::kInvalidArgument);
  options.command = {"/no/such/program"};
  EXPECT_EQ(run_child([&] {
              const Result<int> code = launch(options);
              return code.status().code() == StatusCode::kNotFound ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace hekla::launch
