// SPDX-License-Identifier: Apache-2.0
#include "tools/run/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tools/run/describe.h"
#include "tools/run/input_rule.h"

namespace hekla::tools {
namespace {

HostArray floats(std::vector<float> values) {
  const auto size = static_cast<int64_t>(values.size());
  return HostArray::from<float>(DType::kF32, {size}, values);
}

TEST(Compare, TheRuleIsAbsolutePlusRelative) {
  EXPECT_TRUE(compare(floats({1.5f}), floats({1.0f}), {0.25, 0.25}).passed);
  EXPECT_FALSE(compare(floats({1.51f}), floats({1.0f}), {0.25, 0.25}).passed);
  const Comparison result = compare(floats({1, 5, 9}), floats({1, 2, 3}), {0, 1});
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.mismatches, 2);
  EXPECT_EQ(result.max_error, 6);
  EXPECT_EQ(result.first_difference, "element [1]: got 5, want 2");
}

TEST(Compare, NanEqualsNanAndInfinityItself) {
  const float nan = NAN, inf = INFINITY;
  EXPECT_TRUE(compare(floats({nan, inf, -inf, 0.0f}), floats({nan, inf, -inf, -0.0f}), {}).passed);
  EXPECT_FALSE(compare(floats({nan}), floats({1}), {1e9, 1e9}).passed);
  EXPECT_FALSE(compare(floats({1}), floats({nan}), {1e9, 1e9}).passed);
  EXPECT_FALSE(compare(floats({inf}), floats({-inf}), {1e9, 1e9}).passed);
  EXPECT_FALSE(compare(floats({1}), floats({inf}), {1e9, 1e9}).passed);
}

TEST(Compare, LargeIntegersAreExact) {
  const auto integer = [](int64_t value) { return HostArray::scalar(DType::kI64, value); };
  const int64_t big = (int64_t{1} << 62) + 1;
  EXPECT_TRUE(compare(integer(big), integer(big), {}).passed);
  EXPECT_FALSE(compare(integer(big), integer(big - 1), {}).passed);
  EXPECT_NE(compare(integer(big), integer(-1), {}).first_difference.find("4611686018427387905"),
            std::string::npos);
}

TEST(Compare, ComplexNumbersAreOneElement) {
  const auto complex = [](float re, float im) {
    const float parts[] = {re, im};
    return HostArray::from<float>(DType::kC64, {1}, parts);
  };
  EXPECT_TRUE(compare(complex(3, 4), complex(3, 4.5), {0.1, 0}).passed);
  EXPECT_FALSE(compare(complex(3, 4), complex(3, 5), {0.1, 0}).passed);
  EXPECT_TRUE(compare(complex(NAN, 1), complex(NAN, 1), {}).passed);
  EXPECT_FALSE(compare(complex(NAN, 1), complex(2, 1), {1e9, 1e9}).passed);
}

TEST(Compare, ShapesAndDtypesMustAgree) {
  EXPECT_EQ(compare(floats({1}), floats({1, 2}), {}).first_difference, "got f32[1], want f32[2]");
  EXPECT_FALSE(compare(floats({1}), HostArray(DType::kF64, {1}), {}).passed);
}

TEST(Compare, SamplesAndSumAreBothChecked) {
  const int64_t indices[] = {0, 2};
  const double values[] = {1, 3};
  SampledResult want{DType::kF32, {4}, indices, values, 10, 10, 0.01};
  EXPECT_TRUE(compare(floats({1, 2, 3, 4}), want, {}).passed);
  EXPECT_FALSE(compare(floats({1, 2, 4, 3}), want, {}).passed);
  EXPECT_FALSE(compare(floats({1, 2, 3, 5}), want, {}).passed) << "the sum is off";
  const int64_t outside[] = {0, 4};
  want.indices = outside;
  EXPECT_FALSE(compare(floats({1, 2, 3, 4}), want, {}).passed);
}

TEST(InputRule, GivesTheNumbersOfTheScriptThatMadeTheCases) {
  // Bytes printed by tests/programs/rules.py.
  const auto uniform = make_input({DType::kF32, {4}, 5, InputRule::Kind::kUniform, -1, 1});
  ASSERT_TRUE(uniform.ok());
  const uint32_t want[] = {0xbeb0d184, 0x3f069a18, 0xbe9d0f0d, 0x3e8b7ddd};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(uniform->as<uint32_t>()[i], want[i]);
  const auto wide =
      make_input({DType::kF64, {1}, uint64_t{1} << 40, InputRule::Kind::kUniform, 0.25, 0.75});
  EXPECT_EQ(wide->as<uint64_t>()[0], 0x3fd326e2cfc2d1b2u);
  const auto integers = make_input({DType::kI32, {4}, 7, InputRule::Kind::kIntegers, 0, 10});
  const int32_t numbers[] = {7, 5, 7, 8};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(integers->as<int32_t>()[i], numbers[i]);
  const auto bf16 = make_input({DType::kBF16, {3}, 9, InputRule::Kind::kIntegers, -2, 3});
  const uint16_t halves[] = {0x4000, 0x3f80, 0x3f80};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bf16->as<uint16_t>()[i], halves[i]);
}

TEST(InputRule, RefusesWhatTheDtypeCannotHold) {
  EXPECT_FALSE(make_input({DType::kUI8, {4}, 1, InputRule::Kind::kIntegers, 0, 1000}).ok());
  EXPECT_FALSE(make_input({DType::kUI8, {4}, 1, InputRule::Kind::kConstant, -1, 0}).ok());
  EXPECT_FALSE(make_input({DType::kF32, {int64_t{1} << 62}, 1}).ok());
  EXPECT_FALSE(make_input({DType::kF32, {-1}, 1}).ok());
}

TEST(Describe, SmallArraysInFullLargeOnesByRange) {
  EXPECT_EQ(describe(floats({1, 2.5})), "f32[2] [1, 2.5]");
  EXPECT_EQ(describe(HostArray(DType::kI1, {})), "i1[] [false]");
  EXPECT_EQ(describe(floats({1, 2, 3, 4, 5, 6, 7, 8, NAN})),
            "f32[9] min 1, max 8, mean 4.5, 1 NaN");
}

}  // namespace
}  // namespace hekla::tools
