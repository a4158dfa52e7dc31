// SPDX-License-Identifier: Apache-2.0
#include "tests/compiler/plan_interpreter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/plan/visit.h"
#include "backends/reference/evaluator.h"

namespace hekla::testing {
namespace {

using plan::Slice;
using Bytes = std::vector<std::byte>;

constexpr std::byte kPattern{0xcb};

class Runner {
 public:
  Runner(const plan::LaunchPlan& plan, const std::vector<HostArray>& inputs) : plan_(plan) {
    for (const int64_t bytes : plan.arenas) {
      arenas_.emplace_back(static_cast<size_t>(bytes), kPattern);
    }
    for (const HostArray& array : inputs) {
      inputs_.emplace_back(array.bytes().begin(), array.bytes().end());
    }
    for (const HostArray& array : plan.constants) {
      constants_.emplace_back(array.bytes().begin(), array.bytes().end());
    }
    for (int64_t bytes : plan.output_bytes) {
      outputs_.emplace_back(static_cast<size_t>(bytes), kPattern);
    }
  }

  Result<std::vector<Bytes>> run() {
    HEKLA_RETURN_IF_ERROR(run(plan_.steps));
    return std::move(outputs_);
  }

 private:
  std::span<std::byte> bytes(const Slice& slice) {
    const auto index = static_cast<size_t>(slice.index);
    Bytes* buffer = nullptr;
    if (slice.space == Slice::Space::kArena) buffer = &arenas_.at(index);
    if (slice.space == Slice::Space::kInput) buffer = &inputs_.at(index);
    if (slice.space == Slice::Space::kOutput) buffer = &outputs_.at(index);
    if (slice.space == Slice::Space::kConstant) buffer = &constants_.at(index);
    if (slice.space == Slice::Space::kLaunch) buffer = &launch_;
    return std::span<std::byte>(*buffer).subspan(static_cast<size_t>(slice.offset),
                                                 static_cast<size_t>(slice.bytes));
  }

  Status run(const plan::Steps& steps) {
    for (const plan::Step& step : steps) {
      if (const auto* kernel = std::get_if<plan::KernelStep>(&step.what)) {
        std::vector<std::span<std::byte>> operands;
        for (const Slice& slice : kernel->operands) operands.push_back(bytes(slice));
        HEKLA_RETURN_IF_ERROR(
            kernel::interpret(plan_.kernels[static_cast<size_t>(kernel->kernel)], operands));
      } else if (const auto* copy = std::get_if<plan::CopyStep>(&step.what)) {
        std::memmove(bytes(copy->to).data(), bytes(copy->from).data(), bytes(copy->to).size());
      } else if (const auto* host = std::get_if<plan::HostStep>(&step.what)) {
        HEKLA_RETURN_IF_ERROR(run_host(*host));
      } else if (const auto* start = std::get_if<plan::StartStep>(&step.what)) {
        // What was there before is gone; who touches it from now on is found by its end.
        under_way_[start->number] = {start, memory_of(start->inputs)};
        for (const Slice& slice : start->outputs) std::ranges::fill(bytes(slice), kPattern);
      } else if (const auto* done = std::get_if<plan::DoneStep>(&step.what)) {
        HEKLA_RETURN_IF_ERROR(end(done->number));
      } else if (const auto* rows = std::get_if<plan::RowsStep>(&step.what)) {
        HEKLA_RETURN_IF_ERROR(run_rows(*rows));
      } else if (const auto* repeat = std::get_if<plan::RepeatStep>(&step.what)) {
        for (int64_t i = 0; i < repeat->count; ++i) HEKLA_RETURN_IF_ERROR(run(repeat->body));
      } else if (const auto* loop = std::get_if<plan::WhileStep>(&step.what)) {
        while (true) {
          HEKLA_RETURN_IF_ERROR(run(loop->condition));
          if (bytes(loop->predicate)[0] == std::byte{0}) break;
          HEKLA_RETURN_IF_ERROR(run(loop->body));
        }
      } else if (const auto* branch = std::get_if<plan::BranchStep>(&step.what)) {
        const std::span<std::byte> selector = bytes(branch->selector);
        const auto last = static_cast<int32_t>(branch->branches.size()) - 1;
        int32_t choice = 0;
        if (selector.size() == 1) {
          choice = selector[0] == std::byte{0} ? 1 : 0;
        } else {
          std::memcpy(&choice, selector.data(), sizeof(choice));
          if (choice < 0 || choice > last) choice = last;
        }
        HEKLA_RETURN_IF_ERROR(run(branch->branches[static_cast<size_t>(choice)]));
      } else {
        return unimplemented("{} in the interpreter", plan::to_string(step, plan_));
      }
    }
    return ok_status();
  }

  std::vector<Bytes> memory_of(const std::vector<Slice>& slices) {
    std::vector<Bytes> copies;
    for (const Slice& slice : slices) copies.emplace_back(bytes(slice).begin(), bytes(slice).end());
    return copies;
  }

  Status end(int32_t number) {
    const auto found = under_way_.extract(number);
    if (found.empty()) return internal_error("collective {} is not under way", number);
    const auto& [start, inputs] = found.mapped();
    bool is_untouched = true;
    for (const Slice& slice : start->outputs) {
      is_untouched &= std::ranges::count(bytes(slice), kPattern) == slice.bytes;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::span<std::byte> memory = bytes(start->inputs[i]);
      // What was brought is a copy, whose place may be a result's.
      if (std::ranges::count(start->outputs, start->inputs[i]) > 0) {
        std::ranges::copy(inputs[i], memory.begin());
      }
      is_untouched &= std::ranges::equal(memory, inputs[i]);
    }
    if (!is_untouched) return internal_error("collective {} was not left alone", number);
    return run_host(*start);
  }

  // One row after the other, the last one first, each with scratch that knows nothing of the
  // others.
  Status run_rows(const plan::RowsStep& group) {
    for (int64_t row = group.rows; row-- > 0;) {
      for (const Slice& slice : group.scratch) std::ranges::fill(bytes(slice), kPattern);
      for (const plan::Step& step : group.steps) {
        const auto* run = std::get_if<plan::KernelStep>(&step.what);
        if (run == nullptr) return unimplemented("a row group with other steps than kernels");
        const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(run->kernel)];
        const int64_t points = kernel.points() / group.rows;
        std::vector<std::span<std::byte>> operands;
        for (const Slice& slice : run->operands) operands.push_back(bytes(slice));
        HEKLA_RETURN_IF_ERROR(
            kernel::interpret_points(kernel, operands, row * points, (row + 1) * points));
      }
    }
    return ok_status();
  }

  Status run_host(const auto& step) {
    std::vector<HostArray> arguments;
    const ir::Function& entry = *step.program->entry();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const ir::Type& type = entry.type.elements()[i];
      if (type.is_token()) {
        arguments.emplace_back();
        continue;
      }
      HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(type.dtype(), type.dims()));
      const std::span<std::byte> from = bytes(step.inputs[i]);
      if (!from.empty()) std::memcpy(array.mutable_data(), from.data(), from.size());
      arguments.push_back(std::move(array));
    }
    HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> results,
                           reference::evaluate(*step.program, std::move(arguments)));
    for (size_t i = 0; i < results.size(); ++i) {
      const std::span<std::byte> to = bytes(step.outputs[i]);
      if (!to.empty()) std::memcpy(to.data(), results[i].data(), to.size());
    }
    return ok_status();
  }

  const plan::LaunchPlan& plan_;
  std::vector<Bytes> inputs_, outputs_, constants_, arenas_;
  Bytes launch_ = Bytes(plan::kLaunchBytes);  // device 0
  std::map<int32_t, std::pair<const plan::StartStep*, std::vector<Bytes>>> under_way_;
};

}  // namespace

Result<std::vector<std::vector<std::byte>>> run_plan(const plan::LaunchPlan& plan,
                                                     const std::vector<HostArray>& inputs) {
  return Runner(plan, inputs).run();
}

namespace {

// Instructions of a region, loops inside multiplied by their trip counts where these are constant.
double region_work(const kernel::Function& f, int32_t region) {
  double total = 0;
  for (kernel::Value v : f.region(region).instructions) {
    const kernel::Instruction& inst = f[v];
    total += 1;
    if (inst.op == kernel::Op::kFor) {
      const kernel::Instruction& count = f[inst.arguments[0]];
      const double trips =
          count.op == kernel::Op::kConstant ? static_cast<double>(count.immediate) : 1;
      total += trips * region_work(f, static_cast<int32_t>(inst.immediate));
    }
  }
  return total;
}

}  // namespace

double plan_work(const plan::LaunchPlan& plan) {
  double total = 0;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    const auto* run = std::get_if<plan::KernelStep>(&step.what);
    if (run == nullptr) return;
    const kernel::Kernel& kernel = plan.kernels[static_cast<size_t>(run->kernel)];
    total += static_cast<double>(kernel.points()) * region_work(kernel.body, 0);
  });
  return total;
}

}  // namespace hekla::testing
