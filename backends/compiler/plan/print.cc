// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::plan {
namespace {

std::string text_of(const Slice& slice) {
  switch (slice.space) {
    case Slice::Space::kInput:
      return fmt::format("input {} [{}]", slice.index, slice.bytes);
    case Slice::Space::kOutput:
      return fmt::format("output {} [{}]", slice.index, slice.bytes);
    case Slice::Space::kArena:
      return fmt::format("arena +{} [{}]", slice.offset, slice.bytes);
    case Slice::Space::kConstant:
      break;
  }
  return fmt::format("constant {} [{}]", slice.index, slice.bytes);
}

std::string text_of(const std::vector<Slice>& slices) {
  std::string text;
  for (const Slice& slice : slices) text += (text.empty() ? "" : ", ") + text_of(slice);
  return text;
}

void print(const Steps& steps, const LaunchPlan& plan, int indent, std::string& out) {
  const std::string pad(static_cast<size_t>(indent) * 2, ' ');
  for (const Step& step : steps) {
    out += pad;
    if (const auto* run = std::get_if<KernelStep>(&step.what)) {
      const kernel::Kernel& kernel = plan.kernels[static_cast<size_t>(run->kernel)];
      std::string inputs, outputs;
      for (size_t i = 0; i < run->operands.size(); ++i) {
        std::string& side = kernel.operands[i].is_written ? outputs : inputs;
        side += (side.empty() ? "" : ", ") + text_of(run->operands[i]);
      }
      out += fmt::format("kernel {} {} grid [{}]: {} -> {}\n", run->kernel, kernel.name,
                         fmt::join(kernel.grid, ", "), inputs, outputs);
    } else if (const auto* contract = std::get_if<ContractionStep>(&step.what)) {
      const auto number = static_cast<size_t>(contract->contraction);
      out += fmt::format("contraction {} {}: {}, {} -> {}\n", number,
                         kernel::to_string(plan.contractions[number]), text_of(contract->lhs),
                         text_of(contract->rhs), text_of(contract->out));
    } else if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
      out += fmt::format("copy {} -> {}\n", text_of(copy->from), text_of(copy->to));
    } else if (const auto* host = std::get_if<HostStep>(&step.what)) {
      out += fmt::format("host {}: {} -> {} ({})\n", host->name, text_of(host->inputs),
                         text_of(host->outputs), host->reason);
    } else if (const auto* loop = std::get_if<std::shared_ptr<const LoopStep>>(&step.what)) {
      if ((*loop)->trip_count >= 0) {
        out += fmt::format("repeat {} times\n", (*loop)->trip_count);
      } else {
        out += fmt::format("while {}\n", text_of((*loop)->predicate));
        print((*loop)->condition, plan, indent + 1, out);
        out += pad + "do\n";
      }
      print((*loop)->body, plan, indent + 1, out);
    } else if (const auto* branch = std::get_if<std::shared_ptr<const BranchStep>>(&step.what)) {
      out += fmt::format("branch {}\n", text_of((*branch)->selector));
      for (size_t i = 0; i < (*branch)->branches.size(); ++i) {
        out += fmt::format("{}case {}\n", pad, i);
        print((*branch)->branches[i], plan, indent + 1, out);
      }
    } else if (const auto* rows = std::get_if<std::shared_ptr<const RowsStep>>(&step.what)) {
      out += fmt::format("rows {} of {} bytes, scratch: {}\n", (*rows)->rows, (*rows)->row_bytes,
                         text_of((*rows)->scratch));
      print((*rows)->steps, plan, indent + 1, out);
    }
  }
}

}  // namespace

std::string to_string(const LaunchPlan& plan) {
  std::string out = fmt::format("arena {} bytes, {} kernels, {} constants\n", plan.arena_bytes,
                                plan.kernels.size(), plan.constants.size());
  for (size_t o = 0; o < plan.output_input.size(); ++o) {
    if (plan.output_input[o] < 0) continue;
    out += fmt::format("output {} may take input {}\n", o, plan.output_input[o]);
  }
  print(plan.steps, plan, 0, out);
  return out;
}

std::string kernels_string(const LaunchPlan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    text += fmt::format("kernel {} {}: {}\n", i, plan.kernels[i].name,
                        kernel::to_string(plan.kernels[i]));
  }
  return text;
}

namespace {

struct Counts {
  int64_t steps = 0;
  int64_t host_steps = 0;
  int64_t row_groups = 0;
};

void count(const Steps& steps, Counts& counts) {
  for (const Step& step : steps) {
    ++counts.steps;
    if (std::holds_alternative<HostStep>(step.what)) ++counts.host_steps;
    if (const auto* loop = std::get_if<std::shared_ptr<const LoopStep>>(&step.what)) {
      count((*loop)->condition, counts);
      count((*loop)->body, counts);
    } else if (const auto* branch = std::get_if<std::shared_ptr<const BranchStep>>(&step.what)) {
      for (const Steps& each : (*branch)->branches) count(each, counts);
    } else if (const auto* rows = std::get_if<std::shared_ptr<const RowsStep>>(&step.what)) {
      ++counts.row_groups;
      count((*rows)->steps, counts);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, int64_t>> statistics(const LaunchPlan& plan) {
  Counts counts;
  count(plan.steps, counts);
  int64_t constant_bytes = 0;
  for (const HostArray& array : plan.constants) constant_bytes += array.size_bytes();
  return {{"kernels", static_cast<int64_t>(plan.kernels.size())},
          {"steps", counts.steps},
          {"host_steps", counts.host_steps},
          {"row_groups", counts.row_groups},
          {"arena_bytes", plan.arena_bytes},
          {"constant_bytes", constant_bytes}};
}

}  // namespace hekla::plan
