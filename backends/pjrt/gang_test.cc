// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/gang.h"

#include <gtest/gtest.h>

#include <thread>

namespace hekla::pjrt {
namespace {

TEST(Gang, TheFirstErrorCountsAndReachesAll) {
  Gang gang;
  EXPECT_FALSE(gang.is_aborted());
  EXPECT_TRUE(gang.status().ok());
  std::vector<std::string> heard;
  gang.on_abort([&](const Status& status) { heard.push_back(status.message()); });
  gang.abort(data_loss("first"));
  gang.abort(internal_error("second"));
  gang.on_abort([&](const Status& status) { heard.push_back("late " + status.message()); });
  EXPECT_TRUE(gang.is_aborted());
  EXPECT_EQ(gang.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(heard, (std::vector<std::string>{"first", "late first"}));
}

TEST(Gang, OfManyWhoAbortOneIsHeardOnce) {
  for (int round = 0; round < 50; ++round) {
    Gang gang;
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        gang.on_abort([&](const Status&) { ++calls; });
        gang.abort(internal_error("device {}", t));
        EXPECT_FALSE(gang.status().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(calls, 4);
  }
}

TEST(Gang, WaitingEndsWithTheInputsOrWithTheGang) {
  Gang gang;
  EXPECT_TRUE(gang.all_or_abort({})->is_done());
  const CompletionRef first = Completion::make(), second = Completion::make();
  const CompletionRef both = gang.all_or_abort({first, second});
  first->complete(ok_status());
  EXPECT_FALSE(both->is_done());
  second->complete(data_loss("lost"));
  EXPECT_EQ(both->status().code(), StatusCode::kDataLoss);

  const CompletionRef never = Completion::make();
  const CompletionRef waits = gang.all_or_abort({never});
  EXPECT_FALSE(waits->is_done());
  gang.abort(internal_error("off"));
  EXPECT_EQ(waits->await().message(), "off");
  EXPECT_EQ(gang.all_or_abort({Completion::make()})->await().message(), "off");
}

TEST(Gang, SharedStateIsMadeOnce) {
  std::weak_ptr<int> state;
  {
    Gang gang;
    std::atomic<int> made{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        const auto mine = gang.shared_state<int>([&] { return std::make_shared<int>(++made); });
        EXPECT_EQ(*mine, 1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    state = gang.shared_state<int>([] { return std::make_shared<int>(9); });
    EXPECT_FALSE(state.expired());
  }
  EXPECT_TRUE(state.expired());
}

}  // namespace
}  // namespace hekla::pjrt
