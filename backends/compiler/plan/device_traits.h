// SPDX-License-Identifier: Apache-2.0
// DeviceTraits: what a device is, as far as its plans depend on it. A back end says it; users and
// tests choose among what is right by PlanOptions. Sums may be in an order of the device's own.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/matrix_unit.h"
#include "runtime/base/dtype.h"

namespace hekla::plan {

struct DeviceTraits {
  // Has code for ContractionStep: what lower::why_no_contraction lets becomes such steps.
  bool has_contractions = false;
  // Products of floats that a sum takes one after the other, at most: longer ones are sums of
  // chunks (kernel::SumChunks). 0: any number.
  int64_t most_of_chunk = 0;
  // Has code for those whose operands both are of one of these types, on matrix units: sums of
  // floats in f32 in an order of the device's own, or i32. Then all such contractions that are
  // large enough are, however else the program is planned, so that their bits do not depend on it.
  // Not with has_contractions.
  std::vector<DType> matrix_types;
  // Those of them that it multiplies f32 by the pieces of, too (kernel::Pieces).
  std::vector<DType> piece_types;
  // The units that kernels of teams may use for sums of products in f32 (kernel::SumsAccess).
  std::vector<kernel::MatrixUnit> matrix_units;
  // Has LAPACK for its host steps (backends/lapack), and its kernels run on the same processor:
  // large factorisations and solves are host steps.
  bool has_lapack = false;
  // Has code for TransformStep: what lower::why_no_transform lets becomes such steps.
  bool has_transforms = false;
  // Goes from one kernel to the next in the time of a few hundred instructions, and is faster at
  // one instruction for many points than at many for one. Then loops of much arithmetic on what its
  // caches hold stay steps.
  bool starts_kernels_quickly = false;
  // Gains by a RowsStep; without it there are none.
  bool has_row_groups = true;
  // One thread that goes through all updates of a large scatter takes less time than many that sort
  // them.
  bool scatters_in_order = false;
  // Loads cost more than arithmetic: staged reductions of one large value go through it together.
  bool merges_reductions = false;
  // Points that may exchange values (kernel::Exchange), at most: invocations of a workgroup. 1:
  // none.
  int64_t team_points = 1;
  // Words of memory that they may share (kernel::TeamMemory) and exchange through; 0: none.
  int64_t team_words = 0;
  // Such points together reduce, scan and sort lines in less time than a point each does.
  bool reduces_by_trees = false;
  // Such teams compute attention without its scores in memory (lower/attention.h) in less time than
  // kernels that store them.
  bool fuses_attention = false;
  // Iterations after which the device ends the loops of a kernel; 0: never.
  int64_t max_loop_iterations = 0;
  // The most memory that there is surely in one piece, so that temporaries of more bytes are in
  // several arenas; and what no piece of memory exceeds, be it of one value. 0: no limit.
  int64_t max_arena_bytes = 0;
  int64_t max_buffer_bytes = 0;
};

}  // namespace hekla::plan
