// SPDX-License-Identifier: Apache-2.0
// What goes into lanes, for vectors of any width. What comes out: lapack_lanes_test in
// backends/lapack, tests/jax/test_linalg.py.
#include "backends/reference/lapack_lanes.h"

#include <gtest/gtest.h>

#include <vector>

namespace hekla::reference {
namespace {

LapackCall call_of(LapackRoutine routine, DType dtype, int64_t batch, int64_t m, int64_t n) {
  LapackCall call;
  call.routine = routine;
  call.dtype = dtype;
  call.type = *lapack_type(dtype);
  call.batch_dims = {batch};
  call.m = m;
  call.n = n;
  call.k = std::min(m, n);
  call.mode = 'V';
  call.operands = call.results = {{dtype, {m, n}, true}};
  return call;
}

template <int32_t kLanes>
lapack::Table with_lanes() {
  lapack::Table table{};
  table.lanes = [](lapack::Type) { return kLanes; };
  return table;
}

TEST(LapackLanes, SmallMatricesGoIntoThem) {
  const lapack::Table table = with_lanes<2>();
  for (const LapackRoutine routine :
       {LapackRoutine::kGetrf, LapackRoutine::kGeqrf, LapackRoutine::kOrgqr}) {
    EXPECT_TRUE(goes_in_lanes(call_of(routine, DType::kF64, 1, 1, 1), table));
    EXPECT_TRUE(goes_in_lanes(call_of(routine, DType::kF64, 1, 16, 16), table));
    EXPECT_FALSE(goes_in_lanes(call_of(routine, DType::kF64, 9, 17, 16), table));
    EXPECT_FALSE(goes_in_lanes(call_of(routine, DType::kF64, 9, 16, 17), table));
    EXPECT_FALSE(goes_in_lanes(call_of(routine, DType::kF64, 0, 4, 4), table));
    EXPECT_FALSE(goes_in_lanes(call_of(routine, DType::kF64, 9, 4, 0), table));
    LapackCall mixed = call_of(routine, DType::kF64, 9, 4, 4);
    mixed.results[0].by_columns = false;
    EXPECT_FALSE(goes_in_lanes(mixed, table));
  }
  LapackCall none = call_of(LapackRoutine::kOrgqr, DType::kF64, 9, 4, 4);
  none.k = 0;
  EXPECT_FALSE(goes_in_lanes(none, table));
  EXPECT_FALSE(goes_in_lanes(call_of(LapackRoutine::kGesvd, DType::kF64, 9, 4, 4), table));
}

TEST(LapackLanes, EigenvectorsOfAsManyAsShareTheWork) {
  struct Case {
    int64_t n, least;
    DType dtype;
  };
  for (const Case& c : {Case{4, 2, DType::kF32},
                        {5, 3, DType::kC64},
                        {8, 3, DType::kF64},
                        {12, 5, DType::kF64},
                        {16, 6, DType::kF32},
                        {12, 7, DType::kC64},
                        {16, 8, DType::kC128}}) {
    const auto goes = [&](int64_t batch, const lapack::Table& table) {
      return goes_in_lanes(call_of(LapackRoutine::kSyevd, c.dtype, batch, c.n, c.n), table);
    };
    EXPECT_FALSE(goes(c.least - 1, with_lanes<16>())) << c.n;
    EXPECT_TRUE(goes(c.least, with_lanes<16>())) << c.n;
    EXPECT_EQ(goes(100, with_lanes<2>()), c.least <= 2) << c.n;
    EXPECT_EQ(goes(100, with_lanes<4>()), c.least <= 4) << c.n;
  }
  LapackCall values = call_of(LapackRoutine::kSyevd, DType::kF64, 100, 4, 4);
  values.mode = 'N';
  EXPECT_FALSE(goes_in_lanes(values, with_lanes<8>()));
}

TEST(LapackLanes, SingularVectorsOfAsManyAsShareTheWork) {
  struct Case {
    int64_t m, n, least;
    DType dtype;
  };
  for (const Case& c : {Case{4, 4, 1, DType::kC64},
                        {2, 5, 3, DType::kF32},
                        {8, 8, 3, DType::kC64},
                        {12, 3, 4, DType::kF64},
                        {16, 16, 5, DType::kF32},
                        {3, 12, 6, DType::kC64},
                        {16, 1, 7, DType::kC128}}) {
    const auto goes = [&](int64_t batch, const lapack::Table& table, char mode) {
      LapackCall call = call_of(LapackRoutine::kGesdd, c.dtype, batch, c.m, c.n);
      call.mode = mode;
      call.results.resize(4, call.results[0]);
      return goes_in_lanes(call, table);
    };
    for (const char mode : {'A', 'S'}) {
      EXPECT_FALSE(goes(c.least - 1, with_lanes<16>(), mode)) << c.m;
      EXPECT_TRUE(goes(c.least, with_lanes<16>(), mode)) << c.m;
      EXPECT_EQ(goes(100, with_lanes<2>(), mode), c.least <= 2) << c.m;
      EXPECT_EQ(goes(100, with_lanes<4>(), mode), c.least <= 4) << c.m;
    }
    EXPECT_FALSE(goes(100, with_lanes<16>(), 'N')) << c.m;
  }
}

TEST(LapackLanes, PivotsPermuteRows) {
  const LapackCall call = call_of(LapackRoutine::kGetrf, DType::kF64, 2, 4, 3);
  const std::vector<int32_t> pivots = {3, 3, 4, 1, 2, 3};
  std::vector<int32_t> rows(8, -1);
  permute_by_pivots(call, pivots.data(), rows.data(), 1, 2);
  EXPECT_EQ(rows, (std::vector<int32_t>{-1, -1, -1, -1, 0, 1, 2, 3}));
  permute_by_pivots(call, pivots.data(), rows.data(), 0, 2);
  EXPECT_EQ(rows, (std::vector<int32_t>{2, 0, 3, 1, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace hekla::reference
