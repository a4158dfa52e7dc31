// SPDX-License-Identifier: Apache-2.0
// Processes that train, are told to end by SIGTERM, and start again.
#include "runtime/checkpoint/manager/preemption.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"
#include "runtime/rendezvous/file_store.h"

namespace hekla::checkpoint {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kElements = 25'000;  // of a tensor

// One start of the job.
struct Life {
  int number = 0;
  int world = 4;
  // After how many steps each rank sends SIGTERM to itself; -1: never.
  std::vector<int64_t> signal_after = std::vector<int64_t>(4, -1);
  int64_t save_every = 7;
  int tensors = 0;              // of the state, beside its step: 100 KB each
  int64_t bandwidth_limit = 0;  // of each rank's saves, bytes per second
  std::chrono::nanoseconds grace{0}, reuse{0};
  bool waits = false;  // for each save
};

State state_of(const Life& life, int64_t step) {
  State state;
  add_array(&state, "step", HostArray::scalar<int64_t>(DType::kI64, step));
  const std::vector<float> values(kElements, static_cast<float>(step));
  for (int i = 0; i < life.tensors; ++i) {
    add_array(&state, fmt::format("values/{}", i),
              HostArray::from<float>(DType::kF32, {kElements}, values));
  }
  return state;
}

bool is_state_of(const Life& life, const Restored& restored) {
  const auto& tensors = restored.tensors.tensors;
  if (tensors.size() != static_cast<size_t>(life.tensors) + 1) return false;
  if (*tensors[0].arrays[0].as<int64_t>() != restored.step) return false;
  for (size_t i = 1; i < tensors.size(); ++i) {
    for (int64_t k = 0; k < kElements; ++k) {
      if (tensors[i].arrays[0].as<float>()[k] != static_cast<float>(restored.step)) return false;
    }
  }
  return true;
}

std::string word(std::string_view what, int life, int rank) {
  return fmt::format("{}/{}/{}", what, life, rank);
}

// Trains until it is told to end; its exit status. Says under "started" which step it went on from,
// under "saving" which step it saves in the background, under "ending" that it was told.
int train(const std::string& folder, const Life& life, int rank) {
  const auto store = rendezvous::open_store("file:" + join_path(folder, "store"));
  if (!store.ok()) return 2;
  auto group =
      rendezvous::Group::form(*store, rank, life.world, Deadline::in(std::chrono::seconds(60)));
  if (!group.ok()) return 3;
  rendezvous::Store& shared = (*group)->store();
  ManagerOptions options;
  options.save.every_steps = life.save_every;
  options.retention.last = 3;
  options.preemption_signals = {SIGTERM};
  options.preemption_grace = life.grace;
  options.preemption_reuse = life.reuse;
  options.saver.writer.staging_bytes = int64_t{1} << 20;
  options.saver.writer.item_bytes = int64_t{1} << 20;
  options.saver.writer.bandwidth_limit = life.bandwidth_limit;
  options.busy_policy = BusyPolicy::kSkip;  // steps go on while a save is under way
  auto manager =
      CheckpointManager::open(posix_io(), *std::move(group), join_path(folder, "run"), options);
  if (!manager.ok()) return 4;
  int64_t step = 0;
  const Result<Restored> restored = (*manager)->restore();
  if (restored.ok()) {
    step = restored->step;
    if (!is_state_of(life, *restored)) return 5;
  } else if (restored.status().code() != StatusCode::kNotFound) {
    return 6;
  }
  if (!shared.set(word("started", life.number, rank), std::to_string(step)).ok()) return 7;
  std::mt19937 draw(static_cast<uint32_t>(100 * life.number + rank));
  for (int64_t done = 1;; ++done) {
    ++step;
    std::this_thread::sleep_for(milliseconds(1 + draw() % 3));
    if (done == life.signal_after[static_cast<size_t>(rank)]) ::raise(SIGTERM);
    const Result<bool> ends = (*manager)->reached_preemption(step);
    if (!ends.ok()) return 8;
    if (*ends) {
      if (!shared.set(word("ending", life.number, rank), "yes").ok()) return 7;
      const int code = (*manager)->save_for_preemption(step, state_of(life, step));
      if (const Status closed = (*manager)->close(); code == 75 && !closed.ok()) return 9;
      return code;
    }
    const Result<bool> due = (*manager)->should_save(step);
    if (!due.ok()) return 10;
    if (!*due) continue;
    const auto handle = (*manager)->save_async(step, state_of(life, step));
    if (!handle.ok()) return 11;
    if ((*handle)->stage() == SaveStage::kSkipped) continue;
    if (!shared.set(word("saving", life.number, rank), std::to_string(step)).ok()) return 7;
    if (life.waits && !(*handle)->wait().ok()) return 12;
  }
}

std::vector<pid_t> start(const std::string& folder, const Life& life) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < life.world; ++rank) {
    ranks.push_back(start_child([&] { return train(folder, life, rank); }));
  }
  return ranks;
}

// What all ranks have said under a word, once all have.
std::vector<int64_t> said(const std::string& folder, std::string_view what, const Life& life) {
  const auto store = rendezvous::open_store("file:" + join_path(folder, "store"));
  const Deadline deadline = Deadline::in(std::chrono::seconds(60));
  while (!deadline.expired()) {
    const auto words = (*store)->get_all(fmt::format("{}/{}/", what, life.number));
    if (words.ok() && words->size() == static_cast<size_t>(life.world)) {
      std::vector<int64_t> steps;
      for (const auto& [key, text] : *words) steps.push_back(std::atoll(text.c_str()));
      return steps;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  ADD_FAILURE() << "life " << life.number << ": not all ranks have said \"" << what << "\"";
  return {};
}

std::vector<int> wait_for(const std::vector<pid_t>& ranks) {
  std::vector<int> codes;
  for (const pid_t rank : ranks) {
    codes.push_back(wait_for_child(rank));
  }
  return codes;
}

std::vector<int64_t> steps_of(const std::string& folder) {
  std::vector<int64_t> steps;
  const auto entries = list_steps(posix_io(), join_path(folder, "run"));
  for (const StepEntry& entry : *entries) {
    if (entry.status.ok()) steps.push_back(entry.step);
  }
  return steps;
}

// All ranks have made their files of a save under way.
void wait_until_files_are_written(const std::string& folder) {
  const std::string run = join_path(folder, "run");
  const Deadline deadline = Deadline::in(std::chrono::seconds(60));
  while (!deadline.expired()) {
    const auto entries = list_folder(posix_io(), run);
    for (const DirectoryEntry& entry : *entries) {
      const auto files = list_folder(posix_io(), join_path(join_path(run, entry.name), "data"));
      if (entry.name.starts_with(".tmp-") && files.ok() && files->size() == 4) return;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  ADD_FAILURE() << "no save with four files";
}

std::string reason_of_newest(const std::string& folder) {
  return list_steps(posix_io(), join_path(folder, "run"))->back().record.reason;
}

// SIGTERM at steps drawn by lot, to one rank, to some or to all, life after life.
TEST(PreemptedProcesses, AllRanksSaveOneStepExit75AndGoOnThere) {
  const char* asked = std::getenv("HEKLA_PREEMPTION_LIVES");
  const int lives = asked != nullptr ? std::atoi(asked) : 6;
  TemporaryFolder folder;
  std::mt19937 draw(3);
  int64_t last = 0;
  for (Life life; life.number < lives; ++life.number) {
    const auto one = static_cast<size_t>(draw() % 4);
    for (size_t rank = 0; rank < 4; ++rank) {
      const bool is_told = life.number % 3 == 0 ? rank == one : life.number % 3 == 1 || draw() % 2;
      life.signal_after[rank] = is_told || rank == one ? 1 + draw() % 25 : -1;
    }
    const std::vector<pid_t> ranks = start(folder.path(), life);
    EXPECT_EQ(said(folder.path(), "started", life), std::vector<int64_t>(4, last));
    EXPECT_EQ(wait_for(ranks), std::vector<int>(4, kPreemptedExitCode)) << "life " << life.number;
    const Result<int64_t> newest = newest_step(posix_io(), folder.file("run"));
    ASSERT_TRUE(newest.ok());
    EXPECT_GT(*newest, last);
    EXPECT_EQ(reason_of_newest(folder.path()), "preempt");
    last = *newest;
  }
}

// The save under way is committed, and so is the one of the step at which all stop.
TEST(PreemptedProcesses, ASaveUnderWayEndsBeforeTheLastOne) {
  TemporaryFolder folder;
  Life life;
  life.tensors = 8;
  life.bandwidth_limit = 400'000;  // a rank's second tensor waits a quarter of a second
  const std::vector<pid_t> ranks = start(folder.path(), life);
  const std::vector<int64_t> saving = said(folder.path(), "saving", life);
  ASSERT_EQ(saving.size(), 4u);
  ::kill(ranks[2], SIGTERM);
  EXPECT_EQ(wait_for(ranks), std::vector<int>(4, kPreemptedExitCode));
  const std::vector<int64_t> steps = steps_of(folder.path());
  EXPECT_NE(std::find(steps.begin(), steps.end(), saving[0]), steps.end());
  EXPECT_GT(steps.back(), saving[0]);
  EXPECT_EQ(reason_of_newest(folder.path()), "preempt");
  life = {.number = 1, .tensors = life.tensors};
  life.signal_after[0] = 1;
  const std::vector<pid_t> again = start(folder.path(), life);
  EXPECT_EQ(said(folder.path(), "started", life), std::vector<int64_t>(4, steps.back()));
  EXPECT_EQ(wait_for(again), std::vector<int>(4, kPreemptedExitCode));
}

// A save that is young enough will do: all wait for it, and go on there.
TEST(PreemptedProcesses, AYoungSaveWillDo) {
  TemporaryFolder folder;
  Life life;
  life.tensors = 8;
  life.bandwidth_limit = 100'000;  // a second
  life.reuse = std::chrono::seconds(30);
  const std::vector<pid_t> ranks = start(folder.path(), life);
  const std::vector<int64_t> saving = said(folder.path(), "saving", life);
  ASSERT_EQ(saving.size(), 4u);
  ::kill(ranks[1], SIGTERM);
  EXPECT_EQ(wait_for(ranks), std::vector<int>(4, kPreemptedExitCode));
  EXPECT_EQ(steps_of(folder.path()), std::vector<int64_t>{saving[0]});
}

// One that would take longer than what is left is not begun.
TEST(PreemptedProcesses, WithoutTimeNothingIsBegun) {
  TemporaryFolder folder;
  Life life;
  life.tensors = 8;
  life.bandwidth_limit = 400'000;  // a quarter of a second
  life.save_every = 400;
  life.waits = true;  // it is not under way when the signal comes
  life.grace = milliseconds(150);
  life.signal_after = {700, -1, -1, -1};
  const std::vector<pid_t> ranks = start(folder.path(), life);
  EXPECT_EQ(wait_for(ranks), std::vector<int>(4, kPreemptedUnsavedExitCode));
  EXPECT_EQ(steps_of(folder.path()), std::vector<int64_t>{400});
  EXPECT_EQ(reason_of_newest(folder.path()), "interval");
}

// A second SIGTERM to one rank, which is in the middle of a save of minutes: it ends at once, the
// others as soon as they hear of it, and the step before is what the restart finds.
TEST(PreemptedProcesses, ASecondSignalEndsAtOnce) {
  TemporaryFolder folder;
  Life life;
  life.tensors = 8;
  life.signal_after[3] = 2;
  EXPECT_EQ(wait_for(start(folder.path(), life)), std::vector<int>(4, kPreemptedExitCode));
  const int64_t last = steps_of(folder.path()).back();
  life = {.number = 1, .tensors = life.tensors, .bandwidth_limit = 1000};
  life.save_every = 1'000'000;
  const std::vector<pid_t> ranks = start(folder.path(), life);
  EXPECT_EQ(said(folder.path(), "started", life), std::vector<int64_t>(4, last));
  for (const pid_t rank : ranks) ::kill(rank, SIGTERM);
  said(folder.path(), "ending", life);
  wait_until_files_are_written(folder.path());
  ::kill(ranks[1], SIGTERM);
  EXPECT_EQ(wait_for(ranks), std::vector<int>(4, kPreemptedUnsavedExitCode));
  EXPECT_EQ(steps_of(folder.path()).back(), last);
  life = {.number = 2, .tensors = life.tensors};
  life.signal_after[0] = 1;
  const std::vector<pid_t> again = start(folder.path(), life);
  EXPECT_EQ(said(folder.path(), "started", life), std::vector<int64_t>(4, last));
  EXPECT_EQ(wait_for(again), std::vector<int>(4, kPreemptedExitCode));
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
