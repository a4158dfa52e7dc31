// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/lane_analysis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/compiler/kernel/builder.h"
#include "backends/cpu/codegen/schedule.h"

namespace hekla::cpu {
namespace {

using kernel::Builder;
using kernel::Kernel;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

constexpr ScalarType kI32 = ScalarType::kI32;
constexpr ScalarType kI64 = ScalarType::kI64;
constexpr ScalarType kF32 = ScalarType::kF32;

Kernel finish(Builder& b, std::vector<int64_t> grid) {
  Kernel kernel;
  kernel.grid = std::move(grid);
  kernel.index_type = b.index_type();
  kernel.operands = {{1 << 20, true, false}, {1 << 20, false, true}};
  kernel.body = b.finish();
  EXPECT_TRUE(verify(kernel.body).ok()) << verify(kernel.body).to_string();
  return kernel;
}

TEST(LaneAnalysis, AddressesAreAffineAndRowsUniform) {
  Builder b(2, kI32);
  const Value row = b.mul(b.grid_index(0), b.index(100));
  const Value at = b.add(row, b.grid_index(1));
  const Value twice = b.mul(at, b.index(2));
  const Value back = b.sub(b.index(99), b.grid_index(1));
  const Value halved = b.binary(Op::kShrU, at, b.index(1));
  const Value of_row = b.load(kF32, {0, 4}, row);
  const Value of_point = b.load(kF32, {0, 4}, at);
  const Value fixed = b.load(kF32, {0, 4}, b.index(5));
  const LaneAnalysis lanes(finish(b, {10, 100}), 1);
  EXPECT_EQ(lanes.shape(row), (LaneShape{LaneKind::kUniform, 0}));
  EXPECT_EQ(lanes.shape(at), (LaneShape{LaneKind::kAffine, 1}));
  EXPECT_EQ(lanes.shape(twice), (LaneShape{LaneKind::kAffine, 2}));
  EXPECT_EQ(lanes.shape(back), (LaneShape{LaneKind::kAffine, -1}));
  EXPECT_EQ(lanes.shape(halved).kind, LaneKind::kVarying);
  EXPECT_EQ(lanes.shape(of_row).kind, LaneKind::kUniform);
  EXPECT_EQ(lanes.shape(of_point).kind, LaneKind::kVarying);
  EXPECT_EQ(lanes.level(fixed), Level::kCall);
  EXPECT_EQ(lanes.level(of_row), Level::kRow);
  EXPECT_EQ(lanes.level(at), Level::kPoint);
}

// i32 arithmetic may wrap between two lanes; then the wider value is not affine.
TEST(LaneAnalysis, WideningIsAffineOnlyWhereNothingWraps) {
  Builder b(1, kI32);
  const Value i = b.grid_index(0);
  const Value hashed = b.mul(i, b.integer(kI32, 0x7fffff));
  const Value negative = b.sub(i, b.integer(kI32, 5));
  const Value safe = b.convert(Op::kSignExtend, kI64, i);
  const Value unsafe = b.convert(Op::kSignExtend, kI64, hashed);
  const Value signed_wide = b.convert(Op::kSignExtend, kI64, negative);
  const Value unsigned_wide = b.convert(Op::kZeroExtend, kI64, negative);
  const LaneAnalysis lanes(finish(b, {1000}), 0);
  EXPECT_EQ(lanes.shape(hashed), (LaneShape{LaneKind::kAffine, 0x7fffff}));
  EXPECT_EQ(lanes.shape(safe), (LaneShape{LaneKind::kAffine, 1}));
  EXPECT_EQ(lanes.shape(unsafe).kind, LaneKind::kVarying);
  EXPECT_EQ(lanes.shape(signed_wide), (LaneShape{LaneKind::kAffine, 1}));
  EXPECT_EQ(lanes.shape(unsigned_wide).kind, LaneKind::kVarying);
}

// Vectors of 8 that start at multiples of 8 do not cross multiples of 24, but those of 20.
TEST(LaneAnalysis, PartsOfAlignedVectorsAreUniformAndAffine) {
  Builder b(2, kI32);
  const Value linear = b.add(b.mul(b.grid_index(0), b.index(240)), b.grid_index(1));
  auto by = [&](Op op, int64_t number) { return b.binary(op, linear, b.index(number)); };
  const Value quotient = by(Op::kDivU, 24), rest = by(Op::kRemU, 24);
  const Value other_quotient = by(Op::kDivU, 20), other_rest = by(Op::kRemU, 20);
  const Value shifted = by(Op::kShrU, 4), masked = by(Op::kAnd, 15);
  const Value below = by(Op::kLtS, 64), below_odd = by(Op::kLtS, 63);
  const Value inner = b.binary(Op::kRemU, quotient, b.index(5));
  const Value twice = b.binary(Op::kRemU, b.mul(linear, b.index(2)), b.index(16));
  const Kernel kernel = finish(b, {10, 240});
  const LaneAnalysis lanes(kernel, 1, 8);
  const LaneShape uniform{LaneKind::kUniform, 0}, varying{LaneKind::kVarying, 0};
  EXPECT_EQ(lanes.shape(quotient), uniform);
  EXPECT_EQ(lanes.shape(rest), (LaneShape{LaneKind::kAffine, 1}));
  EXPECT_EQ(lanes.shape(other_quotient), varying);
  EXPECT_EQ(lanes.shape(other_rest), varying);
  EXPECT_EQ(lanes.shape(shifted), uniform);
  EXPECT_EQ(lanes.shape(masked), (LaneShape{LaneKind::kAffine, 1}));
  EXPECT_EQ(lanes.shape(below), uniform);
  EXPECT_EQ(lanes.shape(below_odd), varying);
  EXPECT_EQ(lanes.shape(inner), uniform);
  EXPECT_EQ(lanes.shape(twice), (LaneShape{LaneKind::kAffine, 2}));
  const LaneAnalysis unaligned(kernel, 1);
  EXPECT_EQ(unaligned.shape(quotient), varying);
}

TEST(LaneAnalysis, LoopsDivergeWhereTheirCountDiffers) {
  Builder b(1, kI32);
  const Value zero = b.index(0);
  Value same_count = 0, lane_count = 0;
  const Value even = b.loop(b.index(10), {zero}, [&](Value k, const std::vector<Value>& now) {
    same_count = k;
    return std::vector<Value>{b.add(now[0], k)};
  })[0];
  const Value odd = b.loop(b.grid_index(0), {zero}, [&](Value k, const std::vector<Value>& now) {
    lane_count = k;
    return std::vector<Value>{b.add(now[0], k)};
  })[0];
  const Kernel kernel = finish(b, {16});
  const LaneAnalysis lanes(kernel, 0);
  EXPECT_FALSE(lanes.is_divergent(kernel.body[even].arguments[0]));
  EXPECT_EQ(lanes.shape(even).kind, LaneKind::kUniform);
  EXPECT_EQ(lanes.shape(same_count).kind, LaneKind::kUniform);
  EXPECT_TRUE(lanes.is_divergent(kernel.body[odd].arguments[0]));
  EXPECT_EQ(lanes.shape(odd).kind, LaneKind::kVarying);
  EXPECT_EQ(lanes.shape(lane_count).kind, LaneKind::kUniform);
}

// What is read from memory that the kernel writes is read where it stands, though all lanes read
// the same: a single point may have written it just before.
TEST(LaneAnalysis, LoadsOfUpdatedMemoryStayBehindStores) {
  Builder b(1, kI32);
  b.set_updated(1);
  b.store({1, 4}, b.index(0), b.real(kF32, 7));
  const Value read = b.load(kF32, {1, 4}, b.index(0));
  const Value elsewhere = b.load(kF32, {0, 4}, b.index(0));
  b.store({1, 4}, b.index(1), b.add(read, elsewhere));
  const Kernel kernel = finish(b, {1});
  const LaneAnalysis lanes(kernel, 0);
  EXPECT_EQ(lanes.level(read), Level::kPoint);
  EXPECT_EQ(lanes.level(elsewhere), Level::kCall);
}

// A value without a difference between lanes may be made of vectors, and is one then.
TEST(LaneAnalysis, WhatIsMadeOfVectorsIsAVector) {
  Builder b(1, kI32);
  const Value i = b.grid_index(0);
  const Value loaded = b.load(kI32, {0, 4}, i);
  const Value back = b.sub(b.add(loaded, b.index(3)), loaded);
  const std::vector<Value> results =
      b.loop(b.index(4), {b.index(0)}, [&](Value, const std::vector<Value>& now) {
        return std::vector<Value>{b.add(now[0], back)};
      });
  const Kernel kernel = finish(b, {16});
  const LaneAnalysis lanes(kernel, 0);
  EXPECT_EQ(lanes.index().slope(back, lanes.index().dimension(0)), 0);
  EXPECT_TRUE(lanes.is_varying(back));
  EXPECT_TRUE(lanes.is_varying(results[0]));
}

// What a loop carries starts equal in all lanes and then is not.
TEST(LaneAnalysis, CarriedValuesGetTheShapeOfTheirWorstIteration) {
  Builder b(1, kI32);
  const Value zero = b.index(0);
  const std::vector<Value> results =
      b.loop(b.index(4), {zero, zero, b.grid_index(0)}, [&](Value, const std::vector<Value>& now) {
        return std::vector<Value>{now[1], b.add(now[1], b.grid_index(0)),
                                  b.add(now[2], b.index(8))};
      });
  const LaneAnalysis lanes(finish(b, {16}), 0);
  EXPECT_EQ(lanes.shape(results[0]).kind, LaneKind::kVarying);
  EXPECT_EQ(lanes.shape(results[1]).kind, LaneKind::kVarying);
  EXPECT_EQ(lanes.shape(results[2]), (LaneShape{LaneKind::kAffine, 1}));
}

TEST(LaneAnalysis, LanesRunAlongTheLastDimensionThatHasRoom) {
  Kernel kernel;
  const std::pair<std::vector<int64_t>, int> cases[] = {
      {{}, -1},    {{1}, 0},    {{100, 8}, 1},   {{100, 4}, 1},      {{100, 3}, 0},
      {{5, 3}, 0}, {{3, 3}, 1}, {{64, 3, 3}, 0}, {{2, 64, 3, 1}, 1}, {{7, 64, 32, 2}, 2},
  };
  for (const auto& [grid, expected] : cases) {
    kernel.grid = grid;
    EXPECT_EQ(choose_lane_dimension(kernel, 8), expected) << ::testing::PrintToString(grid);
  }
}

TEST(Schedule, CutsLongRowsAndKeepsShortOnes) {
  for (const int64_t row : {1, 3, 7, 8, 100, 1000, 1000000}) {
    for (const int64_t rows : {1, 5, 10000}) {
      Builder b(2, kI32);
      b.store({1, 4}, b.grid_index(1), b.real(kF32, 1));
      const Kernel kernel = finish(b, {rows, row});
      const Schedule s = plan_kernel(kernel, 256).schedule;
      EXPECT_LE(s.lanes, s.row);
      EXPECT_LE(s.lanes, 32);
      EXPECT_EQ(s.rows * s.row, rows * row);
      EXPECT_EQ(s.row, row >= 4 ? row : std::max(row, rows));
      EXPECT_GT(s.unit_ns, 0);
      const int64_t last = s.row - (s.chunks - 1) * s.chunk;
      EXPECT_GE(last, s.lanes);
      if (s.chunks > 1) {
        EXPECT_EQ(s.chunk % s.lanes, 0);
        EXPECT_GE(last, s.chunk);
      }
    }
  }
}

// Rows of a transposed operand are done together, sixteen at a time; those of others are not.
TEST(Schedule, TransposedLoadsGetTiles) {
  for (const bool is_transposed : {false, true}) {
    Builder b(3, kI32);
    const Value from = is_transposed ? b.add(b.mul(b.grid_index(2), b.index(50)), b.grid_index(1))
                                     : b.add(b.mul(b.grid_index(1), b.index(200)), b.grid_index(2));
    const Value plane = b.mul(b.grid_index(0), b.index(50 * 200));
    const Value to = b.add(b.mul(b.grid_index(1), b.index(200)), b.grid_index(2));
    b.store({1, 4}, b.add(plane, to), b.load(kF32, {0, 4}, b.add(plane, from)));
    const Kernel kernel = finish(b, {3, 50, 200});
    const Schedule s = plan_kernel(kernel, 256).schedule;
    EXPECT_EQ(s.tile_dimension, is_transposed ? 1 : -1);
    EXPECT_EQ(s.tile_rows, is_transposed ? 16 : 1);
    EXPECT_EQ(s.rows, is_transposed ? 3 * 4 : 3 * 50);
  }
}

// A load at a clamped index, as pads and stencils make it: inside of the row it is a vector's.
TEST(Schedule, RowsAreCutAtTheirBorders) {
  Builder b(2, kI32);
  auto clamped = [&](Value i) {
    const Value last = b.index(61);
    i = b.select(b.binary(Op::kLtS, last, i), last, i);
    return b.select(b.binary(Op::kLtS, i, b.index(0)), b.index(0), i);
  };
  const Value row = clamped(b.sub(b.grid_index(0), b.index(1)));
  const Value column = clamped(b.sub(b.grid_index(1), b.index(1)));
  const Value x = b.load(kF32, {0, 4}, b.add(b.mul(row, b.index(62)), column));
  b.store({1, 4}, b.add(b.mul(b.grid_index(0), b.index(64)), b.grid_index(1)), x);
  const Kernel kernel = finish(b, {64, 64});
  const KernelPlan plan = plan_kernel(kernel, 256);
  ASSERT_EQ(plan.kinds.size(), 2u);
  EXPECT_EQ(plan.kinds[0].box, (Box{{1, 63}, {0, 64}}));
  for (const RowKind& kind : plan.kinds) {
    ASSERT_EQ(kind.segments.size(), 3u);
    EXPECT_EQ(kind.segments[0].range, (Range{0, 1}));
    EXPECT_EQ(kind.segments[1].range, (Range{1, 63}));
    EXPECT_EQ(kind.segments[2].range, (Range{63, 64}));
    for (const Segment& segment : kind.segments) EXPECT_EQ(segment.analysis.scattered_loads(), 0);
  }
}

}  // namespace
}  // namespace hekla::cpu
