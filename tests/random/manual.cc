// SPDX-License-Identifier: Apache-2.0
#include "tests/random/manual.h"

#include <cstring>
#include <string>
#include <utility>

#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"
#include "tests/random/manual_collectives.h"

namespace hekla::testing {
namespace {

using ir::OpCode;
using sharding::TensorSharding;

ir::Type stacked_type(const ir::Type& type, int64_t count) {
  Dims dims = type.dims();
  dims.insert(dims.begin(), count);
  return ir::Type::tensor(type.element(), std::move(dims));
}

// What is said of an array, of the array with a dimension more.
TensorSharding stacked_sharding(const ir::AttributeMap& attributes, const std::string& mesh,
                                size_t rank, bool is_open) {
  TensorSharding sharding;
  sharding.mesh = mesh;
  const auto* value = attributes.get("sdy.sharding").get<ir::ShardingValue>();
  const auto* given = value == nullptr ? nullptr : std::get_if<TensorSharding>(&value->value);
  if (given != nullptr) sharding = *given;
  sharding.dimensions.resize(rank);
  for (sharding::DimensionSharding& dimension : sharding.dimensions) dimension.is_open = is_open;
  sharding.dimensions.insert(sharding.dimensions.begin(), {{{kManualAxis, {}}}, false, {}});
  return sharding;
}

ir::Attribute list_of(std::vector<TensorSharding> shardings) {
  return ir::ShardingValue{sharding::ShardingList{std::move(shardings)}};
}

}  // namespace

int64_t manual_copies(const ir::Module& module) {
  if (module.meshes.empty()) return 1;
  for (const sharding::Axis& axis : module.meshes.front().value.axes) {
    if (axis.name == kManualAxis) return axis.size;
  }
  return 1;
}

std::unique_ptr<ir::Module> in_manual_computation(const ir::Module& module) {
  const int64_t copies = manual_copies(module);
  std::unique_ptr<ir::Module> made = ir::clone_module(module);
  const std::string& mesh = made->meshes.front().name;
  ir::Function& entry = *made->entry();
  ir::Block& block = entry.body().front();
  std::vector<std::unique_ptr<ir::Operation>> operations;
  while (!block.empty()) operations.push_back(block.take(block.terminator()));
  auto region = std::make_unique<ir::Region>(nullptr);
  ir::Block& body = region->add_block();
  ir::GraphBuilder g(body, nullptr, nullptr);
  std::vector<ir::Value*> parameters;
  std::vector<TensorSharding> in, out;
  entry.argument_attributes.resize(block.argument_count());
  for (size_t i = 0; i < block.argument_count(); ++i) {
    ir::Value* parameter = block.argument(i);
    const ir::Type type = parameter->type();
    ir::Value* inside = g.reshape(body.add_argument(stacked_type(type, 1)), type.dims());
    parameter->replace_all_uses_with(inside);
    parameter->set_type(stacked_type(type, copies));
    parameters.push_back(parameter);
    ir::AttributeMap& attributes = entry.argument_attributes[i];
    in.push_back(stacked_sharding(attributes, mesh, type.dims().size(), i % 2 == 0));
    if (!attributes.get("sdy.sharding").is_absent()) {
      TensorSharding own = in.back();
      for (sharding::DimensionSharding& dimension : own.dimensions) dimension.is_open = false;
      attributes.set("sdy.sharding", ir::ShardingValue{std::move(own)});
    }
  }
  std::unique_ptr<ir::Operation> end = std::move(operations.front());
  for (size_t i = operations.size(); i-- > 1;) {
    ir::Operation* op = body.append(std::move(operations[i]));
    add_collectives_behind(*op, g, made->meshes.front().value);
  }
  std::vector<ir::Value*> results;
  std::vector<ir::Type> types;
  entry.result_attributes.resize(end->operand_count());
  for (size_t i = 0; i < end->operand_count(); ++i) {
    const ir::Type type = end->operand(i)->type();
    results.push_back(g.reshape(end->operand(i), stacked_type(type, 1).dims()));
    types.push_back(stacked_type(type, copies));
    ir::AttributeMap& attributes = entry.result_attributes[i];
    out.push_back(stacked_sharding(attributes, mesh, type.dims().size(), i % 2 == 0));
    if (!attributes.get("sdy.sharding").is_absent()) {
      TensorSharding own = out.back();
      for (sharding::DimensionSharding& dimension : own.dimensions) dimension.is_open = false;
      attributes.set("sdy.sharding", ir::ShardingValue{std::move(own)});
    }
  }
  end->set_operands({});
  body.append(std::make_unique<ir::Operation>(OpCode::kSdyReturn, std::move(results),
                                              std::vector<ir::Type>()));
  ir::AttributeMap attributes;
  attributes.set("in_shardings", list_of(std::move(in)));
  attributes.set("out_shardings", list_of(std::move(out)));
  attributes.set("manual_axes", ir::ShardingValue{sharding::ManualAxes{{kManualAxis}}});
  auto manual = std::make_unique<ir::Operation>(
      OpCode::kSdyManualComputation, std::move(parameters), types, std::move(attributes));
  manual->adopt_region(std::move(region));
  const ir::Operation* placed = block.append(std::move(manual));
  std::vector<ir::Value*> returned;
  for (size_t i = 0; i < placed->result_count(); ++i) returned.push_back(placed->result(i));
  end->set_operands(std::move(returned));
  block.append(std::move(end));
  entry.type = ir::Type::function(block.argument_types(), std::move(types));
  return made;
}

HostArray stacked(const std::vector<HostArray>& arrays) {
  Dims dims = arrays.front().dims();
  dims.insert(dims.begin(), static_cast<int64_t>(arrays.size()));
  HostArray made(arrays.front().dtype(), std::move(dims));
  std::byte* to = made.mutable_data();
  for (const HostArray& array : arrays) {
    if (array.size_bytes() > 0) {
      std::memcpy(to, array.data(), static_cast<size_t>(array.size_bytes()));
    }
    to += array.size_bytes();
  }
  return made;
}

HostArray nth_of(const HostArray& stack, size_t i) {
  Dims dims(stack.dims().begin() + 1, stack.dims().end());
  HostArray made(stack.dtype(), std::move(dims));
  const auto bytes = static_cast<size_t>(made.size_bytes());
  if (bytes > 0) std::memcpy(made.mutable_data(), stack.data() + i * bytes, bytes);
  return made;
}

HostArray rotated(const HostArray& array) {
  HostArray made = array;
  const auto bytes = static_cast<size_t>(array.size_bytes());
  if (array.size() < 2) return made;
  const auto width = bytes / static_cast<size_t>(array.size());
  std::byte* to = made.mutable_data();
  std::memcpy(to + width, array.data(), bytes - width);
  std::memcpy(to, array.data() + bytes - width, width);
  return made;
}

}  // namespace hekla::testing
