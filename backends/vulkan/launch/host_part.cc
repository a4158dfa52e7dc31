// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/host_part.h"

#include "backends/compiler/kernel/interpreter.h"
#include "backends/reference/evaluator.h"

namespace hekla::vulkan {

size_t count(const HostPart& part, std::vector<int64_t>& counters) {
  switch (part.kind) {
    case HostPart::Kind::kStartCount:
      counters[part.counter] = 0;
      return 0;
    case HostPart::Kind::kCount:
      return counters[part.counter]++ < std::get<plan::RepeatStep>(part.step->what).count ? 0 : 1;
    case HostPart::Kind::kRun:
    case HostPart::Kind::kStart:
    case HostPart::Kind::kDone:
    case HostPart::Kind::kChoose:
    case HostPart::Kind::kGo:
      break;
  }
  return 0;
}

Result<size_t> run_host_part(const HostPart& part, const LaunchProgram& program,
                             std::span<const std::span<std::byte>> memory,
                             const reference::LaunchContext& context) {
  const auto& what = part.step->what;
  if (std::holds_alternative<plan::WhileStep>(what)) {
    return size_t{memory[0][0] != std::byte{0} ? 0U : 1U};
  }
  if (const auto* branch = std::get_if<plan::BranchStep>(&what)) {
    return plan::chosen_branch(*branch, memory[0].data());
  }
  if (const auto* run = std::get_if<plan::KernelStep>(&what)) {
    const kernel::Kernel& kernel = program.plan->kernels[static_cast<size_t>(run->kernel)];
    HEKLA_RETURN_IF_ERROR(kernel::interpret(kernel, memory, program.fma)
                              .with_context(fmt::format("host step kernel {}", kernel.name)));
    return size_t{0};
  }
  const auto& step = std::get<plan::HostStep>(what);
  HEKLA_RETURN_IF_ERROR(reference::evaluate_in_memory(*step.program,
                                                      memory.first(step.inputs.size()),
                                                      memory.subspan(step.inputs.size()), {context})
                            .with_context(fmt::format("host step {}", step.name)));
  return size_t{0};
}

}  // namespace hekla::vulkan
