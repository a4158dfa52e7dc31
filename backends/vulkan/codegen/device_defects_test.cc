// SPDX-License-Identifier: Apache-2.0
// Where drivers are known to be wrong: what is generated is right there, and they still are wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backends/compiler/kernel/builder.h"
#include "backends/vulkan/codegen/testing/contraction_kernel.h"
#include "backends/vulkan/codegen/testing/on_device.h"
#include "runtime/base/cpu_info.h"

namespace hekla::vulkan {
namespace {

using kernel::Op;
using kernel::ScalarType;
using kernel::testing::OpCase;
using kernel::testing::TestKernel;
using testing::OnDevice;

// Each of the results becomes an operand of its own, at the point i.
void store(TestKernel& test, kernel::Builder& b, kernel::Value i,
           const std::vector<kernel::Value>& results) {
  const auto bytes = test.elements[0].bytes;
  const ScalarType type = test.elements[0].type;
  const int64_t points = test.kernel.points();
  test.kernel.operands.resize(3);
  test.elements.resize(3);
  test.labels.resize(3);
  test.contents.resize(3);
  for (const kernel::Value v : results) {
    b.store({static_cast<int32_t>(test.elements.size()), bytes}, i, v);
    test.labels.push_back("%" + std::to_string(v));
    test.kernel.operands.push_back({points * bytes, false, true});
    test.elements.push_back({type, bytes});
    test.contents.emplace_back(static_cast<size_t>(points) * bytes, std::byte{0xa5});
  }
  test.kernel.body = b.finish();
}

// x + 0, x * 0, 0 / x and x / 0 with every zero that a compiler can see, and x - x.
TestKernel zeros(ScalarType type) {
  const std::vector<OpCase> cases{{Op::kAbs, type, type}};
  TestKernel test = kernel::testing::op_kernel(cases);
  const auto bytes = test.elements[0].bytes;
  const int64_t points = test.kernel.points();
  test.kernel.name = "zeros";
  test.kernel.grid = {points, 1};
  kernel::Builder b(2, ScalarType::kI32);
  const kernel::Value i = b.grid_index(0);
  const kernel::Value x = b.load(type, {0, bytes}, i);
  const kernel::Value by_index = b.convert(Op::kSIntToFloat, type, b.grid_index(1));
  std::vector<kernel::Value> results;
  for (const kernel::Value zero :
       {b.real(type, 0.0), b.real(type, -0.0), by_index, b.neg(by_index),
        b.unary(Op::kSqrt, by_index), b.mul(by_index, b.real(type, 3))}) {
    for (const Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv}) {
      results.push_back(b.binary(op, x, zero));
      results.push_back(b.binary(op, zero, x));
    }
  }
  results.push_back(b.sub(x, x));
  results.push_back(b.loop(b.index(2), {b.real(type, 0.0)},
                           [&](kernel::Value, const std::vector<kernel::Value>& sum) {
                             return std::vector<kernel::Value>{b.add(sum[0], x)};
                           })[0]);
  store(test, b, i, results);
  return test;
}

TEST_F(OnDevice, ZerosKeepTheirMeaning) {
  EXPECT_EQ(difference(zeros(ScalarType::kF32), target()), "");
  EXPECT_EQ(difference(zeros(ScalarType::kF64), target()), "");
}

// infinity - x and its like, of which the sign is known, and what is between two bounds of that.
TestKernel infinities(ScalarType type) {
  const std::vector<OpCase> cases{{Op::kAbs, type, type}};
  TestKernel test = kernel::testing::op_kernel(cases);
  const auto bytes = test.elements[0].bytes;
  const int64_t points = test.kernel.points();
  test.kernel.name = "infinities";
  test.kernel.grid = {points, 1};
  kernel::Builder b(2, ScalarType::kI32);
  const kernel::Value i = b.grid_index(0);
  const kernel::Value x = b.load(type, {0, bytes}, i);
  std::vector<kernel::Value> results;
  const kernel::Value low = b.real(type, -104), high = b.real(type, 89);
  for (const double infinity : {HUGE_VAL, -HUGE_VAL}) {
    const kernel::Value known = b.real(type, infinity);
    for (const kernel::Value v : {b.sub(known, x), b.sub(x, known), b.add(known, x)}) {
      // Each with one use: a compiler looks through no others.
      kernel::Value bounded = b.neg(b.unary(Op::kAbs, v));
      bounded = b.select(b.binary(Op::kLt, bounded, low), low, bounded);
      bounded = b.select(b.binary(Op::kLt, high, bounded), high, bounded);
      results.push_back(b.mul(bounded, b.real(type, 1.5)));
    }
  }
  store(test, b, i, results);
  return test;
}

TEST_F(OnDevice, InfinitiesKeepTheirMeaning) {
  EXPECT_EQ(difference(infinities(ScalarType::kF32), target()), "");
  EXPECT_EQ(difference(infinities(ScalarType::kF64), target()), "");
}

// condition ? bits of two values under a mask : one of the two, or the other way around. One in a
// kernel: what has several uses is not folded, and constants of several stay in registers. One
// value is computed, and never NaN.
struct SelectedBits {
  int64_t mask;
  int other;  // 0 or 1; 2: bits of both; 3: the computed value, the masked one is 0's, shifted
  bool is_first;
};
TestKernel selected_bits(const SelectedBits& drawn) {
  constexpr ScalarType kF32 = ScalarType::kF32;
  TestKernel test = kernel::testing::op_kernel({{Op::kMul, kF32, kF32}});
  const int64_t points = test.kernel.points();
  test.kernel.name = "selected_bits";
  test.kernel.grid = {points, 1};
  kernel::Builder b(2, ScalarType::kI32);
  const kernel::Value i = b.grid_index(0);
  const kernel::Value x = b.load(kF32, {0, 4}, i), y = b.load(kF32, {1, 4}, i);
  const auto bits = [&](kernel::Value v) { return b.convert(Op::kBitcast, ScalarType::kI32, v); };
  const auto integer = [&](int64_t v) { return b.integer(ScalarType::kI32, v); };
  const auto both = [&] {
    return b.convert(
        Op::kBitcast, kF32,
        b.bit_or(b.binary(Op::kShl, b.binary(Op::kShrU, bits(x), integer(31)), integer(31)),
                 b.add(b.bit_and(bits(x), integer(0x3fffffff)), integer(0x38000))));
  };
  const kernel::Value integral = b.convert(Op::kSIntToFloat, kF32, bits(y));
  const kernel::Value other = drawn.other == 3   ? integral
                              : drawn.other == 2 ? both()
                              : drawn.other == 1 ? y
                                                 : x;
  const kernel::Value computed =
      drawn.other == 3 ? b.convert(Op::kBitcast, kF32, b.binary(Op::kShl, bits(x), integer(16)))
                       : integral;
  const kernel::Value in = integer(drawn.mask), out = integer(drawn.mask ^ 0xffffffff);
  const kernel::Value merged = b.convert(
      Op::kBitcast, kF32, b.bit_or(b.bit_and(bits(computed), in), b.bit_and(bits(other), out)));
  const kernel::Value is_less = b.binary(Op::kLt, y, x);
  b.store({2, 4}, i,
          drawn.is_first ? b.select(is_less, merged, other) : b.select(is_less, other, merged));
  test.kernel.operands.resize(2);
  test.elements.resize(2);
  test.labels.resize(2);
  test.contents.resize(2);
  test.labels.emplace_back("selected");
  test.kernel.operands.push_back({points * 4, false, true});
  test.elements.push_back({kF32, 4});
  test.contents.emplace_back(static_cast<size_t>(points) * 4, std::byte{0xa5});
  test.kernel.body = b.finish();
  return test;
}

constexpr SelectedBits kSelectedBits[] = {
    {0x7fffffff, 0, true}, {0x7fffffff, 0, false}, {0x7fffffff, 1, true}, {0x7fffffff, 1, false},
    {0x00ff00ff, 0, true}, {0x00ff00ff, 0, false}, {0x00ff00ff, 1, true}, {0x00ff00ff, 1, false},
    {0x7fffffff, 2, true}, {0x7fffffff, 2, false}, {0x00ff00ff, 2, true}, {0x00ff00ff, 2, false},
    {0x80000000, 3, true}, {0x80000000, 3, false}, {0x00ff00ff, 3, true}, {0x00ff00ff, 3, false}};

// With words of 64 bits two points share the constants, which then stay in registers as well.
TEST_F(OnDevice, BitsAreSelected) {
  for (const uint32_t points : {0, 1}) {
    Target t = target();
    t.points_per_invocation = points;
    for (const SelectedBits& drawn : kSelectedBits) {
      EXPECT_EQ(difference(selected_bits(drawn), t), "") << drawn.mask << drawn.other;
    }
  }
}

// The defects that a Target works around are there. A test that fails says that a driver is better
// than target.cc believes.

TEST_F(OnDevice, LlvmpipeFoldsZeros) {
  Target t = target();
  if (!t.folds_zeros) GTEST_SKIP() << t.device << " is not llvmpipe";
  t.folds_zeros = false;
  EXPECT_NE(difference(zeros(ScalarType::kF32), t), "");
  EXPECT_NE(difference(zeros(ScalarType::kF64), t), "");
}

TEST_F(OnDevice, LlvmpipeSelectsOtherBits) {
  Target t = target();
  if (!t.masks_bits_wrongly || read_cpu_info().simd_level != "AVX-512") {
    GTEST_SKIP() << t.device << " is not llvmpipe with AVX-512";
  }
  t.masks_bits_wrongly = false;
  t.points_per_invocation = 1;
  int wrong = 0;
  for (const SelectedBits& drawn : kSelectedBits) {
    wrong += static_cast<int>(!difference(selected_bits(drawn), t).empty());
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(OnDevice, SwiftShaderCannotCastPointers) {
  Target t = target();
  if (t.casts_pointers) GTEST_SKIP() << t.device << " is not SwiftShader";
  t.casts_pointers = true;
  testing::ContractionShape shape;
  shape.rows = shape.columns = shape.depth = 64;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)difference(testing::contraction_kernel(shape, 1), t), "");
}

TEST_F(OnDevice, LlvmpipeTruncatesToTheWrongZero) {
  Target t = target();
  if (!t.folds_zeros) GTEST_SKIP() << t.device << " is not llvmpipe";
  t.f64.exact_rounding = true;
  const OpCase trunc{Op::kTrunc, ScalarType::kF64, ScalarType::kF64};
  EXPECT_EQ(difference(kernel::testing::op_kernel({trunc}), t).empty(), rounds_doubles_right());
}

}  // namespace
}  // namespace hekla::vulkan
