// SPDX-License-Identifier: Apache-2.0
// Scatters in their pure form: every element of the result goes through the updates in order and
// takes those that are for it. So the result does not depend on any order of execution, whatever
// the reducer is.
#include <array>

#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/emitter.h"
#include "backends/compiler/lower/scatter_form.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

std::vector<Elements> Emitter::emit_scatter(const ir::Operation& op, const Points& points) {
  const auto* n = op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
  const size_t count = op.result_count();
  const Dims& shape = op.operand(0)->type().dims();
  const ir::Value& indices = *op.operand(count);
  const Dims& update = op.operand(count + 1)->type().dims();
  const auto vector_dim = static_cast<size_t>(n->index_vector_dim);

  // Dimensions of the updates that count index vectors, and those of the indices they follow.
  std::vector<size_t> scatter_dims, index_dims;
  for (size_t d = 0; d < update.size(); ++d) {
    if (!contains(n->update_window_dims, d)) scatter_dims.push_back(d);
  }
  for (size_t d = 0; d < indices.type().dims().size(); ++d) {
    if (d != vector_dim) index_dims.push_back(d);
  }
  Sizes sizes;
  std::vector<size_t> looped;  // positions in scatter_dims; the others are batch dimensions
  for (size_t k = 0; k < scatter_dims.size(); ++k) {
    if (contains(n->scatter_indices_batching_dims, index_dims[k])) continue;
    looped.push_back(k);
    sizes.push_back(update[scatter_dims[k]]);
  }

  std::vector<DType> dtypes;
  Elements initial;
  std::vector<std::vector<Value>> places;
  for (const Point& point : points) places.push_back(dims_of(point, shape));
  std::vector<Elements> operands;
  for (size_t r = 0; r < count; ++r) {
    if (op.operand(r)->type().dtype() != op.operand(count + 1 + r)->type().dtype()) return {};
    operands.push_back(emit(*op.operand(r), points));
  }
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t r = 0; r < count; ++r) {
      dtypes.push_back(op.operand(r)->type().dtype());
      initial.push_back(operands[r][i]);
    }
  }

  bool applied = true;
  Elements totals = initial;
  if (element_count(update) != 0) {
    totals =
        nest(sizes, dtypes, initial, [&](const std::vector<Value>& at, const Elements& carried) {
          Points sources;
          std::vector<Value> matches;
          for (const std::vector<Value>& place : places) {
            std::vector<Value> scatter(scatter_dims.size(), kernel::kNoValue);
            for (size_t l = 0; l < looped.size(); ++l) scatter[looped[l]] = at[l];
            for (size_t k = 0; k < scatter_dims.size(); ++k) {
              const size_t q = position(n->scatter_indices_batching_dims, index_dims[k]);
              if (scatter[k] == kernel::kNoValue) {
                scatter[k] = place[static_cast<size_t>(n->input_batching_dims[q])];
              }
            }
            Point source;
            source.dims.assign(update.size(), kernel::kNoValue);
            for (size_t k = 0; k < scatter_dims.size(); ++k)
              source.dims[scatter_dims[k]] = scatter[k];
            Value is_match = b_.boolean(true);
            size_t next_window = 0;
            for (size_t d = 0; d < shape.size(); ++d) {
              if (contains(n->input_batching_dims, d)) continue;
              Value start = index(0);
              if (contains(n->scatter_dims_to_operand_dims, d)) {
                Point where;
                const auto component =
                    static_cast<int64_t>(position(n->scatter_dims_to_operand_dims, d));
                size_t next = 0;
                for (size_t k = 0; k < indices.type().dims().size(); ++k) {
                  where.dims.push_back(k == vector_dim ? index(component) : scatter[next++]);
                }
                // Starts outside stay outside: -1 and the size fit no window.
                start = clamped_index(emit(indices, where), indices.type().dtype(), -1, shape[d]);
              }
              if (contains(n->inserted_window_dims, d)) {
                is_match = b_.bit_and(is_match, b_.binary(Op::kEq, place[d], start));
                continue;
              }
              const auto window_dim = static_cast<size_t>(n->update_window_dims[next_window++]);
              const int64_t window = update[window_dim];
              // The whole window lies inside, and this element in the window.
              is_match = b_.bit_and(is_match, in_range(start, 0, shape[d] - window + 1));
              const Value offset = b_.sub(place[d], start);
              is_match = b_.bit_and(is_match, in_range(offset, 0, window));
              source.dims[window_dim] = clamp_index(offset, 0, window - 1);
            }
            matches.push_back(is_match);
            sources.push_back(std::move(source));
          }
          std::vector<Elements> updates;
          for (size_t r = 0; r < count; ++r)
            updates.push_back(emit(*op.operand(count + 1 + r), sources));
          std::optional<Elements> next =
              reduce_points(op.region(0).front(), carried, updates, matches);
          applied &= next.has_value();
          return next.value_or(carried);
        });
  }
  return applied ? by_result(totals, count) : std::vector<Elements>();
}

Elements Emitter::emit_select_and_scatter(const ir::Operation& op, const Points& points) {
  const ir::Value& operand = *op.operand(0);
  const ir::Value& source = *op.operand(1);
  const Dims& shape = operand.type().dims();
  const Dims& sources = source.type().dims();
  const size_t rank = shape.size();
  std::vector<int64_t> window = ir::int_list(op, "window_dimensions");
  std::vector<int64_t> strides = ir::int_list(op, "window_strides");
  if (window.empty()) window.assign(rank, 1);
  if (strides.empty()) strides.assign(rank, 1);
  const std::vector<std::array<int64_t, 2>> padding = ir::padding_of(op);
  const DType dtype = op.result()->type().dtype();
  if (operand.type().dtype() != dtype || source.type().dtype() != dtype) return {};
  const Element initial = emit(*op.operand(2), Point{});
  if (element_count(sources) == 0 || element_count(window) == 0) {
    return Elements(points.size(), initial);
  }
  const DType index_dtype = b_.index_type() == ScalarType::kI32 ? DType::kI32 : DType::kI64;
  auto low = [&](size_t d) { return d < padding.size() ? padding[d][0] : 0; };

  bool applied = true;
  Elements results;
  for (const Point& point : points) {
    const std::vector<Value> place = dims_of(point, shape);
    const Value here = linear_of(point, shape);
    // The windows over this element are the last one that begins at or before it and those before.
    Sizes nearby;
    for (size_t d = 0; d < rank; ++d) nearby.push_back((window[d] + strides[d] - 1) / strides[d]);
    const Elements sum = nest(
        nearby, {dtype}, {initial}, [&](const std::vector<Value>& back, const Elements& carried) {
          Value is_valid = b_.boolean(true);
          std::vector<Value> at;  // of the window, in the source
          for (size_t d = 0; d < rank; ++d) {
            Value offset = b_.add(place[d], index(low(d)));
            if (low(d) < 0) {
              is_valid = b_.bit_and(is_valid, b_.binary(Op::kLeS, index(0), offset));
              offset = clamp_index(offset, 0, shape[d]);
            }
            Value p = b_.sub(b_.binary(Op::kDivU, offset, index(strides[d])), back[d]);
            is_valid = b_.bit_and(is_valid, in_range(p, 0, sources[d]));
            p = clamp_index(p, 0, sources[d] - 1);
            const Value distance = b_.sub(offset, b_.mul(p, index(strides[d])));
            is_valid = b_.bit_and(is_valid, in_range(distance, 0, window[d]));
            at.push_back(p);
          }
          // Which element of the window is selected: the best so far and where it stands, -1 for
          // none.
          const Elements chosen = nest(
              window, {dtype, index_dtype}, {zero(dtype), Element{index(-1), kernel::kNoValue}},
              [&](const std::vector<Value>& inside, const Elements& best) {
                Point candidate;
                Value in_bounds = b_.boolean(true);
                for (size_t d = 0; d < rank; ++d) {
                  Value i = b_.add(b_.mul(at[d], index(strides[d])), inside[d]);
                  i = b_.sub(i, index(low(d)));
                  in_bounds = b_.bit_and(in_bounds, in_range(i, 0, shape[d]));
                  candidate.dims.push_back(clamp_index(i, 0, shape[d] - 1));
                }
                const Element x = emit(operand, candidate);
                const std::array<Element, 2> pair = {best[0], x};
                const std::optional<Elements> keeps = apply_region(op.region(0).front(), pair);
                if (!keeps.has_value()) {
                  applied = false;
                  return best;
                }
                const Value is_first = b_.binary(Op::kLtS, best[1].re, index(0));
                Value takes = b_.bit_or(is_first, b_.logical_not(keeps->front().re));
                takes = b_.bit_and(takes, in_bounds);
                const Value linear = linear_of(candidate, shape);
                return Elements{kernel::select(b_, takes, x, best[0]),
                                Element{b_.select(takes, linear, best[1].re), kernel::kNoValue}};
              });
          const Value is_here = b_.bit_and(is_valid, b_.binary(Op::kEq, chosen[1].re, here));
          const std::array<Element, 2> pair = {carried[0],
                                               emit(source, Point{at, kernel::kNoValue})};
          const std::optional<Elements> added = apply_region(op.region(1).front(), pair);
          if (!added.has_value()) {
            applied = false;
            return carried;
          }
          return Elements{kernel::select(b_, is_here, added->front(), carried[0])};
        });
    results.push_back(sum[0]);
  }
  return applied ? results : Elements{};
}

}  // namespace hekla::lower
