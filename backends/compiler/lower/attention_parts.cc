// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/attention_parts.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "backends/compiler/lower/dimensions.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

OperandDims operand_dims(const ir::Operation& product, size_t side) {
  const auto* n = product.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  const auto& batching = side == 0 ? n->lhs_batching_dimensions : n->rhs_batching_dimensions;
  const auto& contracting =
      side == 0 ? n->lhs_contracting_dimensions : n->rhs_contracting_dimensions;
  const Dims& shape = product.operand(side)->type().dims();
  OperandDims made;
  made.dims.resize(shape.size());
  for (const int64_t d : contracting) made.depth.push_back(shape[static_cast<size_t>(d)]);
  size_t next = batching.size();
  if (side == 1) {
    next += product.operand(0)->type().rank() - batching.size() - contracting.size();
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (contains(batching, d)) {
      const size_t number = position(batching, d);
      made.dims[d] = {OperandDims::Kind::kBatch, number, number};
    } else if (contains(contracting, d)) {
      made.dims[d] = {OperandDims::Kind::kDepth, position(contracting, d), 0};
    } else {
      made.dims[d] = {OperandDims::Kind::kOwn, made.own.size(), next++};
      made.own.push_back(shape[d]);
    }
  }
  return made;
}

int64_t largest_of_scores(const std::vector<const ir::Value*>& operands, int64_t largest,
                          const std::unordered_set<const ir::Operation*>& members,
                          const InMemory& in_memory) {
  std::unordered_set<const ir::Value*> seen;
  std::vector<const ir::Value*> open = operands;
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    if (!seen.insert(&value).second) continue;
    const ir::Operation* op = value.defining_op();
    const bool is_loaded = op == nullptr || in_memory(value);
    if (!is_loaded) open.insert(open.end(), op->operands().begin(), op->operands().end());
    const bool has_number = is_loaded || (op->code() != OpCode::kBroadcastInDim &&
                                          op->code() != OpCode::kConstant && !members.contains(op));
    if (has_number) largest = std::max(largest, element_count(value.type().dims()));
  }
  return largest;
}

std::vector<Value> ScoreKernel::split(Value index, const Dims& sizes) {
  std::vector<Value> parts(sizes.size(), k_.index(0));
  for (size_t d = sizes.size(); d-- > 0;) {
    const Value size = k_.index(sizes[d]);
    parts[d] = d == 0 ? index : b().binary(Op::kRemU, index, size);
    if (d > 0) index = b().binary(Op::kDivU, index, size);
  }
  return parts;
}

ScoreKernel::Places ScoreKernel::with(const Places& places, const std::vector<size_t>& dims,
                                      Value number) {
  Dims sizes;
  for (const size_t d : dims) sizes.push_back(shape_[d]);
  const std::vector<Value> parts = split(number, sizes);
  Places made = places;
  for (size_t i = 0; i < dims.size(); ++i) made[dims[i]] = parts[i];
  return made;
}

int64_t ScoreKernel::count(const std::vector<size_t>& dims) const {
  int64_t made = 1;
  for (const size_t d : dims) made *= shape_[d];
  return made;
}

Point ScoreKernel::point_of(const WeightDims& dims, const Places& places) {
  Point point;
  for (const int dim : dims) {
    point.dims.push_back(dim == kSingle ? k_.index(0) : places[static_cast<size_t>(dim)]);
  }
  return point;
}

Element ScoreKernel::f32(const ir::Value& value, const Point& point, Value is_there) {
  const Element made = kernel::convert_element(b(), k_.emitter().emit(value, point),
                                               value.type().dtype(), DType::kF32);
  return kernel::select(b(), is_there, made, number(0));
}

Point ScoreKernel::score_point(const InnerProduct& product, size_t side, const Places& places,
                               Value depth) {
  const OperandDims dims = operand_dims(*product.op, side);
  const std::vector<Value> parts = split(depth, dims.depth);
  Point point;
  for (const OperandDims::Dim& dim : dims.dims) {
    if (dim.kind == OperandDims::Kind::kDepth) {
      point.dims.push_back(parts[dim.number]);
      continue;
    }
    const int at = product.dims[dim.result];
    point.dims.push_back(at == kSingle ? k_.index(0) : places[static_cast<size_t>(at)]);
  }
  return point;
}

Element ScoreKernel::score_operand(const InnerProduct& product, size_t side, const Places& places,
                                   Value depth, bool is_uneven) {
  const int64_t size = element_count(operand_dims(*product.op, side).depth);
  const Point point =
      score_point(product, side, places, is_uneven ? k_.at_most(depth, size - 1) : depth);
  return f32(*product.op->operand(side), point,
             is_uneven ? is_below(depth, size) : b().boolean(true));
}

Point ScoreKernel::value_point(const ir::Operation& product, size_t weights_side,
                               const Places& places, Value own) {
  const OperandDims dims = operand_dims(product, 1 - weights_side);
  const auto* n = product.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  const bool is_left = weights_side == 0;
  const auto& contracting = is_left ? n->lhs_contracting_dimensions : n->rhs_contracting_dimensions;
  const auto& batching = is_left ? n->lhs_batching_dimensions : n->rhs_batching_dimensions;
  const std::vector<Value> parts = split(own, dims.own);
  Point point;
  for (const OperandDims::Dim& dim : dims.dims) {
    switch (dim.kind) {
      case OperandDims::Kind::kDepth:
        point.dims.push_back(places[static_cast<size_t>(contracting[dim.number])]);
        break;
      case OperandDims::Kind::kOwn:
        point.dims.push_back(parts[dim.number]);
        break;
      case OperandDims::Kind::kBatch:
        point.dims.push_back(places[static_cast<size_t>(batching[dim.number])]);
        break;
    }
  }
  return point;
}

Element ScoreKernel::value_operand(const ir::Operation& product, size_t weights_side,
                                   const Places& places, Value own, bool own_is_uneven,
                                   Value is_there) {
  const int64_t size = element_count(operand_dims(product, 1 - weights_side).own);
  const Point point =
      value_point(product, weights_side, places, own_is_uneven ? k_.at_most(own, size - 1) : own);
  return f32(*product.operand(1 - weights_side), point, is_there);
}

Point ScoreKernel::result_point(const ir::Operation& product, size_t weights_side,
                                const Places& places, Value own) {
  const OperandDims weights = operand_dims(product, weights_side);
  const OperandDims values = operand_dims(product, 1 - weights_side);
  const std::vector<Value> parts = split(own, values.own);
  Point point;
  point.dims.assign(product.result()->type().rank(), k_.index(0));
  for (size_t d = 0; d < weights.dims.size(); ++d) {
    if (weights.dims[d].kind == OperandDims::Kind::kDepth || shape_[d] == 1) continue;
    point.dims[weights.dims[d].result] = places[d];
  }
  for (const OperandDims::Dim& dim : values.dims) {
    if (dim.kind == OperandDims::Kind::kOwn) point.dims[dim.result] = parts[dim.number];
  }
  return point;
}

void ScoreKernel::put(const kernel::TeamMemory& memory, Value place, const Element& element) {
  b().team_store(memory, word(place), b().convert(Op::kBitcast, ScalarType::kI32, element.re));
}

Value ScoreKernel::get(const kernel::TeamMemory& memory, Value place) {
  return b().convert(Op::kBitcast, ScalarType::kF32, b().team_load(memory, word(place)));
}

Value ScoreKernel::word(Value index) {
  if (b().index_type() == ScalarType::kI32) return index;
  return b().convert(Op::kTruncate, ScalarType::kI32, index);
}

Value ScoreKernel::exponential(Value x) {
  return kernel::unary(b(), OpCode::kExponential, DType::kF32, {x, kernel::kNoValue})->re;
}

Value ScoreKernel::shift_of(Value greatest) {
  return b().select(b().binary(Op::kEq, greatest, number(-HUGE_VAL).re), number(0).re, greatest);
}

void ScoreKernel::store_where(Value condition, const ir::Value& to, const Point& point,
                              const Element& value) {
  const Value linear = k_.emitter().linear_of(point, to.type().dims());
  if (const uint64_t* always = b().constant(condition); always != nullptr && *always != 0) {
    k_.store(to, linear, value);
  } else {
    k_.when(condition, [&] { k_.store(to, linear, value); });
  }
}

}  // namespace hekla::lower
