// SPDX-License-Identifier: Apache-2.0
// Decides whether a loop on the device goes on: operands {condition, state}, constants {n}. The
// condition is one byte, zero to stop. The state is words: flag, then 3 * n words of grids, then
// 3 * n words that vkCmdDispatchIndirect reads; these become the grids, or zero to stop.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/kernel_abi.glsl"
layout(local_size_x = 64) in;

void main() {
  Table table = Table(push.table);
  const uvec2 condition = table.operand[0];
  const uvec2 state = table.operand[1];
  const uint word = Word(uvec2(condition.x & ~3u, condition.y)).value;
  const bool goes_on = ((word >> (8 * (condition.x & 3))) & 0xffu) != 0;
  const uint count = 3 * push.constants[0];
  if (gl_LocalInvocationID.x == 0) Word(state).value = goes_on ? 1 : 0;
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    const uint groups = Word(word_address(state, 1 + i)).value;
    Word(word_address(state, 1 + count + i)).value = goes_on ? groups : 0;
  }
}
