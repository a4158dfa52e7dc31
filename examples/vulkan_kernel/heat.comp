// SPDX-License-Identifier: Apache-2.0
// One step of the heat equation on a square grid whose border stays as it is.
//
// A shader for hekla.vulkan_kernel gets the device addresses of its arrays, operands first, then
// results, in a table that the push constants name; no descriptors. run.py compiles and calls it.
#version 460
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 8, local_size_y = 8) in;

layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Operand { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) writeonly buffer Result { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Arrays {
  Operand before;
  Result after;
};

layout(push_constant) uniform Push {
  Arrays arrays;    // bytes 0 to 7
  uint launch[4];   // bytes 8 to 23 are Hekla's: the grid, and 0
  float rate;       // from byte 24 on: what `constants` says
  uint size;
}
push;

void main() {
  const uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y, n = push.size;
  if (x >= n || y >= n) return;
  const uint i = y * n + x;
  const float here = push.arrays.before.at[i];
  float next = here;
  if (x > 0 && y > 0 && x < n - 1 && y < n - 1) {
    next += push.rate * (push.arrays.before.at[i - 1] + push.arrays.before.at[i + 1] +
                         push.arrays.before.at[i - n] + push.arrays.before.at[i + n] - 4 * here);
  }
  push.arrays.after.at[i] = next;
}
