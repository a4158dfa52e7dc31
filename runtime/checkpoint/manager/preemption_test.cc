// SPDX-License-Identifier: Apache-2.0
// Processes that train, are told to end by SIGTERM, and start again.
#include "runtime/checkpoint/manager/preemption.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/io/temporary_folder.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"
#include "runtime/checkpoint/store/file_store.h"

namespace hekla::checkpoint {
namespace {

using std::chrono::milliseconds;

State state_of(int64_t step) {
  State state;
  add_array(&state, "step", HostArray::scalar<int64_t>(DType::kI64, step));
  return state;
}

// Trains until it is told to end; its exit status.
int train(const std::string& folder, int life, int rank, int world, bool ignores_first) {
  const auto store = open_store("file:" + join_path(folder, "store"));
  if (!store.ok()) return 2;
  auto group = Group::form(*store, rank, world, Deadline::in(std::chrono::seconds(60)));
  if (!group.ok()) return 3;
  Store& shared = (*group)->store();
  const std::string started = fmt::format("started/{}/{}", life, rank);
  ManagerOptions options;
  options.save.every_steps = 7;
  options.retention.last = 2;
  options.preemption_signals = {SIGTERM};
  options.saver.writer.staging_bytes = int64_t{1} << 20;
  options.saver.writer.item_bytes = int64_t{1} << 20;
  auto manager =
      CheckpointManager::open(posix_io(), *std::move(group), join_path(folder, "run"), options);
  if (!manager.ok()) return 4;
  int64_t step = 0;
  const Result<Restored> restored = (*manager)->restore();
  if (restored.ok()) {
    step = restored->step;
    if (*restored->tensors.tensors[0].arrays[0].as<int64_t>() != step) return 5;
  } else if (restored.status().code() != StatusCode::kNotFound) {
    return 6;
  }
  if (!shared.set(started, "yes").ok()) return 7;
  std::mt19937 draw(static_cast<uint32_t>(rank));
  while (true) {
    ++step;
    std::this_thread::sleep_for(milliseconds(1 + draw() % 3));
    const Result<bool> ends = (*manager)->reached_preemption(step);
    if (!ends.ok()) return 8;
    if (*ends) {
      if (ignores_first) ::pause();
      const int code = (*manager)->save_for_preemption(step, state_of(step));
      if (!(*manager)->close().ok()) return 9;
      return code;
    }
    const Result<bool> due = (*manager)->should_save(step);
    if (!due.ok()) return 10;
    if (*due && !(*manager)->save_async(step, state_of(step)).ok()) return 11;
  }
}

std::vector<pid_t> start(const std::string& folder, int life, int world,
                         bool ignores_first = false) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(120);
      ::_exit(train(folder, life, rank, world, ignores_first));
    }
    ranks.push_back(child);
  }
  // All have their handlers once all have said so.
  const auto store = open_store("file:" + join_path(folder, "store"));
  const Deadline deadline = Deadline::in(std::chrono::seconds(60));
  while (!deadline.expired()) {
    if ((*store)->get_all(fmt::format("started/{}/", life))->size() == ranks.size()) break;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return ranks;
}

std::vector<int> wait_for(const std::vector<pid_t>& ranks) {
  std::vector<int> codes;
  for (const pid_t rank : ranks) {
    int status = 0;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return codes;
}

TEST(Preemption, AllRanksSaveOneStepAndExit75) {
  TemporaryFolder folder;
  std::mt19937 draw(3);
  int64_t last = 0;
  for (int life = 0; life < 6; ++life) {
    const std::vector<pid_t> ranks = start(folder.path(), life, 3);
    std::this_thread::sleep_for(milliseconds(draw() % 60));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (life % 2 == 0 || rank == static_cast<size_t>(life) % 3) ::kill(ranks[rank], SIGTERM);
    }
    EXPECT_EQ(wait_for(ranks), std::vector<int>(3, kPreemptedExitCode)) << "life " << life;
    const Result<int64_t> newest = newest_step(posix_io(), folder.file("run"));
    ASSERT_TRUE(newest.ok());
    EXPECT_GT(*newest, last);
    const auto steps = list_steps(posix_io(), folder.file("run"));
    EXPECT_EQ(steps->back().record.reason, "preempt");
    last = *newest;
  }
}

TEST(Preemption, ASecondSignalEndsAtOnce) {
  TemporaryFolder folder;
  const std::vector<pid_t> ranks = start(folder.path(), 0, 1, /*ignores_first=*/true);
  ::kill(ranks[0], SIGTERM);
  // The second one counts when the first was received, so it comes until that is so.
  int status = 0;
  while (::waitpid(ranks[0], &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(milliseconds(20));
    ::kill(ranks[0], SIGTERM);
  }
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kPreemptedUnsavedExitCode);
}

TEST(Preemption, HandlersComeAndGo) {
  struct sigaction before = {}, after = {};
  ::sigaction(SIGUSR1, nullptr, &before);
  std::atomic<bool> told{false};
  {
    const auto signal = PreemptionSignal::install({SIGUSR1}, [&] { told = true; });
    ASSERT_TRUE(signal.ok());
    EXPECT_EQ(PreemptionSignal::install({SIGUSR1}, [] {}).status().code(),
              StatusCode::kAlreadyExists);
    ::raise(SIGUSR1);
    while (!told) std::this_thread::yield();
    EXPECT_TRUE((*signal)->is_received());
  }
  ::sigaction(SIGUSR1, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  EXPECT_TRUE(PreemptionSignal::install({SIGUSR1}, [] {}).ok());
}

}  // namespace
}  // namespace hekla::checkpoint
