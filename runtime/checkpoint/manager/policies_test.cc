// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/policies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hekla::checkpoint {
namespace {

std::vector<KeptStep> steps_to(int64_t count) {
  std::vector<KeptStep> steps;
  for (int64_t i = 1; i <= count; ++i) steps.push_back({i, i * 10, {}, false});
  return steps;
}

using Steps = std::vector<int64_t>;

TEST(SavePolicy, MultiplesAndListedSteps) {
  SavePolicy policy;
  EXPECT_FALSE(policy.is_due_at(0));
  policy.every_steps = 5;
  policy.steps = {7};
  EXPECT_TRUE(policy.is_due_at(10));
  EXPECT_TRUE(policy.is_due_at(7));
  EXPECT_FALSE(policy.is_due_at(8));
}

TEST(Retention, NothingSaidKeepsAll) {
  EXPECT_TRUE(deletable(steps_to(9), {}, 0).empty());
  EXPECT_TRUE(deletable({}, {.last = 1}, 0).empty());
}

TEST(Retention, IsTheUnionOfItsRules) {
  EXPECT_EQ(deletable(steps_to(5), {.last = 2}, 0), (Steps{1, 2, 3}));
  EXPECT_EQ(deletable(steps_to(6), {.last = 1, .every_steps = 2}, 0), (Steps{1, 3, 5}));
  EXPECT_EQ(deletable(steps_to(6), {.every_time = std::chrono::seconds(25)}, 0), (Steps{2, 3, 5}));
  EXPECT_EQ(deletable(steps_to(6), {.newer_than = std::chrono::seconds(21)}, 60), (Steps{1, 2, 3}));
  EXPECT_EQ(deletable(steps_to(4), {.last = 1, .steps = {2}}, 0), (Steps{1, 3}));
  std::vector<KeptStep> pinned = steps_to(4);
  pinned[0].is_pinned = true;
  EXPECT_EQ(deletable(pinned, {.last = 1}, 0), (Steps{2, 3}));
}

TEST(Retention, TheBestByMetricStay) {
  std::vector<KeptStep> steps = steps_to(6);
  const double losses[] = {5, 1, std::nan(""), 3, 2, 4};
  for (size_t i = 0; i < 6; ++i) steps[i].metrics["loss"] = losses[i];
  Retention retention;
  retention.best = KeepBest{"loss", 2, true, false};
  EXPECT_EQ(deletable(steps, retention, 0), (Steps{1, 3, 4}));  // 6 is the newest
  retention.best->is_lowest_best = false;
  EXPECT_EQ(deletable(steps, retention, 0), (Steps{2, 3, 4, 5}));
  retention.best->keep_without_metric = true;
  EXPECT_EQ(deletable(steps, retention, 0), (Steps{2, 4, 5}));
}

TEST(Retention, TheNewestAndAFewAlwaysStay) {
  EXPECT_EQ(deletable(steps_to(3), {.last = 0}, 0), (Steps{1, 2}));
  EXPECT_EQ(deletable(steps_to(3), {.last = 1, .min_valid = 3}, 0), Steps{});
  EXPECT_EQ(deletable(steps_to(3), {.last = 0, .min_valid = 2}, 0), Steps{1});
}

}  // namespace
}  // namespace hekla::checkpoint
