// SPDX-License-Identifier: Apache-2.0
// From dot_general and convolution to a Contraction, for back ends that have code of their own for
// it.
//
// Pure functions of the IR. Operands are read through the operations that only move elements
// (transpose, reshape, broadcast, slice, reverse), as long as strides can say where an element is.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backends/compiler/kernel/contraction.h"
#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/lower/lower.h"
#include "runtime/program/ir/ir.h"

namespace hekla::lower {

using InMemory = std::function<bool(const ir::Value&)>;

// Where the elements of a value lie in another one: element i is at `offset` plus the sum of
// i[d] * strides[d], in row-major numbers of `base`.
struct View {
  const ir::Value* base = nullptr;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  // The values between the viewed one, included, and the base, excluded.
  std::vector<const ir::Value*> through;
};

// The view of `value`, whose type is static: of the first value that is in memory, or that no view
// leads through. Operations of other blocks than `block` count as in memory.
View view_of(const ir::Value& value, const ir::Block& block, const InMemory& in_memory);

// Into how many partial sums the products of a dot_general go (kernel::Contraction::chains):
// several for a product with a vector whose other operand lies along its depth in memory, which is
// read as fast as memory gives it then. The operation alone decides, so that it is the same in
// every form.
int64_t dot_chains(const ir::Operation& op);

// Whether a convolution sums over its features outside of its window, in place of inside: where the
// features are an outer dimension of both operands, the window is larger than the result, and
// either it walks both operands along their last dimension or the result is one position. So are
// gradients by the kernels of channels-first convolutions and of those without windows, whose
// features are images that lie far apart. The operation alone decides, as for dot_chains.
bool sums_features_first(const ir::Operation& convolution);

// Of complex numbers: kernel::Contraction::rhs_first of a dot_general or convolution. x is that of
// the operand that the result's last dimension does not come from, whose parts stand alone beside
// vectors of the other's. The operation alone decides, as for dot_chains.
bool has_rhs_first(const ir::Operation& op);

// For a device that takes at most `most` products of floats one after the other
// (plan::DeviceTraits::most_of_chunk): says so on each contraction.
void bound_chunks(ir::Module& module, int64_t most);
// The chunks of a sum over dimensions of `sizes`, by that mark. In several chains a chunk has so
// many times as many products.
kernel::SumChunks sum_chunks(const ir::Operation& op, std::span<const int64_t> sizes,
                             int64_t chains);

// Why an operation is none that is worth code of a device's own; empty: it is. It is one that has
// the form of a Contraction, sums in f32 of f32, bf16 or f16, in f64, c64 or c128 of the same, or
// in i32 of narrow integers, not too small in any direction; with LowerOptions::matrix_types one
// for matrix units. Results of other types: see passes::widen_contractions.
kernel::Refusal why_no_contraction(const ir::Operation& op, const LowerOptions& options);

// The value that a contraction writes: its result, or, as long as nobody else uses what is before
// it, that result transposed and reshaped, on matrix units also f32 rounded to bf16 or f16. The
// operations between them are the values' own.
const ir::Value& output_of(const ir::Operation& contraction, const LowerOptions& options);

struct LoweredContraction {
  kernel::Contraction contraction;
  const ir::Value* lhs = nullptr;
  const ir::Value* rhs = nullptr;
};

// UNIMPLEMENTED: as why_no_contraction says. `in_memory` says which values may be read; `output`:
// what is written, the operation's result or output_of it.
Result<LoweredContraction> lower_contraction(const ir::Operation& op, const InMemory& in_memory,
                                             const ir::Value& output, const LowerOptions& options);

}  // namespace hekla::lower
