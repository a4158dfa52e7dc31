// SPDX-License-Identifier: Apache-2.0
// Persistent loops: a loop of small kernels as one shader, which a single workgroup runs from the
// first iteration to the last. Where an iteration is a few kernels of a few points each, starting
// them takes longer than running them (a dispatch and its barrier are microseconds, a workgroup's
// barrier is tens of nanoseconds).
//
// Operands stay where the plan has them, in the device's memory; barriers stand between kernels
// that touch the same bytes. All arithmetic is the kernels' own, so bits are those of the kernels
// one by one. Pure; any thread.
//
// KernelPush::constants[0] is the number of iterations at most, so that a launch of the shader
// ends in time and a loop may take several. With loops in the loop whose ends the data decide, a
// launch may end in the middle of any of them: the last operand is then memory of
// PersistentShader::state_words words, from word constants[1] on, of which the first is not 0 where
// the loop goes on. A launch that finds it so goes on there; it is 0 before the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/vulkan/codegen/generate.h"

namespace hekla::vulkan {

// What the workgroup does: a kernel; or else one of `bodies`, by what it reads; or `bodies[0]`
// several times; or, a search, `bodies[1]`, and while the byte at `predicate` is then not 0,
// `bodies[0]` and that again. Iterations begin with a barrier, and one stands in front of a
// predicate.
struct PersistentStep {
  const kernel::Kernel* kernel = nullptr;
  std::vector<unsigned> operands;  // of the kernel: places in the argument table
  bool has_barrier_before = false;
  // Where the number of the body that runs is read: a predicate of one byte, of two bodies the
  // first for true, or an i32, clamped to the last body when out of range.
  struct Selector {
    unsigned place = 0;
    int64_t bytes = 1;
  };
  std::optional<Selector> selector;
  std::optional<unsigned> predicate;
  int64_t count = 1;
  std::vector<std::vector<PersistentStep>> bodies;
};

struct PersistentLoop {
  std::string name;  // for people
  // Of an iteration; or, where there are searches in it, all there is to do, once.
  std::vector<PersistentStep> body;
  // The place of a byte: the loop goes on while it is not 0 at the end of an iteration. Not with
  // searches.
  std::optional<unsigned> predicate;
  // Of each place whether nothing in the loop writes its memory.
  std::vector<bool> is_constant;
};

struct PersistentShader {
  Shader shader;                // one workgroup
  int64_t most_iterations = 1;  // of one launch: on slow devices, and those that end long loops
  int64_t state_words = 0;
};

// `always`: also where kernels one by one take less time, for tests. Target::schedule_seed draws
// the workgroup and the iterations of a launch. UNIMPLEMENTED, with the reason: a kernel with
// sums on matrix units, one that the device cannot run as it is, too much code or work for one
// workgroup.
Result<PersistentShader> generate_persistent(const PersistentLoop& loop, const Target& target,
                                             bool always);

}  // namespace hekla::vulkan
