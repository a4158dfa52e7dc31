// SPDX-License-Identifier: Apache-2.0
// Loops that each point of an array does by itself: `while` operations with a known number of trips
// whose body is arithmetic on single elements of what goes round, on scalars and on whatever stays
// the same. All iterations, or many of them, are then one kernel, with a loop inside and the
// elements in registers. Pure functions of the IR.
#pragma once

#include <functional>

#include "backends/compiler/lower/lower.h"

namespace hekla::lower {

struct PointwiseLoop {
  // What becomes of a carried value.
  enum class Kind : uint8_t {
    kUnwanted,  // nobody looks at it
    kFixed,     // stays as it is, and is read anywhere
    kElements,  // a point carries its element of it; of an array of one element all points do
    kRows,      // each iteration writes a part of it (a dynamic_update_slice); nobody reads it
  };
  const ir::Operation* loop = nullptr;
  std::vector<Kind> kinds;
  int64_t points = 1;
};

// `is_unwanted`: of a carried value by number. nullopt: the body needs more, `why` says what.
std::optional<PointwiseLoop> find_pointwise_loop(const ir::Operation& loop,
                                                 const std::function<bool(size_t)>& is_unwanted,
                                                 const LowerOptions& options, kernel::Refusal& why);

// A kernel of `trips` iterations. It reads the arguments of the body's block, from where the caller
// says that these are, and values around the loop, all in memory but constants of one element. It
// writes the results of the loop, those of kElements that nobody uses only with `all_results`; of
// kRows what the iterations write. Results lie apart from what it reads.
Result<LoweredKernel> lower_pointwise_loop(const PointwiseLoop& loop, int64_t trips,
                                           bool all_results, const LowerOptions& options);

}  // namespace hekla::lower
