// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/infer_support.h"

#include <algorithm>
#include <limits>

#include "runtime/program/ir/infer.h"

namespace hekla::ir::infer {

Status op_error_text(const Operation& op, const std::string& message) {
  return invalid_argument("{} at {}: {}", op.name(), location_string(op.location()), message);
}

Status expect_operands(const Operation& op, size_t count) {
  if (op.operand_count() == count) return ok_status();
  return op_error(op, "takes {} operands, has {}", count, op.operand_count());
}

Status expect_regions(const Operation& op, size_t count) {
  if (op.region_count() == count) return ok_status();
  return op_error(op, "takes {} regions, has {}", count, op.region_count());
}

Result<Type> tensor_operand(const Operation& op, size_t i) {
  if (i >= op.operand_count()) {
    return op_error(op, "operand {} is missing, there are {}", i, op.operand_count());
  }
  const Type& type = op.operand(i)->type();
  if (!type.is_tensor()) {
    return op_error(op, "operand {} must be a ranked tensor, is {}", i, type.to_string());
  }
  return type;
}

Result<Types> tensor_operands(const Operation& op) {
  Types types;
  for (size_t i = 0; i < op.operand_count(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(Type type, tensor_operand(op, i));
    types.push_back(std::move(type));
  }
  return types;
}

Result<std::vector<int64_t>> int_list(const Operation& op, std::string_view name) {
  const IntArrayValue* list = op.attribute(name).get<IntArrayValue>();
  if (list == nullptr) return op_error(op, "attribute {} must be a list of integers", name);
  return list->values;
}

Result<std::vector<int64_t>> int_list_or(const Operation& op, std::string_view name, size_t size,
                                         int64_t fallback) {
  if (op.attribute(name).is_absent()) return std::vector<int64_t>(size, fallback);
  HEKLA_ASSIGN_OR_RETURN(std::vector<int64_t> list, int_list(op, name));
  if (list.size() != size) {
    return op_error(op, "attribute {} must have {} elements, has {}", name, size, list.size());
  }
  return list;
}

Result<int64_t> int_value(const Operation& op, std::string_view name) {
  const IntegerValue* integer = op.attribute(name).get<IntegerValue>();
  if (integer == nullptr) return op_error(op, "attribute {} must be an integer", name);
  return integer->value;
}

bool flag_value(const Operation& op, std::string_view name) {
  const BoolValue* flag = op.attribute(name).get<BoolValue>();
  return flag != nullptr && flag->value;
}

Result<std::vector<std::pair<int64_t, int64_t>>> padding_or_zero(const Operation& op, size_t n) {
  std::vector<std::pair<int64_t, int64_t>> padding(n);
  const Attribute& attribute = op.attribute("padding");
  if (attribute.is_absent()) return padding;
  const DenseValue* dense = attribute.get<DenseValue>();
  const Dims expected = {static_cast<int64_t>(n), 2};
  if (dense == nullptr || dense->type.dtype() != DType::kI64 || dense->type.dims() != expected) {
    return op_error(op, "attribute padding must be tensor<{}x2xi64>", n);
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray values, dense->expand());
  const int64_t* data = values.as<int64_t>();
  for (size_t i = 0; i < n; ++i) padding[i] = {data[2 * i], data[2 * i + 1]};
  return padding;
}

Status expect_dimension(const Operation& op, std::string_view what, int64_t dim, int64_t rank) {
  if (dim >= 0 && dim < rank) return ok_status();
  return op_error(op, "{} {} is not a dimension of rank {}", what, dim, rank);
}

Status expect_dimensions(const Operation& op, std::string_view what, std::span<const int64_t> dims,
                         int64_t rank, bool sorted) {
  for (int64_t dim : dims) HEKLA_RETURN_IF_ERROR(expect_dimension(op, what, dim, rank));
  std::vector<int64_t> copy(dims.begin(), dims.end());
  if (sorted && !std::is_sorted(copy.begin(), copy.end())) {
    return op_error(op, "{} must be in ascending order", what);
  }
  std::sort(copy.begin(), copy.end());
  if (std::adjacent_find(copy.begin(), copy.end()) != copy.end()) {
    return op_error(op, "{} names dimension {} twice", what,
                    *std::adjacent_find(copy.begin(), copy.end()));
  }
  return ok_status();
}

int64_t add_sizes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t multiply_sizes(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

bool dims_agree(int64_t a, int64_t b) { return a == b || a == kDynamic || b == kDynamic; }

bool shapes_agree(std::span<const int64_t> a, std::span<const int64_t> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), dims_agree);
}

Dims merged(const Dims& a, const Dims& b) {
  Dims dims = a;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == kDynamic) dims[i] = b[i];
  }
  return dims;
}

bool is_quantized(const Type& type) { return type.quantization() != nullptr; }

bool same_element(const Type& a, const Type& b) {
  if (is_quantized(a) || is_quantized(b)) {
    return is_quantized(a) && is_quantized(b) && a.dtype() == b.dtype();
  }
  return a.dtype() == b.dtype() && a.is_index() == b.is_index();
}

bool is_scalar_tensor(const Type& type) { return type.is_tensor() && type.rank() == 0; }
bool is_integer_tensor(const Type& type) { return type.is_tensor() && is_integer(type.dtype()); }

Result<const Block*> region_block(const Operation& op, size_t i) {
  const Region& region = op.region(i);
  if (region.blocks().size() != 1) {
    return op_error(op, "region {} must have one block, has {}", i, region.blocks().size());
  }
  const Block& block = region.front();
  if (block.terminator() == nullptr || !is_terminator(block.terminator()->code())) {
    return op_error(op, "region {} must end in a return", i);
  }
  return &block;
}

Status expect_scalar_region(const Operation& op, size_t i, size_t argument_count,
                            size_t result_count) {
  HEKLA_ASSIGN_OR_RETURN(const Block* block, region_block(op, i));
  if (block->argument_count() != argument_count) {
    return op_error(op, "region {} must take {} arguments, takes {}", i, argument_count,
                    block->argument_count());
  }
  for (const Type& type : block->argument_types()) {
    if (!is_scalar_tensor(type)) {
      return op_error(op, "region {} must take scalars, takes {}", i, type.to_string());
    }
  }
  const std::vector<Value*>& results = block->terminator()->operands();
  if (results.size() != result_count) {
    return op_error(op, "region {} must return {} values, returns {}", i, result_count,
                    results.size());
  }
  for (const Value* value : results) {
    if (value == nullptr || !is_scalar_tensor(value->type())) {
      return op_error(op, "region {} must return scalars", i);
    }
  }
  return ok_status();
}

}  // namespace hekla::ir::infer

namespace hekla::ir {

int64_t window_output_size(int64_t base, int64_t base_dilation, int64_t pad_low, int64_t pad_high,
                           int64_t window, int64_t window_dilation, int64_t stride) {
  if (base == kDynamic || window == kDynamic) return kDynamic;
  // In 128 bits: paddings and dilations come from outside and may be anything.
  const __int128 dilated = base == 0 ? 0 : static_cast<__int128>(base - 1) * base_dilation + 1;
  const __int128 padded = dilated + pad_low + pad_high;
  const __int128 size = window == 0 ? 0 : static_cast<__int128>(window - 1) * window_dilation + 1;
  if (padded <= 0 || size > padded) return 0;
  const __int128 count = (padded - size) / stride + 1;
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  return count > kLargest ? kLargest : static_cast<int64_t>(count);
}

bool are_compatible(const Type& actual, const Type& expected) {
  if (actual == expected) return true;
  using Kind = Type::Kind;
  if (actual.kind() == Kind::kUnrankedTensor || expected.kind() == Kind::kUnrankedTensor) {
    return infer::same_element(actual, expected);
  }
  if (actual.kind() != expected.kind()) return false;
  if (actual.kind() == Kind::kTensor) {
    return infer::same_element(actual, expected) &&
           infer::shapes_agree(actual.dims(), expected.dims());
  }
  if (actual.kind() == Kind::kTuple || actual.kind() == Kind::kFuture) {
    return actual.elements().size() == expected.elements().size() &&
           std::equal(actual.elements().begin(), actual.elements().end(),
                      expected.elements().begin(), are_compatible);
  }
  return false;
}

Result<std::vector<Type>> infer_result_types(const Operation& op) {
  for (size_t i = 0; i < op.operand_count(); ++i) {
    if (op.operand(i) == nullptr) return infer::op_error(op, "operand {} is missing", i);
  }
  for (auto family : {infer::infer_elementwise, infer::infer_movement, infer::infer_indexing,
                      infer::infer_contraction, infer::infer_reduction, infer::infer_control,
                      infer::infer_algebra, infer::infer_collective}) {
    infer::Outcome outcome = family(op);
    if (outcome.handled) return std::move(outcome.types);
  }
  // Operations of other dialects, and those that mean nothing but their declared types.
  return op.result_types();
}

}  // namespace hekla::ir
