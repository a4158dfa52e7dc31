// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/callback_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace hekla {
namespace {

TEST(CallbackQueue, JobsRunInOrderOneAfterTheOther) {
  std::vector<int> order;  // no lock: jobs that do not block never overlap
  {
    CallbackQueue queue;
    ASSERT_TRUE(queue.start_thread().ok());
    for (int i = 0; i < 1000; ++i) queue.post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(CallbackQueue, AJobPostedInsideOfACallbackRunsAtOnce) {
  CallbackQueue queue;
  std::promise<int> depth;
  // Each waits for the one that it posts; behind them stands one that would block the queue.
  std::function<void(int)> nest = [&](int level) {
    const CallbackScope scope;
    if (level == 20) return;
    std::promise<void> done;
    queue.post([&, level] {
      nest(level + 1);
      done.set_value();
    });
    done.get_future().wait();
  };
  queue.post([&] {
    nest(0);
    depth.set_value(20);
  });
  EXPECT_EQ(depth.get_future().get(), 20);
  EXPECT_FALSE(CallbackScope::is_inside());
}

TEST(CallbackQueue, JobsThatWaitForLaterOnesEnd) {
  CallbackQueue queue;
  constexpr size_t kJobs = 4;
  std::vector<std::promise<void>> promises(kJobs);
  std::promise<void> all;
  for (size_t i = 0; i < kJobs; ++i) {
    queue.post([&, i] {
      if (i + 1 < kJobs) promises[i + 1].get_future().wait();
      if (i == 0) {
        all.set_value();
      } else {
        promises[i].set_value();
      }
    });
  }
  all.get_future().wait();
}

// Bursts of jobs, each of which finds the one before at work, start no threads anew.
TEST(CallbackQueue, ThreadsAreKept) {
  CallbackQueue queue;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int burst = 0; burst < 50; ++burst) {
    std::promise<void> all_posted, done;
    const std::shared_future<void> posted = all_posted.get_future();
    for (int i = 0; i < 3; ++i) {
      queue.post([&, posted, i] {
        if (i == 0) posted.wait();
        {
          const std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        }
        if (i == 2) done.set_value();
      });
    }
    all_posted.set_value();
    done.get_future().wait();
  }
  // Two, unless one was held up for longer than kPatience.
  EXPECT_LE(threads.size(), 4u);
}

TEST(CallbackQueue, AJobMayDestroyTheQueue) {
  auto queue = std::make_unique<CallbackQueue>();
  std::promise<void> gone, posted;
  CallbackQueue& same = *queue;
  same.post([&] {
    posted.get_future().wait();
    queue.reset();
    gone.set_value();
  });
  posted.set_value();
  gone.get_future().wait();
  EXPECT_EQ(queue, nullptr);
}

}  // namespace
}  // namespace hekla
