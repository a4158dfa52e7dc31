// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/rate_limiter.h"

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

// Waits for its permit on a thread of its own.
class Waiter {
 public:
  explicit Waiter(RateLimiter& limiter, int64_t bytes = 1)
      : thread_([this, &limiter, bytes](const std::stop_token& stop) {
          const RateLimiter::Permit permit(limiter, bytes, stop);
          is_admitted_ = true;
        }) {}
  bool is_admitted() const { return is_admitted_; }
  void stop() { thread_.request_stop(); }
  void join() { thread_.join(); }

 private:
  std::atomic<bool> is_admitted_{false};
  std::jthread thread_;
};

TEST(RateLimiter, WaitsUntilThePriorityIsRaised) {
  const auto priority = std::make_shared<Priority>();
  RateLimiter limiter(1, priority);
  {
    const RateLimiter::Permit first(limiter, kMany, {});
  }  // at once; all others have thousands of years
  Waiter second(limiter), third(limiter);
  while (limiter.throttled_time().count() < 0.02) std::this_thread::yield();
  EXPECT_FALSE(second.is_admitted() || third.is_admitted());
  {
    const Priority::Hold hold(priority);
    second.join();
    third.join();
    const RateLimiter::Permit fourth(limiter, kMany, {});  // nor does it wait now
  }
  // What was written at a raised priority is no debt; the next ones are limited again.
  { const RateLimiter::Permit fifth(limiter, kMany, {}); }
  Waiter sixth(limiter);
  const double before = limiter.throttled_time().count();
  while (limiter.throttled_time().count() < before + 0.02) std::this_thread::yield();
  EXPECT_FALSE(sixth.is_admitted());
  sixth.stop();
  sixth.join();
}

TEST(RateLimiter, ChangesWhileSomebodyWaits) {
  RateLimiter limiter(1, std::make_shared<Priority>());
  { const RateLimiter::Permit first(limiter, kMany, {}); }
  Waiter second(limiter);
  limiter.at_least(8);
  EXPECT_EQ(limiter.bytes_per_second(), 8);
  limiter.at_least(2);
  EXPECT_EQ(limiter.bytes_per_second(), 8);
  limiter.double_rate();
  EXPECT_EQ(limiter.bytes_per_second(), 16);
  // Twice as fast for everybody who comes too early is soon as fast as it goes.
  for (int i = 0; i < 100; ++i) limiter.double_rate();
  second.join();
  EXPECT_TRUE(second.is_admitted());
}

TEST(RateLimiter, ZeroIsNone) {
  RateLimiter limiter(0, std::make_shared<Priority>());
  limiter.at_least(5);
  limiter.double_rate();
  for (int i = 0; i < 3; ++i) const RateLimiter::Permit permit(limiter, kMany, {});
  EXPECT_EQ(limiter.bytes_per_second(), 0);
}

TEST(RateLimiter, TimeInWhichSomebodyWritesIsNotStoodBack) {
  RateLimiter limiter(1, std::make_shared<Priority>());
  const RateLimiter::Permit first(limiter, kMany, {});
  Waiter second(limiter);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(limiter.throttled_time().count(), 0);
  second.stop();
}

TEST(RateLimiter, IsTheMachinesAndSharedByItsProcesses) {
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
    const double before = (*pool)->rate_limiter()->throttled_time().count();
    (*writer)->add({data.data(), size, 0, 0});
    while ((*pool)->rate_limiter()->throttled_time().count() < before + 0.01)
      std::this_thread::yield();
    EXPECT_LE((*writer)->bytes_written(), int64_t{1} << 20);
    if (is_cancelled) {
      stop.request_stop();
      EXPECT_EQ((*writer)->drain().code(), StatusCode::kCancelled);
    } else {
      const Priority::Hold hold((*pool)->priority());
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
  EXPECT_EQ((*WriterPool::create(io, ordinary))->rate_limiter(), nullptr);
  ordinary.background = true;
  ordinary.background_bandwidth = 0;
  EXPECT_EQ((*WriterPool::create(io, ordinary))->rate_limiter(), nullptr);
}

}  // namespace
}  // namespace hekla::checkpoint
