// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/serial_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>
#include <vector>

namespace hekla {
namespace {

TEST(SerialQueue, RunsJobsInOrderOnOneOtherThread) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  {
    SerialQueue queue;
    for (int i = 0; i < 100; ++i) {
      queue.post([&, i] {
        order.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
  }
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_EQ(std::count(threads.begin(), threads.end(), threads[0]), 100);
}

TEST(SerialQueue, KeepsTheOrderOfEachPoster) {
  constexpr int kPosters = 4;
  constexpr int kJobs = 200;
  std::vector<std::vector<int>> orders(kPosters);
  {
    SerialQueue queue;
    std::vector<std::thread> posters;
    for (int p = 0; p < kPosters; ++p) {
      posters.emplace_back([&, p] {
        for (int i = 0; i < kJobs; ++i) queue.post([&, p, i] { orders[p].push_back(i); });
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  for (const std::vector<int>& order : orders) {
    ASSERT_EQ(order.size(), static_cast<size_t>(kJobs));
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TEST(SerialQueue, QueuedJobsAndWhatTheyPostRunBeforeItIsDestroyed) {
  int runs = 0;
  {
    std::promise<void> start;
    SerialQueue queue;
    queue.post([&] { start.get_future().wait(); });
    queue.post([&] {
      ++runs;
      queue.post([&] { ++runs; });
    });
    start.set_value();
  }
  EXPECT_EQ(runs, 2);
}

// The last owner of a client may be the callback that runs on the client's queue.
TEST(SerialQueue, MayBeDestroyedByItsOwnJob) {
  auto queue = std::make_shared<SerialQueue>();
  std::promise<void> released;
  std::promise<void> last;
  SerialQueue* const raw = queue.get();
  raw->post([owner = queue, &released]() mutable {
    released.get_future().wait();
    owner.reset();
  });
  raw->post([&last] { last.set_value(); });
  queue.reset();
  released.set_value();
  last.get_future().wait();
}

// What a job holds is gone before the next job starts.
TEST(SerialQueue, DestroysEachJobBeforeTheNext) {
  auto held = std::make_shared<int>(0);
  long count = -1;
  {
    SerialQueue queue;
    queue.post([held] {});
    queue.post([&] { count = held.use_count(); });
  }
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace hekla
