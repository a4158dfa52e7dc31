// SPDX-License-Identifier: Apache-2.0
// Operations whose results' parts need more of an operand than its part: windows, moves along a
// dimension, and kernels' gradients. What they read, and how they go over what they have read.
//
// Of this folder alone. Pure functions; any thread.
#pragma once

#include <optional>
#include <vector>

#include "backends/compiler/spmd/halo.h"
#include "backends/compiler/spmd/op_cut.h"
#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::spmd {

// What an operation reads of one dimension of an operand.
struct WindowRead {
  size_t operand = 0;
  HaloRead halo;
  // The operation goes over `span` positions, in which elements are `dilation` apart and part j's
  // first one is at phases[j].
  int64_t span = 0;
  int64_t dilation = 1;
  std::vector<int64_t> phases;

  // Whether all parts have them at the same places, so that padding and dilation stay attributes.
  bool is_plain() const;
  // The next part looks at the first `positions` of its span alone.
  void want(int64_t positions);
  int64_t padding_low() const { return is_plain() ? phases[0] : 0; }
  int64_t padding_high() const;
  int64_t local_dilation() const { return is_plain() ? dilation : 1; }
};

// select_and_scatter along one dimension: source i is the window's from i * stride - low on.
struct SelectForm {
  int64_t window = 1, stride = 1, low = 0;
};
SelectForm select_form(const ir::Operation& op, size_t d);

using WindowReads = std::vector<WindowRead>;

// Whether there is a way to compute the operation in parts of a factor of the kind "permutation",
// or of a sum over a window that is cut.
bool may_read_windows(const ir::Operation& op, const sharding::ShardingRule& rule, int64_t factor);

// Of an operation that is cut so; its operands have these types in the program over all partitions.
// Empty where parts are enough; none where it cannot be computed so.
std::optional<WindowReads> window_reads(const ir::Operation& op, const sharding::ShardingRule& rule,
                                        const OpCut& cut, const PrimeMesh& mesh,
                                        const std::vector<ir::Type>& operands);

}  // namespace hekla::spmd
