// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/algorithm.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/program/ir/accumulator.h"

namespace hekla::lower {
namespace {

using ir::OpCode;

// Whether every number of `from` is one of `to`.
bool holds(DType to, DType from) {
  if (to == from) return true;
  if (!is_float(to) || !is_float(from)) return false;
  const FloatFormat wide = float_format(to), narrow = float_format(from);
  const auto highest = [](const FloatFormat& f) { return (1 << f.exponent_bits) - f.bias; };
  const auto lowest = [](const FloatFormat& f) { return 1 - f.bias - f.mantissa_bits; };
  return wide.specials == FloatFormat::Specials::kIeee &&
         wide.mantissa_bits >= narrow.mantissa_bits && highest(wide) >= highest(narrow) &&
         lowest(wide) <= lowest(narrow);
}

bool is_contraction_code(const ir::Operation& op) {
  return op.code() == OpCode::kDot || op.code() == OpCode::kDotGeneral ||
         op.code() == OpCode::kConvolution;
}

// Has plain types, which alone have algorithms here.
bool has_plain_types(const ir::Operation& op) {
  if (op.operand_count() != 2 || op.result_count() != 1) return false;
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    const ir::Type& type = value->type();
    if (!type.is_static_tensor() || type.quantization() != nullptr) return false;
  }
  return true;
}

enum class Precision { kDefault, kHigh, kHighest };

// The greater one of both operands.
Precision precision_of(const ir::Operation& op) {
  const auto* words = op.attribute("precision_config").get<ir::ArrayValue>();
  Precision most = Precision::kDefault;
  if (words == nullptr) return most;
  for (const ir::Attribute& element : words->elements) {
    const auto* word = element.get<ir::EnumValue>();
    if (word == nullptr) continue;
    if (word->value == "HIGHEST") return Precision::kHighest;
    if (word->value == "HIGH") most = Precision::kHigh;
  }
  return most;
}

kernel::Algorithm by_types(const ir::Operation& op) {
  kernel::Algorithm a;
  a.lhs = op.operand(0)->type().dtype();
  a.rhs = op.operand(1)->type().dtype();
  a.sum = ir::accumulator_dtype(op.result()->type().dtype());
  if (a.lhs == DType::kF32 && a.rhs == DType::kF32 && a.sum == DType::kF32 &&
      precision_of(op) == Precision::kHigh) {
    a.pieces = DType::kBF16;
    a.products = 3;
  }
  return a;
}

kernel::Algorithm by_name(const ir::DotAlgorithm& named) {
  kernel::Algorithm a;
  a.lhs = named.lhs_precision_type.dtype();
  a.rhs = named.rhs_precision_type.dtype();
  a.sum = named.accumulation_type.dtype();
  a.has_imprecise_sums = named.allow_imprecise_accumulation;
  if (named.num_primitive_operations > 1) {
    a.pieces = a.lhs;
    a.lhs = a.rhs = DType::kF32;
    a.products = static_cast<int32_t>(named.num_primitive_operations);
  }
  return a;
}

ir::Value* convert(ir::Block& block, const ir::Operation& before, ir::Value* value, DType dtype) {
  auto op = std::make_unique<ir::Operation>(
      OpCode::kConvert, std::vector<ir::Value*>{value},
      std::vector<ir::Type>{ir::Type::tensor(dtype, value->type().dims())}, ir::AttributeMap(),
      before.location());
  return block.insert_before(&before, std::move(op))->result();
}

// `value` rounded to `dtype`, in front of `before`; in a type that has packed code where the
// rounded one has none.
ir::Value* rounded(ir::Block& block, const ir::Operation& before, ir::Value* value, DType dtype) {
  value = convert(block, before, value, dtype);
  const bool has_code = dtype != DType::kTF32 && dtype_bits(dtype) >= 16;
  return has_code ? value : convert(block, before, value, DType::kF32);
}

bool is_rounded(const ir::Value& value, DType dtype) {
  if (holds(dtype, value.type().dtype())) return true;
  const ir::Operation* op = value.defining_op();
  // What cuts a sum into parts stands between.
  while (op != nullptr && (op->code() == OpCode::kReshape || op->code() == OpCode::kSlice)) {
    op = op->operand(0)->defining_op();
  }
  return op != nullptr && op->code() == OpCode::kConvert && holds(value.type().dtype(), dtype) &&
         holds(dtype, op->operand(0)->type().dtype());
}

}  // namespace

std::vector<ir::Operation*> contractions_of(ir::Module& module) {
  std::vector<ir::Operation*> found;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](ir::Operation& op) {
      if (is_contraction_code(op) && has_plain_types(op)) found.push_back(&op);
    });
  }
  return found;
}

void name_algorithms(ir::Module& module, const ir::DotAlgorithm& of_default) {
  for (ir::Operation* op : contractions_of(module)) {
    if (op->operand(0)->type().dtype() == DType::kF32 &&
        op->operand(1)->type().dtype() == DType::kF32 && !op->attribute("algorithm") &&
        precision_of(*op) == Precision::kDefault) {
      op->attributes().set("algorithm", of_default);
    }
  }
}

void apply_algorithms(ir::Module& module) {
  for (ir::Operation* op : contractions_of(module)) {
    ir::Block& block = *op->block();
    const Result<kernel::Algorithm> algorithm = algorithm_of(*op);
    if (!algorithm.ok()) continue;
    const std::array<DType, 2> types{algorithm->lhs, algorithm->rhs};
    const bool is_square = op->operand(0) == op->operand(1) && types[0] == types[1];
    for (size_t side = 0; side < 2; ++side) {
      if (is_rounded(*op->operand(side), types[side])) continue;
      op->set_operand(side, rounded(block, *op, op->operand(side), types[side]));
      if (is_square) op->set_operand(1, op->operand(0));
    }
    const ir::Type type = op->result()->type();
    if (algorithm->sum != DType::kF64 || type.dtype() == DType::kF64) continue;
    ir::Operation* sum = block.insert_before(
        op, std::make_unique<ir::Operation>(
                op->code(), op->operands(),
                std::vector<ir::Type>{ir::Type::tensor(DType::kF64, type.dims())}, op->attributes(),
                op->location()));
    op->result()->replace_all_uses_with(convert(block, *op, sum->result(), type.dtype()));
    block.erase(op);
  }
}

Result<kernel::Algorithm> algorithm_of(const ir::Operation& op) {
  const auto* named = op.attribute("algorithm").get<ir::DotAlgorithm>();
  if (named == nullptr) return by_types(op);
  const kernel::Algorithm algorithm = by_name(*named);
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    if (is_float(value->type().dtype())) continue;
    return unimplemented(
        "the algorithm {} is for floats, and {} has {} and {} for {}", kernel::to_string(algorithm),
        op.name(), dtype_name(op.operand(0)->type().dtype()),
        dtype_name(op.operand(1)->type().dtype()), dtype_name(op.result()->type().dtype()));
  }
  return algorithm;
}

bool has_rounded_operands(const ir::Operation& op, const kernel::Algorithm& algorithm) {
  return is_rounded(*op.operand(0), algorithm.lhs) && is_rounded(*op.operand(1), algorithm.rhs);
}

std::optional<ir::DotAlgorithm> f32_algorithm(std::string_view name) {
  struct Preset {
    std::string_view name;
    DType type;
    int64_t products;
  };
  constexpr Preset kPresets[] = {
      {"f32_f32_f32", DType::kF32, 1},       {"tf32_tf32_f32", DType::kTF32, 1},
      {"tf32_tf32_f32_x3", DType::kTF32, 3}, {"bf16_bf16_f32", DType::kBF16, 1},
      {"bf16_bf16_f32_x3", DType::kBF16, 3}, {"bf16_bf16_f32_x6", DType::kBF16, 6},
      {"bf16_bf16_f32_x9", DType::kBF16, 9},
  };
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    const ir::Type type = ir::Type::scalar(preset.type);
    return ir::DotAlgorithm{type, type, ir::Type::scalar(DType::kF32), 1, 1, preset.products,
                            false};
  }
  return std::nullopt;
}

}  // namespace hekla::lower
