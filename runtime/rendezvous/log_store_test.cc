// SPDX-License-Identifier: Apache-2.0
// What is the log's alone; what every store promises is in store_test.cc.
#include "runtime/rendezvous/log_store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/rendezvous/group.h"
#include "runtime/rendezvous/testing/put_once.h"

namespace hekla::rendezvous {
namespace {

using testing::PutOnce;

TEST(LogStore, RefusesAServiceThatOverwrites) {
  const auto service = std::make_shared<PutOnce>();
  service->overwrites = true;
  const auto store = LogStore::open(service, "hekla");
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(store.status().message().find("second value"), std::string::npos);
}

TEST(LogStore, WorksWithClientsThatCannotTry) {
  const auto service = std::make_shared<PutOnce>();
  service->has_try_get = false;
  const auto store = *LogStore::open(service, "hekla"), other = *LogStore::open(service, "hekla");
  ASSERT_TRUE(store->set("a", "1").ok());
  EXPECT_EQ(*other->add("a", 1), 2);
  EXPECT_EQ(**store->get("a"), "2");
}

TEST(LogStore, StoresOfTwoPrefixesAreTwoStores) {
  const auto service = std::make_shared<PutOnce>();
  const auto store = *LogStore::open(service, "a"), other = *LogStore::open(service, "b");
  ASSERT_TRUE(store->set("k", "1").ok());
  EXPECT_FALSE(other->get("k")->has_value());
}

// A put that took effect though its answer was lost counts once.
TEST(LogStore, LostAnswersCountOnce) {
  const auto service = std::make_shared<PutOnce>();
  const auto store = *LogStore::open(service, "hekla");
  service->loses_answers = true;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(store->add("n", 1).ok());
  EXPECT_TRUE(store->compare_set("c", std::nullopt, "x")->swapped);
  service->loses_answers = false;
  EXPECT_EQ(*store->add("n", 0), 5);
}

TEST(LogStore, SaysThatTheServiceIsGone) {
  const auto service = std::make_shared<PutOnce>();
  const auto store = *LogStore::open(service, "hekla");
  service->is_down = true;
  EXPECT_EQ(store->set("a", "1").code(), StatusCode::kUnavailable);
  EXPECT_EQ(store->get("a").status().code(), StatusCode::kUnavailable);
  EXPECT_NE(store->get("a").status().message().find("coordinator is gone"), std::string::npos);
  EXPECT_EQ(LogStore::open(service, "hekla").status().code(), StatusCode::kUnavailable);
  // Neither hangs nor spins without rest.
  store->wait_change(store->ticket(), Deadline::in(std::chrono::milliseconds(5)));
}

// Every thread reads and writes through a store of its own and through a shared one.
TEST(LogStore, ManyWritersLoseNothing) {
  const auto service = std::make_shared<PutOnce>();
  const std::shared_ptr<LogStore> shared = *LogStore::open(service, "hekla");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto own = *LogStore::open(service, "hekla");
      for (int i = 0; i < 25; ++i) {
        EXPECT_TRUE((t % 2 == 0 ? *own : *shared).add("n", 1).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*shared->add("n", 0), 100);
}

TEST(LogStore, CarriesAGroup) {
  const auto service = std::make_shared<PutOnce>();
  constexpr int kWorld = 3;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = Group::form(*LogStore::open(service, "hekla"), rank, kWorld,
                                     Deadline::in(std::chrono::seconds(20)));
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      ASSERT_TRUE((*group)
                      ->store()
                      .set((*group)->key(fmt::format("at/{}", rank)), std::to_string(10 * rank))
                      .ok());
      Group::Wait wait;
      wait.what = "all ranks";
      wait.deadline = Deadline::in(std::chrono::seconds(20));
      const auto waited = (*group)->wait_ranks("at/", wait);
      ASSERT_TRUE(waited.ok()) << waited.status().to_string();
      EXPECT_EQ(waited->values.at(2), "20");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hekla::rendezvous
