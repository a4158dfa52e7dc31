// SPDX-License-Identifier: Apache-2.0
// Batches of small matrices in the lanes of vectors, instead of one by one through LAPACK. Internal
// to lapack_calls.h.
#pragma once

#include <algorithm>
#include <vector>

#include "backends/lapack/library.h"
#include "backends/reference/datum.h"
#include "backends/reference/lapack_call.h"
#include "backends/reference/lapack_runner.h"
#include "backends/reference/task_ranges.h"

namespace hekla::reference {

inline bool fits_lane(int64_t rows, int64_t columns) {
  return rows >= 1 && columns >= 1 && rows <= lapack::kMostLaneRows &&
         columns <= lapack::kMostLaneRows;
}

// What a group of matrices takes, by the numbers that come and go and the products of each.
double lane_work(lapack::Type type, int64_t numbers, int64_t products);

// Calls f(first, count) for ranges of the batch that begin at groups of matrices.
template <typename F>
void for_lanes(const lapack::Table& lapack, lapack::Type type, int64_t batch, double work,
               const LapackRunner& runner, const F& f) {
  const int64_t lanes = lapack.lanes(type);
  for_ranges(runner.for_each(), (batch + lanes - 1) / lanes, work, [&](int64_t begin, int64_t end) {
    f(begin * lanes, std::min(end * lanes, batch) - begin * lanes);
  });
}

// Whether run_in_lanes takes less time than LAPACK: by routine, types and sizes alone.
bool goes_in_lanes(const LapackCall& call, const lapack::Table& lapack);
// All results of the call.
Result<std::vector<Datum>> run_in_lanes(const LapackCall& call, const lapack::Table& lapack,
                                        const std::vector<Datum>& operands,
                                        const LapackRunner& runner);

// Of matrices [begin, end) of a getrf: the rows in the order of the factors, from 0.
void permute_by_pivots(const LapackCall& call, const int32_t* pivots, int32_t* permutation,
                       int64_t begin, int64_t end);

}  // namespace hekla::reference
