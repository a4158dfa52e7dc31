// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/box.h"

#include <gtest/gtest.h>

#include <random>

namespace hekla::checkpoint {
namespace {

TEST(Box, IsWrittenAsRanges) {
  EXPECT_EQ(box_text({{0, 8}, {4, 8}}), "[0:4,8:16]");
  EXPECT_EQ(box_text({{}, {}}), "[]");
}

TEST(Box, BoxesOfAScalarMeet) {
  Box common;
  EXPECT_TRUE(intersect({{}, {}}, {{}, {}}, &common));
  EXPECT_EQ(common, (Box{{}, {}}));
  EXPECT_FALSE(check_disjoint(std::vector<Box>{{{}, {}}, {{}, {}}}).ok());
}

TEST(Box, BoxOutsideOfItsShapeIsRefused) {
  const Dims shape = {4, 6};
  EXPECT_TRUE(check_box(shape, {{0, 0}, {4, 6}}).ok());
  EXPECT_TRUE(check_box(shape, {{4, 6}, {0, 0}}).ok());
  EXPECT_EQ(check_box(shape, {{3, 0}, {2, 6}}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(check_box(shape, {{-1, 0}, {2, 6}}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(check_box(shape, {{0, 0}, {4, -1}}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(check_box(shape, {{0}, {4}}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(check_box(shape, {{1, INT64_MAX}, {1, INT64_MAX}}).code(), StatusCode::kOutOfRange);
}

TEST(Box, ShapesThatCannotBeStoredAreRefused) {
  EXPECT_TRUE(check_shape(DType::kF32, Dims(32, 1)).ok());
  EXPECT_FALSE(check_shape(DType::kF32, Dims(33, 1)).ok());
  EXPECT_FALSE(check_shape(DType::kF32, {-1}).ok());
  EXPECT_FALSE(check_shape(DType::kF32, {INT64_MAX}).ok());
  EXPECT_TRUE(check_shape(DType::kF32, {INT64_MAX, 0}).ok());
  EXPECT_FALSE(check_shape(DType::kInvalid, {}).ok());
}

// Every pair, against the recursion that looks at few.
TEST(Box, OverlapIsFoundWhereverItIs) {
  std::mt19937 random(7);
  const auto uniform = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int overlapping = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Box> boxes(uniform(0, 80));
    const int64_t longest = uniform(1, 4);
    for (Box& box : boxes) {
      for (int d = 0; d < 3; ++d) {
        box.start.push_back(uniform(0, 15));
        box.size.push_back(uniform(0, longest));
      }
    }
    bool overlap = false;
    Box common;
    for (size_t a = 0; a < boxes.size(); ++a) {
      for (size_t b = a + 1; b < boxes.size(); ++b) {
        overlap = overlap || intersect(boxes[a], boxes[b], &common);
      }
    }
    overlapping += overlap;
    ASSERT_EQ(check_disjoint(boxes).ok(), !overlap) << "iteration " << i;
  }
  EXPECT_GT(overlapping, 200);
  EXPECT_LT(overlapping, 1800);
}

TEST(Box, GridOfManyBoxesIsCheckedWithoutLookingAtAllPairs) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 300; ++i) {
    for (int64_t k = 0; k < 300; ++k) boxes.push_back({{i * 2, k * 3}, {2, 3}});
  }
  EXPECT_TRUE(check_disjoint(boxes).ok());  // 4e9 pairs would not end
  boxes.push_back({{301, 299}, {1, 1}});
  EXPECT_FALSE(check_disjoint(boxes).ok());
}

TEST(Box, UncoveredPartIsNamed) {
  const Box whole = {{0, 0}, {4, 4}};
  EXPECT_TRUE(uncovered(whole, std::vector<Box>{{{0, 0}, {4, 2}}, {{0, 2}, {4, 2}}}).empty());
  const std::vector<Box> hole =
      uncovered(whole, std::vector<Box>{{{0, 0}, {4, 2}}, {{0, 2}, {3, 2}}, {{3, 3}, {1, 1}}});
  ASSERT_EQ(hole.size(), 1u);
  EXPECT_EQ(hole[0], (Box{{3, 2}, {1, 1}}));
  EXPECT_EQ(uncovered({{}, {}}, {}).size(), 1u);
  EXPECT_TRUE(uncovered({{}, {}}, std::vector<Box>{{{}, {}}}).empty());
}

}  // namespace
}  // namespace hekla::checkpoint
