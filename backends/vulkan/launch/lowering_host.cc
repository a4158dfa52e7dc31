// SPDX-License-Identifier: Apache-2.0
// Lowering: what needs the host: parts of its own, in the order of the steps.
#include <algorithm>
#include <utility>

#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/launch/lowering_state.h"

namespace hekla::vulkan {

bool Lowering::needs_host(const plan::Step& step) const {
  if (plan::is_on_host(step)) return true;
  // What is in such a loop and never runs may be anything.
  if (loop_kernel_of(program_, &step) != nullptr) return false;
  const auto* run = std::get_if<plan::KernelStep>(&step.what);
  if (run != nullptr) return program_.kernels[static_cast<size_t>(run->kernel)].is_interpreted();
  bool found = false;
  plan::for_each_list(step, [&](const plan::Steps& inner) {
    found = found || std::any_of(inner.begin(), inner.end(),
                                 [this](const plan::Step& each) { return needs_host(each); });
  });
  return found;
}

Status Lowering::add_parts(const plan::Steps& steps) {
  for (const plan::Step& step : steps) {
    if (!needs_host(step)) {
      step_ = &step;
      std::visit([this](const auto& what) { add(what, top_); }, step.what);
      continue;
    }
    HEKLA_RETURN_IF_ERROR(close_part());
    HEKLA_RETURN_IF_ERROR(
        std::visit([&](const auto& what) { return add_on_host(step, what); }, step.what));
  }
  return ok_status();
}

size_t Lowering::add_host_part(const HostPart& host) {
  lowered_.parts.emplace_back();
  lowered_.parts.back().host = host;
  return lowered_.parts.size() - 1;
}

Result<size_t> Lowering::add_parts_and_go(const plan::Steps& steps, std::vector<size_t> next) {
  HEKLA_RETURN_IF_ERROR(add_parts(steps));
  HEKLA_RETURN_IF_ERROR(close_part());
  const size_t part = add_host_part({HostPart::Kind::kGo});
  lowered_.parts[part].next = std::move(next);
  return part;
}

template <typename Other>
Status Lowering::add_on_host(const plan::Step& step, const Other&) {
  return internal_error("{} is no step of the host", plan::to_string(step, plan_));
}

Status Lowering::add_on_host(const plan::Step& step, const plan::HostStep&) {
  add_host_part({HostPart::Kind::kRun, &step});
  ++lowered_.host_step_count;
  return ok_status();
}

Status Lowering::add_on_host(const plan::Step& step, const plan::StartStep&) {
  add_host_part({HostPart::Kind::kStart, &step});
  return ok_status();
}

Status Lowering::add_on_host(const plan::Step& step, const plan::DoneStep&) {
  add_host_part({HostPart::Kind::kDone, &step});
  return ok_status();
}

Status Lowering::add_on_host(const plan::Step& step, const plan::KernelStep&) {
  add_host_part({HostPart::Kind::kRun, &step});
  ++lowered_.host_step_count;
  return ok_status();
}

Status Lowering::add_on_host(const plan::Step&, const plan::RowsStep& rows) {
  return add_parts(rows.steps);
}

Status Lowering::add_on_host(const plan::Step& step, const plan::RepeatStep& loop) {
  const size_t counter = lowered_.host_counter_count++;
  add_host_part({HostPart::Kind::kStartCount, &step, counter});
  const size_t test = add_host_part({HostPart::Kind::kCount, &step, counter});
  HEKLA_RETURN_IF_ERROR(add_parts_and_go(loop.body, {test}).status());
  lowered_.parts[test].next = {test + 1, lowered_.parts.size()};
  return ok_status();
}

Status Lowering::add_on_host(const plan::Step& step, const plan::WhileStep& loop) {
  const size_t begin = lowered_.parts.size();
  HEKLA_RETURN_IF_ERROR(add_parts(loop.condition));
  HEKLA_RETURN_IF_ERROR(close_part());
  const size_t test = add_host_part({HostPart::Kind::kChoose, &step});
  HEKLA_RETURN_IF_ERROR(add_parts_and_go(loop.body, {begin}).status());
  lowered_.parts[test].next = {test + 1, lowered_.parts.size()};
  return ok_status();
}

Status Lowering::add_on_host(const plan::Step& step, const plan::BranchStep& branch) {
  const size_t choice = add_host_part({HostPart::Kind::kChoose, &step});
  std::vector<size_t> starts, ends;
  for (const plan::Steps& steps : branch.branches) {
    starts.push_back(lowered_.parts.size());
    HEKLA_ASSIGN_OR_RETURN(const size_t end, add_parts_and_go(steps, {}));
    ends.push_back(end);
  }
  for (const size_t end : ends) lowered_.parts[end].next = {lowered_.parts.size()};
  lowered_.parts[choice].next = std::move(starts);
  return ok_status();
}

}  // namespace hekla::vulkan
