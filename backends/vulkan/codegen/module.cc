// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/module.h"

#include <bit>
#include <memory>

namespace hekla::vulkan::codegen {

using kernel::ScalarType;

namespace {

// The builder's lists, which it shares with classes that derive from it. There is no object of this
// one: the library has no type information to derive objects from.
struct Lists : spv::Builder {
  static auto globals() { return &Lists::constantsTypesGlobals; }
  static auto known() { return &Lists::module; }
};

void add_operands(spv::Instruction& instruction, std::initializer_list<Module::Operand> operands) {
  for (const Module::Operand& operand : operands) {
    if (operand.is_literal) {
      instruction.addImmediateOperand(operand.word);
    } else {
      instruction.addIdOperand(operand.word);
    }
  }
}

}  // namespace

Module::Module(const Target& target)
    : target_(target), builder_(spv::Spv_1_5, /*userNumber=*/0, &logger_) {
  builder_.addCapability(spv::CapabilityShader);
  builder_.addCapability(spv::CapabilityPhysicalStorageBufferAddresses);
  builder_.setMemoryModel(spv::AddressingModelPhysicalStorageBuffer64, spv::MemoryModelGLSL450);
  require("bufferDeviceAddress");
}

spv::Id Module::uint_type(int width) {
  if (width == 64) require("shaderInt64");
  return builder_.makeUintType(width);
}

spv::Id Module::float_type(int width) {
  if (width == 64) require("shaderFloat64");
  float_widths_.insert(width);
  return builder_.makeFloatType(width);
}

spv::Id Module::type(ScalarType type) {
  switch (type) {
    case ScalarType::kBool:
      return boolean_type();
    case ScalarType::kI32:
      return uint_type(32);
    case ScalarType::kI64:
      return uint_type(64);
    case ScalarType::kF32:
      return float_type(32);
    case ScalarType::kF64:
      break;
  }
  return float_type(64);
}

spv::Id Module::constant(ScalarType type, uint64_t bits) {
  // spv::Builder shares constants as well, by linear search.
  spv::Id& id = constants_[{type, bits}];
  if (id != 0) return id;
  this->type(type);  // notes what the type needs
  switch (type) {
    case ScalarType::kBool:
      id = builder_.makeBoolConstant(bits != 0);
      break;
    case ScalarType::kI32:
      id = builder_.makeUintConstant(static_cast<uint32_t>(bits));
      break;
    case ScalarType::kI64:
      id = builder_.makeUint64Constant(bits);
      break;
    case ScalarType::kF32:
      id = builder_.makeFloatConstant(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      break;
    case ScalarType::kF64:
      id = builder_.makeDoubleConstant(std::bit_cast<double>(bits));
      break;
  }
  return id;
}

spv::Id Module::uint_constant(int width, uint64_t value) {
  if (width == 32) return constant(ScalarType::kI32, value & 0xffffffff);
  return constant(ScalarType::kI64, value);
}

spv::Id Module::op(spv::Op opcode, spv::Id type, std::initializer_list<spv::Id> operands) {
  return builder_.createOp(opcode, type, std::vector<spv::Id>(operands));
}

spv::Id Module::float_op(spv::Op opcode, spv::Id type, std::initializer_list<spv::Id> operands) {
  const spv::Id id = op(opcode, type, operands);
  builder_.addDecoration(id, spv::DecorationNoContraction);
  return id;
}

spv::Id Module::extended(GLSLstd450 function, spv::Id type,
                         std::initializer_list<spv::Id> operands) {
  if (extended_set_ == 0) extended_set_ = builder_.import("GLSL.std.450");
  return builder_.createBuiltinCall(type, extended_set_, function, std::vector<spv::Id>(operands));
}

spv::Id Module::float_extended(GLSLstd450 function, spv::Id type,
                               std::initializer_list<spv::Id> operands) {
  const spv::Id id = extended(function, type, operands);
  builder_.addDecoration(id, spv::DecorationNoContraction);
  return id;
}

spv::Id Module::raw_op(spv::Op opcode, spv::Id type, std::initializer_list<Operand> operands) {
  auto instruction = type == 0
                         ? std::make_unique<spv::Instruction>(opcode)
                         : std::make_unique<spv::Instruction>(builder_.getUniqueId(), type, opcode);
  add_operands(*instruction, operands);
  const spv::Id id = type == 0 ? 0 : instruction->getResultId();
  builder_.getBuildPoint()->addInstruction(std::move(instruction));
  return id;
}

spv::Id Module::raw_global(spv::Op opcode, spv::Id type, std::initializer_list<Operand> operands) {
  auto instruction = std::make_unique<spv::Instruction>(builder_.getUniqueId(),
                                                        type == 0 ? spv::NoType : type, opcode);
  add_operands(*instruction, operands);
  const spv::Id id = instruction->getResultId();
  (builder_.*Lists::known()).mapInstruction(instruction.get());
  (builder_.*Lists::globals()).push_back(std::move(instruction));
  return id;
}

spv::Instruction* Module::phi(spv::Id type) {
  auto instruction = std::make_unique<spv::Instruction>(builder_.getUniqueId(), type, spv::OpPhi);
  spv::Instruction* raw = instruction.get();
  builder_.getBuildPoint()->addInstruction(std::move(instruction));
  return raw;
}

void Module::add_float_modes(spv::Function* entry) {
  for (int width : float_widths_) {
    const FloatTarget& f = width == 32 ? target_.f32 : target_.f64;
    if (f.signed_zero_inf_nan_preserve) {
      builder_.addCapability(spv::CapabilitySignedZeroInfNanPreserve);
      builder_.addExecutionMode(entry, spv::ExecutionModeSignedZeroInfNanPreserve, width);
    }
    if (f.denorm_preserve) {
      builder_.addCapability(spv::CapabilityDenormPreserve);
      builder_.addExecutionMode(entry, spv::ExecutionModeDenormPreserve, width);
    }
    if (f.rounding_rte) {
      builder_.addCapability(spv::CapabilityRoundingModeRTE);
      builder_.addExecutionMode(entry, spv::ExecutionModeRoundingModeRTE, width);
    }
  }
}

void Module::keep_lanes_together() {
  keeps_lanes_together_ = true;
  builder_.addCapability(spv::CapabilityGroupNonUniform);
}

spv::Id Module::true_in_all_lanes(spv::Id condition) {
  builder_.addCapability(spv::CapabilityGroupNonUniformVote);
  return op(spv::OpGroupNonUniformAll, builder_.makeBoolType(),
            {uint_constant(32, spv::ScopeSubgroup), condition});
}

std::vector<uint32_t> Module::words() const {
  std::vector<uint32_t> words;
  builder_.dump(words);
  return words;
}

}  // namespace hekla::vulkan::codegen
