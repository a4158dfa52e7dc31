// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/saver.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/restore/step_reader.h"
#include "runtime/checkpoint/restore/testing/written_state.h"
#include "runtime/checkpoint/restore/verify.h"
#include "runtime/checkpoint/save/testing/savers.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

using Values = testing::State;
using testing::check_power_cuts;
using testing::ElsewhereSource;
using testing::expect_step;
using testing::kRoot;
using testing::kStride;
using testing::MakeSource;
using testing::PowerCuts;
using testing::small_options;
using testing::state_of;
using testing::with_savers;

TEST(Items, RoundTrip) {
  std::map<std::string, Item> items;
  items["a bool"] = true;
  items["int"] = std::numeric_limits<int64_t>::min();
  items["tenth"] = 0.1;
  items["infinity"] = -std::numeric_limits<double>::infinity();
  items["zero"] = -0.0;
  items["denormal"] = std::numeric_limits<double>::denorm_min();
  items["text"] = std::string("a\n\"b\" \xc3\xa9");
  items["bytes"] = std::vector<std::byte>{std::byte{0}, std::byte{255}};
  EXPECT_EQ(*parse_items(items_text(items)), items);
  EXPECT_TRUE(std::signbit(std::get<double>(parse_items(items_text(items))->at("zero"))));
  items = {{"nan", std::nan("")}};
  EXPECT_TRUE(std::isnan(std::get<double>(parse_items(items_text(items))->at("nan"))));
  for (const std::string bad : {"", "[]", R"({"a":["int","x"]})", R"({"a":["bytes","0g"]})",
                                R"({"a":["float","1x"]})", R"({"a":["new",1]})"}) {
    EXPECT_EQ(parse_items(bad).status().code(), StatusCode::kDataLoss) << bad;
  }
}

TEST(Saver, EveryRankCountAndFileGroupingGivesTheValues) {
  TemporaryFolder folder;
  const Values values = testing::make_state(1);
  int case_number = 0;
  for (const int world : {1, 4}) {
    for (const int ranks_per_file : {0, 2, 4}) {
      if (world == 1 && ranks_per_file > 0) continue;
      for (const MakeSource& make : {MakeSource(host_source), MakeSource([](HostArray array) {
                                       return std::make_shared<ElsewhereSource>(std::move(array));
                                     })}) {
        const std::string root = folder.file(std::to_string(case_number++));
        SaverOptions options = small_options();
        options.plan.ranks_per_file = ranks_per_file;
        options.plan.min_slice_bytes = int64_t{1} << 20;
        with_savers(posix_io(), root, world, options, [&](int rank, Saver& saver) {
          const auto handle = saver.save(7, state_of(values, rank, world, make));
          ASSERT_TRUE(handle.ok()) << handle.status().to_string();
          const Status status = (*handle)->wait();
          EXPECT_TRUE(status.ok()) << status.to_string();
          EXPECT_EQ((*handle)->stage(), SaveStage::kCommitted);
          const SaveProgress progress = (*handle)->progress();
          EXPECT_EQ(progress.bytes_done, progress.bytes_total);
          EXPECT_EQ(saver.pool().staging().in_use(), 0);
        });
        expect_step(posix_io(), root, 7, values);
      }
    }
  }
}

TEST(Saver, APlanIsKeptAndValuesAreNot) {
  MemoryIo io;
  Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 1, small_options(), [&](int, Saver& saver) {
    for (int64_t step = 1; step <= 3; ++step) {
      // Other arrays, other addresses, other values; the same layout.
      values = testing::make_small_state(static_cast<uint64_t>(step));
      const auto handle = saver.save(step, state_of(values, 0, 1));
      ASSERT_TRUE(handle.ok() && (*handle)->wait().ok());
      expect_step(io, kRoot, step, values);
    }
    EXPECT_EQ(saver.counts().plans_made, 1);
    EXPECT_EQ(saver.counts().committed, 3);
  });
}

// The optimizer's next step overwrites its arrays as soon as save() returns.
TEST(Saver, WhatChangesAfterSaveIsNotSaved) {
  for (const int64_t staging_mib : {1, 3, 64}) {  // in waves, and at once
    MemoryIo io;
    const Values values = testing::make_state(3);
    SaverOptions options = small_options();
    options.writer.staging_bytes = staging_mib << 20;
    with_savers(io, kRoot, 1, options, [&](int, Saver& saver) {
      std::vector<std::shared_ptr<std::vector<std::byte>>> memory;
      State state = state_of(values, 0, 1, [&](HostArray array) {
        const auto bytes =
            std::make_shared<std::vector<std::byte>>(array.bytes().begin(), array.bytes().end());
        memory.push_back(bytes);
        return mutable_source(bytes->data(), static_cast<int64_t>(bytes->size()), bytes);
      });
      const auto handle = saver.save(1, std::move(state));
      ASSERT_TRUE(handle.ok()) << handle.status().to_string();
      for (const auto& bytes : memory) std::fill(bytes->begin(), bytes->end(), std::byte{0xAA});
      ASSERT_TRUE((*handle)->wait().ok());
      EXPECT_EQ((*handle)->times().waited_for_staging, staging_mib != 64);
      EXPECT_LE(saver.pool().staging().peak(), staging_mib);
      expect_step(io, kRoot, 1, values);
      for (const auto& bytes : memory) EXPECT_EQ(bytes.use_count(), 1);
    });
  }
}

TEST(Saver, ItemsAndFilesComeAlong) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 2, small_options(), [&](int rank, Saver& saver) {
    State state = state_of(values, rank, 2);
    state.items["epoch"] = int64_t{3};
    state.files.push_back({"config/model.json", "{}", false});
    state.files.push_back({"loader", "rank " + std::to_string(rank), true});
    const auto handle = saver.save(1, std::move(state));
    ASSERT_TRUE(handle.ok());
    const Status status = (*handle)->wait();
    ASSERT_TRUE(status.ok()) << status.to_string();
  });
  const auto reader = StepReader::open(io, join_path(kRoot, step_name(1)));
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(std::get<int64_t>(parse_items(*(*reader)->read_file(kItemsFile))->at("epoch")), 3);
  EXPECT_EQ(*(*reader)->read_file("extra/config/model.json"), "{}");
  EXPECT_EQ(*(*reader)->read_file("extra/loader.rank-00001"), "rank 1");
}

TEST(Saver, AnEmptyStateIsAStep) {
  MemoryIo io;
  with_savers(io, kRoot, 2, small_options(), [&](int, Saver& saver) {
    const auto handle = saver.save(1, State());
    ASSERT_TRUE(handle.ok()) << handle.status().to_string();
    EXPECT_TRUE((*handle)->wait().ok()) << (*handle)->error().to_string();
  });
  expect_step(io, kRoot, 1, Values());
}

TEST(Saver, BadStatesAreRefusedOnAllRanks) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 2, small_options(), [&](int rank, Saver& saver) {
    State state = state_of(values, rank, 2);
    if (rank == 1) {
      for (StateTensor& tensor : state.tensors) tensor.arrays.clear();
    }
    const auto handle = saver.save(1, std::move(state));
    if (rank == 1) {
      EXPECT_EQ(handle.status().code(), StatusCode::kInvalidArgument);
    } else {
      ASSERT_TRUE(handle.ok());
      const Status status = (*handle)->wait();
      EXPECT_NE(status.message().find("rank 1 is to write"), std::string::npos) << status.message();
    }
    const auto next = saver.save(1, state_of(values, rank, 2));
    ASSERT_TRUE(next.ok());
    EXPECT_TRUE((*next)->wait().ok()) << (*next)->error().to_string();
  });
  expect_step(io, kRoot, 1, values);
}

// A save that cannot go on until a test lets it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

TEST(Policy, SkipIsAgreedUpon) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  Gate gate;
  SaverOptions options = small_options();
  options.commit.on_phase = [&](Phase phase) {
    if (phase == Phase::kWrite) gate.pass();
  };
  std::atomic<int> called{0};
  with_savers(io, kRoot, 2, options, [&](int rank, Saver& saver) {
    SaveArguments skip;
    skip.policy = BusyPolicy::kSkip;
    const auto first = saver.save(1, state_of(values, rank, 2), skip);
    const auto second = saver.save(2, state_of(values, rank, 2), skip);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ((*second)->stage(), SaveStage::kSkipped);
    EXPECT_TRUE((*second)->wait().ok());
    if (++called == 2) gate.open();
    EXPECT_TRUE((*first)->wait().ok());
    EXPECT_EQ(saver.counts().skipped, 1);
    SaveArguments wait;
    const auto third = saver.save(3, state_of(values, rank, 2), wait);
    ASSERT_TRUE(third.ok());
    EXPECT_TRUE((*third)->wait().ok());
  });
  const auto steps = list_steps(io, kRoot);
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ(steps->at(1).step, 3);
}

// Behind training the threads of low priority write; whoever waits gets the others.
TEST(Policy, WhoWaitsForASaveRaisesItsPriority) {
  const auto nice = [] {
    return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
  };
  if (nice() >= 15) GTEST_SKIP() << "this process has a low priority already";
  for (const bool waits : {false, true}) {
    MemoryIo disk;
    ScriptedIo io(disk);
    std::mutex mutex;
    std::map<int, int> writes;  // of payload, by the writer's priority
    const Priority* priority = nullptr;
    const int usual = nice();
    io.before_call = [&](IoCall call) {
      if (call != IoCall::kPwrite || priority == nullptr) return;
      {
        const std::lock_guard lock(mutex);
        ++writes[nice()];
      }
      // The first ones do not end before somebody waits.
      while (waits && nice() != usual && !priority->is_raised()) std::this_thread::yield();
    };
    const Values values = testing::make_state(4);
    with_savers(io, kRoot, 1, small_options(), [&](int, Saver& saver) {
      priority = saver.pool().priority().get();
      const auto handle = saver.save(1, state_of(values, 0, 1));
      ASSERT_TRUE(handle.ok()) << handle.status().to_string();
      const auto has_begun = [&] {
        const std::lock_guard lock(mutex);
        return !writes.empty() && writes.rbegin()->first > usual;
      };
      while (waits ? !has_begun() : !(*handle)->is_done()) std::this_thread::yield();
      const Status status = (*handle)->wait();
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_FALSE(priority->is_raised());
      expect_step(io, kRoot, 1, values);
    });
    // The saver's own thread, which writes metadata, is always an ordinary one.
    const int lowered = writes.rbegin()->first;
    EXPECT_GT(lowered, usual);
    if (waits) {
      EXPECT_LE(writes[lowered], small_options().writer.threads);
    } else {
      EXPECT_GT(writes[lowered], small_options().writer.threads);
    }
  }
}

SaverOptions slow_options() {
  SaverOptions options = small_options();
  options.writer.background_bandwidth = 1;  // for ever, but for the longest spread of a minute
  return options;
}

// One rank waits for all; the others, whom nobody waits for, write as fast as they can then.
TEST(RateLimiter, OneWhoWaitsIsEnough) {
  MemoryIo io;
  const Values values = testing::make_state(4);
  std::atomic<int> paced{0};
  std::atomic<bool> has_ended{false};
  with_savers(io, kRoot, 3, slow_options(), [&](int rank, Saver& saver) {
    const auto handle = saver.save(1, state_of(values, rank, 3));
    ASSERT_TRUE(handle.ok()) << handle.status().to_string();
    while ((*handle)->times().throttled_seconds == 0) std::this_thread::yield();
    ++paced;
    while (paced < 3) std::this_thread::yield();
    if (rank == 1) {
      const Status status = (*handle)->wait();
      ASSERT_TRUE(status.ok()) << status.to_string();
      has_ended = true;
    } else {
      while (!has_ended || !(*handle)->is_done()) std::this_thread::yield();
    }
    const SaveTimes times = (*handle)->times();
    EXPECT_GT(times.throttled_seconds, 0);
    EXPECT_LT(times.throttled_seconds, times.total_seconds);
    EXPECT_FALSE(saver.pool().priority()->is_raised());
  });
  expect_step(io, kRoot, 1, values);
}

TEST(RateLimiter, SavesThatComeTooEarlyMakeItFaster) {
  MemoryIo io;
  const Values values = testing::make_state(4);
  with_savers(io, kRoot, 1, slow_options(), [&](int, Saver& saver) {
    SaveArguments skip;
    skip.policy = BusyPolicy::kSkip;
    const auto first = saver.save(1, state_of(values, 0, 1), skip);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    // Nobody waits for it, and it ends.
    for (int64_t step = 2; !(*first)->is_done(); ++step) {
      const auto early = saver.save(step, state_of(values, 0, 1), skip);
      ASSERT_TRUE(early.ok()) << early.status().to_string();
    }
    EXPECT_GT(saver.pool().rate_limiter()->bytes_per_second(), 1 << 20);
  });
}

// To code chunks takes longer than to write them.
TEST(RateLimiter, CompressedStatesHaveNone) {
  MemoryIo io;
  const Values values = testing::make_state(4);
  SaverOptions options = slow_options();
  options.plan.compress = {{"*", Compression::kZstd}};
  with_savers(io, kRoot, 1, options, [&](int, Saver& saver) {
    const auto handle = saver.save(1, state_of(values, 0, 1));
    ASSERT_TRUE(handle.ok()) << handle.status().to_string();
    while (!(*handle)->is_done()) std::this_thread::yield();
    EXPECT_EQ((*handle)->times().throttled_seconds, 0);
  });
  expect_step(io, kRoot, 1, values);
}

TEST(Policy, RaisedPriorityLastsUntilTheEnd) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  with_savers(io, kRoot, 1, small_options(), [&](int, Saver& saver) {
    saver.raise_priority();
    saver.raise_priority();
    EXPECT_TRUE(saver.pool().priority()->is_raised());
    testing::save(saver, 1, state_of(values, 0, 1));
    EXPECT_TRUE(saver.pool().priority()->is_raised());
  });
  expect_step(io, kRoot, 1, values);
}

// Retention runs after a save; it takes no place, so that who has waited may save again.
TEST(Policy, WhatFollowsASaveDoesNotMakeTheNextOneSkip) {
  MemoryIo io;
  const Values values = testing::make_small_state(1);
  Gate gate;
  SaverOptions options = small_options();
  options.after_save = [&](int64_t step, const Status&) {
    if (step == 1) gate.pass();
  };
  with_savers(io, kRoot, 1, options, [&](int, Saver& saver) {
    SaveArguments skip;
    skip.policy = BusyPolicy::kSkip;
    const auto first = saver.save(1, state_of(values, 0, 1), skip);
    ASSERT_TRUE(first.ok() && (*first)->wait().ok());
    const auto second = saver.save(2, state_of(values, 0, 1), skip);
    gate.open();
    ASSERT_TRUE(second.ok() && (*second)->wait().ok());
    EXPECT_EQ((*second)->stage(), SaveStage::kCommitted);
  });
}

TEST(Policy, ReplaceDropsWhatHasNotBegun) {
  for (const int world : {1, 2}) {
    MemoryIo io;
    const Values values = testing::make_small_state(1);
    Gate gate;
    SaverOptions options = small_options();
    options.max_in_flight = 2;
    options.commit.on_phase = [&](Phase phase) {
      if (phase == Phase::kWrite) gate.pass();
    };
    std::atomic<int> called{0};
    with_savers(io, kRoot, world, options, [&](int rank, Saver& saver) {
      SaveArguments replace;
      replace.policy = BusyPolicy::kReplace;
      std::vector<std::shared_ptr<SaveHandle>> handles;
      for (int64_t step = 1; step <= 3; ++step) {
        // Rank 0 alone has room at once; the others wait for it to decide by the save itself.
        if (step == 3 && rank != 0) {
          while (called == 0) std::this_thread::yield();
          gate.open();
        }
        const auto handle = saver.save(step, state_of(values, rank, world), replace);
        ASSERT_TRUE(handle.ok());
        handles.push_back(*handle);
        if (step == 1) {
          while ((*handle)->stage() < SaveStage::kStaging) std::this_thread::yield();
        }
      }
      if (++called == 1 && world == 1) gate.open();
      EXPECT_TRUE(handles[0]->wait().ok());
      EXPECT_EQ(handles[1]->wait().code(), StatusCode::kAborted) << handles[1]->error().to_string();
      EXPECT_TRUE(handles[2]->wait().ok()) << handles[2]->error().to_string();
    });
    const auto steps = list_steps(io, kRoot);
    ASSERT_EQ(steps->size(), 2u);
    EXPECT_EQ(steps->at(0).step, 1);
    EXPECT_EQ(steps->at(1).step, 3);
  }
}

// Each changing call fails once: named, the old step stands, staging is free, the next save works.
TEST(SaverFaults, EveryFailingCallIsCleanAndTheNextSaveWorks) {
  const Values values = testing::make_small_state(1);
  int64_t failures = 0;
  for (const int error : {ENOSPC, EIO}) {
    for (int64_t call = 1;; call += kStride) {
      MemoryIo memory;
      ScriptedIo io(memory);
      int64_t faults = 0;
      with_savers(io, kRoot, 1, small_options(), [&](int, Saver& saver) {
        ASSERT_TRUE((*saver.save(1, state_of(values, 0, 1)))->wait().ok());
        io.add({.changes_only = true, .first = call, .error = error});
        const auto handle = saver.save(2, state_of(values, 0, 1));
        ASSERT_TRUE(handle.ok());
        const Status status = (*handle)->wait();
        faults = io.faults();
        io.clear();
        EXPECT_EQ(saver.pool().staging().in_use(), 0);
        EXPECT_EQ(io.open_files(), 0);
        if (!status.ok()) {
          ++failures;
          EXPECT_NE(status.message().find("step 2, P"), std::string::npos) << status.message();
          EXPECT_NE(status.message().find("rank 0"), std::string::npos);
          EXPECT_NE(status.message().find(fmt::format("errno {}", error)), std::string::npos);
        }
        EXPECT_EQ(*newest_step(memory, kRoot), status.ok() ? 2 : 1);
        ASSERT_TRUE((*saver.save(3, state_of(values, 0, 1)))->wait().ok());
      });
      if (faults == 0) break;
      expect_step(memory, kRoot, 3, values);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(failures, 40 / kStride);
}

// The whole path through a power cut: what is found after it has every digest.
TEST(SaverFaults, PowerCutsLeaveThePreviousOrTheNewStep) {
  MemoryIo disk;
  const Values first = testing::make_small_state(1), second = testing::make_small_state(2);
  int64_t from = 0;
  with_savers(disk, kRoot, 2, small_options(), [&](int rank, Saver& saver) {
    ASSERT_TRUE((*saver.save(1, state_of(first, rank, 2)))->wait().ok());
    if (rank == 0) from = disk.journal_size();
    ASSERT_TRUE((*saver.save(2, state_of(second, rank, 2)))->wait().ok());
  });
  const PowerCuts cuts = check_power_cuts(disk, kRoot, from, 40 * kStride, first, second);
  EXPECT_GE(cuts.old_steps, 5 / kStride);
  EXPECT_GT(cuts.new_steps, 0);
}

}  // namespace
}  // namespace hekla::checkpoint
