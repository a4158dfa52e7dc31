// SPDX-License-Identifier: Apache-2.0
// Code generator: a kernel of the compiler becomes a SPIR-V compute shader.
//
// Shaders take their arguments as launch/kernel_abi.h says, with a one-dimensional logical grid of
// `group_count` workgroups and no constants of their own. No group may run twice (kernels update
// in place), so of a grid that is dispatched in pieces only the last may be larger than what is
// left. Operands start at multiples of 16 bytes. Operands of equal size may be the same memory, as
// kernel.h allows.
//
// Pure: the same kernel and target give the same words, whatever the kernel's name. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/compiler/kernel/implementations.h"
#include "backends/compiler/kernel/kernel.h"
#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan {

struct Shader {
  std::vector<uint32_t> words;
  uint32_t workgroup_size = 1;
  uint32_t subgroup_size = 0;  // that it is written for; 0: any
  int64_t group_count = 0;
  std::string_view schedule;                            // one of codegen::schedule_names()
  std::vector<kernel::Implementation> implementations;  // what each way to run the kernel said
  // Vulkan's names of the device features that the module needs enabled: "shaderInt64" ... Sorted.
  std::vector<std::string> required_features;
};

// Types and stores that the device lacks are emulated. UNIMPLEMENTED, naming the kernel, the device
// and all features that it lacks, where that cannot be; INTERNAL for a kernel that
// `kernel::verify` would refuse.
Result<Shader> generate(const kernel::Kernel& kernel, const Target& target);

// Whether Target::schedule_seed gives this kernel to the host, as kernels are that a device cannot
// run: a few that take it no time, of devices that are known to keep subnormal numbers as it does.
bool is_drawn_for_host(const kernel::Kernel& kernel, const Target& target);

// INTERNAL with SPIRV-Tools' message when the module is not valid for Vulkan 1.2. About 1 ms.
Status validate(std::span<const uint32_t> words);
// SPIR-V assembly for people, with names and indentation; the reason when `words` is no module.
std::string disassemble(std::span<const uint32_t> words);

}  // namespace hekla::vulkan
