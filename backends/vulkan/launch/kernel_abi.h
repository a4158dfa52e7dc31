// SPDX-License-Identifier: Apache-2.0
// How a kernel gets its arguments. shaders/kernel_abi.glsl says the same to hand-written shaders,
// code generators follow it.
//
// Push constants, one range of 128 bytes for all kernels:
//
//   byte  0  uint64   device address of the kernel's argument table: one uint64 device address per
//                     operand, in the order of KernelStep::operands; 8-byte aligned
//   byte  8  uint32 x3  the logical grid (DeviceKernel::groups)
//   byte 20  uint32   first group
//   byte 24  uint32 x26  constants of the device's own kernels (copy, loop gate)
//
// The logical grid may exceed maxComputeWorkGroupCount, so the device's grid need not be the
// logical one. A kernel computes
//
//   linear = first_group + WorkgroupId.x + NumWorkgroups.x * (WorkgroupId.y + NumWorkgroups.y *
//   WorkgroupId.z)
//
// in 32 bits, does nothing if linear >= groups.x * groups.y * groups.z, and otherwise works on
// group (linear % groups.x, linear / groups.x % groups.y, linear / groups.x / groups.y). A kernel
// with one-dimensional grids uses `linear` alone. Products stay below 2^31.
//
// Operand addresses are those of the slices: base + offset, aligned like the offset (bases to 256
// bytes). An operand of zero bytes has a valid address that must not be read.
#pragma once

#include <array>
#include <cstdint>

namespace hekla::vulkan {

inline constexpr uint32_t kMaxKernelConstants = 26;
inline constexpr uint64_t kMaxGroups = (uint64_t{1} << 31) - 1;

struct KernelPush {
  uint64_t table = 0;
  uint32_t groups[3] = {1, 1, 1};
  uint32_t first_group = 0;
  uint32_t constants[kMaxKernelConstants] = {};
};
static_assert(sizeof(KernelPush) == 128);

// The grid that is given to vkCmdDispatch for a logical one: itself where the limits allow it, else
// folded, with at least as many groups and less than twice 2^31 of them.
std::array<uint32_t, 3> fold_grid(const std::array<uint32_t, 3>& groups,
                                  const std::array<uint32_t, 3>& limits);

}  // namespace hekla::vulkan
