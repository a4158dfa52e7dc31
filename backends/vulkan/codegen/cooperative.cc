// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/cooperative.h"

namespace hekla::vulkan::codegen {
namespace {

constexpr auto kCapabilityCooperativeMatrix = static_cast<spv::Capability>(6022);
constexpr auto kCapabilityBFloat16Type = static_cast<spv::Capability>(5116);
constexpr auto kCapabilityBFloat16CooperativeMatrix = static_cast<spv::Capability>(5118);
constexpr uint32_t kBFloat16Encoding = 0;

}  // namespace

void MatrixTypes::declare() {
  spv::Builder& b = m_.builder();
  b.addExtension("SPV_KHR_cooperative_matrix");
  b.addCapability(kCapabilityCooperativeMatrix);
  b.addCapability(spv::CapabilityVulkanMemoryModelKHR);
  b.addCapability(spv::CapabilityGroupNonUniform);
  b.setMemoryModel(spv::AddressingModelPhysicalStorageBuffer64, spv::MemoryModelVulkanKHR);
  m_.require("cooperativeMatrix");
  m_.require("vulkanMemoryModel");
}

spv::Id MatrixTypes::component(DType dtype) {
  spv::Builder& b = m_.builder();
  switch (dtype) {
    case DType::kF16:
      b.addCapability(spv::CapabilityFloat16);
      m_.require("shaderFloat16");
      return b.makeFloatType(16);
    case DType::kBF16:
      b.addExtension("SPV_KHR_bfloat16");
      b.addCapability(kCapabilityBFloat16Type);
      b.addCapability(kCapabilityBFloat16CooperativeMatrix);
      m_.require("shaderBFloat16Type");
      m_.require("shaderBFloat16CooperativeMatrix");
      return m_.raw_global(spv::OpTypeFloat, 0,
                           {Module::literal(16), Module::literal(kBFloat16Encoding)});
    case DType::kI8:
    case DType::kUI8:
      b.addCapability(spv::CapabilityInt8);
      m_.require("shaderInt8");
      return b.makeIntegerType(8, dtype == DType::kI8);
    case DType::kF32:
      return m_.float_type(32);
    default:
      return b.makeIntegerType(32, dtype == DType::kI32);
  }
}

spv::Id MatrixTypes::type(const MatrixShape& shape, MatrixUse use) {
  const DType dtype = use == kAccumulator ? shape.sums : shape.operands;
  const uint32_t rows = use == kMatrixB ? shape.depth : shape.rows;
  const uint32_t columns = use == kMatrixA ? shape.depth : shape.columns;
  spv::Id& type = types_[{dtype, rows, columns, use}];
  if (type != 0) return type;
  spv::Id& known = components_[dtype];
  if (known == 0) known = component(dtype);
  const auto constant = [&](uint32_t value) -> Module::Operand {
    return {m_.uint_constant(32, value)};
  };
  type = m_.raw_global(
      kOpTypeCooperativeMatrix, 0,
      {{known}, constant(spv::ScopeSubgroup), constant(rows), constant(columns), constant(use)});
  return type;
}

spv::Id MatrixTypes::no_sums(const MatrixShape& shape) {
  spv::Builder& b = m_.builder();
  const spv::Id zero = shape.sums == DType::kF32   ? b.makeFloatConstant(0)
                       : shape.sums == DType::kI32 ? b.makeIntConstant(0)
                                                   : b.makeUintConstant(0);
  return m_.raw_global(spv::OpConstantComposite, type(shape, kAccumulator), {{zero}});
}

}  // namespace hekla::vulkan::codegen
