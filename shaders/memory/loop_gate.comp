// SPDX-License-Identifier: Apache-2.0
// Ends a block of a launch and begins the next; backends/vulkan/launch/lowering.h says how.
//
// Operands {selector, state}. Constants: 0 how to choose (0 the first target; 1 the first when the
// selector's byte is not zero, else the second; 2 by the selector's word, the last when it is out of
// range; 3 the first until it was chosen often enough; 4 the first while the counter is not 0), 1 and 2 place and number of the words that
// vkCmdDispatchIndirect reads for this block, 3 and 4 number and place of the targets, 5 the place
// of a word that counts choices of the first target (0: none), 6 and 7 counter and iterations of a
// counted loop, 8 this block, 9 the place of the current block's number. Places are words of the
// state. A target is four words: block, place of its grids, place and number of the words that
// vkCmdDispatchIndirect reads for it.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/kernel_abi.glsl"
layout(local_size_x = 32) in;

uvec2 state;

uint load(uint place) { return Word(word_address(state, place)).value; }
void store(uint place, uint value) { Word(word_address(state, place)).value = value; }

void main() {
  Table table = Table(push.table);
  const uvec2 selector = table.operand[0];
  state = table.operand[1];
  const uint kind = push.constants[0];
  const uint targets = push.constants[3];
  uint choice = 0;
  if (kind == 1) {
    const uint word = Word(uvec2(selector.x & ~3u, selector.y)).value;
    choice = ((word >> (8 * (selector.x & 3))) & 0xffu) != 0 ? 0 : 1;
  } else if (kind == 2) {
    choice = min(Word(selector).value, targets - 1);
  } else if (kind == 3) {
    const uint iterations = load(push.constants[6]) + 1;
    choice = iterations < push.constants[7] ? 0 : 1;
    barrier();  // all have read it
    if (gl_LocalInvocationID.x == 0) store(push.constants[6], choice == 0 ? iterations : 0);
  } else if (kind == 4) {
    choice = load(push.constants[6]) != 0 ? 0 : 1;
  }
  const uint target = push.constants[4] + 4 * choice;
  const uint block = load(target);
  if (gl_LocalInvocationID.x == 0) {
    store(push.constants[9], block);
    if (choice == 0 && push.constants[5] != 0) {
      store(push.constants[5], load(push.constants[5]) + 1);
    }
  }
  if (block == push.constants[8]) return;
  for (uint i = gl_LocalInvocationID.x; i < push.constants[2]; i += gl_WorkGroupSize.x) {
    store(push.constants[1] + i, 0);
  }
  const uint grids = load(target + 1);
  const uint live = load(target + 2);
  const uint count = load(target + 3);
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    store(live + i, load(grids + i));
  }
}
