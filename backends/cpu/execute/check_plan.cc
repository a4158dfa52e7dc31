// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/check_plan.h"

#include <fmt/format.h>

#include <functional>

namespace hekla::cpu {
namespace {

using plan::Slice;

std::string text(const Slice& slice) {
  constexpr const char* kSpaces[] = {"input", "output", "arena", "constant"};
  return fmt::format("{} {} [{}, {})", kSpaces[static_cast<size_t>(slice.space)], slice.index,
                     slice.offset, slice.offset + slice.bytes);
}

class Checker {
 public:
  explicit Checker(const plan::LaunchPlan& plan) : plan_(plan) {}

  Status run() const {
    if (plan_.output_input.size() != plan_.output_bytes.size()) {
      return internal_error("launch plan: {} outputs, {} of them with an input to take",
                            plan_.output_bytes.size(), plan_.output_input.size());
    }
    for (size_t o = 0; o < plan_.output_input.size(); ++o) {
      const int32_t input = plan_.output_input[o];
      if (input < 0) continue;
      if (static_cast<size_t>(input) >= plan_.input_bytes.size() ||
          plan_.input_bytes[static_cast<size_t>(input)] != plan_.output_bytes[o]) {
        return internal_error("launch plan: output {} cannot take the memory of input {}", o,
                              input);
      }
    }
    return check(plan_.steps);
  }

 private:
  Status check(const plan::Steps& steps) const {
    for (const plan::Step& step : steps) {
      HEKLA_RETURN_IF_ERROR(
          std::visit([this](const auto& what) { return check(what); }, step.what));
    }
    return ok_status();
  }

  Status check(const plan::KernelStep& step) const {
    if (step.kernel < 0 || static_cast<size_t>(step.kernel) >= plan_.kernels.size()) {
      return internal_error("launch plan: there is no kernel {}", step.kernel);
    }
    const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(step.kernel)];
    if (kernel.operands.size() != step.operands.size()) {
      return internal_error("launch plan: kernel {} has {} operands, {} are given", kernel.name,
                            kernel.operands.size(), step.operands.size());
    }
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const kernel::KernelOperand& operand = kernel.operands[i];
      HEKLA_RETURN_IF_ERROR(
          check(step.operands[i], operand.bytes, operand.is_written).with_context(kernel.name));
    }
    return ok_status();
  }

  Status check(const plan::ContractionStep& step) const {
    if (step.contraction < 0 ||
        static_cast<size_t>(step.contraction) >= plan_.contractions.size()) {
      return internal_error("launch plan: there is no contraction {}", step.contraction);
    }
    const auto& c = plan_.contractions[static_cast<size_t>(step.contraction)];
    HEKLA_RETURN_IF_ERROR(check(step.lhs, c.lhs_elements * dtype_bytes(c.lhs_dtype), false));
    HEKLA_RETURN_IF_ERROR(check(step.rhs, c.rhs_elements * dtype_bytes(c.rhs_dtype), false));
    return check(step.out, c.out_elements * dtype_bytes(DType::kF32), true);
  }

  Status check(const plan::CopyStep& step) const {
    HEKLA_RETURN_IF_ERROR(check(step.from, step.to.bytes, false));
    return check(step.to, step.from.bytes, true);
  }

  Status check(const plan::HostStep& step) const {
    for (const Slice& slice : step.inputs) {
      HEKLA_RETURN_IF_ERROR(check(slice, slice.bytes, false).with_context(step.name));
    }
    for (const Slice& slice : step.outputs) {
      HEKLA_RETURN_IF_ERROR(check(slice, slice.bytes, true).with_context(step.name));
    }
    return ok_status();
  }

  Status check(const std::shared_ptr<const plan::LoopStep>& loop) const {
    const bool is_counted = loop->trip_count >= 0;
    HEKLA_RETURN_IF_ERROR(check(loop->predicate, is_counted ? 8 : 1, is_counted));
    HEKLA_RETURN_IF_ERROR(check(loop->condition));
    return check(loop->body);
  }

  Status check(const std::shared_ptr<const plan::BranchStep>& branch) const {
    const int64_t bytes = branch->selector.bytes;
    if (branch->branches.empty() || (bytes != 4 && (bytes != 1 || branch->branches.size() != 2))) {
      return internal_error("launch plan: a branch of {} ways by {} bytes", branch->branches.size(),
                            bytes);
    }
    HEKLA_RETURN_IF_ERROR(check(branch->selector, bytes, false));
    for (const plan::Steps& steps : branch->branches) HEKLA_RETURN_IF_ERROR(check(steps));
    return ok_status();
  }

  Status check(const std::shared_ptr<const plan::RowsStep>& group) const {
    for (const plan::Step& step : group->steps) {
      if (!std::holds_alternative<plan::KernelStep>(step.what)) {
        return internal_error("launch plan: a row group has a step that is no kernel");
      }
    }
    for (const Slice& slice : group->scratch) {
      if (slice.space != Slice::Space::kArena || group->rows < 1 ||
          slice.bytes % group->rows != 0) {
        return internal_error("launch plan: {} is no scratch of {} rows", text(slice), group->rows);
      }
      HEKLA_RETURN_IF_ERROR(check(slice, slice.bytes, true));
    }
    return check(group->steps);
  }

  Status check(const Slice& slice, int64_t bytes, bool is_written) const {
    if (slice.bytes != bytes) {
      return internal_error("launch plan: {} stands for {} bytes", text(slice), bytes);
    }
    const auto index = static_cast<size_t>(slice.index);
    int64_t there = -1;
    switch (slice.space) {
      case Slice::Space::kInput:
        if (index < plan_.input_bytes.size()) there = plan_.input_bytes[index];
        break;
      case Slice::Space::kOutput:
        if (index < plan_.output_bytes.size()) there = plan_.output_bytes[index];
        break;
      case Slice::Space::kArena:
        if (index == 0) there = plan_.arena_bytes;
        break;
      case Slice::Space::kConstant:
        if (index < plan_.constants.size()) there = plan_.constants[index].size_bytes();
        break;
    }
    if (slice.offset < 0 || slice.bytes < 0 || there < 0 || slice.offset > there - slice.bytes) {
      return internal_error("launch plan: {} is outside of its {} bytes", text(slice), there);
    }
    const bool is_fixed =
        slice.space == Slice::Space::kInput || slice.space == Slice::Space::kConstant;
    if (is_written && is_fixed) return internal_error("launch plan: {} is written", text(slice));
    return ok_status();
  }

  const plan::LaunchPlan& plan_;
};

void for_each_kernel_step(const plan::Steps& steps,
                          const std::function<void(const plan::KernelStep&)>& call) {
  for (const plan::Step& step : steps) {
    if (const auto* kernel = std::get_if<plan::KernelStep>(&step.what)) {
      call(*kernel);
    } else if (const auto* loop = std::get_if<std::shared_ptr<const plan::LoopStep>>(&step.what)) {
      for_each_kernel_step((*loop)->condition, call);
      for_each_kernel_step((*loop)->body, call);
    } else if (const auto* branch =
                   std::get_if<std::shared_ptr<const plan::BranchStep>>(&step.what)) {
      for (const plan::Steps& inner : (*branch)->branches) for_each_kernel_step(inner, call);
    } else if (const auto* rows = std::get_if<std::shared_ptr<const plan::RowsStep>>(&step.what)) {
      for_each_kernel_step((*rows)->steps, call);
    }
  }
}

}  // namespace

Status check_plan(const plan::LaunchPlan& plan) { return Checker(plan).run(); }

std::vector<bool> kernels_in_place(const plan::LaunchPlan& plan) {
  std::vector<bool> result(plan.kernels.size(), false);
  for_each_kernel_step(plan.steps, [&](const plan::KernelStep& step) {
    const auto number = static_cast<size_t>(step.kernel);
    const auto& operands = plan.kernels[number].operands;
    for (size_t w = 0; w < operands.size(); ++w) {
      if (!operands[w].is_written) continue;
      const Slice& written = step.operands[w];
      for (size_t r = 0; r < operands.size(); ++r) {
        if (!operands[r].is_read) continue;
        const Slice& read = step.operands[r];
        const bool taken = written.space == Slice::Space::kOutput &&
                           read.space == Slice::Space::kInput &&
                           plan.output_input[static_cast<size_t>(written.index)] == read.index;
        if (written == read || taken) result[number] = true;
      }
    }
  });
  return result;
}

}  // namespace hekla::cpu
