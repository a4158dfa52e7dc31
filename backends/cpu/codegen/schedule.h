// SPDX-License-Identifier: Apache-2.0
// Schedule: how the points of a grid are cut into units, the pieces that threads take, and what a
// unit costs.
//
// A row is all points that differ in the lane dimension alone. A unit is a row, or one of the equal
// chunks of a row when rows are few and long. Points do not depend on each other, so the cut
// changes no result. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/kernel.h"
#include "backends/cpu/codegen/lane_analysis.h"

namespace hekla::cpu {

struct Schedule {
  int lanes = 1;       // points of a row that run as one vector; at most the row's length
  int64_t row = 1;     // points of a row
  int64_t rows = 1;    // product of the other dimensions
  int64_t chunk = 1;   // points of a unit, a multiple of `lanes`; the last of a row has the rest
  int64_t chunks = 1;  // units of a row
  double unit_ns = 0;  // estimate for one unit on one thread

  int64_t units() const { return rows * chunks; }
};

// Neighbours in a row that run alike.
struct Segment {
  LaneRange range;
  LaneAnalysis analysis;
};

// How a kernel runs: what its values are, and how it is cut.
struct KernelPlan {
  // Of a whole row. Several where that makes vector loads of scattered ones: the inside and the
  // border of a padded or a stencil's row, the parts of a concatenation.
  std::vector<Segment> segments;
  Schedule schedule;
};

// `vector_bits`: of the machine's vectors. Short bodies get two or four vectors at a time, so that
// the machine has something to do while an operation takes its time. The grid has no zero.
KernelPlan plan_kernel(const kernel::Kernel& kernel, int vector_bits);

}  // namespace hekla::cpu
