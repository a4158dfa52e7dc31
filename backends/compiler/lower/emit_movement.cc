// SPDX-License-Identifier: Apache-2.0
// Operations whose elements are elements of their operands, found by index arithmetic.
#include <algorithm>

#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/emitter.h"
#include "backends/compiler/lower/lower.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

Point Emitter::source_point(const ir::Operation& op, const Point& point) {
  const Dims& to = op.result()->type().dims();
  const Dims& from = op.operand(0)->type().dims();
  Point source;
  switch (op.code()) {
    case OpCode::kReshape:
      if (from.empty()) return Point{};
      if (point.linear != kernel::kNoValue) return Point{{}, point.linear};
      // Sizes of 1 that come or go leave the other indices as they are.
      {
        std::vector<Value> dims;
        Dims kept_to, kept_from;
        for (size_t d = 0; d < to.size(); ++d) {
          if (to[d] == 1) continue;
          kept_to.push_back(to[d]);
          dims.push_back(point.dims[d]);
        }
        for (int64_t size : from) {
          if (size != 1) kept_from.push_back(size);
        }
        if (kept_to == kept_from) {
          size_t next = 0;
          for (int64_t size : from) source.dims.push_back(size == 1 ? index(0) : dims[next++]);
          return source;
        }
      }
      return Point{{}, linear_of(point, to)};
    case OpCode::kBroadcast: {
      const std::vector<Value> dims = dims_of(point, to);
      const size_t added = to.size() - from.size();
      source.dims.assign(dims.begin() + static_cast<std::ptrdiff_t>(added), dims.end());
      return source;
    }
    case OpCode::kBroadcastInDim: {
      if (from.empty()) return Point{};
      const std::vector<int64_t> map = ir::int_list(op, "broadcast_dimensions");
      if (point.linear != kernel::kNoValue && keeps_row_major_order(op)) {
        return Point{{}, point.linear};
      }
      const std::vector<Value> dims = dims_of(point, to);
      for (size_t d = 0; d < from.size(); ++d) {
        source.dims.push_back(from[d] == 1 ? index(0) : dims[static_cast<size_t>(map[d])]);
      }
      return source;
    }
    case OpCode::kReverse: {
      source.dims = dims_of(point, to);
      for (int64_t d : ir::int_list(op, "dimensions")) {
        Value& i = source.dims[static_cast<size_t>(d)];
        i = b_.sub(index(to[static_cast<size_t>(d)] - 1), i);
      }
      return source;
    }
    case OpCode::kSlice: {
      const std::vector<int64_t> start = ir::int_list(op, "start_indices");
      const std::vector<int64_t> strides = ir::int_list(op, "strides");
      source.dims = dims_of(point, to);
      for (size_t d = 0; d < to.size(); ++d) {
        const int64_t stride = strides.empty() ? 1 : strides[d];
        source.dims[d] = b_.add(b_.mul(source.dims[d], index(stride)), index(start[d]));
      }
      return source;
    }
    case OpCode::kTranspose: {
      const std::vector<int64_t> permutation = ir::int_list(op, "permutation");
      const std::vector<Value> dims = dims_of(point, to);
      source.dims.resize(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        source.dims[static_cast<size_t>(permutation[d])] = dims[d];
      }
      return source;
    }
    default:
      return point;
  }
}

Elements Emitter::emit_movement(const ir::Operation& op, const Points& points) {
  if (!op.operand(0)->type().is_static_tensor() || !op.result()->type().is_static_tensor()) {
    return {};
  }
  Points sources;
  for (const Point& point : points) sources.push_back(source_point(op, point));
  return emit(*op.operand(0), sources);
}

// A bitcast between widths: an element is a part of a wider one, the lowest bits first, or several
// narrower ones together.
Elements Emitter::emit_bitcast(const ir::Operation& op, const Points& points) {
  const ir::Value& operand = *op.operand(0);
  const DType from = operand.type().dtype();
  const DType to = op.result()->type().dtype();
  const int from_bits = dtype_bits(from), to_bits = dtype_bits(to);
  if (is_complex(from) || is_complex(to) || from_bits < 8 || to_bits < 8) return {};
  auto resize = [&](Value v, ScalarType type) {
    if (b_.type(v) == type) return v;
    return b_.convert(type == ScalarType::kI64 ? Op::kZeroExtend : Op::kTruncate, type, v);
  };
  const ScalarType narrow_type =
      std::min(from_bits, to_bits) == 64 ? ScalarType::kI64 : ScalarType::kI32;
  const ScalarType wide_type =
      std::max(from_bits, to_bits) == 64 ? ScalarType::kI64 : ScalarType::kI32;
  Elements elements;
  for (const Point& point : points) {
    std::vector<Value> place = dims_of(point, op.result()->type().dims());
    if (from_bits > to_bits) {
      const Value part = place.back();
      place.pop_back();
      const Value wide = kernel::element_bits(b_, from, emit(operand, Point{place}));
      // The index as a number of bits, in the type that is shifted.
      Value shift = b_.mul(part, index(to_bits));
      if (b_.type(shift) != wide_type) {
        shift = b_.convert(wide_type == ScalarType::kI64 ? Op::kSignExtend : Op::kTruncate,
                           wide_type, shift);
      }
      Value bits = resize(b_.binary(Op::kShrU, wide, shift), narrow_type);
      if (to_bits < 32) {
        bits = b_.bit_and(bits, b_.integer(narrow_type, (int64_t{1} << to_bits) - 1));
      }
      elements.push_back(kernel::element_from_bits(b_, to, bits));
    } else {
      Value bits = b_.integer(wide_type, 0);
      place.push_back(kernel::kNoValue);
      for (int part = 0; part < to_bits / from_bits; ++part) {
        place.back() = index(part);
        const Value narrow = kernel::element_bits(b_, from, emit(operand, Point{place}));
        const Value moved =
            b_.binary(Op::kShl, resize(narrow, wide_type), b_.integer(wide_type, part * from_bits));
        bits = b_.bit_or(bits, moved);
      }
      elements.push_back(kernel::element_from_bits(b_, to, bits));
    }
  }
  return elements;
}

Element Emitter::emit_iota(const ir::Operation& op, const Point& point) {
  const ir::Type& type = op.result()->type();
  const std::vector<Value> dims = dims_of(point, type.dims());
  const Value i = dims[static_cast<size_t>(ir::int_value(op, "iota_dimension"))];
  const DType from = b_.index_type() == ScalarType::kI32 ? DType::kI32 : DType::kI64;
  return kernel::convert_element(b_, Element{i, kernel::kNoValue}, from, type.dtype());
}

Elements Emitter::emit_concatenate(const ir::Operation& op, const Points& points) {
  const Dims& shape = op.result()->type().dims();
  const auto axis = static_cast<size_t>(ir::int_value(op, "dimension"));
  std::vector<std::vector<Value>> places;
  for (const Point& point : points) places.push_back(dims_of(point, shape));
  Elements result;
  int64_t start = 0;
  for (const ir::Value* operand : op.operands()) {
    const int64_t size = operand->type().dims()[axis];
    if (size == 0) continue;
    Points sources;
    for (const std::vector<Value>& place : places) {
      Point source{place, kernel::kNoValue};
      source.dims[axis] = clamp_index(b_.sub(place[axis], index(start)), 0, size - 1);
      sources.push_back(std::move(source));
    }
    const Elements part = emit(*operand, sources);
    if (result.empty()) {
      result = part;
    } else {
      for (size_t i = 0; i < points.size(); ++i) {
        const Value here = b_.binary(Op::kLeS, index(start), places[i][axis]);
        result[i] = kernel::select(b_, here, part[i], result[i]);
      }
    }
    start += size;
  }
  return result;
}

Elements Emitter::emit_pad(const ir::Operation& op, const Points& points) {
  const Dims& to = op.result()->type().dims();
  const Dims& from = op.operand(0)->type().dims();
  const std::vector<int64_t> low = ir::int_list(op, "edge_padding_low");
  const std::vector<int64_t> interior = ir::int_list(op, "interior_padding");
  const Element padding = emit(*op.operand(1), Point{});
  if (element_count(from) == 0) return Elements(points.size(), padding);
  Points sources;
  std::vector<Value> inside;
  for (const Point& point : points) {
    Point source{dims_of(point, to), kernel::kNoValue};
    Value is_inside = b_.boolean(true);
    for (size_t d = 0; d < to.size(); ++d) {
      Value i = b_.sub(source.dims[d], index(low[d]));
      const int64_t step = interior.empty() ? 1 : interior[d] + 1;
      const int64_t span = (from[d] - 1) * step + 1;
      if (low[d] != 0 || span != to[d]) is_inside = b_.bit_and(is_inside, in_range(i, 0, span));
      i = clamp_index(i, 0, span - 1);
      if (step != 1) {
        is_inside = b_.bit_and(is_inside,
                               b_.binary(Op::kEq, b_.binary(Op::kRemU, i, index(step)), index(0)));
        i = b_.binary(Op::kDivU, i, index(step));
      }
      source.dims[d] = i;
    }
    inside.push_back(is_inside);
    sources.push_back(std::move(source));
  }
  Elements elements = emit(*op.operand(0), sources);
  for (size_t i = 0; i < points.size(); ++i)
    elements[i] = kernel::select(b_, inside[i], elements[i], padding);
  return elements;
}

Elements Emitter::emit_dynamic_slice(const ir::Operation& op, const Points& points) {
  const Dims& to = op.result()->type().dims();
  const Dims& from = op.operand(0)->type().dims();
  std::vector<Value> starts;
  for (size_t d = 0; d < to.size(); ++d) {
    const ir::Value& start = *op.operand(d + 1);
    starts.push_back(start_index(emit(start, Point{}), start.type().dtype(), from[d] - to[d]));
  }
  Points sources;
  for (const Point& point : points) {
    Point source{dims_of(point, to), kernel::kNoValue};
    for (size_t d = 0; d < to.size(); ++d) source.dims[d] = b_.add(source.dims[d], starts[d]);
    sources.push_back(std::move(source));
  }
  return emit(*op.operand(0), sources);
}

std::vector<Value> Emitter::update_starts(const ir::Operation& update) {
  const Dims& shape = update.result()->type().dims();
  const Dims& window = update.operand(1)->type().dims();
  std::vector<Value> starts;
  for (size_t d = 0; d < shape.size(); ++d) {
    const ir::Value& start = *update.operand(d + 2);
    starts.push_back(start_index(emit(start, Point{}), start.type().dtype(), shape[d] - window[d]));
  }
  return starts;
}

Point Emitter::update_target(const ir::Operation& update, const Point& point) {
  const std::vector<Value> starts = update_starts(update);
  Point target{dims_of(point, update.operand(1)->type().dims()), kernel::kNoValue};
  for (size_t d = 0; d < starts.size(); ++d) target.dims[d] = b_.add(target.dims[d], starts[d]);
  return target;
}

Elements Emitter::emit_dynamic_update_slice(const ir::Operation& op, const Points& points) {
  const Dims& shape = op.result()->type().dims();
  const Dims& window = op.operand(1)->type().dims();
  if (element_count(window) == 0) return emit(*op.operand(0), points);
  const std::vector<Value> starts = update_starts(op);
  Points sources;
  std::vector<Value> inside;
  for (const Point& point : points) {
    Point source{dims_of(point, shape), kernel::kNoValue};
    Value is_inside = b_.boolean(true);
    for (size_t d = 0; d < shape.size(); ++d) {
      const Value i = b_.sub(source.dims[d], starts[d]);
      is_inside = b_.bit_and(is_inside, in_range(i, 0, window[d]));
      source.dims[d] = clamp_index(i, 0, window[d] - 1);
    }
    inside.push_back(is_inside);
    sources.push_back(std::move(source));
  }
  const Elements updates = emit(*op.operand(1), sources);
  Elements elements = emit(*op.operand(0), points);
  for (size_t i = 0; i < points.size(); ++i) {
    elements[i] = kernel::select(b_, inside[i], updates[i], elements[i]);
  }
  return elements;
}

// The specification's names: batch dimensions of the result index the start indices, offset
// dimensions index the slice.
Elements Emitter::emit_gather(const ir::Operation& op, const Points& points) {
  const auto* numbers = op.attribute("dimension_numbers").get<ir::GatherDimensionNumbers>();
  const std::vector<int64_t> slice_sizes = ir::int_list(op, "slice_sizes");
  const ir::Type& indices = op.operand(1)->type();
  const Dims& operand = op.operand(0)->type().dims();
  const Dims& to = op.result()->type().dims();
  const auto vector_dim = static_cast<size_t>(numbers->index_vector_dim);

  Points sources;
  for (const Point& point : points) {
    const std::vector<Value> place = dims_of(point, to);
    std::vector<Value> batch, offset;
    for (size_t d = 0; d < to.size(); ++d) {
      (contains(numbers->offset_dims, d) ? offset : batch).push_back(place[d]);
    }
    // Where the start indices of this batch stand: the index vector's dimension is added.
    auto start_at = [&](int64_t component) {
      Point at;
      size_t next = 0;
      for (size_t d = 0; d < indices.dims().size(); ++d) {
        at.dims.push_back(d == vector_dim ? index(component) : batch[next++]);
      }
      return start_index(
          emit(*op.operand(1), at), indices.dtype(),
          operand[static_cast<size_t>(numbers->start_index_map[static_cast<size_t>(component)])] -
              slice_sizes[static_cast<size_t>(
                  numbers->start_index_map[static_cast<size_t>(component)])]);
    };
    Point source;
    size_t next_offset = 0;
    for (size_t d = 0; d < operand.size(); ++d) {
      const bool is_batching = contains(numbers->operand_batching_dims, d);
      const bool is_collapsed = contains(numbers->collapsed_slice_dims, d);
      source.dims.push_back(is_batching || is_collapsed ? index(0) : offset[next_offset++]);
    }
    for (size_t i = 0; i < numbers->start_index_map.size(); ++i) {
      Value& at = source.dims[static_cast<size_t>(numbers->start_index_map[i])];
      at = b_.add(at, start_at(static_cast<int64_t>(i)));
    }
    for (size_t i = 0; i < numbers->operand_batching_dims.size(); ++i) {
      // The batch index of the start indices' dimension, which misses the index vector's.
      auto d = static_cast<size_t>(numbers->start_indices_batching_dims[i]);
      if (d > vector_dim) --d;
      source.dims[static_cast<size_t>(numbers->operand_batching_dims[i])] = batch[d];
    }
    sources.push_back(std::move(source));
  }
  return emit(*op.operand(0), sources);
}

}  // namespace hekla::lower
