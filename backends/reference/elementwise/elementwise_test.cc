// SPDX-License-Identifier: Apache-2.0
// The corners that StableHLO and XLA fix; the broad comparison with jaxlib is in tests/evaluator.
#include "backends/reference/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <limits>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/test_program.h"

namespace hekla::reference {
namespace {

using ir::OpCode;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();

std::vector<int32_t> run_i32(OpCode code, std::initializer_list<int32_t> a,
                             std::initializer_list<int32_t> b) {
  return values_of<int32_t>(*binary(code, i32(a), i32(b)));
}

using Ints = std::vector<int32_t>;

TEST(Integers, WrapAround) {
  constexpr int32_t kHighest = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(run_i32(OpCode::kAdd, {kHighest}, {1}), Ints({kLowest}));
  EXPECT_EQ(run_i32(OpCode::kMultiply, {65536}, {65536}), Ints({0}));
  EXPECT_EQ(values_of<int32_t>(*unary(OpCode::kNegate, i32({kLowest}))), Ints({kLowest}));
  EXPECT_EQ(values_of<int32_t>(*unary(OpCode::kAbs, i32({kLowest}))), Ints({kLowest}));
}

TEST(Integers, DivisionNeverTraps) {
  EXPECT_EQ(run_i32(OpCode::kDivide, {7, -7, 5, kLowest}, {2, 2, 0, -1}),
            Ints({3, -3, -1, kLowest}));
  EXPECT_EQ(run_i32(OpCode::kRemainder, {7, -7, 5, kLowest}, {2, 2, 0, -1}), Ints({1, -1, 5, 0}));
}

TEST(Integers, ShiftsBeyondTheWidth) {
  EXPECT_EQ(run_i32(OpCode::kShiftLeft, {1, 1, 1}, {31, 32, -1}), Ints({kLowest, 0, 0}));
  EXPECT_EQ(run_i32(OpCode::kShiftRightLogical, {-1, -1, -1}, {31, 32, -1}), Ints({1, 0, 0}));
  EXPECT_EQ(run_i32(OpCode::kShiftRightArithmetic, {-8, -8, 8}, {1, 40, 40}), Ints({-4, -1, 0}));
}

TEST(Integers, PowersOfNegativeExponents) {
  EXPECT_EQ(run_i32(OpCode::kPower, {2, 1, -1, -1, 0, 3, 2}, {-1, -5, -3, -2, 0, 4, 64}),
            Ints({0, 1, -1, 1, 1, 81, 0}));
}

TEST(Integers, NarrowTypesKeepTheirWidth) {
  const HostArray x = array_of<int8_t>(DType::kI4, {-8, 7, -1});
  const HostArray one = array_of<int8_t>(DType::kI4, {1, 1, 1});
  EXPECT_EQ(values_of<int8_t>(*binary(OpCode::kAdd, x, one)), std::vector<int8_t>({-7, -8, 0}));
  EXPECT_EQ(values_of<int8_t>(*unary(OpCode::kPopcnt, x)), std::vector<int8_t>({1, 3, 4}));
  EXPECT_EQ(values_of<int8_t>(
                *unary(OpCode::kCountLeadingZeros, array_of<int8_t>(DType::kI4, {0, 1, 7}))),
            std::vector<int8_t>({4, 3, 1}));
}

TEST(Floats, MinimumAndMaximumPropagateNanAndOrderZeros) {
  const auto larger = values_of<float>(
      *binary(OpCode::kMaximum, f32({kNan, 1, -0.0F, 0.0F}), f32({1, kNan, 0.0F, -0.0F})));
  EXPECT_TRUE(std::isnan(larger[0]) && std::isnan(larger[1]));
  EXPECT_FALSE(std::signbit(larger[2]) || std::signbit(larger[3]));
  const auto smaller =
      values_of<float>(*binary(OpCode::kMinimum, f32({-0.0F, 0.0F}), f32({0.0F, -0.0F})));
  EXPECT_TRUE(std::signbit(smaller[0]) && std::signbit(smaller[1]));
}

TEST(Floats, RoundingKeepsTiesAndSigns) {
  const HostArray x = f32({0.5F, 1.5F, 2.5F, -0.5F, 0.49999997F});
  EXPECT_EQ(values_of<float>(*unary(OpCode::kRoundNearestEven, x)),
            std::vector<float>({0, 2, 2, -0.0F, 0}));
  EXPECT_EQ(values_of<float>(*unary(OpCode::kRoundNearestAfz, x)),
            std::vector<float>({1, 2, 3, -1, 0}));
  EXPECT_TRUE(std::signbit(unary(OpCode::kCeil, f32({-0.5F}))->as<float>()[0]));
}

// The C library's cube root of a double is off by up to 4 units; tests allow it one.
TEST(Floats, CubeRootsOfDoublesAreTheNearest) {
  const HostArray x = array_of<double>(DType::kF64, {0.7215289354797405, -27.0, 0.0});
  EXPECT_EQ(values_of<double>(*unary(OpCode::kCbrt, x)),
            std::vector<double>({0x1.cb386ed9f9451p-1, -3.0, 0.0}));
}

TEST(Floats, ImaginaryPartOfARealNumberIsZero) {
  EXPECT_EQ(values_of<float>(*unary(OpCode::kImag, f32({kInf, kNan, -2}))),
            std::vector<float>({0, 0, 0}));
}

TEST(Floats, ReducePrecisionRoundsAndSaturates) {
  // e5m10 is f16: 65520 rounds to infinity, 2^-15 has no normal representation.
  EXPECT_EQ(values_of<float>(
                *reduce_precision(f32({65519, 65520, 0x1p-15F, 1 + 0x1p-11F, -1e9F}), 5, 10)),
            std::vector<float>({65504, kInf, 0, 1, -kInf}));
  EXPECT_TRUE(std::isnan(reduce_precision(f32({kNan}), 2, 1)->as<float>()[0]));
}

TEST(Clamp, TheUpperLimitWinsWhereLimitsCross) {
  EXPECT_EQ(values_of<float>(*clamp(f32({2, 0, 0}), f32({1, -5, 5}), f32({-2, 1, 1}))),
            std::vector<float>({-2, 0, 1}));
  const HostArray low = HostArray::scalar<float>(DType::kF32, 0);
  const HostArray high = HostArray::scalar<float>(DType::kF32, 1);
  const auto scalars = values_of<float>(*clamp(low, f32({-1, 0.5F, 2, kNan}), high));
  EXPECT_EQ(std::vector<float>(scalars.begin(), scalars.begin() + 3),
            std::vector<float>({0, 0.5F, 1}));
  EXPECT_TRUE(std::isnan(scalars[3]));
}

TEST(Compare, OnlyNeIsTrueForNan) {
  const HostArray x = f32({kNan, 1});
  EXPECT_EQ(values_of<uint8_t>(*compare(Direction::kNe, false, x, x)),
            std::vector<uint8_t>({1, 0}));
  for (Direction d : {Direction::kEq, Direction::kGe, Direction::kLe}) {
    EXPECT_EQ(values_of<uint8_t>(*compare(d, false, x, x)), std::vector<uint8_t>({0, 1}));
  }
}

TEST(Compare, TotalOrderSortsEveryValue) {
  const HostArray below = f32({-kNan, -kInf, -1, -0.0F, 0.0F, 1, kInf});
  const HostArray above = f32({-kInf, -1, -0.0F, 0.0F, 1, kInf, kNan});
  EXPECT_EQ(values_of<uint8_t>(*compare(Direction::kLt, true, below, above)),
            std::vector<uint8_t>(7, 1));
  // f8E4M3FNUZ: its NaN (0x80) below the lowest number (0xff); 0 above all negative ones.
  EXPECT_EQ(values_of<uint8_t>(*compare(Direction::kLt, true,
                                        array_of<uint8_t>(DType::kF8E4M3FNUZ, {0x80, 0xff, 0x81}),
                                        array_of<uint8_t>(DType::kF8E4M3FNUZ, {0xff, 0x81, 0}))),
            std::vector<uint8_t>({1, 1, 1}));
}

TEST(Compare, ComplexNumbersByRealPartFirst) {
  using C = std::complex<float>;
  const HostArray a = array_of<C>(DType::kC64, {{1, 2}, {1, 3}, {0, 9}});
  const HostArray b = array_of<C>(DType::kC64, {{1, 3}, {1, 3}, {1, 0}});
  EXPECT_EQ(values_of<uint8_t>(*compare(Direction::kLt, false, a, b)),
            std::vector<uint8_t>({1, 0, 1}));
  EXPECT_EQ(values_of<uint8_t>(*compare(Direction::kGe, false, a, b)),
            std::vector<uint8_t>({0, 1, 0}));
}

TEST(Convert, FloatsToIntegersSaturate) {
  EXPECT_EQ(
      values_of<int32_t>(*convert_elements(f32({2.9F, -2.9F, 3e9F, -kInf, kNan}), DType::kI32)),
      Ints({2, -2, std::numeric_limits<int32_t>::max(), kLowest, 0}));
  EXPECT_EQ(values_of<uint8_t>(*convert_elements(f32({-1, 300, 0.5F}), DType::kUI8)),
            std::vector<uint8_t>({0, 255, 0}));
}

TEST(Convert, ToBooleanLooksAtTheWholeValue) {
  EXPECT_EQ(values_of<uint8_t>(*convert_elements(f32({0.5F, kNan, -0.0F, 0}), DType::kI1)),
            std::vector<uint8_t>({1, 1, 0, 0}));
  using C = std::complex<float>;
  EXPECT_EQ(
      values_of<uint8_t>(*convert_elements(array_of<C>(DType::kC64, {{0, 1}, {1, 0}}), DType::kI1)),
      std::vector<uint8_t>({0, 1}));
}

TEST(Convert, RoundsOnceFromF64) {
  // Halfway between two bf16 values plus a bit that f32 would lose.
  const HostArray x = array_of<double>(DType::kF64, {1 + 0x1p-8 + 0x1p-40});
  EXPECT_EQ(convert_elements(x, DType::kBF16)->as<uint16_t>()[0], 0x3f81);
}

TEST(Complex, PowersOfZero) {
  using C = std::complex<float>;
  const auto r = values_of<C>(*binary(OpCode::kPower, array_of<C>(DType::kC64, {0, 0, 0}),
                                      array_of<C>(DType::kC64, {C(0), C(2), C(-1)})));
  EXPECT_EQ(r[0], C(1));
  EXPECT_EQ(r[1], C(0));
  EXPECT_TRUE(std::isnan(r[2].real()));
}

TEST(BitcastConvert, TheLowPartComesFirst) {
  const HostArray wide = array_of<uint32_t>(DType::kUI32, {0x04030201});
  EXPECT_EQ(values_of<uint8_t>(*bitcast_convert(wide, DType::kUI8, {1, 4})),
            std::vector<uint8_t>({1, 2, 3, 4}));
  const HostArray byte = array_of<uint8_t>(DType::kUI8, {0xf7});
  const Result<HostArray> parts = bitcast_convert(byte, DType::kI4, {1, 2});
  EXPECT_EQ(values_of<int8_t>(*parts), std::vector<int8_t>({7, -1}));
  EXPECT_EQ(values_of<uint8_t>(*bitcast_convert(*parts, DType::kUI8, {1})),
            std::vector<uint8_t>({0xf7}));
}

TEST(Select, TakesAScalarOrAnArrayAndLeavesTheOperandsAlone) {
  const HostArray x = f32({1, 2});
  const HostArray y = f32({3, kNan});
  const HostArray mask = array_of<uint8_t>(DType::kI1, {0, 1});
  EXPECT_EQ(values_of<float>(*select(mask, x, y)), std::vector<float>({3, 2}));
  EXPECT_EQ(values_of<float>(*select(HostArray::scalar<uint8_t>(DType::kI1, 1), x, y)),
            std::vector<float>({1, 2}));
  EXPECT_EQ(values_of<float>(x), std::vector<float>({1, 2}));
}

TEST(Empty, ArraysPassThroughEveryKindOfLoop) {
  const HostArray none(DType::kF32, {3, 0});
  EXPECT_EQ(binary(OpCode::kAdd, none, none)->dims(), Dims({3, 0}));
  EXPECT_EQ(unary(OpCode::kTanh, none)->dims(), Dims({3, 0}));
  EXPECT_EQ(compare(Direction::kEq, true, none, none)->dims(), Dims({3, 0}));
  EXPECT_EQ(clamp(none, none, none)->dims(), Dims({3, 0}));
  EXPECT_EQ(convert_elements(none, DType::kC128)->dims(), Dims({3, 0}));
}

TEST(Memory, SharedOperandsAreNotOverwritten) {
  HostArray x = f32({1, 2});
  const HostArray alias = x;
  EXPECT_EQ(values_of<float>(*unary(OpCode::kNegate, std::move(x))), std::vector<float>({-1, -2}));
  EXPECT_EQ(values_of<float>(alias), std::vector<float>({1, 2}));
  HostArray own = f32({1, 2});
  const std::byte* bytes = own.data();
  EXPECT_EQ(unary(OpCode::kNegate, std::move(own))->data(), bytes);
}

}  // namespace
}  // namespace hekla::reference
