// SPDX-License-Identifier: Apache-2.0
// HostPart: what the host does in the middle of a launch: steps that no kernel computes, and the
// decisions of loops and branches around them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/vulkan/launch/launch_program.h"
#include "runtime/base/host_transfers.h"

namespace hekla::reference {
class DeviceExchange;
struct EvaluateOptions;
}  // namespace hekla::reference

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

struct HostCall {
  int64_t replica = 0;
  int64_t partition = 0;
  // Once it is true a host step may end with CANCELLED; null: never.
  const std::atomic<bool>* cancelled = nullptr;
  // Where the devices of the launch meet in host steps; null: a launch of one device.
  reference::DeviceExchange* exchange = nullptr;
  // Where the launch meets its host; null: nowhere.
  HostTransfers* transfers = nullptr;
};

// As the evaluator wants them.
reference::EvaluateOptions evaluate_options(const LaunchProgram& program, const HostCall& call);

// The choice of a kRun or kChoose. `memory`: of each slice that the step names, in the order of
// plan::for_each_slice. Errors of the evaluator and the interpreter.
Result<size_t> run_host_part(const HostPart& part, const LaunchProgram& program,
                             std::span<const std::span<std::byte>> memory, const HostCall& call);

}  // namespace hekla::vulkan
