// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/boxes_cache.h"

#include <gtest/gtest.h>

namespace hekla::checkpoint {
namespace {

TEST(BoxesCache, SameQuestionHasTheSameAnswer) {
  BoxesCache cache;
  const Sharding sharding = parse_sharding("mesh=(a:2,b:2) spec=(a)").value();
  const std::vector<int32_t> ranks = {0, 0, 1, 1};
  const auto first = cache.get(sharding, {8}, ranks).value();
  EXPECT_EQ(*first, **held_boxes(sharding, {8}, ranks));
  EXPECT_EQ(cache.get(sharding, {8}, ranks).value(), first);
  EXPECT_NE(cache.get(sharding, {8}).value(), first);
  EXPECT_NE(cache.get(sharding, {9}, ranks).value(), first);
  EXPECT_NE(cache.get(sharding, {8, 1}, ranks).value(), first);
  EXPECT_NE(cache.get(parse_sharding("mesh=(a:2,b:2) spec=(b)").value(), {8}, ranks).value(),
            first);
  EXPECT_NE(
      cache.get(parse_sharding("mesh=(a:2,b:2) spec=(a) devices=[3,2,1,0]").value(), {8}, ranks)
          .value(),
      first);
  EXPECT_EQ(cache.size(), 6u);
}

TEST(BoxesCache, KeepsExplicitBoxesApart) {
  BoxesCache cache;
  const std::vector<Holding> halves = {{0, {{0}, {4}}}, {1, {{4}, {4}}}};
  const std::vector<Holding> turned = {{1, {{0}, {4}}}, {0, {{4}, {4}}}};
  const auto first = cache.get(halves, {8}).value();
  EXPECT_EQ(cache.get(halves, {8}).value(), first);
  EXPECT_FALSE(*cache.get(turned, {8}).value() == *first);
}

TEST(BoxesCache, KeepsNoErrorsAndForgetsTheOldest) {
  BoxesCache cache(10);
  const Sharding sharding = parse_sharding("mesh=(a:2) spec=(a)").value();
  EXPECT_FALSE(cache.get(sharding, {}).ok());
  EXPECT_EQ(cache.size(), 0u);
  const auto kept = cache.get(sharding, {1000}).value();
  for (int64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(cache.get(sharding, {i}).ok());
    ASSERT_EQ(cache.get(sharding, {1000}).value(), kept);
    ASSERT_LE(cache.size(), 10u);
  }
}

}  // namespace
}  // namespace hekla::checkpoint
