// SPDX-License-Identifier: Apache-2.0
// What a save checks when it is asked to: the disk's answer before the commit, copies on all ranks.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/save/testing/savers.h"

namespace hekla::checkpoint {
namespace {

using Values = testing::State;
using testing::expect_step;
using testing::kRoot;
using testing::state_of;
using testing::with_savers;

SaverOptions verifying(HowMuch how_much) {
  SaverOptions options = testing::small_options();
  options.checks.verify_after_write = how_much;
  return options;
}

TEST(VerifyAfterWrite, GoodSavesPass) {
  TemporaryFolder folder;
  const Values values = testing::make_state(1);
  int number = 0;
  for (const HowMuch how_much : {HowMuch::kSample, HowMuch::kAll}) {
    for (const int ranks_per_file : {1, 2}) {
      const std::string root = folder.file(std::to_string(number++));
      SaverOptions options = verifying(how_much);
      options.plan.ranks_per_file = ranks_per_file;
      options.plan.frozen = {"rows", "small/*"};
      with_savers(posix_io(), root, 4, options, [&](int rank, Saver& saver) {
        for (int64_t step = 1; step <= 2; ++step) {  // the second one links
          const auto handle = saver.save(step, state_of(values, rank, 4));
          ASSERT_TRUE(handle.ok());
          EXPECT_TRUE((*handle)->wait().ok()) << (*handle)->error().to_string();
        }
      });
      expect_step(posix_io(), root, 2, values);
    }
  }
}

// Each write in turn has one bit flipped on its way to the disk.
TEST(VerifyAfterWrite, NoWrongByteIsCommitted) {
  const Values values = testing::make_small_state(1);
  int64_t writes = 0;
  for (int64_t call = 1;; ++call) {
    MemoryIo memory;
    ScriptedIo io(memory);
    with_savers(io, kRoot, 1, verifying(HowMuch::kAll), [&](int, Saver& saver) {
      const auto state = [&] {
        State made = state_of(values, 0, 1);
        made.items["epoch"] = int64_t{1};
        return made;
      };
      ASSERT_TRUE((*saver.save(1, state()))->wait().ok());
      io.add({.call = IoCall::kPwrite,
              .path = "/.tmp-",
              .first = call,
              .action = FaultRule::Action::kCorrupt});
      const auto handle = saver.save(2, state());
      ASSERT_TRUE(handle.ok());
      const Status status = (*handle)->wait();
      writes = io.faults();
      io.clear();
      if (writes == 0) {
        EXPECT_TRUE(status.ok()) << status.to_string();
        return;
      }
      EXPECT_EQ(*newest_step(memory, kRoot), 1);
      EXPECT_FALSE(status.ok()) << call;
      if (status.ok()) return;
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
      EXPECT_NE(status.message().find("read back"), std::string::npos) << status.message();
      ASSERT_TRUE((*saver.save(3, state()))->wait().ok());
    });
    if (writes == 0) {
      EXPECT_GT(call, 10);
      break;
    }
    expect_step(memory, kRoot, 3, values);
    if (HasFailure()) return;
  }
}

TEST(VerifyAfterWrite, ASampleFindsADiskThatFlipsEveryWrite) {
  const Values values = testing::make_state(1);  // more blocks than a sample has
  MemoryIo memory;
  ScriptedIo io(memory);
  with_savers(io, kRoot, 1, verifying(HowMuch::kSample), [&](int, Saver& saver) {
    io.add({.call = IoCall::kPwrite,
            .path = "shard",
            .first = 2,
            .count = 5,
            .action = FaultRule::Action::kCorrupt});
    EXPECT_EQ((*saver.save(1, state_of(values, 0, 1)))->wait().code(), StatusCode::kDataLoss);
    io.clear();
    // A disk that reads wrong is no better.
    io.add({.call = IoCall::kPread, .path = "shard", .action = FaultRule::Action::kCorrupt});
    EXPECT_EQ((*saver.save(1, state_of(values, 0, 1)))->wait().code(), StatusCode::kDataLoss);
    io.clear();
    EXPECT_TRUE((*saver.save(1, state_of(values, 0, 1)))->wait().ok());
  });
  expect_step(memory, kRoot, 1, values);
}

// One rank holds another value in one element of a copy.
TEST(CheckReplicas, ACopyThatDiffersIsNamedAndNotSaved) {
  const Values values = testing::make_small_state(1);
  const std::vector<testing::MakeSource> kinds = {
      testing::MakeSource(host_source), testing::MakeSource(testing::mutable_copy),
      testing::MakeSource([](HostArray array) {
        return std::make_shared<testing::ElsewhereSource>(std::move(array));
      })};
  for (const HowMuch how_much : {HowMuch::kSample, HowMuch::kAll}) {
    for (const testing::MakeSource& make : kinds) {
      for (const char* name : {"bias", "packed"}) {  // with the metadata; as payload
        for (const int odd : {0, 2}) {               // one of them writes it
          Values other = values;
          for (size_t t = 0; t < other.tensors.size(); ++t) {
            if (other.tensors[t].name == name) *other.values[t].mutable_data() ^= std::byte{1};
          }
          MemoryIo io;
          SaverOptions options = testing::small_options();
          options.checks.check_replicas = how_much;
          with_savers(io, kRoot, 4, options, [&](int rank, Saver& saver) {
            const auto good = saver.save(1, state_of(values, rank, 4, make));
            ASSERT_TRUE(good.ok());
            EXPECT_TRUE((*good)->wait().ok()) << (*good)->error().to_string();
            const auto handle =
                saver.save(2, state_of(rank == odd ? other : values, rank, 4, make));
            ASSERT_TRUE(handle.ok());
            const Status status = (*handle)->wait();
            EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
            EXPECT_NE(status.message().find(fmt::format("tensor \"{}\"", name)), std::string::npos)
                << status.message();
            EXPECT_NE(status.message().find(fmt::format("rank {}", odd)), std::string::npos);
            EXPECT_NE(status.message().find(odd == 0 ? "ranks 1, 2, 3" : "ranks 0, 1, 3"),
                      std::string::npos)
                << status.message();
            const auto next = saver.save(3, state_of(values, rank, 4, make));
            ASSERT_TRUE(next.ok() && (*next)->wait().ok());
          });
          EXPECT_EQ(list_steps(io, kRoot)->size(), 2u);
          expect_step(io, kRoot, 3, values);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hekla::checkpoint
