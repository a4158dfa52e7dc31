// SPDX-License-Identifier: Apache-2.0
// dynamic_slice and dynamic_update_slice of dimensions that are cut: where the piece lies, and how
// much of it in which part, is known when the program runs.
#include <algorithm>
#include <utility>

#include "backends/compiler/spmd/local_job.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;

namespace {

using Values = ir::GraphBuilder::Values;

ir::Value* i64(ir::GraphBuilder& g, int64_t value) {
  return g.integer_constant(DType::kI64, {}, value);
}

ir::Value* clamped(ir::GraphBuilder& g, ir::Value* value, int64_t low, int64_t high) {
  return g.make(OpCode::kClamp, {i64(g, low), value, i64(g, high)});
}

// Where the piece begins in the whole array: the operation clamps what it is given.
ir::Value* start_in_whole(ir::GraphBuilder& g, ir::Value* given, int64_t last) {
  if (given->type().dtype() == DType::kUI64) {
    given = g.binary(OpCode::kMinimum, given, g.integer_constant(DType::kUI64, {}, last));
  }
  return clamped(g, g.convert(given, DType::kI64), 0, last);
}

ir::Value* padded_along(ir::GraphBuilder& g, ir::Value* value, size_t d, int64_t margin,
                        ir::Value* fill) {
  const size_t rank = value->type().dims().size();
  Dims margins(rank, 0);
  margins[d] = margin;
  ir::AttributeMap attributes;
  attributes.set("edge_padding_low", ir::i64_array(margins));
  attributes.set("edge_padding_high", ir::i64_array(margins));
  attributes.set("interior_padding", ir::i64_array(Dims(rank, 0)));
  return g.make(OpCode::kPad, {value, fill}, std::move(attributes));
}

// Elements [start, start + length) along d; `start` fits.
ir::Value* piece_along(ir::GraphBuilder& g, ir::Value* value, size_t d, ir::Value* start,
                       int64_t length) {
  Dims sizes = value->type().dims();
  Values starts(sizes.size(), nullptr);
  for (size_t i = 0; i < sizes.size(); ++i) starts[i] = i == d ? start : i64(g, 0);
  sizes[d] = length;
  return g.dynamic_slice(value, starts, sizes);
}

}  // namespace

void LocalOps::slice_dynamically(Job& job) {
  const ir::Operation& op = job.op;
  const bool is_update = op.code() == OpCode::kDynamicUpdateSlice;
  if (!is_update && op.code() != OpCode::kDynamicSlice) return;
  ir::GraphBuilder& g = job.g;
  const Dims& whole = versions_.type(op.operand(0)).dims();
  const Dims piece = is_update ? versions_.type(op.operand(1)).dims() : op.result()->type().dims();
  const Tiling& tiling = job.operand_tilings[0];
  const Dims local = job.operands[0]->type().dims();
  const size_t rank = whole.size();
  const size_t first_index = is_update ? 2 : 1;
  const auto is_torn = [&](size_t d) { return !tiling.dims[d].empty() && piece[d] != whole[d]; };
  std::vector<size_t> torn;
  bool fits = true;  // in blocks
  for (size_t d = 0; d < rank; ++d) {
    if (!is_torn(d)) continue;
    torn.push_back(d);
    fits = fits && piece[d] <= local[d];
  }
  if (torn.empty()) return;
  const auto own_start = [&](size_t d) {  // counted from the part's beginning
    ir::Value* start = start_in_whole(g, job.operands[first_index + d], whole[d] - piece[d]);
    return g.subtract(start, resharder_.start_of_part(g, tiling.dims[d], local[d]));
  };
  Values starts(rank, nullptr);
  for (size_t d = 0; d < rank; ++d) {
    if (is_torn(d) || !tiling.dims[d].empty()) {
      starts[d] = i64(g, 0);
    } else {
      starts[d] = start_in_whole(g, job.operands[first_index + d], whole[d] - piece[d]);
    }
  }
  const DType dtype = job.operands[0]->type().dtype();
  if (!is_update) {
    // What this part has of the piece, between what changes no sum.
    ir::Value* value = job.operands[0];
    ir::Value* nothing = neutral(g, OpCode::kAdd, dtype, {});
    for (size_t d : torn) {
      ir::Value* start = own_start(d);
      int64_t length = local[d];
      if (piece[d] < length) {
        ir::Value* begin = clamped(g, start, 0, length - piece[d]);
        length = piece[d];
        value = piece_along(g, value, d, begin, length);
        start = g.subtract(start, begin);
      }
      start = clamped(g, g.add(start, i64(g, piece[d])), 0, length + piece[d]);
      value = piece_along(g, padded_along(g, value, d, piece[d], nothing), d, start, piece[d]);
    }
    job.made = {g.dynamic_slice(value, starts, job.result_dims(0))};
    return;
  }
  ir::Value* update = job.operands[1];
  ir::Value* value = job.operands[0];
  const Dims sizes = update->type().dims();
  ir::Value* zero = g.constant(dtype, {}, 0);
  if (!fits) {
    // Into margins, where the piece is not this part's.
    Dims low(rank, 0);
    Dims high = local;
    for (size_t d : torn) {
      value = padded_along(g, value, d, piece[d], zero);
      starts[d] = clamped(g, g.add(own_start(d), i64(g, piece[d])), 0, local[d] + piece[d]);
      low[d] = piece[d];
      high[d] = piece[d] + local[d];
    }
    job.made = {g.slice(g.dynamic_update_slice(value, update, starts), low, high)};
    return;
  }
  // Over as many elements of the part, of which some stay as they are.
  ir::Value* is_new = nullptr;
  for (size_t d : torn) {
    ir::Value* start = own_start(d);
    starts[d] = clamped(g, start, 0, local[d] - piece[d]);
    ir::Value* skipped = g.subtract(starts[d], start);
    update = piece_along(g, padded_along(g, update, d, piece[d], zero), d,
                         clamped(g, g.add(skipped, i64(g, piece[d])), 0, 2 * piece[d]), piece[d]);
    ir::Value* place =
        g.add(g.iota(DType::kI64, {piece[d]}, 0), g.broadcast(skipped, {piece[d]}, {}));
    ir::Value* inside =
        g.bit_and(g.compare("GE", place, g.integer_constant(DType::kI64, {piece[d]}, 0)),
                  g.compare("LT", place, g.integer_constant(DType::kI64, {piece[d]}, piece[d])));
    inside = g.broadcast(inside, sizes, {static_cast<int64_t>(d)});
    is_new = is_new == nullptr ? inside : g.bit_and(is_new, inside);
  }
  ir::Value* old = g.dynamic_slice(value, starts, sizes);
  job.made = {g.dynamic_update_slice(value, g.select(is_new, update, old), starts)};
}

}  // namespace hekla::spmd
