// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <stop_token>

namespace hekla {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""h;

TEST(Thread, GetsNoSignalsButFaults) {
  sigset_t blocked;
  start_thread([&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }).join();
  EXPECT_EQ(::sigismember(&blocked, SIGTERM), 1);
  EXPECT_EQ(::sigismember(&blocked, SIGINT), 1);
  EXPECT_EQ(::sigismember(&blocked, SIGUSR1), 1);
  EXPECT_EQ(::sigismember(&blocked, SIGSEGV), 0);
  EXPECT_EQ(::sigismember(&blocked, SIGABRT), 0);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(::sigismember(&blocked, SIGTERM), 0);
}

TEST(Thread, IsAskedToStopAndWaitedForByItsOwner) {
  std::atomic<bool> has_ended = false;
  {
    std::promise<void> started;
    const std::jthread thread = start_thread([&](const std::stop_token& stop) {
      started.set_value();
      while (!stop.stop_requested()) std::this_thread::yield();
      has_ended = true;
    });
    started.get_future().wait();
    EXPECT_FALSE(has_ended);
  }
  EXPECT_TRUE(has_ended);
}

TEST(Heartbeat, BeatsUntilTold) {
  std::atomic<int> beats = 0;
  std::promise<void> third;
  std::jthread heart = start_heartbeat(1ms, [&] {
    if (++beats == 3) third.set_value();
    return beats < 3;
  });
  third.get_future().wait();
  heart.join();
  EXPECT_EQ(beats, 3);
}

// Neither the time of a beat nor a beat is waited for.
TEST(Heartbeat, EndsAtOnceBetweenBeats) {
  std::atomic<int> beats = 0;
  {
    const std::jthread heart = start_heartbeat(24h, [&] {
      ++beats;
      return true;
    });
  }
  EXPECT_EQ(beats, 0);
}

}  // namespace
}  // namespace hekla
