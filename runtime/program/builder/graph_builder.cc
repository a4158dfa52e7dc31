// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/builder/graph_builder.h"

#include <algorithm>
#include <cstring>

#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/infer.h"

namespace hekla::ir {

Operation* GraphBuilder::insert(std::unique_ptr<Operation> op) {
  return before_ == nullptr ? block_->append(std::move(op))
                            : block_->insert_before(before_, std::move(op));
}

Value* GraphBuilder::make(OpCode code, const Values& operands, AttributeMap attributes, Type type) {
  if (type.is_none()) {
    Operation probe(code, operands, {Type()}, attributes, location_);
    const Result<std::vector<Type>> types = infer_result_types(probe);
    probe.set_operands({});  // it is no user
    if (types.ok() && types->size() == 1) {
      type = types->front();
    } else {
      if (status_.ok()) {
        status_ =
            types.ok() ? internal_error("{} has no single result", op_name(code)) : types.status();
      }
      type = operands.front()->type();
    }
  }
  return insert(std::make_unique<Operation>(code, operands, std::vector<Type>{type},
                                            std::move(attributes), location_))
      ->result();
}

Value* GraphBuilder::compare(const char* direction, Value* a, Value* b) {
  return make(OpCode::kCompare, {a, b},
              {{{"comparison_direction", enum_attribute("comparison_direction", direction)}}});
}

Value* GraphBuilder::constant(DType dtype, const Dims& dims, double value) {
  HostArray one(dtype, {});
  const DType part = complex_part(dtype);
  const uint64_t bits = is_float(part) ? float_to_bits(part, value)
                                       : static_cast<uint64_t>(static_cast<int64_t>(value));
  std::memcpy(one.mutable_data(), &bits, static_cast<size_t>(dtype_bytes(part)));
  const Type type = Type::tensor(dtype, dims);
  return make(OpCode::kConstant, {}, {{{"value", make_dense(type, std::move(one))}}}, type);
}

Value* GraphBuilder::iota(DType dtype, const Dims& dims, int64_t dimension) {
  return make(OpCode::kIota, {}, {{{"iota_dimension", i64_attribute(dimension)}}},
              Type::tensor(dtype, dims));
}

Value* GraphBuilder::convert(Value* x, DType dtype) {
  if (x->type().dtype() == dtype) return x;
  return make(OpCode::kConvert, {x}, {}, Type::tensor(dtype, x->type().dims()));
}

Value* GraphBuilder::real(Value* x) {
  return is_complex(x->type().dtype()) ? make(OpCode::kReal, {x}) : x;
}

Value* GraphBuilder::conjugate(Value* x) {
  if (!is_complex(x->type().dtype())) return x;
  return make(OpCode::kComplex,
              {make(OpCode::kReal, {x}), make(OpCode::kNegate, {make(OpCode::kImag, {x})})});
}

Value* GraphBuilder::as(DType dtype, Value* x) {
  if (!is_complex(dtype)) return convert(x, dtype);
  return make(OpCode::kComplex, {x, constant(x->type().dtype(), x->type().dims(), 0)});
}

Value* GraphBuilder::reshape(Value* x, const Dims& dims) {
  if (x->type().dims() == dims) return x;
  return make(OpCode::kReshape, {x}, {}, Type::tensor(x->type().dtype(), dims));
}

Value* GraphBuilder::transpose(Value* x, std::vector<int64_t> permutation) {
  return make(OpCode::kTranspose, {x}, {{{"permutation", i64_array(std::move(permutation))}}});
}

Value* GraphBuilder::reverse(Value* x, std::vector<int64_t> dimensions) {
  return make(OpCode::kReverse, {x}, {{{"dimensions", i64_array(std::move(dimensions))}}});
}

Value* GraphBuilder::broadcast(Value* x, const Dims& dims, std::vector<int64_t> places) {
  return make(OpCode::kBroadcastInDim, {x},
              {{{"broadcast_dimensions", i64_array(std::move(places))}}},
              Type::tensor(x->type().dtype(), dims));
}

Value* GraphBuilder::slice(Value* x, std::vector<int64_t> begin, std::vector<int64_t> end) {
  std::vector<int64_t> strides(begin.size(), 1);
  return make(OpCode::kSlice, {x},
              {{{"limit_indices", i64_array(std::move(end))},
                {"start_indices", i64_array(std::move(begin))},
                {"strides", i64_array(std::move(strides))}}});
}

Value* GraphBuilder::pad(Value* x, std::vector<int64_t> low, std::vector<int64_t> high) {
  std::vector<int64_t> interior(low.size(), 0);
  return make(OpCode::kPad, {x, constant(x->type().dtype(), {}, 0)},
              {{{"edge_padding_high", i64_array(std::move(high))},
                {"edge_padding_low", i64_array(std::move(low))},
                {"interior_padding", i64_array(std::move(interior))}}});
}

Value* GraphBuilder::concatenate(const Values& parts, int64_t dimension) {
  if (parts.size() == 1) return parts[0];
  return make(OpCode::kConcatenate, parts, {{{"dimension", i64_attribute(dimension)}}});
}

Value* GraphBuilder::dynamic_slice(Value* x, const Values& starts, std::vector<int64_t> sizes) {
  Values operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return make(OpCode::kDynamicSlice, operands, {{{"slice_sizes", i64_array(std::move(sizes))}}});
}

Value* GraphBuilder::dynamic_update_slice(Value* x, Value* update, const Values& starts) {
  Values operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return make(OpCode::kDynamicUpdateSlice, operands);
}

Value* GraphBuilder::dot(Value* a, Value* b, const DotDimensionNumbers& n) {
  auto has = [](const std::vector<int64_t>& list, size_t d) {
    return std::find(list.begin(), list.end(), static_cast<int64_t>(d)) != list.end();
  };
  Dims dims;
  for (int64_t d : n.lhs_batching_dimensions) {
    dims.push_back(a->type().dims()[static_cast<size_t>(d)]);
  }
  for (size_t d = 0; d < a->type().dims().size(); ++d) {
    if (!has(n.lhs_batching_dimensions, d) && !has(n.lhs_contracting_dimensions, d)) {
      dims.push_back(a->type().dims()[d]);
    }
  }
  for (size_t d = 0; d < b->type().dims().size(); ++d) {
    if (!has(n.rhs_batching_dimensions, d) && !has(n.rhs_contracting_dimensions, d)) {
      dims.push_back(b->type().dims()[d]);
    }
  }
  return make(OpCode::kDotGeneral, {a, b}, {{{"dot_dimension_numbers", n}}},
              Type::tensor(a->type().dtype(), dims));
}

GraphBuilder::Values GraphBuilder::sort(const Values& operands, int64_t dimension,
                                        const Region& comparator) {
  std::vector<Type> types;
  for (const Value* value : operands) types.push_back(value->type());
  Operation* sort = insert(std::make_unique<Operation>(
      OpCode::kSort, operands, types,
      AttributeMap({{"dimension", i64_attribute(dimension)}, {"is_stable", BoolValue{true}}}),
      location_));
  ValueMap map;
  Region& region = sort->add_region();
  clone_region(comparator, region, map);
  // A function's end becomes a region's.
  Block& block = region.front();
  const Values results = block.terminator()->operands();
  block.erase(block.terminator());
  block.append(OpCode::kReturn, results, {}, {}, location_);
  Values values;
  for (size_t i = 0; i < operands.size(); ++i) values.push_back(sort->result(i));
  return values;
}

GraphBuilder::Values GraphBuilder::loop(
    int64_t trips, const Values& initial,
    const std::function<Values(GraphBuilder&, Value*, const Values&)>& body) {
  Values operands{constant(DType::kI32, {}, 0)};
  operands.insert(operands.end(), initial.begin(), initial.end());
  std::vector<Type> types;
  for (const Value* value : operands) types.push_back(value->type());
  Operation* loop = insert(
      std::make_unique<Operation>(OpCode::kWhile, operands, types, AttributeMap(), location_));
  Block& condition = loop->add_region().add_block();
  for (const Type& type : types) condition.add_argument(type);
  GraphBuilder c(condition, nullptr, location_);
  Value* more = c.compare("LT", condition.argument(0),
                          c.constant(DType::kI32, {}, static_cast<double>(trips)));
  condition.append(OpCode::kReturn, {more}, {}, {}, location_);

  Block& inside = loop->add_region().add_block();
  Values carried;
  for (size_t i = 0; i < types.size(); ++i) {
    Value* argument = inside.add_argument(types[i]);
    if (i > 0) carried.push_back(argument);
  }
  GraphBuilder b(inside, nullptr, location_);
  Values next{b.add(inside.argument(0), b.constant(DType::kI32, {}, 1))};
  const Values results = body(b, inside.argument(0), carried);
  next.insert(next.end(), results.begin(), results.end());
  inside.append(OpCode::kReturn, next, {}, {}, location_);
  if (status_.ok()) status_ = c.status();
  if (status_.ok()) status_ = b.status();
  Values values;
  for (size_t i = 1; i < types.size(); ++i) values.push_back(loop->result(i));
  return values;
}

}  // namespace hekla::ir
