// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/emitter.h"

#include <unordered_map>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

std::vector<int64_t> strides_of(const Dims& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

void Emitter::fail(const ir::Operation& op) {
  if (!status_.ok()) return;
  std::string types = ir::types_string(op.result_types());
  status_ = unimplemented("{} -> {} ({}) has no scalar form", op.name(), types,
                          ir::location_string(op.location()));
}

Emitter::Key Emitter::key_of(const ir::Value& value, const Point& point) {
  std::vector<Value> place = point.dims;
  if (place.empty()) place.push_back(point.linear);
  return {&value, std::move(place)};
}

const Element* Emitter::known(const Key& key) const {
  for (auto layer = memo_.rbegin(); layer != memo_.rend(); ++layer) {
    if (auto it = layer->find(key); it != layer->end()) return &it->second;
  }
  return nullptr;
}

Elements Emitter::emit(const ir::Value& value, const Points& points) {
  if (const auto it = known_.find(&value); it != known_.end()) {
    return Elements(points.size(), it->second);
  }
  Elements elements(points.size());
  Points missing;
  std::vector<size_t> places;
  for (size_t i = 0; i < points.size(); ++i) {
    if (const Element* element = known(key_of(value, points[i]))) {
      elements[i] = *element;
    } else {
      missing.push_back(points[i]);
      places.push_back(i);
    }
  }
  if (missing.empty()) return elements;
  const Elements made = compute(value, missing);
  for (size_t i = 0; i < missing.size(); ++i) {
    elements[places[i]] = made[i];
    memo_.back()[key_of(value, missing[i])] = made[i];
  }
  return elements;
}

Elements Emitter::compute(const ir::Value& value, const Points& points) {
  if (const std::optional<int> operand = operand_of_(value)) {
    Elements elements;
    for (const Point& point : points) {
      elements.push_back(kernel::load_element(b_, value.type().dtype(), *operand,
                                              linear_of(point, value.type().dims())));
    }
    return elements;
  }
  const ir::Operation* op = value.defining_op();
  if (op == nullptr) {
    if (status_.ok()) status_ = internal_error("a block argument is not in memory");
    return Elements(points.size(), zero(value.type().dtype()));
  }
  Elements elements = emit_operation(*op, static_cast<size_t>(value.index()), points);
  if (elements.size() != points.size()) {
    fail(*op);
    elements.assign(points.size(), zero(value.type().dtype()));
  }
  return elements;
}

// An empty result says that there is no scalar form.
Elements Emitter::emit_operation(const ir::Operation& op, size_t result, const Points& points) {
  switch (op.code()) {
    case OpCode::kConstant: {
      Elements elements;
      for (const Point& point : points) elements.push_back(constant(op, point));
      return elements;
    }
    case OpCode::kIota: {
      Elements elements;
      for (const Point& point : points) elements.push_back(emit_iota(op, point));
      return elements;
    }
    case OpCode::kBroadcast:
    case OpCode::kBroadcastInDim:
    case OpCode::kReshape:
    case OpCode::kReverse:
    case OpCode::kSlice:
    case OpCode::kTranspose:
      return emit_movement(op, points);
    case OpCode::kBitcastConvert:
      return op.operand(0)->type().rank() == op.result()->type().rank()
                 ? emit_elementwise(op, points)
                 : emit_bitcast(op, points);
    case OpCode::kConcatenate:
      return emit_concatenate(op, points);
    case OpCode::kPad:
      return emit_pad(op, points);
    case OpCode::kGather:
      return emit_gather(op, points);
    case OpCode::kDynamicSlice:
      return emit_dynamic_slice(op, points);
    case OpCode::kDynamicUpdateSlice:
      return emit_dynamic_update_slice(op, points);
    case OpCode::kDotGeneral:
      return emit_dot_general(op, points);
    case OpCode::kConvolution:
      return emit_convolution(op, points);
    case OpCode::kSelectAndScatter:
      return emit_select_and_scatter(op, points);
    case OpCode::kReduce:
    case OpCode::kReduceWindow:
    case OpCode::kScatter: {
      std::vector<Elements> results = op.code() == OpCode::kReduce ? emit_reduce(op, points)
                                      : op.code() == OpCode::kScatter
                                          ? emit_scatter(op, points)
                                          : emit_reduce_window(op, points);
      if (results.size() != op.result_count()) return {};
      for (size_t r = 0; r < results.size(); ++r) {
        for (size_t i = 0; i < points.size(); ++i) {
          memo_.back()[key_of(*op.result(r), points[i])] = results[r][i];
        }
      }
      return results[result];
    }
    default:
      return emit_elementwise(op, points);
  }
}

Element finite_or_zero(Builder& b, Element error) {
  for (Value* part : {&error.re, &error.im}) {
    if (*part == kernel::kNoValue) continue;
    const Value none = b.sub(*part, *part);  // of infinities a NaN, as of NaNs
    const Value is_finite = b.binary(kernel::Op::kEq, none, none);
    *part = b.select(is_finite, *part, b.integer(b.type(*part), 0));
  }
  return error;
}

Element Emitter::zero(DType dtype) { return kernel::integer_element(b_, dtype, 0); }

Element Emitter::constant(const ir::Operation& op, const Point& point) {
  const auto* dense = op.attribute("value").get<ir::DenseValue>();
  const DType dtype = op.result()->type().dtype();
  if (dense == nullptr || dense->type.quantization() != nullptr) {
    fail(op);
    return zero(dtype);
  }
  if (dense->values.size() == 1) {
    return kernel::constant_element(b_, dtype, dense->values.data());
  }
  const Value linear = linear_of(point, op.result()->type().dims());
  if (const uint64_t* at = b_.constant(linear)) {
    const auto place = static_cast<int64_t>(*at) * dtype_bytes(dtype);
    return kernel::constant_element(b_, dtype, dense->values.data() + place);
  }
  fail(op);  // the planner puts such constants into memory
  return zero(dtype);
}

std::optional<Element> Emitter::apply(const ir::Operation& op, std::span<const Element> operands) {
  for (const ir::Value* value : op.operands()) {
    if (value->type().quantization() != nullptr) return std::nullopt;
  }
  if (op.result_count() != 1 || op.result()->type().quantization() != nullptr) return std::nullopt;
  const DType to = op.result()->type().dtype();
  const DType from = op.operand_count() == 0 ? to : op.operand(0)->type().dtype();
  switch (op.code()) {
    case OpCode::kConvert:
      return kernel::convert_element(b_, operands[0], from, to);
    case OpCode::kCompare: {
      const std::optional<kernel::Direction> direction =
          kernel::direction_from_name(ir::text_value(op, "comparison_direction"));
      if (!direction.has_value()) return std::nullopt;
      const bool total_order = ir::text_value(op, "compare_type") == "TOTALORDER";
      return Element{kernel::compare(b_, *direction, total_order, from, operands[0], operands[1]),
                     kernel::kNoValue};
    }
    case OpCode::kSelect:
      return kernel::select(b_, operands[0].re, operands[1], operands[2]);
    case OpCode::kClamp:
      return kernel::clamp(b_, to, operands[0], operands[1], operands[2]);
    case OpCode::kComplex:
      return Element{operands[0].re, operands[1].re};
    case OpCode::kBitcastConvert:
      return kernel::bitcast(b_, operands[0], from, to);
    case OpCode::kReducePrecision:
      return kernel::reduce_precision(b_, from, operands[0], ir::int_value(op, "exponent_bits"),
                                      ir::int_value(op, "mantissa_bits"));
    case OpCode::kMap: {
      const std::optional<Elements> results = apply_region(op.region(0).front(), operands);
      if (!results.has_value()) return std::nullopt;
      return results->front();
    }
    default:
      break;
  }
  if (operands.size() == 1) return kernel::unary(b_, op.code(), from, operands[0]);
  if (operands.size() == 2) return kernel::binary(b_, op.code(), from, operands[0], operands[1]);
  return std::nullopt;
}

Elements Emitter::emit_elementwise(const ir::Operation& op, const Points& points) {
  // Arguments point by point: a scalar operand of select and clamp is the same everywhere.
  std::vector<Elements> operands;
  if (op.result_count() != 1 || op.operand_count() == 0) return {};
  for (const ir::Value* value : op.operands()) {
    if (!value->type().is_static_tensor()) return {};
    if (value->type().dims() == op.result()->type().dims()) {
      operands.push_back(emit(*value, points));
    } else if (value->type().rank() == 0) {
      operands.push_back(Elements(points.size(), emit(*value, Point{})));
    } else {
      return {};
    }
  }
  Elements results;
  for (size_t i = 0; i < points.size(); ++i) {
    Elements arguments;
    for (const Elements& operand : operands) arguments.push_back(operand[i]);
    const std::optional<Element> element = apply(op, arguments);
    if (!element.has_value()) return {};
    results.push_back(*element);
  }
  return results;
}

std::optional<Elements> Emitter::apply_region(const ir::Block& block,
                                              std::span<const Element> arguments) {
  return apply_block(block, arguments, nullptr);
}

std::optional<Element> Emitter::value_in_region(const ir::Block& block,
                                                std::span<const Element> arguments,
                                                const ir::Value& wanted) {
  const std::optional<Elements> values = apply_block(block, arguments, &wanted);
  if (!values.has_value()) return std::nullopt;
  return values->front();
}

std::optional<Elements> Emitter::apply_block(const ir::Block& block,
                                             std::span<const Element> arguments,
                                             const ir::Value* wanted) {
  std::unordered_map<const ir::Value*, Element> values;
  for (size_t i = 0; i < arguments.size(); ++i) values[block.argument(i)] = arguments[i];
  auto find = [&](const ir::Value* value) {
    if (auto it = values.find(value); it != values.end()) return it->second;
    return emit(*value, Point{});  // a value around the region
  };
  for (const auto& op : block.operations()) {
    if (wanted != nullptr && values.contains(wanted)) return Elements{values.at(wanted)};
    Elements operands;
    for (const ir::Value* value : op->operands()) {
      if (value->type().rank() != 0) return std::nullopt;
      operands.push_back(find(value));
    }
    if (op.get() == block.terminator()) return operands;
    if (op->code() == OpCode::kConstant) {
      if (op->result()->type().rank() != 0) return std::nullopt;
      values[op->result()] = constant(*op, Point{});
      continue;
    }
    const std::optional<Element> element = apply(*op, operands);
    if (!element.has_value()) return std::nullopt;
    values[op->result()] = *element;
  }
  return std::nullopt;
}

std::vector<Value> Emitter::dims_of(const Point& point, const Dims& shape) {
  if (point.dims.size() == shape.size()) return point.dims;
  std::vector<Value> dims(shape.size());
  Value rest = point.linear;
  for (size_t d = shape.size(); d-- > 1;) {
    dims[d] = b_.binary(Op::kRemU, rest, index(shape[d]));
    rest = b_.binary(Op::kDivU, rest, index(shape[d]));
  }
  if (!shape.empty()) dims[0] = rest;
  return dims;
}

Value Emitter::linear_of(const Point& point, const Dims& shape) {
  if (point.linear != kernel::kNoValue) return point.linear;
  const std::vector<int64_t> strides = strides_of(shape);
  Value linear = index(0);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;  // the index is 0, whatever it was computed from
    linear = b_.add(linear, b_.mul(point.dims[d], index(strides[d])));
  }
  return linear;
}

Value Emitter::clamp_index(Value value, int64_t low, int64_t high) {
  const Value above = b_.binary(Op::kLtS, index(high), value);
  const Value below = b_.binary(Op::kLtS, value, index(low));
  return b_.select(below, index(low), b_.select(above, index(high), value));
}

Value Emitter::in_range(Value value, int64_t low, int64_t high) {
  return b_.bit_and(b_.binary(Op::kLeS, index(low), value),
                    b_.binary(Op::kLtS, value, index(high)));
}

Value Emitter::clamped_index(const Element& element, DType dtype, int64_t low, int64_t high) {
  // Clamped in the element's own type first: a large value must not wrap into the range.
  const ScalarType type = b_.type(element.re);
  const bool is_unsigned = is_unsigned_integer(dtype);
  const Value top = b_.integer(type, high);
  const Value above = b_.binary(is_unsigned ? Op::kLtU : Op::kLtS, top, element.re);
  Value clamped = b_.select(above, top, element.re);
  if (!is_unsigned) {
    const Value bottom = b_.integer(type, low);
    clamped = b_.select(b_.binary(Op::kLtS, clamped, bottom), bottom, clamped);
  }
  if (type == b_.index_type()) return clamped;
  return type == ScalarType::kI64 ? b_.convert(Op::kTruncate, ScalarType::kI32, clamped)
                                  : b_.convert(Op::kSignExtend, ScalarType::kI64, clamped);
}

}  // namespace hekla::lower
