// SPDX-License-Identifier: Apache-2.0
// c[i] = factor * a[i] + b[i] on ui32: operands {a, b, c, {n, factor}}; 64 elements a group.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/kernel_abi.glsl"
layout(local_size_x = 64) in;

void main() {
  const uint group = linear_group();
  if (group >= group_count()) return;
  Table table = Table(push.table);
  const uint i = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (i >= Word(word_address(table.operand[3], 0)).value) return;
  const uint factor = Word(word_address(table.operand[3], 1)).value;
  const uint a = Word(word_address(table.operand[0], i)).value;
  const uint b = Word(word_address(table.operand[1], i)).value;
  Word(word_address(table.operand[2], i)).value = factor * a + b;
}
