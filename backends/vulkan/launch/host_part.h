// SPDX-License-Identifier: Apache-2.0
// HostPart: what the host does in the middle of a launch: steps that no kernel computes, and the
// decisions of loops and branches around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/launch_context.h"
#include "backends/vulkan/launch/launch_program.h"

namespace hekla::vulkan {

struct HostPart {
  enum class Kind : uint8_t {
    kRun,         // a HostStep in the evaluator, or a KernelStep in the interpreter
    kStart,       // a StartStep: its operands are read, then a communication lane goes on
    kDone,        // a DoneStep
    kChoose,      // a WhileStep: 0 to go on, 1 to end; a BranchStep: the branch
    kStartCount,  // a RepeatStep: its counter is 0
    kCount,       // 0 while the counter is below the count, which adds one; then 1
    kGo,          // always 0
  };
  Kind kind = Kind::kGo;
  const plan::Step* step = nullptr;  // borrowed from the plan
  size_t counter = 0;                // the number of the launch's counter

  // Whether it looks at memory.
  bool has_memory() const {
    return kind == Kind::kRun || kind == Kind::kStart || kind == Kind::kDone ||
           kind == Kind::kChoose;
  }
};

// The choice of a part without memory.
size_t count(const HostPart& part, std::vector<int64_t>& counters);

// The choice of a kRun or kChoose. `memory`: of each slice that the step names, in the order of
// plan::for_each_slice. Errors of the evaluator and the interpreter.
Result<size_t> run_host_part(const HostPart& part, const LaunchProgram& program,
                             std::span<const std::span<std::byte>> memory,
                             const reference::LaunchContext& context);

}  // namespace hekla::vulkan
