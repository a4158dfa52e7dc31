// SPDX-License-Identifier: Apache-2.0
// Code generator: a kernel of the compiler becomes a SPIR-V compute shader.
//
// How a shader is called (the runtime's side of the bargain). Entry point "main"; push constants as in
// launch/kernel_abi.h: at 0 the 64-bit device address of the argument table, at 20 `first_group`
// (uint32, below 2^31); the rest is not read. The table is an array of 64-bit device addresses, one per operand of the kernel, in
// order. Work is cut into `group_count` workgroups, numbered linearly; a dispatch of x * y * z
// workgroups runs the numbers from first_group on, x fastest, and those not below group_count do
// nothing. So a grid may be folded over y and z and dispatched in several pieces; no group may run
// twice, so only the last piece may be larger than what is left. Operands start at
// multiples of 16 bytes. Operands of equal size may be the same memory, as kernel.h allows.
//
// Pure: the same kernel and target give the same words, whatever the kernel's name. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/compiler/kernel/kernel.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan {

inline constexpr uint32_t kShaderPushBytes = 24;
inline constexpr uint32_t kFirstGroupOffset = 20;
// Part of every cache key: raised when the same kernel gives other code or another way of calling.
inline constexpr uint32_t kCodegenVersion = 1;

struct Shader {
  std::vector<uint32_t> words;
  uint32_t workgroup_size = 1;
  int64_t group_count = 0;
  // Vulkan's names of the device features that the module needs enabled: "shaderInt64" ... Sorted.
  std::vector<std::string> required_features;
};

// UNIMPLEMENTED, naming the kernel, the device and all features that it lacks; INTERNAL for a
// kernel that `kernel::verify` would refuse.
Result<Shader> generate(const kernel::Kernel& kernel, const Target& target);

// INTERNAL with SPIRV-Tools' message when the module is not valid for Vulkan 1.2. About 1 ms.
Status validate(std::span<const uint32_t> words);
// SPIR-V assembly for people, with names and indentation; the reason when `words` is no module.
std::string disassemble(std::span<const uint32_t> words);

}  // namespace hekla::vulkan
