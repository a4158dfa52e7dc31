// SPDX-License-Identifier: Apache-2.0
// Conformance of a process group: every operation by dtypes, reductions, sizes and groups against
// results that each rank computes for itself, element by element, from the inputs of all ranks.
//
// All ranks call run_conformance with the same options; each says what it saw. A failed check does
// not end the group where the results alone are wrong; where the group ends, the rest is not run,
// and says so.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

struct ConformanceOptions {
  // Bytes of an array, rounded down; above 4 MiB those of all ranks' parts together, where an array
  // has a part for each.
  std::vector<int64_t> sizes = {0, 1, 7, 4 << 10, 1 << 20};
  std::vector<DType> dtypes;  // empty: all
  std::string filter;         // only checks whose names contain it
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
};

struct CheckResult {
  std::string name;     // "all_reduce/sum/f32/4096/world"
  std::string problem;  // empty: the result is right
};

// In the same order on all ranks. `report` is called after each check.
std::vector<CheckResult> run_conformance(ProcessGroup& world, const ConformanceOptions& options,
                                         const std::function<void(const CheckResult&)>& report);

// The reference, an element at a time: for elements whose bits are in the low bits of a number, of
// complex ones the parts. `by` makes sense for the dtype.
HostArray reference_reduce(const Reduction& by, const std::vector<HostArray>& ranks);
// What rank `rank` brings to a check. It repeats itself after kInputPeriod elements, a prime
// number, so that the reference of large arrays is that of one period; no piece or slice has that
// length.
inline constexpr int64_t kInputPeriod = 1009;
// `count` elements of an array again and again.
HostArray repeated(const HostArray& period, int64_t count);
// Of memory that is used again by the next array of that size, as pages that the system has to
// clear are half of what large arrays cost here. Its bytes are those of that array, or not set.
HostArray reused(DType dtype, int64_t count);
HostArray conformance_input(DType dtype, int64_t count, int rank, std::string_view check);
// Where two arrays of floats, integers, ... differ; NaNs are all the same. Empty: nowhere.
std::string difference(const HostArray& got, const HostArray& wanted);

}  // namespace hekla::process_group
