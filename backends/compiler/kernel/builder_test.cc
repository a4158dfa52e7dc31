// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/builder.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <numeric>
#include <string>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {
namespace {

using enum ScalarType;

template <typename T>
std::span<std::byte> bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

// y[i] = sum over k of a[i, k] * x[k], with an invariant factor that belongs outside of the loop.
Kernel matrix_vector(int64_t rows, int64_t columns) {
  Builder b(1, kI32);
  const Value row = b.grid_index(0);
  const Value sum =
      b.loop(b.index(columns), {b.real(kF32, 0)}, [&](Value k, const std::vector<Value>& carried) {
        const Value base = b.mul(row, b.index(columns));
        const Value a = b.load(kF32, {0, 4}, b.add(base, k));
        const Value x = b.load(kF32, {1, 4}, k);
        return std::vector<Value>{b.add(carried[0], b.mul(a, x))};
      })[0];
  b.store({2, 4}, row, sum);
  Kernel kernel;
  kernel.grid = {rows};
  kernel.operands = {
      {rows * columns * 4, true, false}, {columns * 4, true, false}, {rows * 4, false, true}};
  kernel.body = b.finish();
  return kernel;
}

TEST(Builder, LoopsCarryValues) {
  const Kernel kernel = matrix_vector(3, 4);
  ASSERT_TRUE(verify(kernel.body).ok()) << verify(kernel.body).message();
  std::vector<float> a(12), x(4, 2.0f), y(3);
  std::iota(a.begin(), a.end(), 0.0f);
  const std::span<std::byte> operands[] = {bytes(a), bytes(x), bytes(y)};
  ASSERT_TRUE(interpret(kernel, operands).ok());
  EXPECT_EQ(y, (std::vector<float>{12, 44, 76}));
}

TEST(Builder, InvariantsStandOutsideOfLoops) {
  const Kernel kernel = matrix_vector(3, 4);
  // The row's start is computed in the body, not in the loop.
  const Function& f = kernel.body;
  EXPECT_EQ(f[f.body().instructions.front()].op, Op::kMul);
  for (Value v : f.region(1).instructions) {
    if (f[v].op == Op::kMul) {
      EXPECT_EQ(f[v].type, kF32);
    }
  }
}

TEST(Builder, EqualValuesAreShared) {
  Builder b(1, kI32);
  const Value i = b.grid_index(0);
  EXPECT_EQ(b.add(i, b.index(3)), b.add(b.index(3), i));
  EXPECT_EQ(b.add(b.add(i, b.index(3)), b.index(4)), b.add(i, b.index(7)));
  EXPECT_EQ(b.add(i, b.index(0)), i);
  EXPECT_EQ(b.select(b.boolean(true), i, b.index(1)), i);
}

TEST(Builder, DivisionsOfSumsOfIndicesGo) {
  Builder b(2, kI32);
  b.set_grid_size(0, 100);
  b.set_grid_size(1, 8);
  const Value i = b.grid_index(0), j = b.grid_index(1);
  const Value linear = b.add(b.mul(i, b.index(8)), j);
  EXPECT_EQ(b.binary(Op::kDivU, linear, b.index(8)), i);
  EXPECT_EQ(b.binary(Op::kRemU, linear, b.index(8)), j);
  EXPECT_EQ(b.binary(Op::kRemU, b.add(linear, b.index(16)), b.index(8)), j);
  // j may reach 4: a real division.
  const Value real = b.binary(Op::kDivU, linear, b.index(4));
  EXPECT_NE(real, b.mul(i, b.index(2)));
  EXPECT_EQ(b.binary(Op::kRemU, linear, b.index(4)), b.binary(Op::kRemU, j, b.index(4)));
}

TEST(Builder, FoldsByTheMeaningOfTheOps) {
  Builder b(0, kI32);
  auto bits = [&](Value v) { return *b.constant(v); };
  EXPECT_EQ(bits(b.binary(Op::kDivS, b.integer(kI32, -7), b.integer(kI32, 2))),
            static_cast<uint32_t>(-3));
  EXPECT_EQ(bits(b.binary(Op::kShrS, b.integer(kI32, -8), b.integer(kI32, 1))),
            static_cast<uint32_t>(-4));
  EXPECT_EQ(bits(b.add(b.real(kF32, 0.1), b.real(kF32, 0.2))),
            std::bit_cast<uint32_t>(0.1f + 0.2f));
  EXPECT_EQ(bits(b.convert(Op::kFloatToSInt, kI32, b.real(kF32, -2.9))), static_cast<uint32_t>(-2));
  EXPECT_EQ(bits(b.binary(Op::kLtU, b.integer(kI32, -1), b.integer(kI32, 1))), 0u);
}

TEST(Builder, FloatIdentitiesAreKept) {
  // x + 0 is not x for -0, and x - x is not 0 for NaN.
  Builder b(1, kI32);
  const Value x = b.load(kF32, {0, 4}, b.grid_index(0));
  EXPECT_NE(b.add(x, b.real(kF32, 0)), x);
  EXPECT_EQ(b.constant(b.sub(x, x)), nullptr);
}

TEST(Verify, NamesAWrongType) {
  Builder b(1, kI32);
  const Value i = b.grid_index(0);
  b.store({0, 8}, i, i);  // a 32-bit value to elements of 64 bits
  const Status status = verify(b.finish());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("store"), std::string::npos);
}

// A loop that stands in its own region would have no end.
TEST(Verify, NamesAnInstructionInARegionThatIsNotItsOwn) {
  Builder b(1, kI32);
  b.loop(b.index(3), {}, [&](Value, const std::vector<Value>&) {
    b.store({0, 4}, b.grid_index(0), b.grid_index(0));
    return std::vector<Value>();
  });
  const Function sound = b.finish();
  ASSERT_TRUE(verify(sound).ok()) << verify(sound).message();
  std::vector<RegionBody> regions = sound.regions();
  regions[1].instructions = regions[0].instructions;
  const Status status = verify(Function(sound.instructions(), std::move(regions)));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("not its own"), std::string::npos) << status.message();
}

// Three rounds of counting: each point adds its number to a word, and all read it.
Kernel counting(const std::function<Value(Builder&)>& trips, uint32_t words = 4) {
  Builder b(1, kI32);
  const Value point = b.grid_index(0);
  const TeamMemory memory{0, 0, words};
  const Value last = b.loop(trips(b), {b.integer(kI32, 0)}, [&](Value t, const auto& carried) {
    b.team_store(memory, point, carried[0]);
    b.team_add(memory, b.integer(kI32, 1), b.add(point, t));
    return std::vector<Value>{b.team_load(memory, b.integer(kI32, 1))};
  })[0];
  b.store({0, 4}, point, last);
  Kernel kernel;
  kernel.grid = {4};
  kernel.operands = {{16, false, true}};
  kernel.body = b.finish();
  return kernel;
}

TEST(Interpreter, PointsOfATeamGoThroughLoopsInStep) {
  const Kernel kernel = counting([](Builder& b) { return b.index(3); });
  ASSERT_TRUE(verify(kernel.body).ok()) << verify(kernel.body).message();
  std::vector<int32_t> got(4);
  const std::span<std::byte> operands[] = {bytes(got)};
  ASSERT_TRUE(interpret(kernel, operands).ok());
  // 0 + 6, 6 + 10, 16 + 14.
  EXPECT_EQ(got, (std::vector<int32_t>{30, 30, 30, 30}));
  EXPECT_EQ(interpret(counting([](Builder& b) { return b.index(1); }, 3), operands).code(),
            StatusCode::kOutOfRange);
}

// As many rounds as the first point of the team says, none among them.
TEST(Interpreter, TeamsGoThroughLoopsOfTripsThatTheyShare) {
  for (const int32_t trips : {0, 2}) {
    const Kernel kernel = counting([&](Builder& b) {
      const TeamMemory memory{0, 1, 4};
      b.team_store(memory, b.grid_index(0), b.add(b.grid_index(0), b.integer(kI32, trips)));
      return b.team_load(memory, b.integer(kI32, 0));
    });
    ASSERT_TRUE(verify(kernel.body).ok()) << verify(kernel.body).message();
    EXPECT_TRUE(has_uneven_exchanges(kernel.body));
    std::vector<int32_t> got(4);
    const std::span<std::byte> operands[] = {bytes(got)};
    ASSERT_TRUE(interpret(kernel, operands).ok());
    const int32_t want = trips == 0 ? 0 : 16;
    EXPECT_EQ(got, (std::vector<int32_t>{want, want, want, want}));
  }
  EXPECT_FALSE(has_uneven_exchanges(counting([](Builder& b) { return b.index(3); }).body));
}

TEST(Verify, TeamsExchangeInLoopsOfTripsThatTheyShareAlone) {
  for (const auto& trips :
       {+[](Builder& b) { return b.index(0); }, +[](Builder& b) { return b.grid_index(0); }}) {
    const Status status = verify(counting(trips).body);
    EXPECT_NE(status.message().find("trips are no constant"), std::string::npos)
        << status.message();
  }
  Builder b(1, kI32);
  b.team_store({0, 0, 4}, b.grid_index(0), b.grid_index(0));
  b.team_store({0, 0, 8}, b.grid_index(0), b.grid_index(0));
  const Status status = verify(b.finish());
  EXPECT_NE(status.message().find("size of the array"), std::string::npos) << status.message();
}

TEST(Interpreter, RefusesToLeaveABuffer) {
  const Kernel kernel = matrix_vector(3, 4);
  std::vector<float> a(12), x(3), y(3);
  const std::span<std::byte> operands[] = {bytes(a), bytes(x), bytes(y)};
  const Status status = interpret(kernel, operands);
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace hekla::kernel
