// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

// ---- what a type of step is, without its slices

std::string name_of(const KernelStep& step, const LaunchPlan& plan) {
  return kernel_title(plan, static_cast<size_t>(step.kernel));
}
std::string name_of(const ContractionStep& step, const LaunchPlan& plan) {
  return contraction_title(plan, static_cast<size_t>(step.contraction));
}
std::string name_of(const TransformStep& step, const LaunchPlan&) {
  return "transform " + kernel::to_string(step.transform);
}
std::string name_of(const HostStep& step, const LaunchPlan&) {
  return fmt::format("host {} ({})", step.name, step.reason);
}
std::string name_of(const StartStep& step, const LaunchPlan&) {
  return fmt::format("start {} {}", step.number, step.name);
}
std::string name_of(const DoneStep& step, const LaunchPlan&) {
  return fmt::format("done {}", step.number);
}
std::string name_of(const RepeatStep& step, const LaunchPlan&) {
  return fmt::format("repeat {} times", step.count);
}
std::string name_of(const RowsStep& step, const LaunchPlan&) {
  return fmt::format("rows {} of {} bytes{}{}", step.rows, step.row_bytes,
                     step.is_led() ? ", as the first step ends them" : "",
                     step.scratch.empty() ? "" : ", scratch");
}
template <typename What>
std::string name_of(const What&, const LaunchPlan&) {
  return What::kName;
}

// What stands in front of a list of a step; may be empty.
std::string title_of_list(const Step& step, size_t number) {
  if (std::holds_alternative<BranchStep>(step.what)) return fmt::format("case {}", number);
  return std::holds_alternative<WhileStep>(step.what) && number == 1 ? "do" : "";
}

void print(const Steps& steps, const LaunchPlan& plan, int indent, std::string& out) {
  const std::string pad(static_cast<size_t>(indent) * 2, ' ');
  for (const Step& step : steps) {
    std::string reads, writes;
    const auto add = [&](const Slice& slice, const Use& use) {
      std::string& side = use.is_written ? writes : reads;
      side += (side.empty() ? "" : ", ") + to_string(slice);
    };
    std::visit([&](const auto& what) { slices_of(what, plan, add); }, step.what);
    out += pad + to_string(step, plan);
    if (!reads.empty() || !writes.empty()) out += ": " + reads;
    if (!writes.empty()) out += (reads.empty() ? "-> " : " -> ") + writes;
    out += '\n';
    size_t number = 0;
    for_each_list(step, [&](const Steps& inner) {
      const std::string title = title_of_list(step, number++);
      if (!title.empty()) out += pad + title + '\n';
      print(inner, plan, indent + 1, out);
    });
  }
}

}  // namespace

const char* space_name(Slice::Space space) {
  constexpr const char* kNames[] = {"input", "output", "arena", "constant", "launch"};
  return kNames[static_cast<size_t>(space)];
}

std::string to_string(const Slice& slice) {
  switch (slice.space) {
    case Slice::Space::kInput:
    case Slice::Space::kOutput:
    case Slice::Space::kConstant: {
      const char* name = space_name(slice.space);
      if (slice.offset == 0) return fmt::format("{} {} [{}]", name, slice.index, slice.bytes);
      return fmt::format("{} {} +{} [{}]", name, slice.index, slice.offset, slice.bytes);
    }
    case Slice::Space::kLaunch:
      if (slice.offset == kLaunchNumberOffset)
        return fmt::format("launch number [{}]", slice.bytes);
      return fmt::format("{} of the device [{}]",
                         slice.offset == kReplicaOffset ? "replica" : "partition", slice.bytes);
    case Slice::Space::kArena:
      break;
  }
  if (slice.index == 0) return fmt::format("arena +{} [{}]", slice.offset, slice.bytes);
  return fmt::format("arena {} +{} [{}]", slice.index, slice.offset, slice.bytes);
}

std::string to_string(const Step& step, const LaunchPlan& plan) {
  return std::visit([&](const auto& what) { return name_of(what, plan); }, step.what);
}

std::string to_string(const LaunchPlan& plan) {
  const std::vector<int64_t> arenas = plan.arenas_without_scratch();
  std::string out = fmt::format("arena {} bytes", plan.arena_bytes() - plan.row_scratch_bytes);
  if (arenas.size() > 1) out += fmt::format(" in {}: {}", arenas.size(), fmt::join(arenas, " + "));
  if (plan.row_scratch_bytes > 0) {
    out += fmt::format(" and {} where rows do not go a few at a time", plan.row_scratch_bytes);
  }
  out += fmt::format(", {} kernels, {} constants\n", plan.kernels.size(), plan.constants.size());
  for (size_t o = 0; o < plan.output_input.size(); ++o) {
    if (plan.output_input[o] < 0) continue;
    out += fmt::format("output {} may take input {}\n", o, plan.output_input[o]);
  }
  print(plan.steps, plan, 0, out);
  return out;
}

std::string kernel_title(const LaunchPlan& plan, size_t number) {
  const kernel::Kernel& kernel = plan.kernels[number];
  return fmt::format("kernel {} {} grid [{}]", number, kernel.name, fmt::join(kernel.grid, ", "));
}

std::string contraction_title(const LaunchPlan& plan, size_t number) {
  return fmt::format("contraction {} {}", number, kernel::to_string(plan.contractions[number]));
}

std::string decisions_string(const std::vector<Decision>& decisions) {
  std::string text;
  for (const Decision& each : decisions) {
    text += each.operation + "\n" + kernel::to_string(each.implementations);
  }
  return text;
}

std::string kernels_string(const LaunchPlan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    text += fmt::format("kernel {} {}: {}\n", i, plan.kernels[i].name,
                        kernel::to_string(plan.kernels[i]));
  }
  return text;
}

std::vector<std::pair<std::string, int64_t>> statistics(const LaunchPlan& plan) {
  int64_t steps = 0, host_steps = 0, collectives = 0, row_groups = 0, constant_bytes = 0;
  for_each_step(plan.steps, [&](const Step& step) {
    ++steps;
    if (std::holds_alternative<HostStep>(step.what)) ++host_steps;
    if (std::holds_alternative<StartStep>(step.what)) ++collectives;
    if (std::holds_alternative<RowsStep>(step.what)) ++row_groups;
  });
  for (const HostArray& array : plan.constants) constant_bytes += array.size_bytes();
  return {{"kernels", static_cast<int64_t>(plan.kernels.size())},
          {"steps", steps},
          {"host_steps", host_steps},
          {"collectives", collectives},
          {"row_groups", row_groups},
          {"arenas", static_cast<int64_t>(plan.arenas.size())},
          {"arena_bytes", plan.arena_bytes()},
          {"constant_bytes", constant_bytes}};
}

}  // namespace hekla::plan
