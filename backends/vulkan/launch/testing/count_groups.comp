// SPDX-License-Identifier: Apache-2.0
// Adds one to element x + groups.x * (y + groups.y * z) for each group (x, y, z) of the logical
// grid: operands {counts}.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/kernel_abi.glsl"
layout(local_size_x = 8) in;

void main() {
  const uint group = linear_group();
  if (group >= group_count() || gl_LocalInvocationID.x != 0) return;
  const uint x = group % push.groups_x;
  const uint y = group / push.groups_x % push.groups_y;
  const uint z = group / push.groups_x / push.groups_y;
  Table table = Table(push.table);
  Word word = Word(word_address(table.operand[0], x + push.groups_x * (y + push.groups_y * z)));
  word.value = word.value + 1;
}
