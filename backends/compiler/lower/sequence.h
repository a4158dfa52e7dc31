// SPDX-License-Identifier: Apache-2.0
// Operations that become several kernels with memory between them, one function each.
//
// `outputs` are results of `op` that are wanted in memory; all of their sizes are not zero. Each
// result is a pure function of the graph. UNIMPLEMENTED: an operation without scalar form, or one
// whose attributes are not the specification's.
#pragma once

#include <optional>
#include <vector>

#include "backends/compiler/lower/kernel_maker.h"
#include "backends/compiler/lower/lower.h"

namespace hekla::lower {

using Outputs = std::vector<const ir::Value*>;

// sort.cc: blocks of a few elements sorted in registers, then merges of sorted runs. Stable.
Result<LoweredSequence> lower_sort(const ir::Operation& op, const Outputs& outputs,
                                   const InMemory& in_memory, const LowerOptions& options);

// scan.cc: reduce_window whose windows are all beginnings of a line, or all ends of it.
inline bool is_cumulative(const ir::Operation& op, const LowerOptions& options) {
  return why_no_scan(op, options).empty();
}
Result<LoweredSequence> lower_scan(const ir::Operation& op, const Outputs& outputs,
                                   const InMemory& in_memory, const LowerOptions& options);

// fft.cc: transforms of any length over the last one to three dimensions. `is_fft_known` says
// whether lower_fft can do it, without making its tables.
bool is_fft_known(const ir::Operation& op);
Result<LoweredSequence> lower_fft(const ir::Operation& op, const Outputs& outputs,
                                  const InMemory& in_memory, const LowerOptions& options);

// scatter.cc: updates sorted by where they go, and runs of equal places reduced in order; with
// `options.scatters_in_order` scatter_in_order.cc instead. For scatters with more updates times
// elements than is looked through for each element, or few updates of a large array in order.
inline bool is_sequence_of_scatter(const ir::Operation& op, const LowerOptions& options) {
  return is_scatter_in_order(op, options) || why_no_large_scatter(op, options).empty();
}
Result<LoweredSequence> lower_scatter(const ir::Operation& op, const Outputs& outputs,
                                      const InMemory& in_memory, const LowerOptions& options);
// scatter_in_order.cc: all updates one after the other, for every element of a window at once.
// All results of `op` are stored.
Result<LoweredSequence> lower_scatter_in_order(const ir::Operation& op, const InMemory& in_memory,
                                               const LowerOptions& options);

// random.cc: rng_bit_generator.
Result<LoweredSequence> lower_random(const ir::Operation& op, const Outputs& outputs,
                                     const InMemory& in_memory, const LowerOptions& options);

// reduce.cc: reductions of few long lines, for which is_staged_reduce (lower.h) says yes.
// `outputs`: results of one, or of several that are_siblings.
Result<LoweredSequence> lower_reduce(const Outputs& outputs, const InMemory& in_memory,
                                     const LowerOptions& options);
// reduce_tree.cc: those for which is_tree_reduce says yes.
Result<LoweredSequence> lower_tree_reduce(const Outputs& outputs, const InMemory& in_memory,
                                          const LowerOptions& options);
// reduce_rows.cc: elementwise operations of lines that also compute reductions of them, which
// is_row_reduce; nullopt for others.
std::optional<Result<LoweredSequence>> lower_rows(const Outputs& outputs, const InMemory& in_memory,
                                                  const LowerOptions& options);

}  // namespace hekla::lower
