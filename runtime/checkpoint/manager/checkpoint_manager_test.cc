// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/checkpoint_manager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"

namespace hekla::checkpoint {
namespace {

constexpr char kRoot[] = "/run";
using Steps = std::vector<int64_t>;

// A state that says which step it is of.
State state_of(int64_t step) {
  State state;
  std::vector<float> values(30000, static_cast<float>(step));
  add_array(&state, "model/w", HostArray::from<float>(DType::kF32, {100, 300}, values));
  add_array(&state, "model/step", HostArray::scalar<int64_t>(DType::kI64, step));
  state.items["step"] = step;
  return state;
}

void expect_state(const Restored& restored, int64_t step) {
  EXPECT_EQ(restored.step, step);
  ASSERT_EQ(restored.tensors.tensors.size(), 2u);
  EXPECT_EQ(*restored.tensors.tensors[0].arrays[0].as<int64_t>(), step);
  EXPECT_EQ(restored.tensors.tensors[1].arrays[0].as<float>()[29999], static_cast<float>(step));
  EXPECT_EQ(std::get<int64_t>(restored.items.at("step")), step);
}

ManagerOptions small_options() {
  ManagerOptions options;
  options.saver.writer.item_bytes = int64_t{1} << 20;
  options.saver.writer.staging_bytes = int64_t{2} << 20;
  options.group_deadline = std::chrono::seconds(30);
  return options;
}

void with_managers(Io& io, int world, const ManagerOptions& options,
                   const std::function<void(int rank, CheckpointManager&)>& body,
                   const std::shared_ptr<rendezvous::LocalStore>& store =
                       std::make_shared<rendezvous::LocalStore>()) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      auto group =
          rendezvous::Group::form(store, rank, world, Deadline::in(std::chrono::seconds(30)));
      ASSERT_TRUE(group.ok());
      const auto manager = CheckpointManager::open(io, *std::move(group), kRoot, options);
      ASSERT_TRUE(manager.ok()) << manager.status().to_string();
      body(rank, **manager);
      EXPECT_TRUE((*manager)->close().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Steps steps_in(Io& io) {
  Steps steps;
  const auto entries = list_steps(io, kRoot);
  for (const StepEntry& entry : *entries) {
    if (entry.status.ok()) steps.push_back(entry.step);
  }
  return steps;
}

TEST(Manager, TrainsStopsAndGoesOn) {
  for (const int world : {1, 3}) {
    MemoryIo io;
    ManagerOptions options = small_options();
    options.save.every_steps = 5;
    options.retention.last = 2;
    for (int life = 0; life < 3; ++life) {
      with_managers(io, world, options, [&](int, CheckpointManager& manager) {
        int64_t step = 0;
        const Result<Restored> restored = manager.restore();
        if (life == 0) {
          EXPECT_EQ(restored.status().code(), StatusCode::kNotFound);
        } else {
          ASSERT_TRUE(restored.ok()) << restored.status().to_string();
          expect_state(*restored, life * 20);
          step = restored->step;
        }
        for (++step; step <= (life + 1) * 20; ++step) {
          const Result<bool> due = manager.should_save(step);
          ASSERT_TRUE(due.ok());
          EXPECT_EQ(*due, step % 5 == 0);
          if (*due) {
            ASSERT_TRUE(manager.save_async(step, state_of(step)).ok());
          }
        }
        ASSERT_TRUE(manager.wait().ok());
      });
      EXPECT_EQ(steps_in(io), (Steps{life * 20 + 15, life * 20 + 20}));
    }
  }
}

// A step that was asked for is there after wait(), and after the destructor alone. Nobody has to
// wait for the rate limit of the save before.
TEST(Manager, ASaveThatIsAskedForIsNeverDropped) {
  for (const int world : {1, 2}) {
    for (const bool waits : {true, false}) {
      MemoryIo io;
      ManagerOptions options = small_options();
      options.saver.writer.background = true;
      options.saver.writer.background_bandwidth = 1;
      const auto store = std::make_shared<rendezvous::LocalStore>();
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < world; ++rank) {
        ranks.emplace_back([&, rank] {
          auto group =
              rendezvous::Group::form(store, rank, world, Deadline::in(std::chrono::seconds(30)));
          ASSERT_TRUE(group.ok());
          const auto manager = CheckpointManager::open(io, *std::move(group), kRoot, options);
          ASSERT_TRUE(manager.ok()) << manager.status().to_string();
          for (int64_t step = 1; step <= 12; ++step) {
            const auto handle = (*manager)->save_async(step, state_of(step));
            ASSERT_TRUE(handle.ok()) << handle.status().to_string();
            EXPECT_NE((*handle)->stage(), SaveStage::kSkipped);
          }
          if (!waits) return;
          ASSERT_TRUE((*manager)->wait().ok());
          EXPECT_EQ((*manager)->counts().committed, 12);
          EXPECT_EQ(*(*manager)->latest_step(), 12);
        });
      }
      for (std::thread& rank : ranks) rank.join();
      EXPECT_EQ(steps_in(io), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    }
  }
}

// With kSkip should_save knows before the state is made whether it would be left out, on all ranks.
TEST(Manager, WhoChoseSkipIsToldBeforehand) {
  for (const int world : {1, 3}) {
    MemoryIo io;
    ManagerOptions options = small_options();
    options.busy_policy = BusyPolicy::kSkip;
    options.save.every_steps = 2;
    std::atomic<bool> may_write{false};
    options.saver.commit.on_phase = [&](Phase phase) {
      while (phase == Phase::kWrite && !may_write) std::this_thread::yield();
    };
    std::atomic<int> asked{0};
    with_managers(io, world, options, [&](int rank, CheckpointManager& manager) {
      const auto expect_should = [&](int64_t step, bool expected) {
        const Result<bool> should = manager.should_save(step);
        ASSERT_TRUE(should.ok()) << should.status().to_string();
        EXPECT_EQ(*should, expected) << "step " << step << ", rank " << rank;
      };
      expect_should(0, true);
      const auto first = manager.save_async(0, state_of(0));
      ASSERT_TRUE(first.ok());
      for (int64_t step = 1; step <= 4; ++step) expect_should(step, false);
      // Asked for all the same: left out, and the handle says so.
      const auto second = manager.save_async(5, state_of(5));
      ASSERT_TRUE(second.ok());
      EXPECT_EQ((*second)->stage(), SaveStage::kSkipped);
      if (++asked == world) may_write = true;
      ASSERT_TRUE((*first)->wait().ok());
      // Others may be done before rank 0, whose word it is.
      ASSERT_TRUE(manager.exchange("done").ok());
      expect_should(6, true);
      const auto third = manager.save_async(6, state_of(6));
      ASSERT_TRUE(third.ok());
      EXPECT_NE((*third)->stage(), SaveStage::kSkipped);
      // What must be there waits.
      ASSERT_TRUE(manager.save(7, state_of(7)).ok());
      EXPECT_EQ(manager.counts().skipped, 1);
    });
    EXPECT_EQ(steps_in(io), (Steps{0, 6, 7}));
  }
}

TEST(Manager, KeepsTheBestThePinnedAndTheRead) {
  MemoryIo io;
  ManagerOptions options = small_options();
  options.retention.last = 1;
  options.retention.best = KeepBest{"loss", 1, true, false};
  with_managers(io, 1, options, [&](int, CheckpointManager& manager) {
    const double losses[] = {0, 5, 1, 4, 3, 2};
    ASSERT_TRUE(manager.save(1, state_of(1), {{"loss", losses[1]}}).ok());
    ASSERT_TRUE(manager.pin(1).ok());
    ASSERT_TRUE(manager.save(2, state_of(2), {{"loss", losses[2]}}).ok());
    ASSERT_TRUE(manager.save(3, state_of(3), {{"loss", losses[3]}}).ok());
    auto reader = manager.open_step(3);
    ASSERT_TRUE(reader.ok());
    for (int64_t step = 4; step <= 5; ++step) {
      const auto index = static_cast<size_t>(step);
      ASSERT_TRUE(manager.save(step, state_of(step), {{"loss", losses[index]}}).ok());
      ASSERT_TRUE(manager.wait().ok());
    }
    EXPECT_EQ(*manager.all_steps(), (Steps{1, 2, 3, 5}));
    reader = not_found("given back");
    ASSERT_TRUE(manager.unpin(1).ok());
    ASSERT_TRUE(manager.save(6, state_of(6), {{"loss", 9}}).ok());
    ASSERT_TRUE(manager.wait().ok());
    EXPECT_EQ(*manager.all_steps(), (Steps{2, 6}));
    EXPECT_EQ(*manager.latest_step(), 6);
  });
}

TEST(Manager, ADamagedStepGivesWayToTheOneBefore) {
  for (const int world : {1, 2}) {
    MemoryIo io;
    with_managers(io, world, small_options(), [&](int, CheckpointManager& manager) {
      ASSERT_TRUE(manager.save(1, state_of(1)).ok());
      ASSERT_TRUE(manager.save(2, state_of(2)).ok());
    });
    // A flipped bit in the payload, which sizes and metadata do not show.
    const std::string path = join_path(join_path(kRoot, step_name(2)), "data/shard-00000.h5");
    std::string bytes = *read_file(io, path, int64_t{1} << 24);
    bytes[8192 + 100] ^= 4;
    ASSERT_TRUE(replace_file(io, path, bytes).ok());
    with_managers(io, world, small_options(), [&](int, CheckpointManager& manager) {
      EXPECT_EQ(*manager.latest_step(), 2);
      const Result<Restored> newest = manager.restore();
      ASSERT_TRUE(newest.ok()) << newest.status().to_string();
      expect_state(*newest, 1);
      EXPECT_EQ(manager.restore({}, 2).status().code(), StatusCode::kDataLoss);
    });
  }
}

// Ranks say what they read before they read it; one that fails before does not hold up the others.
TEST(Manager, RanksThatRestoreTogetherShareWhatTheyRead) {
  MemoryIo io;
  const auto store = std::make_shared<rendezvous::LocalStore>();
  with_managers(
      io, 3, small_options(),
      [&](int rank, CheckpointManager& manager) {
        ASSERT_TRUE(manager.save(1, state_of(1)).ok());
        RestoreRequest request;
        request.strict = false;
        request.targets.push_back({.name = "model/w"});
        request.targets[0].boxes = {{{{0, 100 * rank}, {100, 100}}, {}}};
        for (int round = 0; round < 3; ++round) {
          const Result<Restored> restored = manager.restore(request);
          ASSERT_TRUE(restored.ok()) << restored.status().to_string();
          EXPECT_EQ(restored->tensors.tensors[0].arrays[0].as<float>()[9999], 1.0F);
        }
        RestoreRequest bad = request;
        if (rank == 1) bad.targets[0].boxes[0].box.start[1] = 250;
        const Result<Restored> refused = manager.restore(bad);
        EXPECT_EQ(refused.status().code(),
                  rank == 1 ? StatusCode::kInvalidArgument : StatusCode::kUnavailable)
            << refused.status().to_string();
        EXPECT_TRUE(manager.restore(request).ok());
      },
      store);
  const auto keys = store->get_all("");
  ASSERT_TRUE(keys.ok());
  for (const auto& [key, value] : *keys) {
    EXPECT_EQ(key.find("/reads/"), std::string::npos) << key;
  }
}

TEST(Manager, BackgroundErrorsSurface) {
  for (const bool continue_on_error : {false, true}) {
    MemoryIo memory;
    ScriptedIo io(memory);
    ManagerOptions options = small_options();
    options.continue_on_error = continue_on_error;
    with_managers(io, 1, options, [&](int, CheckpointManager& manager) {
      io.add({.call = IoCall::kFdatasync, .count = 3, .error = EIO});
      int told = 0;
      for (int64_t step = 1; step <= 4; ++step) {
        const auto handle = manager.save_async(step, state_of(step));
        if (handle.ok()) {
          static_cast<void>((*handle)->wait());
        } else {
          ++told;
          EXPECT_EQ(handle.status().code(), StatusCode::kInternal);
          EXPECT_NE(handle.status().message().find("fdatasync of /run/"), std::string::npos)
              << handle.status().message();
        }
      }
      // At the next call; or when three in a row have failed.
      EXPECT_EQ(told, continue_on_error ? 1 : 2);
      static_cast<void>(manager.wait());
      io.clear();
      ASSERT_TRUE(manager.save(9, state_of(9)).ok());
      EXPECT_TRUE(manager.wait().ok());
    });
    EXPECT_EQ(steps_in(memory), Steps{9});
  }
}

TEST(Manager, TimeAndContinuousPoliciesAreAgreedUpon) {
  for (const bool continuous : {false, true}) {
    MemoryIo io;
    ManagerOptions options = small_options();
    options.save.continuous = continuous;
    options.save.min_interval = std::chrono::milliseconds(10);
    if (!continuous) options.save.every_time = std::chrono::milliseconds(20);
    std::vector<Steps> saved(3);
    with_managers(io, 3, options, [&](int rank, CheckpointManager& manager) {
      Steps& mine = saved[static_cast<size_t>(rank)];
      for (int64_t step = 0; mine.size() < 4; ++step) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1 + rank));
        const Result<bool> due = manager.should_save(step);
        ASSERT_TRUE(due.ok()) << due.status().to_string();
        EXPECT_EQ(*manager.should_save(step), *due);  // asked again, answered the same
        if (!*due) continue;
        mine.push_back(step);
        ASSERT_TRUE(manager.save_async(step, state_of(step)).ok());
      }
      ASSERT_TRUE(manager.wait().ok());
    });
    EXPECT_EQ(saved[1], saved[0]);
    EXPECT_EQ(saved[2], saved[0]);
    EXPECT_EQ(steps_in(io), saved[0]);
  }
}

TEST(Manager, TwoOnOneRootDoNotDeleteEachOthersSteps) {
  MemoryIo io;
  ManagerOptions keeps_one = small_options();
  keeps_one.retention.last = 1;
  const auto first =
      CheckpointManager::open(io, rendezvous::Group::alone(), kRoot, small_options());
  ASSERT_TRUE(first.ok());
  const auto second = CheckpointManager::open(io, rendezvous::Group::alone(), kRoot, keeps_one);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE((*first)->save(1, state_of(1)).ok());
  ASSERT_TRUE((*second)->save(2, state_of(2)).ok());
  ASSERT_TRUE((*second)->wait().ok());
  EXPECT_EQ(steps_in(io), (Steps{1, 2}));
  ASSERT_TRUE((*first)->close().ok());
  EXPECT_EQ((*first)->save(3, state_of(3)).code(), StatusCode::kFailedPrecondition);
}

// Memory and descriptors do not grow with the number of saves.
TEST(Manager, ManySavesLeaveNothingBehind) {
  MemoryIo memory;
  ScriptedIo io(memory);
  ManagerOptions options = small_options();
  options.retention.last = 2;
  with_managers(io, 2, options, [&](int, CheckpointManager& manager) {
    for (int64_t step = 1; step <= 60; ++step) ASSERT_TRUE(manager.save(step, state_of(step)).ok());
    EXPECT_EQ(manager.counts().plans_made, 1);
  });
  EXPECT_EQ(io.open_files(), 0);
  // ROOT.json, LATEST, LOCK and two steps.
  EXPECT_EQ(list_folder(memory, kRoot)->size(), 5u);
}

}  // namespace
}  // namespace hekla::checkpoint
