// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/pace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/base/io/memory_io.h"
#include "runtime/checkpoint/io/writer.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;

// Waits for its turn on a thread of its own.
class Waiter {
 public:
  explicit Waiter(Pace& pace, int64_t bytes = 1)
      : thread_([this, &pace, bytes](const std::stop_token& stop) {
          const Pace::Turn turn(pace, bytes, stop);
          has_turn_ = true;
        }) {}
  bool has_turn() const { return has_turn_; }
  void stop() { thread_.request_stop(); }
  void join() { thread_.join(); }

 private:
  std::atomic<bool> has_turn_{false};
  std::jthread thread_;
};

TEST(Pace, StandsBackUntilSomethingIsUrgent) {
  const auto urgency = std::make_shared<Urgency>();
  Pace pace(1, urgency);
  { const Pace::Turn first(pace, kMany, {}); }  // at once; all others have thousands of years
  Waiter second(pace), third(pace);
  while (pace.stood_back().count() < 0.02) std::this_thread::yield();
  EXPECT_FALSE(second.has_turn() || third.has_turn());
  {
    const Urgency::Hold hold(urgency);
    second.join();
    third.join();
    const Pace::Turn fourth(pace, kMany, {});  // nor does it wait now
  }
  // What was written in a hurry is no debt; the next ones are paced again.
  { const Pace::Turn fifth(pace, kMany, {}); }
  Waiter sixth(pace);
  const double before = pace.stood_back().count();
  while (pace.stood_back().count() < before + 0.02) std::this_thread::yield();
  EXPECT_FALSE(sixth.has_turn());
  sixth.stop();
  sixth.join();
}

TEST(Pace, ChangesWhileSomebodyWaits) {
  Pace pace(1, std::make_shared<Urgency>());
  { const Pace::Turn first(pace, kMany, {}); }
  Waiter second(pace);
  pace.at_least(8);
  EXPECT_EQ(pace.bytes_per_second(), 8);
  pace.at_least(2);
  EXPECT_EQ(pace.bytes_per_second(), 8);
  pace.quicken();
  EXPECT_EQ(pace.bytes_per_second(), 16);
  // Twice as fast for everybody who comes too early is soon as fast as it goes.
  for (int i = 0; i < 100; ++i) pace.quicken();
  second.join();
  EXPECT_TRUE(second.has_turn());
}

TEST(Pace, ZeroIsNone) {
  Pace pace(0, std::make_shared<Urgency>());
  pace.at_least(5);
  pace.quicken();
  for (int i = 0; i < 3; ++i) const Pace::Turn turn(pace, kMany, {});
  EXPECT_EQ(pace.bytes_per_second(), 0);
}

TEST(Pace, TimeInWhichSomebodyWritesIsNotStoodBack) {
  Pace pace(1, std::make_shared<Urgency>());
  const Pace::Turn first(pace, kMany, {});
  Waiter second(pace);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pace.stood_back().count(), 0);
  second.stop();
}

TEST(Pace, IsTheMachinesAndSharedByItsProcesses) {
  const int64_t alone = background_bandwidth();
  EXPECT_EQ(alone, int64_t{std::thread::hardware_concurrency()} * (int64_t{64} << 20));
  ::setenv("LOCAL_WORLD_SIZE", "4", 1);
  EXPECT_EQ(background_bandwidth(), alone / 4);
  ::setenv("LOCAL_WORLD_SIZE", "nonsense", 1);
  EXPECT_EQ(background_bandwidth(), alone);
  ::unsetenv("LOCAL_WORLD_SIZE");
}

WriterOptions slow_background() {
  WriterOptions options;
  options.threads = 2;
  options.item_bytes = int64_t{1} << 20;
  options.staging_bytes = options.item_bytes;
  options.background = true;
  options.background_bandwidth = 1;
  return options;
}

TEST(PacedWriter, GoesOnWhenSomebodyWaitsAndEndsWhenCancelled) {
  MemoryIo io;
  const auto pool = WriterPool::create(io, slow_background());
  ASSERT_TRUE(pool.ok()) << pool.status().to_string();
  const std::vector<std::byte> data(size_t{8} << 20, std::byte{7});
  const auto size = static_cast<int64_t>(data.size());
  for (const bool is_cancelled : {false, true}) {
    std::stop_source stop;
    auto writer = FileWriter::create(**pool, is_cancelled ? "/b" : "/a", size, 8, stop.get_token());
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    const double before = (*pool)->pace()->stood_back().count();
    (*writer)->add({data.data(), size, 0, 0});
    while ((*pool)->pace()->stood_back().count() < before + 0.01) std::this_thread::yield();
    EXPECT_LE((*writer)->bytes_written(), int64_t{1} << 20);
    if (is_cancelled) {
      stop.request_stop();
      EXPECT_EQ((*writer)->drain().code(), StatusCode::kCancelled);
    } else {
      const Urgency::Hold hold((*pool)->urgency());
      EXPECT_TRUE((*writer)->drain().ok());
      EXPECT_EQ((*writer)->bytes_written(), size);
    }
  }
}

TEST(PacedWriter, LeavesFilesAloneThatAreNotPaced) {
  MemoryIo io;
  const auto pool = WriterPool::create(io, slow_background());
  ASSERT_TRUE(pool.ok()) << pool.status().to_string();
  const std::vector<std::byte> data(size_t{4} << 20);
  const auto size = static_cast<int64_t>(data.size());
  auto writer = FileWriter::create(**pool, "/a", size, 4);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  (*writer)->do_not_pace();
  (*writer)->add({data.data(), size, 0, 0});
  EXPECT_TRUE((*writer)->drain().ok());
  WriterOptions ordinary = slow_background();
  ordinary.background = false;
  EXPECT_EQ((*WriterPool::create(io, ordinary))->pace(), nullptr);
  ordinary.background = true;
  ordinary.background_bandwidth = 0;
  EXPECT_EQ((*WriterPool::create(io, ordinary))->pace(), nullptr);
}

}  // namespace
}  // namespace hekla::checkpoint
