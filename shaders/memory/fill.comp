// SPDX-License-Identifier: Apache-2.0
// Fills bytes at any byte address with a 32-bit pattern that begins at the first of them: operands
// {to}, constants {bytes, pattern}. Words at the ends keep their bytes outside of the range.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/kernel_abi.glsl"
layout(local_size_x = 64) in;

const uint kWordsPerInvocation = 4;

void main() {
  const uint group = linear_group();
  if (group >= group_count()) return;
  Table table = Table(push.table);
  const uvec2 to = table.operand[0];
  const uint bytes = push.constants[0];
  const uint shift = to.x & 3;
  const uint end = shift + bytes;
  const uint words = (end >> 2) + ((end & 3) != 0 ? 1 : 0);
  const uvec2 to_words = uvec2(to.x & ~3u, to.y);
  // The pattern as the target's words see it.
  const uint bits = 8 * shift;
  const uint given = push.constants[1];
  const uint pattern = bits == 0 ? given : (given << bits) | (given >> (32 - bits));
  for (uint i = 0; i < kWordsPerInvocation; ++i) {
    const uint word = (group * kWordsPerInvocation + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (word >= words) return;
    Word target = Word(word_address(to_words, word));
    uint mask = 0xffffffffu;
    if (4 * word < shift) mask &= 0xffffffffu << bits;
    if (4 * word + 4 > end) mask &= 0xffffffffu >> (8 * (4 * word + 4 - end));
    target.value = mask == 0xffffffffu ? pattern : (target.value & ~mask) | (pattern & mask);
  }
}
