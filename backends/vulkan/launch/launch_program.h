// SPDX-License-Identifier: Apache-2.0
// LaunchProgram: a launch plan and, beside it, what the device runs for each of its kernels.
//
// Immutable once made; read by any thread. An output may take the memory of the input that the plan
// names where the caller donated it; the plan is right with both memories.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/plan/launch_plan.h"
#include "backends/ffi/call.h"
#include "backends/vulkan/launch/hazards.h"
#include "backends/vulkan/pipeline/pipelines.h"
#include "runtime/base/status.h"

namespace hekla::vulkan {

struct DeviceKernel {
  KernelCode code;                             // kernel_abi.h says how it gets its arguments
  std::array<uint32_t, 3> groups = {0, 1, 1};  // the logical grid; nothing runs when one is 0
  std::vector<uint32_t> constants;             // KernelPush::constants, of users' shaders
  uint32_t workgroup_size = 0;                 // for people; 0: not known, as of users' shaders
  std::string schedule;                        // for people
  // The same: what each way to run it said, or why the host does.
  std::vector<kernel::Implementation> implementations;

  // The device cannot run it: the host does, point by point.
  bool is_interpreted() const { return code.words.empty(); }
};

// A loop of the plan that one workgroup runs by itself (codegen/persistent.h).
struct DeviceLoopKernel {
  const plan::Step* step = nullptr;  // a RepeatStep or WhileStep
  DeviceKernel code;  // one workgroup; constants are iterations and the place of the state
  std::vector<plan::Slice> operands;
  std::vector<bool> is_written;  // by operand
  int64_t most_iterations = 1;   // of one dispatch
  // Words of the loop state, the last operand, by which a dispatch goes on where the one before
  // ended, which the first of them says; 0: dispatches are whole iterations of the loop, and of a
  // search the first look at the condition is not in them.
  int64_t state_words = 0;
};

struct LaunchProgram {
  std::string name;
  std::shared_ptr<const plan::LaunchPlan> plan;
  std::vector<DeviceKernel> kernels;  // one for each of the plan's
  // The same; operands are lhs, rhs and out. The host runs none of them.
  std::vector<DeviceKernel> contractions;
  // Loops that have a kernel of their own, which runs in place of their steps.
  std::vector<DeviceLoopKernel> loops;
  std::vector<plan::Decision> decisions;  // on loops, for people
  // How the device rounds in its kernels, and the host in those that it runs.
  kernel::FmaRounding fma;
  // Of the user's functions in the plan's host steps; null: none.
  ffi::CallsRef calls;
  // Of the values of each host step.
  int64_t host_memory_limit_bytes = std::numeric_limits<int64_t>::max();
};

// Of `loops` the one that runs this step of the plan; null: none.
const DeviceLoopKernel* loop_kernel_of(const LaunchProgram& program, const plan::Step* step);

// Of each kernel of the plan whether a step outside of `loops` runs it.
std::vector<bool> dispatched_kernels(const LaunchProgram& program);

// The region of memory that a slice lies in, and which bytes of it: an output that may take an
// input's memory is one with it.
Access access_of(const plan::LaunchPlan& plan, const plan::Slice& slice, bool is_written);

// INTERNAL with step and reason: a plan that plan::check refuses, another number of kernels or
// contractions than it has, a contraction without code, a grid of 2^31 groups or more.
Status check_program(const LaunchProgram& program);

}  // namespace hekla::vulkan
