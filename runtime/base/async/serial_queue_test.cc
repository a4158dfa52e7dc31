// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/serial_queue.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/testing/child.h"

// Else ThreadSanitizer ends a child of fork() that starts a thread.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

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

TEST(SerialQueue, StartsItsThreadWithTheFirstJobOrNow) {
  std::atomic<int> starts = 0;
  {
    const SerialQueue queue({.on_start = [&] { ++starts; }});
  }
  EXPECT_EQ(starts, 0);
  {
    const SerialQueue queue({.starts_now = true, .on_start = [&] { ++starts; }});
  }
  EXPECT_EQ(starts, 1);
  {
    SerialQueue queue({.on_start = [&] { ++starts; }});
    for (int i = 0; i < 3; ++i) queue.post([&] { EXPECT_EQ(starts, 2); });
  }
  EXPECT_EQ(starts, 2);
}

TEST(SerialQueue, DrainWaitsForTheJobsPostedSoFar) {
  SerialQueue queue;
  EXPECT_FALSE(queue.drain());
  std::atomic<int> runs = 0;
  std::promise<void> start;
  queue.post([&] { start.get_future().wait(); });
  for (int i = 0; i < 10; ++i) queue.post([&] { ++runs; });
  std::thread opener([&] { start.set_value(); });
  queue.drain();
  EXPECT_EQ(runs, 10);
  EXPECT_FALSE(queue.drain());
  opener.join();
  // It says whether there was anything to wait for, unless that ended before the call.
  bool waited = false;
  while (!waited) {
    queue.post([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    waited = queue.drain();
  }
}

// Jobs that keep posting do not hold up who drains.
TEST(SerialQueue, DrainDoesNotWaitForLaterJobs) {
  std::atomic<bool> ends = false;
  std::function<void()> again;  // outlives the queue, whose jobs copy it
  SerialQueue queue;
  again = [&] {
    std::this_thread::yield();
    if (!ends) queue.post(again);
  };
  queue.post(again);
  queue.drain();
  ends = true;
}

TEST(SerialQueue, KnowsItsOwnThreadAndDoesNotWaitForItself) {
  SerialQueue queue;
  EXPECT_FALSE(queue.is_own_thread());
  bool own = false;
  bool drained = true;
  queue.post([&] {
    own = queue.is_own_thread();
    drained = queue.drain();
  });
  queue.drain();
  EXPECT_TRUE(own);
  EXPECT_FALSE(drained);
}

TEST(SerialQueue, ItsThreadGetsNoSignalsUnlessItIsToldTo) {
  for (const bool takes_signals : {false, true}) {
    sigset_t blocked;
    SerialQueue queue({.takes_signals = takes_signals});
    queue.post([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked); });
    queue.drain();
    EXPECT_EQ(::sigismember(&blocked, SIGTERM), takes_signals ? 0 : 1);
  }
}

// A child has none of its parent's threads; its own queues work, and what the parent left is let
// alone.
TEST(SerialQueue, AChildOfForkHasQueuesOfItsOwn) {
  SerialQueue queue;
  int runs = 0;
  queue.post([&] { ++runs; });
  queue.drain();
  const int code = run_child([&] {
    int own = 0;
    {
      SerialQueue fresh;
      fresh.post([&] { ++own; });
    }
    return own == 1 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  queue.post([&] { ++runs; });
  queue.drain();
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace hekla
