// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/bounded_dims.h"

#include <utility>

#include "runtime/base/host_array.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::pjrt {
namespace {

using ir::OpCode;

ir::Type scalar_i32() { return ir::Type::tensor(ir::Type::scalar(DType::kI32), {}); }

// Puts operations in front of one.
class Inserter {
 public:
  Inserter(ir::Block& block, const ir::Operation* before) : block_(block), before_(before) {}

  ir::Value* add(OpCode code, std::vector<ir::Value*> operands, ir::Type type,
                 ir::AttributeMap attributes = {}) {
    return block_
        .insert_before(before_, std::make_unique<ir::Operation>(
                                    code, std::move(operands), std::vector{std::move(type)},
                                    std::move(attributes), before_->location()))
        ->result();
  }

  ir::Value* constant(HostArray values) {
    const ir::Type type = ir::Type::tensor(ir::Type::scalar(values.dtype()), values.dims());
    ir::AttributeMap attributes;
    attributes.set("value", ir::make_dense(type, std::move(values)));
    return add(OpCode::kConstant, {}, type, std::move(attributes));
  }

 private:
  ir::Block& block_;
  const ir::Operation* before_;
};

ir::AttributeMap with_dimension(size_t dim) {
  ir::AttributeMap attributes;
  attributes.set("dimension", ir::i64_attribute(static_cast<int64_t>(dim)));
  return attributes;
}

ir::Type with_bounded(const ir::Type& type, size_t dim) {
  Dims dims = type.dims();
  Dims bounds = type.bounds();
  bounds.resize(dims.size(), ir::kDynamic);
  bounds[dim] = std::exchange(dims[dim], ir::kDynamic);
  return ir::Type::tensor(type.element(), std::move(dims), std::move(bounds));
}

// The array at its bounds, of which `sizes` (by dimension; null: all of it) are the launch's.
ir::Value* padded(Inserter& at, ir::Value* value, const std::vector<ir::Value*>& sizes) {
  const ir::Type type = at_its_bounds(value->type());
  const auto rank = static_cast<int64_t>(type.dims().size());
  const ir::Type one = ir::Type::tensor(ir::Type::scalar(DType::kI32), {1});
  ir::Value* zeros = at.constant(HostArray(DType::kI32, {rank}));
  std::vector<ir::Value*> rows;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto bound = static_cast<int32_t>(type.dims()[d]);
    ir::Value* high =
        sizes[d] == nullptr
            ? at.constant(HostArray::scalar<int32_t>(DType::kI32, 0))
            : at.add(OpCode::kSubtract,
                     {at.constant(HostArray::scalar<int32_t>(DType::kI32, bound)), sizes[d]},
                     scalar_i32());
    rows.push_back(at.add(OpCode::kReshape, {high}, one));
  }
  ir::Value* high =
      at.add(OpCode::kConcatenate, rows, ir::Type::tensor(ir::Type::scalar(DType::kI32), {rank}),
             with_dimension(0));
  ir::Value* zero = at.constant(HostArray(type.dtype(), {}));
  return at.add(OpCode::kDynamicPad, {value, zero, zeros, high, zeros}, type);
}

}  // namespace

Result<std::vector<BoundedDim>> bounded_dims(const std::vector<ir::Type>& types,
                                             std::string_view what) {
  std::vector<BoundedDim> found;
  for (size_t i = 0; i < types.size(); ++i) {
    const ir::Type& type = types[i];
    if (type.is_token() || type.is_static_tensor()) continue;
    const auto refused = [&] {
      return unimplemented("{} {} of the program has the type {}, whose size has no bound", what, i,
                           type.to_string());
    };
    if (!type.is_tensor() || type.bounds().empty()) return refused();
    for (size_t d = 0; d < type.dims().size(); ++d) {
      if (type.dims()[d] != ir::kDynamic) continue;
      if (type.bounds()[d] == ir::kDynamic) return refused();
      found.push_back({i, d});
    }
  }
  return found;
}

ir::Type at_its_bounds(const ir::Type& type) {
  if (type.is_token() || type.is_static_tensor()) return type;
  Dims dims = type.dims();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == ir::kDynamic) dims[d] = type.bounds()[d];
  }
  return ir::Type::tensor(type.element(), std::move(dims));
}

void expose_sizes(ir::Module& module, const std::vector<BoundedDim>& parameters,
                  const std::vector<BoundedDim>& results) {
  ir::Function& entry = *module.entry();
  ir::Block& block = entry.body().front();
  Inserter front(block, block.operations().front().get());
  for (size_t p = 0; p < parameters.size();) {
    const size_t array = parameters[p].array;
    ir::Value* argument = block.argument(array);
    const std::vector<ir::Operation*> users = argument->users();
    argument->set_type(at_its_bounds(argument->type()));
    ir::Value* sized = argument;
    for (; p < parameters.size() && parameters[p].array == array; ++p) {
      const size_t dim = parameters[p].dim;
      ir::Value* size = block.add_argument(scalar_i32());
      sized = front.add(OpCode::kSetDimensionSize, {sized, size}, with_bounded(sized->type(), dim),
                        with_dimension(dim));
    }
    for (ir::Operation* user : users) {
      for (size_t o = 0; o < user->operand_count(); ++o) {
        if (user->operand(o) == argument) user->set_operand(o, sized);
      }
    }
  }
  ir::Operation* end = block.terminator();
  Inserter back(block, end);
  std::vector<ir::Value*> values = end->operands();
  const std::vector<ir::Value*> given = values;
  for (size_t r = 0; r < results.size();) {
    const size_t array = results[r].array;
    ir::Value* value = given[array];
    std::vector<ir::Value*> sizes(value->type().dims().size(), nullptr);
    for (; r < results.size() && results[r].array == array; ++r) {
      const size_t dim = results[r].dim;
      sizes[dim] = back.add(OpCode::kGetDimensionSize, {value}, scalar_i32(), with_dimension(dim));
      values.push_back(sizes[dim]);
    }
    values[array] = padded(back, value, sizes);
  }
  std::vector<ir::Type> types;
  for (const ir::Value* value : values) types.push_back(value->type());
  end->set_operands(std::move(values));
  entry.argument_attributes.resize(block.argument_count());
  entry.result_attributes.resize(types.size());
  entry.type = ir::Type::function(block.argument_types(), std::move(types));
}

}  // namespace hekla::pjrt
