// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/sorting.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "backends/reference/kernels/test_arrays.h"

namespace hekla::reference {
namespace {

LambdaFunction<int32_t, uint8_t> less(size_t inputs) {
  return {DType::kI32, 2 * inputs, DType::kI1, 1,
          [](const auto& in, auto& out) { out[0] = in[0] < in[1]; }};
}

TEST(Sort, IsStableAlongAnyDimension) {
  Random random(21);
  for (int round = 0; round < 100; ++round) {
    Dims dims = {pick(random, 1, 4), pick(random, 1, round % 4 == 0 ? 700 : 20),
                 pick(random, 1, 3)};
    const int64_t dim = pick(random, -3, 2);
    const size_t d = static_cast<size_t>(dim < 0 ? dim + 3 : dim);
    const HostArray keys = random_i32(random, dims);
    HostArray places(DType::kI32, dims);
    for (const Dims& index : all_indices(dims)) {
      places.mutable_as<int32_t>()[flat(dims, index)] = static_cast<int32_t>(index[d]);
    }
    LambdaFunction<int32_t, uint8_t> comparator = less(2);
    const std::vector<HostArray> inputs = {keys, places};
    const std::vector<HostArray> sorted = reference::sort(inputs, dim, comparator).value();
    for (const Dims& index : all_indices(dims)) {
      Dims from = index;
      from[d] = at(sorted[1], index);
      ASSERT_EQ(at(keys, from), at(sorted[0], index));
      if (index[d] == 0) continue;
      Dims before = index;
      --before[d];
      ASSERT_LE(at(sorted[0], before), at(sorted[0], index));
      if (at(sorted[0], before) == at(sorted[0], index)) {
        ASSERT_LT(at(sorted[1], before), at(sorted[1], index));
      }
    }
  }
}

TEST(Sort, CallsTheComparatorRarely) {
  Random random(22);
  const HostArray keys = random_i32(random, {100000}, -1000000, 1000000);
  LambdaFunction<int32_t, uint8_t> comparator = less(1);
  const HostArray sorted = reference::sort({&keys, 1}, 0, comparator).value()[0];
  EXPECT_TRUE(std::is_sorted(sorted.as<int32_t>(), sorted.as<int32_t>() + sorted.size()));
  EXPECT_LT(comparator.calls, 10000);
}

TEST(Sort, AnyComparatorGivesAPermutation) {
  Random random(23);
  for (int kind = 0; kind < 3; ++kind) {
    HostArray keys(DType::kI32, {5000});
    std::iota(keys.mutable_as<int32_t>(), keys.mutable_as<int32_t>() + 5000, 0);
    LambdaFunction<int32_t, uint8_t> comparator(
        DType::kI32, 2, DType::kI1, 1, [&](const auto& in, auto& out) {
          out[0] = kind == 0   ? random() % 2
                   : kind == 1 ? 1
                               : (in[0] * 7919 + in[1] * 104729) % 3 == 0;
        });
    const HostArray sorted = reference::sort({&keys, 1}, 0, comparator).value()[0];
    std::vector<int32_t> values(sorted.as<int32_t>(), sorted.as<int32_t>() + 5000);
    std::sort(values.begin(), values.end());
    ASSERT_TRUE(std::equal(values.begin(), values.end(), keys.as<int32_t>()));
  }
}

// As jaxlib's CPU orders them.
TEST(TopK, OrdersNanAndZerosTotally) {
  const float nan = std::nanf("");
  const std::vector<float> values = {1, nan, -nan, HUGE_VALF, -HUGE_VALF, 0.0f, -0.0f, nan};
  const HostArray operand = HostArray::from<float>(DType::kF32, {8}, values);
  const std::vector<int32_t> expected = {1, 7, 3, 0, 5, 6, 4, 2};
  const TopK result = top_k(operand, 8).value();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), result.indices.as<int32_t>()));
  const TopK smallest = top_k(operand, 2, false).value();
  EXPECT_EQ(smallest.indices.as<int32_t>()[0], 2);
  EXPECT_EQ(smallest.values.as<float>()[1], -HUGE_VALF);
}

}  // namespace
}  // namespace hekla::reference
