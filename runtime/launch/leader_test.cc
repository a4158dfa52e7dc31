// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/leader.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "runtime/launch/launcher.h"

namespace hekla::launch {
namespace {

using std::chrono::milliseconds;

// A leader and what its nodes have written, with a clock of its own.
class World {
 public:
  explicit World(LeaderOptions options)
      : leader_(options, "a", [this]() -> Result<Meeting> {
          return Meeting{fmt::format("store{}", ++meetings_), "host", 1000 + meetings_};
        }) {}

  void join(const std::string& node, int nproc = 1) {
    nodes_.values["node/" + node + "/card"] =
        NodeCard{"host-" + node, nproc, static_cast<int64_t>(nodes_.values.size())}.text();
    nodes_.values["node/" + node + "/beat"] = "0";
  }
  void report(const std::string& node, NodeReport report) {
    nodes_.values["node/" + node + "/report"] = report.text();
  }
  void fail(const std::string& node, int64_t attempt, int rank, ProcessEnd end, double seconds) {
    report(node,
           {attempt, true, false, end.exit_code == kPreempted, Failure{rank, end, seconds, ""}});
  }
  void ended(const std::string& node, int64_t attempt) { report(node, {attempt, true}); }
  void leave(const std::string& node) {
    for (const char* what : {"card", "beat", "report"}) {
      nodes_.values.erase("node/" + node + "/" + what);
    }
  }
  void lose(const std::string& node) { nodes_.lost.insert(node); }
  void silence(const std::string& node) { silent_.insert(node); }
  // After `passed`, in steps as a launcher makes them.
  const Plan& after(milliseconds passed) {
    const Plan* plan = nullptr;
    for (milliseconds left = passed;; left -= milliseconds(100)) {
      ++beats_;
      for (auto& [key, value] : nodes_.values) {
        const bool is_beat = key.ends_with("/beat");
        if (is_beat && !silent_.contains(key.substr(5, key.size() - 10))) {
          value = std::to_string(beats_);
        }
      }
      plan = &leader_.step(now_, nodes_);
      if (left <= milliseconds(0)) return *plan;
      now_ += milliseconds(100);
    }
  }
  Leader& leader() { return leader_; }

 private:
  int meetings_ = 0;
  Leader leader_;
  Leader::Nodes nodes_;
  std::set<std::string> silent_;
  Leader::Clock::time_point now_{std::chrono::hours(1)};
  int beats_ = 0;
};

LeaderOptions two_to_three(int restarts = 1) {
  return {2,
          3,
          restarts,
          milliseconds(10'000),
          milliseconds(1'000),
          milliseconds(5'000),
          milliseconds(10'000)};
}

std::string last_news(const Plan& plan) { return plan.news.empty() ? "" : plan.news.back().second; }

bool has_news(const Plan& plan, const std::string& text) {
  for (const auto& [version, one] : plan.news) {
    if (one.find(text) != one.npos) return true;
  }
  return false;
}

TEST(Leader, BeginsWhenEnoughHaveComeAndTheLastCallIsOver) {
  World world(two_to_three());
  world.join("b", 3);
  world.join("a", 2);
  EXPECT_EQ(world.after(milliseconds(900)).kind, Plan::Kind::kGather);
  const Plan& plan = world.after(milliseconds(200));
  ASSERT_EQ(plan.kind, Plan::Kind::kRun);
  // The host of the store is first, whenever it came.
  ASSERT_EQ(plan.seats.size(), 2U);
  EXPECT_EQ(plan.seats[0].node, "a");
  EXPECT_EQ(plan.seats[1].first_rank, 2);
  EXPECT_EQ(plan.size(), 5);
  EXPECT_EQ(plan.store, "store1");
  EXPECT_EQ(last_news(plan), "attempt 0 on 2 machines: ranks 0-1 on host-a, ranks 2-4 on host-b");
}

TEST(Leader, BeginsAtOnceWhenAllHaveCome) {
  World world(two_to_three());
  for (const char* node : {"a", "b", "c", "d"}) world.join(node);
  const Plan& plan = world.after(milliseconds(0));
  EXPECT_EQ(plan.kind, Plan::Kind::kRun);
  EXPECT_EQ(plan.seats.size(), 3U);
  EXPECT_EQ(plan.seat_of("d"), -1);
}

TEST(Leader, SaysWhoHasComeWhenTooFewDo) {
  World world(two_to_three());
  world.join("a");
  const Plan& plan = world.after(milliseconds(10'100));
  EXPECT_EQ(plan.kind, Plan::Kind::kEnd);
  EXPECT_EQ(plan.exit_code, 1);
  EXPECT_EQ(
      last_news(plan),
      "1 of at least 2 machines have come in 10 s: host-a. Start the launcher on the others with "
      "the same --rdzv and --run-id; --join-timeout is how long it waits");
}

TEST(Leader, TheFailureThatWasFirstIsNamedAndCostsARestart) {
  World world(two_to_three());
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  // Rank 2 was killed; the others failed because of it, and were seen first.
  world.fail("a", 0, 0, {1, 0}, 1.0);
  world.after(milliseconds(100));
  world.fail("b", 0, 1, {1, 0}, 0.9);
  world.fail("c", 0, 2, {0, SIGKILL}, 1.1);
  const Plan& plan = world.after(milliseconds(500));
  EXPECT_TRUE(has_news(plan, "rank 2 on host-c failed first, after 1.1 s, with signal 9 (Killed)"))
      << last_news(plan);
  EXPECT_TRUE(has_news(plan, "restart 1 of 1"));
  EXPECT_EQ(plan.kind, Plan::Kind::kRun);
  EXPECT_EQ(plan.attempt, 1);
  EXPECT_EQ(plan.store, "store2");
  world.fail("b", 1, 1, {4, 0}, 1.0);
  world.ended("a", 1);
  EXPECT_EQ(world.after(milliseconds(600)).kind, Plan::Kind::kStop);  // c runs
  world.ended("c", 1);
  const Plan& last = world.after(milliseconds(0));
  EXPECT_EQ(last.kind, Plan::Kind::kEnd);
  EXPECT_EQ(last.exit_code, 4);
  EXPECT_TRUE(has_news(last, "all 1 restarts are used up"));
}

TEST(Leader, PreemptionAndDepartureAreFree) {
  World world(two_to_three(0));
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  int rank = 0;
  for (const char* node : {"a", "b", "c"}) world.fail(node, 0, rank++, {kPreempted, 0}, 1.0);
  const Plan& again = world.after(milliseconds(600));
  EXPECT_EQ(again.kind, Plan::Kind::kRun);
  EXPECT_EQ(again.attempt, 1);
  world.report("b", {1, false, true});
  EXPECT_EQ(world.after(milliseconds(600)).kind, Plan::Kind::kStop);
  EXPECT_TRUE(has_news(again, "machine host-b (rank 1) leaves"));
  world.leave("b");
  world.ended("a", 1);
  world.ended("c", 1);
  // At once, with those that are left.
  const Plan& without = world.after(milliseconds(0));
  EXPECT_EQ(without.kind, Plan::Kind::kRun);
  EXPECT_EQ(without.seats.size(), 2U);
  EXPECT_EQ(without.seat_of("c"), 1);
}

TEST(Leader, WhoIsSilentOrDeadIsLost) {
  World world(two_to_three(2));
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  world.silence("b");
  EXPECT_EQ(world.after(milliseconds(4'900)).kind, Plan::Kind::kRun);
  const Plan& plan = world.after(milliseconds(800));
  EXPECT_EQ(plan.kind, Plan::Kind::kStop);
  EXPECT_TRUE(has_news(plan,
                       "machine host-b (rank 1) is lost: nothing has been heard of it for "
                       "5.0 s"));
  EXPECT_EQ(last_news(plan), "all ranks start again, restart 1 of 2");
  world.ended("a", 0);
  world.ended("c", 0);
  EXPECT_EQ(world.after(milliseconds(0)).seats.size(), 2U);
  // It cannot come back under its old name, and what it writes is to be removed.
  EXPECT_TRUE(world.leader().is_gone("b"));
  EXPECT_FALSE(world.leader().is_gone("c"));
  world.report("b", {1, true});
  EXPECT_EQ(world.after(milliseconds(500)).seats.size(), 2U);
  // Whose launcher has died is lost at once, also where its peers have failed before that is seen.
  world.fail("a", 1, 0, {1, 0}, 1.0);
  world.after(milliseconds(0));
  world.lose("c");
  const Plan& too_few = world.after(milliseconds(600));
  EXPECT_TRUE(has_news(too_few, "machine host-c (rank 1) is lost: its launcher is gone"));
  EXPECT_EQ(too_few.kind, Plan::Kind::kGather);
  EXPECT_EQ(last_news(too_few), "1 of at least 2 machines are there; waiting for more");
}

// Then its ranks may run for as long as it may be silent.
TEST(Leader, ALostConnectionAfterSilenceIsNoEarlierLoss) {
  World world(two_to_three(2));
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  world.silence("b");
  world.after(milliseconds(3'000));
  world.lose("b");
  EXPECT_EQ(world.after(milliseconds(1'900)).kind, Plan::Kind::kRun);
  EXPECT_EQ(world.after(milliseconds(800)).kind, Plan::Kind::kStop);
}

TEST(Leader, WhoComesIsTakenInWhereThereIsRoom) {
  World world(two_to_three(0));
  world.join("a");
  world.join("b");
  ASSERT_EQ(world.after(milliseconds(1'100)).kind, Plan::Kind::kRun);
  world.join("c");
  const Plan& plan = world.after(milliseconds(0));
  EXPECT_EQ(plan.kind, Plan::Kind::kStop);
  world.ended("a", 0);
  world.ended("b", 0);
  world.after(milliseconds(0));
  EXPECT_EQ(plan.kind, Plan::Kind::kRun);
  EXPECT_EQ(plan.seats.size(), 3U);
  world.join("d");
  EXPECT_EQ(world.after(milliseconds(1'000)).attempt, 1);  // there is no room
}

TEST(Leader, EndsWhenAllHaveEnded) {
  World world(two_to_three());
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  world.ended("a", 0);
  world.ended("b", 0);
  EXPECT_EQ(world.after(milliseconds(1'000)).kind, Plan::Kind::kRun);
  world.ended("c", 0);
  const Plan& plan = world.after(milliseconds(0));
  EXPECT_EQ(plan.kind, Plan::Kind::kEnd);
  EXPECT_EQ(plan.exit_code, 0);
  EXPECT_FALSE(world.leader().is_alone());
  world.leave("b");
  world.leave("c");
  world.after(milliseconds(0));
  EXPECT_TRUE(world.leader().is_alone());
}

TEST(Leader, ASignalEndsTheRunOnceAllRanksHaveEnded) {
  World world(two_to_three());
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  world.leader().shut_down(SIGTERM);
  EXPECT_EQ(world.after(milliseconds(0)).kind, Plan::Kind::kStop);
  int rank = 0;
  for (const char* node : {"a", "b", "c"}) world.fail(node, 0, rank++, {kPreempted, 0}, 1.0);
  EXPECT_EQ(world.after(milliseconds(0)).exit_code, kPreempted);
}

TEST(Leader, RanksThatDoNotEndEndTheRun) {
  World world(two_to_three());
  for (const char* node : {"a", "b", "c"}) world.join(node);
  world.after(milliseconds(0));
  world.fail("a", 0, 0, {4, 0}, 1.0);
  world.ended("c", 0);
  // Two attempts never run at once, so there is no other without them. The grace of the launchers
  // is 10 s, the silence 5 s.
  EXPECT_EQ(world.after(milliseconds(45'000)).kind, Plan::Kind::kStop);
  const Plan& plan = world.after(milliseconds(1'000));
  EXPECT_EQ(plan.kind, Plan::Kind::kEnd);
  EXPECT_EQ(plan.exit_code, 1);
  EXPECT_NE(last_news(plan).find("machine host-b (rank 1) has not said within 45 s that its ranks "
                                 "have ended"),
            std::string::npos)
      << last_news(plan);
}

TEST(Leader, WhatNodesWriteIsNotBelieved) {
  EXPECT_FALSE(Plan::read("\xff\xff").ok());
  EXPECT_FALSE(NodeCard::read("").ok());  // no ranks
  Plan plan;
  plan.seats = {{"a", "x", 0, 2}, {"b", "y", 3, 1}};
  EXPECT_FALSE(Plan::read(plan.text()).ok());
  plan.seats[1].first_rank = 2;
  plan.news = {{3, "text"}};
  const Result<Plan> read = Plan::read(plan.text());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->size(), 3);
  EXPECT_EQ(read->news, plan.news);
  EXPECT_EQ(read->seat_of("b"), 1);
  World world(two_to_three());
  world.join("a");
  world.join("b", 1 << 30);
  EXPECT_EQ(world.after(milliseconds(2'000)).kind, Plan::Kind::kGather);
}

}  // namespace
}  // namespace hekla::launch
