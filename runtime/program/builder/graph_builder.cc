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

void GraphBuilder::fill(Region& region, const RegionSpec& spec, OpCode end) {
  Block& block = region.add_block();
  Values arguments;
  for (const Type& type : spec.arguments) arguments.push_back(block.add_argument(type));
  GraphBuilder inside(block, nullptr, location_);
  const Values results = spec.body(inside, arguments);
  block.append(end, results, {}, {}, location_);
  if (status_.ok()) status_ = inside.status();
}

Operation* GraphBuilder::make_op(OpCode code, const Values& operands, AttributeMap attributes,
                                 const std::vector<RegionSpec>& regions, std::vector<Type> types) {
  // Regions are built once: an operation without results has them until the types are known.
  auto probe = std::make_unique<Operation>(code, operands, types, attributes, location_);
  const bool is_manual =
      code == OpCode::kSdyManualComputation || code == OpCode::kSdyNamedComputation;
  for (const RegionSpec& spec : regions) {
    fill(probe->add_region(), spec, is_manual ? OpCode::kSdyReturn : OpCode::kReturn);
  }
  if (!types.empty()) return insert(std::move(probe));
  Result<std::vector<Type>> inferred = infer_result_types(*probe);
  if (inferred.ok() && inferred->empty()) return insert(std::move(probe));
  if (!inferred.ok()) {
    // Operations of one result want to declare one.
    auto single =
        std::make_unique<Operation>(code, operands, std::vector<Type>(1), attributes, location_);
    for (std::unique_ptr<Region>& region : probe->take_regions()) {
      single->adopt_region(std::move(region));
    }
    probe->set_operands({});  // it is no user
    probe = std::move(single);
    inferred = infer_result_types(*probe);
    if (inferred.ok() && inferred->size() == 1 && inferred->front().is_none()) {
      inferred = internal_error("{} has no type that follows from its operands", op_name(code));
    }
  }
  if (inferred.ok()) {
    types = *std::move(inferred);
  } else {
    if (status_.ok()) status_ = inferred.status();
    types = {operands.empty() ? Type::tensor(DType::kF32, {}) : operands.front()->type()};
  }
  std::vector<std::unique_ptr<Region>> built = probe->take_regions();
  probe->set_operands({});  // it is no user
  auto op = std::make_unique<Operation>(code, operands, std::move(types), std::move(attributes),
                                        location_);
  for (std::unique_ptr<Region>& region : built) op->adopt_region(std::move(region));
  return insert(std::move(op));
}

Value* GraphBuilder::compare(const char* direction, Value* a, Value* b) {
  return make(OpCode::kCompare, {a, b},
              {{{"comparison_direction", enum_attribute("comparison_direction", direction)}}});
}

Value* GraphBuilder::constant(DType dtype, const Dims& dims, double value) {
  const DType part = complex_part(dtype);
  if (!is_float(part)) return integer_constant(dtype, dims, static_cast<int64_t>(value));
  HostArray one(dtype, {});
  const uint64_t bits = float_to_bits(part, value);
  std::memcpy(one.mutable_data(), &bits, static_cast<size_t>(dtype_bytes(part)));
  const Type type = Type::tensor(dtype, dims);
  return make(OpCode::kConstant, {}, {{{"value", make_dense(type, std::move(one))}}}, type);
}

Value* GraphBuilder::integer_constant(DType dtype, const Dims& dims, int64_t value) {
  HostArray one(dtype, {});
  std::memcpy(one.mutable_data(), &value, static_cast<size_t>(dtype_bytes(dtype)));
  const Type type = Type::tensor(dtype, dims);
  return make(OpCode::kConstant, {}, {{{"value", make_dense(type, std::move(one))}}}, type);
}

Value* GraphBuilder::constant(HostArray values) {
  const Type type = Type::tensor(values.dtype(), values.dims());
  return make(OpCode::kConstant, {}, {{{"value", make_dense(type, std::move(values))}}}, type);
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

namespace {

std::vector<Type> types_of(const GraphBuilder::Values& values) {
  std::vector<Type> types;
  for (const Value* value : values) types.push_back(value->type());
  return types;
}

GraphBuilder::Values results_of(const Operation& op) {
  GraphBuilder::Values values;
  for (size_t i = 0; i < op.result_count(); ++i) values.push_back(op.result(i));
  return values;
}

}  // namespace

GraphBuilder::Values GraphBuilder::while_loop(const Values& initial, const Body& condition,
                                              const Body& body) {
  const std::vector<Type> types = types_of(initial);
  return results_of(
      *make_op(OpCode::kWhile, initial, {}, {{types, condition}, {types, body}}, types));
}

GraphBuilder::Values GraphBuilder::branch(Value* predicate, const Body& when_true,
                                          const Body& when_false) {
  return results_of(*make_op(OpCode::kIf, {predicate}, {}, {{{}, when_true}, {{}, when_false}}));
}

GraphBuilder::Values GraphBuilder::reduce(const Values& inputs, const Values& initial,
                                          std::vector<int64_t> dimensions, const Body& body) {
  Values operands = inputs;
  operands.insert(operands.end(), initial.begin(), initial.end());
  std::vector<Type> arguments;
  for (int side = 0; side < 2; ++side) {
    for (const Value* value : initial) arguments.push_back(value->type());
  }
  return results_of(*make_op(OpCode::kReduce, operands,
                             {{{"dimensions", i64_array(std::move(dimensions))}}},
                             {{arguments, body}}));
}

GraphBuilder::Values GraphBuilder::loop(
    int64_t trips, const Values& initial,
    const std::function<Values(GraphBuilder&, Value*, const Values&)>& body) {
  Values operands{constant(DType::kI32, {}, 0)};
  operands.insert(operands.end(), initial.begin(), initial.end());
  Values results = while_loop(
      operands,
      [&](GraphBuilder& c, const Values& state) {
        return Values{c.compare("LT", state[0], c.integer_constant(DType::kI32, {}, trips))};
      },
      [&](GraphBuilder& b, const Values& state) {
        Values next{b.add(state[0], b.constant(DType::kI32, {}, 1))};
        const Values carried = body(b, state[0], Values(state.begin() + 1, state.end()));
        next.insert(next.end(), carried.begin(), carried.end());
        return next;
      });
  results.erase(results.begin());
  return results;
}

Status add_function(Module& module, std::string name, std::vector<Type> arguments,
                    const GraphBuilder::Body& body, Function::Visibility visibility) {
  auto function = std::make_unique<Function>(std::move(name));
  function->visibility = visibility;
  Block& block = function->body().add_block();
  GraphBuilder::Values values;
  for (const Type& type : arguments) values.push_back(block.add_argument(type));
  GraphBuilder g(block, nullptr, nullptr);
  const GraphBuilder::Values results = body(g, values);
  block.append(OpCode::kFuncReturn, results, {});
  function->argument_attributes.resize(arguments.size());
  function->result_attributes.resize(results.size());
  function->type = Type::function(std::move(arguments), types_of(results));
  module.functions.push_back(std::move(function));
  return g.status();
}

}  // namespace hekla::ir
