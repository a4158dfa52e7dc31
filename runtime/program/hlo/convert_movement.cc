// SPDX-License-Identifier: Apache-2.0
// Constants, shapes, slices, gathers and scatters: what moves elements and does not change them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/program/hlo/attributes.h"
#include "runtime/program/hlo/literal.h"
#include "runtime/program/hlo/site.h"

namespace hekla::hlo {
namespace {

using ir::OpCode;

Result<Leaves> convert_constant(const Site& site) {
  Result<std::vector<ir::Attribute>> values =
      read_literal(site.fields().bytes(kLiteral), site.shape());
  if (!values.ok())
    return values.status().with_context(describe(site.instruction, site.computation));
  const std::vector<ir::Type> types = leaf_types(site.shape());
  Leaves leaves;
  for (size_t i = 0; i < types.size(); ++i) {
    leaves.push_back(
        site.append_as(OpCode::kConstant, {types[i]}, {}, {{"value", (*values)[i]}})[0]);
  }
  return leaves;
}

Result<Leaves> convert_iota(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, site.integers(kDimensionsField));
  if (dims.size() != 1) return site.error("counts along one dimension, has {}", dims.size());
  return site.append(OpCode::kIota, {}, {{"iota_dimension", ir::i64_attribute(dims[0])}});
}

// One operand, and `dimensions` as the attribute of that name.
Result<Leaves> with_dimensions(const Site& site, OpCode code, const char* name) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> dims, site.integers(kDimensionsField));
  return site.append(code, {x}, {{name, ir::i64_array(std::move(dims))}});
}

Result<Leaves> convert_broadcast(const Site& site) {
  return with_dimensions(site, OpCode::kBroadcastInDim, "broadcast_dimensions");
}

Result<Leaves> convert_transpose(const Site& site) {
  return with_dimensions(site, OpCode::kTranspose, "permutation");
}

Result<Leaves> convert_reverse(const Site& site) {
  return with_dimensions(site, OpCode::kReverse, "dimensions");
}

Result<Leaves> convert_reshape(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  return site.append(OpCode::kReshape, {x});
}

// The sizes come as scalars, one for each dimension.
Result<Leaves> convert_dynamic_reshape(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(Leaves sizes, site.tensors(1));
  ir::GraphBuilder g = site.builder();
  for (ir::Value*& size : sizes) {
    if (size->type().rank() != 0) return site.error("takes scalar sizes");
    size = g.reshape(size, {1});
  }
  ir::Value* shape = sizes.empty()       ? g.constant(HostArray(DType::kI32, {0}))
                     : sizes.size() == 1 ? sizes[0]
                                         : g.concatenate(sizes, 0);
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return site.append(OpCode::kDynamicReshape, {x, shape});
}

// The same bytes in memory: in the order of the layouts, so that they change the elements' places.
Result<Leaves> convert_bitcast(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_ASSIGN_OR_RETURN(const ir::Type to, site.array_type());
  const ir::Type& from = x->type();
  if (!from.is_static_tensor() || !to.is_static_tensor() ||
      dtype_bits(from.dtype()) != dtype_bits(to.dtype()) ||
      element_count(from.dims()) != element_count(to.dims())) {
    return site.refuse("from {} to {}", from.to_string(), to.to_string());
  }
  // The dimensions from the slowest one in memory to the fastest.
  const auto in_memory = [](const Shape& shape) {
    std::vector<int64_t> order(shape.minor_to_major.rbegin(), shape.minor_to_major.rend());
    if (order.empty()) {
      order.resize(shape.type.dims().size());
      std::iota(order.begin(), order.end(), 0);
    }
    return order;
  };
  ir::GraphBuilder g = site.builder();
  if (!site.operand_shape(0).is_row_major()) x = g.transpose(x, in_memory(site.operand_shape(0)));
  const std::vector<int64_t> order = in_memory(site.shape());
  Dims dims;
  for (int64_t d : order) dims.push_back(to.dims()[static_cast<size_t>(d)]);
  x = g.reshape(x, dims);
  if (from.dtype() != to.dtype()) {
    x = g.make(OpCode::kBitcastConvert, {x}, {}, ir::Type::tensor(to.dtype(), dims));
  }
  if (!site.shape().is_row_major()) {
    std::vector<int64_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    x = g.transpose(x, back);
  }
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return Leaves{x};
}

Result<Leaves> convert_slice(const Site& site) {
  HEKLA_RETURN_IF_ERROR(site.expect_operands(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> dims,
                         site.fields().messages(kSliceDimensions, "slice dimensions"));
  std::vector<int64_t> start, limit, stride;
  for (const Message& dim : dims) {
    start.push_back(dim.integer(1));
    limit.push_back(dim.integer(2));
    stride.push_back(dim.integer(3));
  }
  return site.append(OpCode::kSlice, {x},
                     {{"start_indices", ir::i64_array(std::move(start))},
                      {"limit_indices", ir::i64_array(std::move(limit))},
                      {"strides", ir::i64_array(std::move(stride))}});
}

Result<Leaves> convert_concatenate(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves parts, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, site.integers(kDimensionsField));
  if (dims.size() != 1) return site.error("joins along one dimension, has {}", dims.size());
  return site.append(OpCode::kConcatenate, std::move(parts),
                     {{"dimension", ir::i64_attribute(dims[0])}});
}

Result<Leaves> convert_pad(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const Message config,
                         site.fields().message(kPaddingConfig, "a padding configuration"));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Message> dims, config.messages(1, "a padding"));
  std::vector<int64_t> low, high, interior;
  for (const Message& dim : dims) {
    low.push_back(dim.integer(1));
    high.push_back(dim.integer(2));
    interior.push_back(dim.integer(3));
  }
  return site.append(OpCode::kPad, std::move(operands),
                     {{"edge_padding_low", ir::i64_array(std::move(low))},
                      {"edge_padding_high", ir::i64_array(std::move(high))},
                      {"interior_padding", ir::i64_array(std::move(interior))}});
}

// Start indices are scalars; older writers give one vector.
Result<Leaves> start_indices(const Site& site, size_t first, const ir::Type& operand) {
  HEKLA_ASSIGN_OR_RETURN(Leaves indices, site.tensors(first));
  if (indices.size() != 1 || indices[0]->type().rank() != 1) return indices;
  ir::GraphBuilder g = site.builder();
  Leaves scalars;
  if (indices[0]->type().dims() != Dims{operand.rank()}) {
    return site.error("start indices {} for {}", indices[0]->type().to_string(),
                      operand.to_string());
  }
  for (int64_t i = 0; i < operand.rank(); ++i) {
    scalars.push_back(g.reshape(g.slice(indices[0], {i}, {i + 1}), {}));
  }
  if (!g.status().ok()) return site.error("{}", g.status().message());
  return scalars;
}

Result<Leaves> convert_dynamic_slice(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, start_indices(site, 1, x->type()));
  operands.insert(operands.begin(), x);
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, site.integers(kDynamicSliceSizes));
  return site.append(OpCode::kDynamicSlice, std::move(operands),
                     {{"slice_sizes", ir::i64_array(std::move(sizes))}});
}

Result<Leaves> convert_dynamic_update_slice(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(ir::Value * x, site.tensor(0));
  HEKLA_ASSIGN_OR_RETURN(ir::Value * update, site.tensor(1));
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, start_indices(site, 2, x->type()));
  operands.insert(operands.begin(), {x, update});
  return site.append(OpCode::kDynamicUpdateSlice, std::move(operands));
}

Result<Leaves> convert_gather(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute numbers, gather_numbers(site.fields()));
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, site.integers(kGatherSliceSizes));
  return site.append(
      OpCode::kGather, std::move(operands),
      {{"dimension_numbers", std::move(numbers)},
       {"slice_sizes", ir::i64_array(std::move(sizes))},
       {"indices_are_sorted", ir::BoolValue{site.fields().flag(kIndicesAreSorted)}}});
}

Result<Leaves> convert_scatter(const Site& site) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.expect_called(1));
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute numbers, scatter_numbers(site.fields()));
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<ir::Region> update, site.region(0));
  std::vector<std::unique_ptr<ir::Region>> regions;
  regions.push_back(std::move(update));
  return site.append(OpCode::kScatter, std::move(operands),
                     {{"scatter_dimension_numbers", std::move(numbers)},
                      {"indices_are_sorted", ir::BoolValue{site.fields().flag(kIndicesAreSorted)}},
                      {"unique_indices", ir::BoolValue{site.fields().flag(kUniqueIndices)}}},
                     std::move(regions));
}

Result<Leaves> with_one_dimension(const Site& site, OpCode code) {
  HEKLA_ASSIGN_OR_RETURN(Leaves operands, site.tensors());
  HEKLA_RETURN_IF_ERROR(site.array_type().status());
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, site.integers(kDimensionsField));
  if (dims.size() != 1) return site.error("is about one dimension, names {}", dims.size());
  return site.append(code, std::move(operands), {{"dimension", ir::i64_attribute(dims[0])}});
}

Result<Leaves> convert_get_dimension_size(const Site& site) {
  return with_one_dimension(site, OpCode::kGetDimensionSize);
}

Result<Leaves> convert_set_dimension_size(const Site& site) {
  return with_one_dimension(site, OpCode::kSetDimensionSize);
}

constexpr Handler kMovement[] = {
    {"bitcast", convert_bitcast},
    {"broadcast", convert_broadcast},
    {"concatenate", convert_concatenate},
    {"constant", convert_constant},
    {"dynamic-reshape", convert_dynamic_reshape},
    {"dynamic-slice", convert_dynamic_slice},
    {"dynamic-update-slice", convert_dynamic_update_slice},
    {"gather", convert_gather},
    {"get-dimension-size", convert_get_dimension_size},
    {"iota", convert_iota},
    {"pad", convert_pad},
    {"reshape", convert_reshape},
    {"reverse", convert_reverse},
    {"scatter", convert_scatter},
    {"set-dimension-size", convert_set_dimension_size},
    {"slice", convert_slice},
    {"transpose", convert_transpose},
};

}  // namespace

std::span<const Handler> movement_handlers() { return kMovement; }

}  // namespace hekla::hlo
