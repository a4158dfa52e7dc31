// SPDX-License-Identifier: Apache-2.0
// What the generator believes of indices, held to what kernels compute.
#include "backends/vulkan/codegen/tile.h"

#include <gtest/gtest.h>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/observed_values.h"

namespace hekla::vulkan::codegen {
namespace {

using kernel::Builder;
using kernel::Function;
using kernel::IndexAnalysis;
using kernel::Kernel;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;
using kernel::testing::ObservedValues;
using kernel::testing::TestKernel;

// The loop variables that a value stands in, outermost first.
std::vector<int32_t> regions_around(const Function& f, Value v) {
  std::vector<int32_t> regions;
  for (int32_t r = f[v].region; r > 0; r = f.region(r).parent) {
    regions.insert(regions.begin(), r);
  }
  return regions;
}

// What is said of one kernel; counts what is said that is not trivial.
struct Claims {
  int flat = 0, sloped = 0, factors = 0, pairs = 0, same = 0;
};

Kernel kernel_of(Builder& b, std::vector<int64_t> grid) {
  Kernel kernel;
  kernel.grid = std::move(grid);
  kernel.operands = {{1 << 10, true, true}, {1 << 10, false, true}};
  kernel.body = b.finish();
  return kernel;
}

int64_t as_type(const Function& f, Value v, int64_t number) {
  return f.type(v) == ScalarType::kI64 ? number : static_cast<int32_t>(number);
}

void check_slopes(const TestKernel& test, const IndexAnalysis& index,
                  const ObservedValues& observed, Value by, IndexAnalysis::Variable variable,
                  size_t which, const std::vector<Value>& values, Claims& claims) {
  const Function& f = test.kernel.body;
  for (const Value v : values) {
    const auto slope = index.slope(v, variable);
    if (!slope || v == by) continue;
    ++(*slope == 0 ? claims.flat : claims.sloped);
    observed.for_pairs(v, which, 1, [&](int64_t here, int64_t there) {
      const auto sum = static_cast<uint64_t>(here) + static_cast<uint64_t>(*slope);
      EXPECT_EQ(as_type(f, v, static_cast<int64_t>(sum)), there)
          << "%" << v << " grows by " << *slope << " along %" << by << " of\n"
          << to_string(test.kernel);
    });
  }
}

Claims check(const TestKernel& test) {
  Claims claims;
  const Function& f = test.kernel.body;
  const ObservedValues observed(test);
  const IndexAnalysis index(test.kernel);
  const TileAnalysis analysis = analyse_tile(index);
  const size_t rank = test.kernel.grid.size();
  std::vector<Value> indices;
  for (size_t i = 0; i < f.size(); ++i) {
    const auto v = static_cast<Value>(i);
    if (f[v].op == Op::kLoad || f[v].op == Op::kStore) indices.push_back(f[v].arguments[0]);
  }
  for (size_t d = 0; d < rank; ++d) {
    check_slopes(test, index, observed, f.body().parameters[d],
                 index.dimension(static_cast<int>(d)), d, indices, claims);
  }
  for (size_t r = 1; r < f.region_count(); ++r) {
    const auto region = static_cast<int32_t>(r);
    std::vector<Value> inside;
    size_t depth = 0;
    for (const Value v : indices) {
      const std::vector<int32_t> around = regions_around(f, v);
      const auto it = std::find(around.begin(), around.end(), region);
      if (it == around.end()) continue;
      depth = static_cast<size_t>(it - around.begin());
      inside.push_back(v);
    }
    check_slopes(test, index, observed, f.region(region).parameters[0], index.iteration(region),
                 rank + depth, inside, claims);
  }
  for (size_t i = 0; i < f.size() && rank > 0 && analysis.is_possible; ++i) {
    const auto v = static_cast<Value>(i);
    for (const size_t dim : {rank - 1, rank - 2}) {
      const uint8_t on = dim == rank - 1 ? kOnColumn : kOnRow;
      if (dim >= rank || (analysis.depends[i] & on) != 0 || f[v].op == Op::kStore) continue;
      ++claims.same;
      observed.for_pairs(v, dim, 1, [&](int64_t here, int64_t there) {
        EXPECT_EQ(here, there) << "%" << v << " is the same along dimension " << dim << " of\n"
                               << to_string(test.kernel);
      });
    }
  }
  for (const Value v : indices) {
    if (rank == 0) break;
    for (const int64_t columns : {1, 2, 8}) {
      const int64_t factor = index.factor(v, index.dimension(static_cast<int>(rank) - 1), columns);
      claims.factors += factor > 1 ? 1 : 0;
      for (const auto& [position, value] : observed.of(v)) {
        if (position[rank - 1] % columns != 0) continue;
        EXPECT_EQ(value % factor, 0) << "%" << v << " is a multiple of " << factor << " at each "
                                     << columns << "th column of\n"
                                     << to_string(test.kernel);
      }
    }
  }
  for (const uint32_t most_bytes : {8U, 16U}) {
    for (const auto& [first, others] : adjacent_loads(index, most_bytes, 24 / most_bytes)) {
      ++claims.pairs;
      const auto count = static_cast<int64_t>(1 + others.size());
      EXPECT_LE(count * kernel::unpack_access(f[first].immediate).bytes, most_bytes);
      const auto& lower = observed.of(f[first].arguments[0]);
      for (int64_t i = 1; i < count; ++i) {
        const Value other = others[static_cast<size_t>(i) - 1];
        for (const auto& [position, value] : observed.of(f[other].arguments[0])) {
          const auto it = lower.find(position);
          if (it == lower.end()) continue;  // hoisted to another region
          EXPECT_EQ(it->second + i, value) << to_string(test.kernel);
          EXPECT_EQ(it->second % count, 0) << to_string(test.kernel);
        }
      }
    }
  }
  return claims;
}

TEST(Tile, SaysOfRandomKernelsWhatTheyCompute) {
  Claims all;
#ifdef HEKLA_SANITIZED
  constexpr uint64_t kCount = 60;
#else
  constexpr uint64_t kCount = 600;
#endif
  for (uint64_t seed = 1; seed <= kCount && !::testing::Test::HasFailure(); ++seed) {
    kernel::testing::RandomOptions options;
    options.max_points = 60;
    const Claims claims = check(kernel::testing::random_kernel(seed, options));
    all.flat += claims.flat;
    all.sloped += claims.sloped;
    all.factors += claims.factors;
    all.same += claims.same;
  }
  // The tests mean something.
  EXPECT_GT(all.flat, static_cast<int>(kCount));
  EXPECT_GT(all.sloped, static_cast<int>(kCount));
  EXPECT_GT(all.factors, static_cast<int>(kCount));
  EXPECT_GT(all.same, static_cast<int>(kCount));
}

// A cursor that a loop carries differs from column to column where what moves it does, also where
// all start at the same number.
TEST(Tile, CarriedCursorsHaveNoSlope) {
  constexpr int64_t kColumns = 16;
  Builder b(1, ScalarType::kI32);
  const Value column = b.grid_index(0);
  Value cursor_load = kernel::kNoValue, uniform_load = kernel::kNoValue;
  const std::vector<Value> results =
      b.loop(b.index(4), {b.index(0), b.index(0)}, [&](Value, const std::vector<Value>& carried) {
        const Value at = b.add(column, b.mul(b.index(kColumns), carried[0]));
        const Value steady = b.add(column, b.mul(b.index(kColumns), carried[1]));
        cursor_load = b.load(ScalarType::kI32, {0, 4}, at);
        uniform_load = b.load(ScalarType::kI32, {0, 4}, steady);
        const Value moves = b.binary(Op::kLtS, b.index(0), cursor_load);
        const Value moved = b.select(moves, b.add(carried[0], b.index(1)), carried[0]);
        return std::vector<Value>{moved, b.add(carried[1], b.index(1))};
      });
  const Value after = b.add(column, b.mul(b.index(kColumns), results[0]));
  const Value load_after = b.load(ScalarType::kI32, {0, 4}, after);
  b.store({1, 4}, column, b.add(load_after, uniform_load));
  const Kernel kernel = kernel_of(b, {kColumns});
  const Function& f = kernel.body;
  const IndexAnalysis index(kernel);
  EXPECT_EQ(index.slope(f[cursor_load].arguments[0], index.dimension(0)), std::nullopt);
  EXPECT_EQ(index.slope(f[load_after].arguments[0], index.dimension(0)), std::nullopt);
  EXPECT_EQ(index.slope(f[uniform_load].arguments[0], index.dimension(0)), 1);
  // From iteration to iteration each moves.
  EXPECT_EQ(index.slope(f[uniform_load].arguments[0], index.iteration(1)), std::nullopt);
}

// A load stays behind the store that comes before it.
TEST(Tile, PairsDoNotReachAcrossStores) {
  const auto pairs_of = [](bool stores_between) {
    Builder b(1, ScalarType::kI32);
    b.set_updated(0);
    const Value at = b.mul(b.grid_index(0), b.index(2));
    const Value next = b.add(at, b.index(1));
    const Value x = b.load(ScalarType::kI32, {0, 4}, at);
    if (stores_between) b.store({0, 4}, next, x);
    const Value y = b.load(ScalarType::kI32, {0, 4}, next);
    b.store({1, 4}, b.grid_index(0), b.add(x, y));
    const Kernel kernel = kernel_of(b, {8});
    return adjacent_loads(IndexAnalysis(kernel), 8, 4).size();
  };
  EXPECT_EQ(pairs_of(false), 1u);
  EXPECT_EQ(pairs_of(true), 0u);
}

}  // namespace
}  // namespace hekla::vulkan::codegen
