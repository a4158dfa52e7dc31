// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/step_agreement.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace hekla::checkpoint {
namespace {

// Ranks that run as fast as they like agree upon the same steps, round after round.
TEST(StepAgreement, AllRanksStopAtTheSameStep) {
  for (const int world : {1, 4}) {
    const auto store = std::make_shared<rendezvous::LocalStore>();
    std::vector<std::vector<int64_t>> agreed(static_cast<size_t>(world));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        const auto group =
            rendezvous::Group::form(store, rank, world, Deadline::in(std::chrono::seconds(30)));
        ASSERT_TRUE(group.ok());
        StepAgreement agreement(**group, "stop");
        std::mt19937 draw(static_cast<uint32_t>(rank));
        std::vector<int64_t>& mine = agreed[static_cast<size_t>(rank)];
        for (int64_t step = 0; mine.size() < 5; ++step) {
          if (draw() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % 500));
          // Now this rank is preempted, now that one, now two at once.
          if (step % 20 == 10 && (rank == step / 20 % world || step % 40 == 10)) {
            agreement.request();
          }
          const Result<bool> reached = agreement.reached(step);
          ASSERT_TRUE(reached.ok()) << reached.status().to_string();
          if (*reached) mine.push_back(step);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& steps : agreed) EXPECT_EQ(steps, agreed[0]);
  }
}

TEST(StepAgreement, ADeadRankIsNamed) {
  const auto store = std::make_shared<rendezvous::LocalStore>();
  std::unique_ptr<rendezvous::Group> other;
  std::thread forming([&] {
    other = *rendezvous::Group::form(store, 1, 2, Deadline::in(std::chrono::seconds(30)));
  });
  const auto group = rendezvous::Group::form(store, 0, 2, Deadline::in(std::chrono::seconds(30)));
  forming.join();
  store->lose((*group)->epoch() + "/rank1");
  StepAgreement agreement(**group, "stop");
  agreement.request();
  for (int64_t step = 0;; ++step) {
    const Result<bool> reached = agreement.reached(step);
    if (reached.ok()) {
      EXPECT_FALSE(*reached);
      continue;
    }
    EXPECT_EQ(reached.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(reached.status().message().find("rank 1"), std::string::npos);
    break;
  }
}

}  // namespace
}  // namespace hekla::checkpoint
