// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/step_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>

#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/restore/testing/written_state.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

using testing::make_small_state;
using testing::make_state;
using testing::part_of;
using testing::State;
using testing::write_state;

const ShardIdentity kIdentity{"run", "nonce", 7};

// One state on disk for all tests that only read it.
class StepReaderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    state_ = new State(make_state(1));
    const Status status = write_state(step(), *state_, 4, kIdentity);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  static void TearDownTestSuite() {
    delete state_;
    delete folder_;
  }
  static std::string step() { return folder_->file("step"); }

  static std::shared_ptr<const StepReader> open(const StepReaderOptions& options = {}) {
    auto reader = StepReader::open(posix_io(), step(), options);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return reader.ok() ? *reader : nullptr;
  }

  static TemporaryFolder* folder_;
  static State* state_;
};
TemporaryFolder* StepReaderTest::folder_ = nullptr;
State* StepReaderTest::state_ = nullptr;

TEST_F(StepReaderTest, EveryTensorComesBackInEveryWayOfReading) {
  for (const Verify verify : {Verify::kTouched, Verify::kFull, Verify::kNone}) {
    for (const bool direct : {true, false}) {
      for (const int64_t budget : {int64_t{0}, 7 * kMiB, 64 * kMiB}) {
        StepReaderOptions options;
        options.verify = verify;
        options.direct = direct;
        options.budget_bytes = budget;
        options.threads = budget == 0 ? 1 : 3;
        const auto reader = open(options);
        ASSERT_NE(reader, nullptr);
        ASSERT_EQ(reader->index().tensors().size(), state_->tensors.size());
        for (size_t t = 0; t < state_->tensors.size(); ++t) {
          const Result<LazyTensor> lazy = reader->tensor(state_->tensors[t].name);
          ASSERT_TRUE(lazy.ok());
          EXPECT_EQ(lazy->info().shape, state_->tensors[t].shape);
          EXPECT_EQ(lazy->info().spec, state_->tensors[t].spec);
          const Result<HostArray> array = lazy->read();
          ASSERT_TRUE(array.ok()) << array.status().to_string();
          EXPECT_TRUE(array->identical(state_->values[t])) << lazy->info().name;
        }
      }
    }
  }
}

TEST_F(StepReaderTest, AnyBoxComesBack) {
  std::mt19937_64 random(3);
  const auto uniform = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  StepReaderOptions options;
  for (int i = 0; i < 120; ++i) {
    options.verify = i % 3 == 0 ? Verify::kNone : Verify::kTouched;
    options.budget_bytes = uniform(0, 20) * kMiB;
    const auto reader = open(options);
    const size_t t = static_cast<size_t>(uniform(0, state_->tensors.size() - 1));
    Box box = whole_box(state_->tensors[t].shape);
    for (size_t d = 0; d < box.size.size(); ++d) {
      box.start[d] = uniform(0, box.size[d]);
      box.size[d] = uniform(0, box.size[d] - box.start[d]);
    }
    const Result<HostArray> array = reader->read(static_cast<int32_t>(t), box);
    ASSERT_TRUE(array.ok()) << array.status().to_string();
    ASSERT_TRUE(array->identical(part_of(state_->values[t], box)))
        << state_->tensors[t].name << " " << box_text(box);
  }
}

TEST_F(StepReaderTest, OpeningReadsCommitAndIndexAlone) {
  const auto reader = open();
  EXPECT_EQ(reader->commit().step, 7);
  EXPECT_LT(reader->bytes_read(), 200 << 10);
}

TEST_F(StepReaderTest, BoxCostsTheBlocksThatItTouches) {
  const auto reader = open();
  const int64_t before = reader->bytes_read();
  // 20 rows of 4 KiB out of rank 0's 321: one block, aligned outwards, and the user block.
  const int32_t rows = reader->index().find("rows");
  ASSERT_TRUE(reader->read(rows, Box{{10, 0}, {20, 1024}}).ok());
  EXPECT_LE(reader->bytes_read() - before, kMiB + 3 * 4096);
  StepReaderOptions exact;
  exact.verify = Verify::kNone;
  const auto bare = open(exact);
  const int64_t opened = bare->bytes_read();
  ASSERT_TRUE(bare->read(rows, Box{{10, 0}, {20, 1024}}).ok());
  EXPECT_LE(bare->bytes_read() - opened, 20 * 4096 + 2 * 4096);
}

TEST_F(StepReaderTest, LazyTensorsKeepTheStepOpen) {
  std::vector<LazyTensor> tensors;
  auto kept = std::make_shared<int>(0);
  {
    auto reader = StepReader::open(posix_io(), step(), {}, kept);
    ASSERT_TRUE(reader.ok());
    tensors = (*reader)->tensors();
  }
  EXPECT_EQ(kept.use_count(), 2);
  ASSERT_EQ(tensors.size(), state_->tensors.size());
  EXPECT_TRUE(tensors[0].read()->identical(state_->values[0]));
  tensors.clear();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(StepReaderTest, ThreadsShareAReader) {
  const auto reader = open();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (size_t t = 0; t < state_->tensors.size(); ++t) {
        const Result<HostArray> array = reader->read(static_cast<int32_t>(t));
        good += array.ok() && array->identical(state_->values[t]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 4 * static_cast<int>(state_->tensors.size()));
}

TEST_F(StepReaderTest, WrongWishesAreRefused) {
  const auto reader = open();
  EXPECT_EQ(reader->tensor("nothing").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(reader->read(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->read(0, Box{{0}, {1 << 30}}).status().code(), StatusCode::kInvalidArgument);
  const Wanted wanted{0, whole_box(state_->tensors[0].shape), {}};
  EXPECT_EQ(reader->read({&wanted, 1}, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->read_file("extra/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(reader->read_file("data/shard-00000.h5").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(reader->read_file("model.h5").ok());
  EXPECT_EQ(StepReader::open(posix_io(), folder_->file("none")).status().code(),
            StatusCode::kNotFound);
}

// What others read too comes through the page cache: no file is opened for direct reads then.
TEST_F(StepReaderTest, SharedRangesComeThroughThePageCache) {
  std::vector<Wanted> wanted;
  for (size_t t = 0; t < state_->tensors.size(); ++t) {
    wanted.push_back({static_cast<int32_t>(t), whole_box(state_->tensors[t].shape), {}});
  }
  std::vector<ShardRange> asked;
  const auto opens = [&](const ShareReads& share) {
    std::atomic<int> count{0};
    ScriptedIo io(posix_io());
    io.before_call = [&count](IoCall call) { count += call == IoCall::kOpen; };
    const auto reader = StepReader::open(io, step());
    EXPECT_TRUE(reader.ok());
    std::vector<HostArray> arrays;
    std::vector<std::byte*> targets;
    for (const TensorInfo& tensor : state_->tensors) {
      arrays.push_back(*HostArray::allocate(tensor.dtype, tensor.shape));
      targets.push_back(arrays.back().mutable_data());
    }
    const Status status = (*reader)->read(wanted, targets, {}, share);
    EXPECT_TRUE(status.ok()) << status.to_string();
    for (size_t t = 0; t < arrays.size(); ++t) {
      EXPECT_TRUE(arrays[t].identical(state_->values[t])) << state_->tensors[t].name;
    }
    return count.load();
  };
  const int alone = opens(nullptr);
  const int none = opens([&](std::span<const ShardRange> mine) -> Result<std::vector<ShardRange>> {
    asked.assign(mine.begin(), mine.end());
    return std::vector<ShardRange>();
  });
  const int all = opens([](std::span<const ShardRange> mine) -> Result<std::vector<ShardRange>> {
    return std::vector<ShardRange>(mine.begin(), mine.end());
  });
  const int shards = static_cast<int>(open()->shards().size());
  EXPECT_EQ(none, alone);
  EXPECT_EQ(all, alone - shards);
  // One shard's first range alone: the other shards go past the cache.
  ASSERT_FALSE(asked.empty());
  opens([&](std::span<const ShardRange> mine) -> Result<std::vector<ShardRange>> {
    return std::vector<ShardRange>{{mine[0].file, mine[0].begin, mine[0].begin + 1}};
  });
  for (size_t i = 1; i < asked.size(); ++i) {
    EXPECT_TRUE(asked[i - 1].file < asked[i].file || asked[i - 1].end < asked[i].begin);
  }
  const auto reader = open();
  std::byte* none_wanted = nullptr;
  const Status failed = reader->read({}, {&none_wanted, 0}, {}, [](auto) {
    return Result<std::vector<ShardRange>>(unavailable("rank 3 is gone"));
  });
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
}

TEST_F(StepReaderTest, StopEndsAReading) {
  const auto reader = open();
  std::stop_source source;
  source.request_stop();
  EXPECT_EQ(reader->read(reader->index().find("rows"), source.get_token()).status().code(),
            StatusCode::kCancelled);
}

// Each call that may fail does so once; what cannot be read is an error that says so, never a
// value.
TEST(StepReaderFaults, EveryFailingCallIsACleanError) {
  const TemporaryFolder folder;
  const State state = make_small_state(2);
  ASSERT_TRUE(write_state(folder.file("step"), state, 4, kIdentity).ok());
  const auto restore = [&](ScriptedIo& io) -> Result<std::vector<HostArray>> {
    StepReaderOptions options;
    options.threads = 1;
    HEKLA_ASSIGN_OR_RETURN(const auto reader, StepReader::open(io, folder.file("step"), options));
    std::vector<HostArray> arrays;
    for (size_t t = 0; t < state.tensors.size(); ++t) {
      HEKLA_ASSIGN_OR_RETURN(HostArray array, reader->read(static_cast<int32_t>(t)));
      arrays.push_back(std::move(array));
    }
    return arrays;
  };
  ScriptedIo counting(posix_io());
  ASSERT_TRUE(restore(counting).ok());
  EXPECT_EQ(counting.open_files(), 0);
  int64_t errors = 0;
  for (const FaultRule::Action action : {FaultRule::Action::kFail, FaultRule::Action::kShort}) {
    for (const int error : {EIO, EINTR, EMFILE}) {
      for (int64_t n = 1; n <= counting.calls(); ++n) {
        ScriptedIo io(posix_io());
        FaultRule rule;
        rule.first = n;
        rule.action = action;
        rule.error = error;
        io.add(rule);
        const Result<std::vector<HostArray>> arrays = restore(io);
        ASSERT_EQ(io.open_files(), 0) << "call " << n;
        if (!arrays.ok()) {
          ++errors;
          const std::string message = arrays.status().message();
          EXPECT_NE(message.find(folder.path()), std::string::npos) << message;
          EXPECT_NE(message.find("errno"), std::string::npos) << message;
          EXPECT_EQ(action, FaultRule::Action::kFail);
          continue;
        }
        for (size_t t = 0; t < state.tensors.size(); ++t) {
          ASSERT_TRUE((*arrays)[t].identical(state.values[t])) << "call " << n;
        }
      }
      if (action == FaultRule::Action::kShort) break;
    }
  }
  EXPECT_GT(errors, counting.calls() / 2);
}

// Two descriptors a file and not all files at once.
TEST(StepReaderFaults, ManyFilesNeedFewDescriptors) {
  const TemporaryFolder folder;
  State state;
  std::mt19937_64 random(1);
  state.add("w", DType::kF32, {100, 16}, "mesh=(a:100) spec=(a)", random);
  ASSERT_TRUE(write_state(folder.file("step"), state, 100, kIdentity).ok());
  ScriptedIo io(posix_io());
  const auto reader = StepReader::open(io, folder.file("step"));
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ((*reader)->shards().size(), 100u);
  std::atomic<bool> done{false};
  int64_t most = 0;
  std::thread watch([&] {
    while (!done) {
      most = std::max(most, io.open_files());
      std::this_thread::yield();
    }
  });
  const Result<HostArray> array = (*reader)->read(0);
  done = true;
  watch.join();
  ASSERT_TRUE(array.ok()) << array.status().to_string();
  EXPECT_TRUE(array->identical(state.values[0]));
  EXPECT_LE(most, 40);
}

}  // namespace
}  // namespace hekla::checkpoint
