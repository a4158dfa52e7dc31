// SPDX-License-Identifier: Apache-2.0
// Copies bytes between any two byte addresses with 32-bit accesses alone: operands {from, to},
// constants {bytes}. Words at the ends of the target keep their bytes outside of it; source words
// are read only where they hold bytes of the source.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/kernel_abi.glsl"
layout(local_size_x = 64) in;

const uint kWordsPerInvocation = 4;

uint load(uvec2 words, uint index) { return Word(word_address(words, index)).value; }

void main() {
  const uint group = linear_group();
  if (group >= group_count()) return;
  Table table = Table(push.table);
  const uvec2 from = table.operand[0];
  const uvec2 to = table.operand[1];
  const uint bytes = push.constants[0];
  const uint shift = to.x & 3;
  const uint end = shift + bytes;  // in bytes of the target's words
  const uint words = (end >> 2) + ((end & 3) != 0 ? 1 : 0);
  const uvec2 to_words = uvec2(to.x & ~3u, to.y);
  // Byte b of the target's words comes from byte b - shift + lead of the source's words.
  const uint lead = from.x & 3;
  const uvec2 from_words = uvec2(from.x & ~3u, from.y);
  for (uint i = 0; i < kWordsPerInvocation; ++i) {
    const uint word = (group * kWordsPerInvocation + i) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (word >= words) return;
    Word target = Word(word_address(to_words, word));
    if (4 * word >= shift && 4 * word + 4 <= end) {
      const uint at = 4 * word - shift + lead;
      const uint low = load(from_words, at >> 2);
      const uint bits = 8 * (at & 3);
      target.value =
          bits == 0 ? low : (low >> bits) | (load(from_words, (at >> 2) + 1) << (32 - bits));
    } else {
      uint value = target.value;
      for (uint k = 0; k < 4; ++k) {
        const uint b = 4 * word + k;
        if (b < shift || b >= end) continue;
        const uint at = b - shift + lead;
        const uint byte = (load(from_words, at >> 2) >> (8 * (at & 3))) & 0xffu;
        value = (value & ~(0xffu << (8 * k))) | (byte << (8 * k));
      }
      target.value = value;
    }
  }
}
