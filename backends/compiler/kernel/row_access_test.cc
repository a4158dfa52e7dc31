// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/row_access.h"

#include <gtest/gtest.h>

#include "backends/compiler/kernel/builder.h"

namespace hekla::kernel {
namespace {

using enum ScalarType;

using Index = std::function<Value(Builder&)>;

// Row bytes of an operand of f32 that is loaded at `index`, over a grid.
int64_t load_rows(const std::vector<int64_t>& grid, int64_t rows, const Index& index) {
  Builder b(static_cast<int>(grid.size()), kI32);
  for (size_t d = 0; d < grid.size(); ++d) b.set_grid_size(static_cast<int>(d), grid[d]);
  b.store({1, 4}, b.index(0), b.load(kF32, {0, 4}, index(b)));
  Kernel kernel;
  kernel.grid = grid;
  kernel.operands = {{1 << 20, true, false}, {4, false, true}};
  kernel.body = b.finish();
  const auto bytes = row_bytes(kernel, rows);
  return bytes ? (*bytes)[0] : -1;
}

// Several loads of one operand.
TEST(RowAccess, OfALinearGrid) {
  const auto itself = [](Builder& b) { return b.grid_index(0); };
  EXPECT_EQ(load_rows({600}, 20, itself), 30 * 4);
  EXPECT_EQ(load_rows({600}, 600, itself), 4);
  EXPECT_EQ(load_rows({600}, 7, itself), -1);  // no seventh of the points
  // A value a row, spread over the row; and one a column.
  EXPECT_EQ(load_rows({600}, 20,
                      [](Builder& b) { return b.binary(Op::kDivU, b.grid_index(0), b.index(30)); }),
            4);
  EXPECT_EQ(load_rows({600}, 20,
                      [](Builder& b) { return b.binary(Op::kRemU, b.grid_index(0), b.index(30)); }),
            0);
  // Rows of another length than the divisor.
  EXPECT_EQ(load_rows({600}, 20,
                      [](Builder& b) { return b.binary(Op::kDivU, b.grid_index(0), b.index(40)); }),
            0);
  // The next element is the next row's at the end of a row.
  EXPECT_EQ(load_rows({600}, 20, [](Builder& b) { return b.add(b.grid_index(0), b.index(1)); }), 0);
}

TEST(RowAccess, OfSeveralDimensions) {
  const auto row_major = [](int64_t outer, int64_t inner) {
    return [outer, inner](Builder& b) {
      return b.add(
          b.add(b.mul(b.grid_index(0), b.index(outer)), b.mul(b.grid_index(1), b.index(inner))),
          b.grid_index(2));
    };
  };
  EXPECT_EQ(load_rows({4, 6, 10}, 24, row_major(60, 10)), 40);
  EXPECT_EQ(load_rows({4, 6, 10}, 4, row_major(60, 10)), 240);
  EXPECT_EQ(load_rows({4, 6, 10}, 8, row_major(60, 10)), 120);  // three of six to a row
  EXPECT_EQ(load_rows({4, 6, 10}, 24, row_major(72, 12)), 48);  // with gaps
  EXPECT_EQ(load_rows({4, 6, 10}, 24, row_major(48, 8)), 0);    // overlapping
  EXPECT_EQ(load_rows({4, 6, 10}, 24, row_major(10, 40)), 0);   // transposed
  EXPECT_EQ(load_rows({4, 6, 10}, 24, row_major(64, 10)), 0);   // rows are not evenly apart
  EXPECT_EQ(load_rows({4, 6, 10}, 4, row_major(64, 10)), 256);
}

TEST(RowAccess, OfLoops) {
  const auto over = [](int64_t trips, int64_t start) {
    Builder b(1, kI32);
    const Value row = b.mul(b.grid_index(0), b.index(10));
    const auto sums =
        b.loop(b.index(trips), {b.real(kF32, 0)}, [&](Value i, const std::vector<Value>& carried) {
          const Value at = b.add(b.add(row, i), b.index(start));
          return std::vector<Value>{b.add(carried[0], b.load(kF32, {0, 4}, at))};
        });
    b.store({1, 4}, b.grid_index(0), sums[0]);
    Kernel kernel;
    kernel.grid = {50};
    kernel.operands = {{2000, true, false}, {200, false, true}};
    kernel.body = b.finish();
    return *row_bytes(kernel, 50);
  };
  EXPECT_EQ(over(10, 0), (std::vector<int64_t>{40, 4}));
  EXPECT_EQ(over(3, 7), (std::vector<int64_t>{40, 4}));
  EXPECT_EQ(over(11, 0), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(over(10, 1), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(over(3, -1), (std::vector<int64_t>{0, 4}));
}

TEST(RowAccess, IsUnknownForIndicesFromMemoryAndThoseThatWrap) {
  EXPECT_EQ(load_rows({60}, 60,
                      [](Builder& b) {
                        return b.load(kI32, {0, 4}, b.grid_index(0));
                      }),
            0);
  // 60 * 2^28 is no i32.
  EXPECT_EQ(load_rows({60}, 60,
                      [](Builder& b) {
                        const Value wide = b.mul(b.grid_index(0), b.index(1 << 28));
                        return b.binary(Op::kShrU, wide, b.index(28));
                      }),
            0);
}

}  // namespace
}  // namespace hekla::kernel
