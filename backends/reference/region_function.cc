// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/region_function.h"

#include <cstring>

#include "backends/reference/elementwise/elementwise.h"
#include "backends/reference/kernels/convert.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

bool is_plain(const ir::Type& type) {
  return type.is_static_tensor() && type.quantization() == nullptr;
}

// Elementwise on scalars that are not quantized, or a constant.
bool can_run_on_blocks(const Step& step) {
  const ir::Operation& op = *step.op;
  if (op.code() != OpCode::kConstant && !ir::is_elementwise(op.code()) &&
      op.code() != OpCode::kOptimizationBarrier) {
    return false;
  }
  for (const ir::Value* operand : op.operands()) {
    if (!is_plain(operand->type()) || operand->type().rank() != 0) return false;
  }
  for (const ir::Type& type : op.result_types()) {
    if (!is_plain(type) || type.rank() != 0) return false;
  }
  return true;
}

}  // namespace

RegionFunction::RegionFunction(const BlockPlan& plan, Interpreter& interpreter, Frame& frame)
    : plan_(plan), interpreter_(interpreter), frame_(frame) {
  for (const ir::Type& type : plan.block->argument_types()) input_dtypes_.push_back(type.dtype());
  for (const ir::Value* value : plan.block->terminator()->operands()) {
    output_dtypes_.push_back(value->type().dtype());
  }
  runs_on_blocks_ = true;
  for (size_t i = 0; i + 1 < plan.steps.size(); ++i) {
    runs_on_blocks_ = runs_on_blocks_ && can_run_on_blocks(plan.steps[i]);
  }
}

std::optional<BinaryBody> RegionFunction::binary_body() const {
  if (plan_.steps.size() != 2 || plan_.arguments.size() != 2) return std::nullopt;
  const Step& step = plan_.steps[0];
  const bool on_both =
      step.operands.size() == 2 &&
      ((step.operands[0] == plan_.arguments[0] && step.operands[1] == plan_.arguments[1]) ||
       (step.operands[0] == plan_.arguments[1] && step.operands[1] == plan_.arguments[0]));
  const Step& last = plan_.steps[1];
  if (!on_both || last.operands.size() != 1 || last.operands[0] != step.results[0] ||
      !is_plain(step.op->result_types()[0])) {
    return std::nullopt;
  }
  switch (step.op->code()) {
    case OpCode::kAdd:
      return BinaryBody::kAdd;
    case OpCode::kMultiply:
      return BinaryBody::kMultiply;
    case OpCode::kMinimum:
      return BinaryBody::kMinimum;
    case OpCode::kMaximum:
      return BinaryBody::kMaximum;
    case OpCode::kAnd:
      return BinaryBody::kAnd;
    case OpCode::kOr:
      return BinaryBody::kOr;
    case OpCode::kXor:
      return BinaryBody::kXor;
    default:
      return std::nullopt;
  }
}

Status RegionFunction::apply(int64_t count, std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outputs) {
  return runs_on_blocks_ ? apply_block(count, inputs, outputs) : apply_each(count, inputs, outputs);
}

Result<HostArray> RegionFunction::broadcast(const HostArray& scalar, int64_t count) {
  HEKLA_ASSIGN_OR_RETURN(HostArray out, HostArray::allocate(scalar.dtype(), {count}, false));
  const size_t width = static_cast<size_t>(dtype_bytes(scalar.dtype()));
  std::byte* bytes = out.mutable_data();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(bytes + static_cast<size_t>(i) * width, scalar.data(), width);
  }
  return out;
}

Status RegionFunction::apply_block(int64_t count, std::span<const std::byte* const> inputs,
                                   std::span<std::byte* const> outputs) {
  // Values of the region by slot; few, so a list is faster than a map.
  std::vector<std::pair<int, HostArray>> values;
  values.reserve(inputs.size() + plan_.steps.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.emplace_back(plan_.arguments[i],
                        HostArray::wrap(input_dtypes_[i], {count}, nullptr, inputs[i]));
  }
  const auto read = [&](int slot) -> Result<HostArray> {
    for (auto& [number, array] : values) {
      if (number == slot) return array;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           broadcast(frame_[static_cast<size_t>(slot)].array, count));
    values.emplace_back(slot, array);
    return array;
  };
  for (size_t i = 0; i + 1 < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    if (step.op->code() == OpCode::kConstant) {
      const auto* value = step.op->attribute("value").get<ir::DenseValue>();
      HEKLA_ASSIGN_OR_RETURN(HostArray array, broadcast(value->values, count));
      values.emplace_back(step.results[0], std::move(array));
      continue;
    }
    std::vector<Datum> operands;
    for (int slot : step.operands) {
      HEKLA_ASSIGN_OR_RETURN(HostArray array, read(slot));
      operands.emplace_back(std::move(array));
    }
    if (step.op->code() == OpCode::kOptimizationBarrier) {
      for (size_t k = 0; k < operands.size(); ++k) {
        values.emplace_back(step.results[k], operands[k].array);
      }
      continue;
    }
    HEKLA_ASSIGN_OR_RETURN(HostArray result, execute_elementwise(*step.op, operands));
    values.emplace_back(step.results[0], std::move(result));
  }
  const Step& last = plan_.steps.back();
  for (size_t i = 0; i < outputs.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray result, read(last.operands[i]));
    std::memcpy(outputs[i], result.data(), static_cast<size_t>(result.size_bytes()));
  }
  return ok_status();
}

Status RegionFunction::apply_each(int64_t count, std::span<const std::byte* const> inputs,
                                  std::span<std::byte* const> outputs) {
  for (int64_t e = 0; e < count; ++e) {
    std::vector<Datum> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      HostArray scalar(input_dtypes_[i], {});
      const int64_t width = dtype_bytes(input_dtypes_[i]);
      std::memcpy(scalar.mutable_data(), inputs[i] + e * width, static_cast<size_t>(width));
      arguments.emplace_back(std::move(scalar));
    }
    HEKLA_ASSIGN_OR_RETURN(std::vector<Datum> results,
                           interpreter_.run_block(plan_, frame_, std::move(arguments)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int64_t width = dtype_bytes(output_dtypes_[i]);
      std::memcpy(outputs[i] + e * width, results[i].array.data(), static_cast<size_t>(width));
    }
  }
  return ok_status();
}

Result<HostArray> execute_elementwise(const ir::Operation& op, std::vector<Datum>& operands) {
  const auto take = [&](size_t i) -> HostArray { return std::move(operands[i].array); };
  switch (op.code()) {
    case OpCode::kConvert:
      return convert_elements(operands[0].array, op.result()->type().dtype());
    case OpCode::kReducePrecision:
      return reduce_precision(take(0), int_value(op, "exponent_bits"),
                              int_value(op, "mantissa_bits"));
    case OpCode::kCompare: {
      HEKLA_ASSIGN_OR_RETURN(Direction direction,
                             direction_from_name(text_value(op, "comparison_direction")));
      return compare(direction, text_value(op, "compare_type") == "TOTALORDER", operands[0].array,
                     operands[1].array);
    }
    case OpCode::kSelect:
      return select(operands[0].array, take(1), take(2));
    case OpCode::kClamp:
      return clamp(operands[0].array, take(1), operands[2].array);
    default:
      break;
  }
  if (ir::is_elementwise_unary(op.code())) return unary(op.code(), take(0));
  return binary(op.code(), take(0), take(1));
}

}  // namespace hekla::reference
