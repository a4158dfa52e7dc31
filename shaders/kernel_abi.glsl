// SPDX-License-Identifier: Apache-2.0
// How every kernel gets its arguments; backends/vulkan/launch/kernel_abi.h says the same to C++.
//
// Byte 0 of the push constants is the device address of the kernel's part of the launch's argument
// table: one 64-bit device address per operand. The logical grid may be larger than what one
// vkCmdDispatch takes; it is then folded, so a kernel finds its group with linear_group() and does
// nothing when that is not below group_count().
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

layout(push_constant) uniform Push {
  uvec2 table;
  uint groups_x;
  uint groups_y;
  uint groups_z;
  uint first_group;
  uint constants[26];
}
push;

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Table {
  uvec2 operand[];
};

// One 32-bit word of memory.
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word { uint value; };

uint group_count() { return push.groups_x * push.groups_y * push.groups_z; }

uint linear_group() {
  return push.first_group + gl_WorkGroupID.x +
         gl_NumWorkGroups.x * (gl_WorkGroupID.y + gl_NumWorkGroups.y * gl_WorkGroupID.z);
}

// base + 4 * words, without 64-bit integers.
uvec2 word_address(uvec2 base, uint words) {
  uint carry;
  const uint low = uaddCarry(base.x, words << 2, carry);
  return uvec2(low, base.y + (words >> 30) + carry);
}
