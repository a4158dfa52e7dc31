// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/check.h"

#include <algorithm>
#include <limits>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

class Checker {
 public:
  explicit Checker(const LaunchPlan& plan) : plan_(plan) {}

  Status run() const {
    HEKLA_RETURN_IF_ERROR(check_memory());
    return check(plan_.steps);
  }

 private:
  Status check_memory() const {
    const auto is_negative = [](int64_t bytes) { return bytes < 0; };
    if (plan_.row_scratch_bytes < 0 || std::ranges::any_of(plan_.arenas, is_negative) ||
        std::ranges::any_of(plan_.input_bytes, is_negative) ||
        std::ranges::any_of(plan_.output_bytes, is_negative)) {
      return internal_error("memory of less than no bytes");
    }
    int64_t left = std::numeric_limits<int64_t>::max();
    for (const int64_t bytes : plan_.arenas) {
      if (bytes > left) return internal_error("arenas of more bytes than can be counted");
      left -= bytes;
    }
    if (plan_.row_scratch_bytes > plan_.arena_bytes()) {
      return internal_error("scratch of {} bytes in arenas of {}", plan_.row_scratch_bytes,
                            plan_.arena_bytes());
    }
    if (plan_.output_input.size() != plan_.output_bytes.size()) {
      return internal_error("{} outputs, {} of them with an input to take",
                            plan_.output_bytes.size(), plan_.output_input.size());
    }
    std::vector<bool> is_taken(plan_.input_bytes.size());
    for (size_t o = 0; o < plan_.output_input.size(); ++o) {
      if (plan_.output_input[o] < 0) continue;
      const auto input = static_cast<size_t>(plan_.output_input[o]);
      if (input >= is_taken.size() || is_taken[input] ||
          plan_.input_bytes[input] != plan_.output_bytes[o]) {
        return internal_error("output {} cannot take the memory of input {}", o, input);
      }
      is_taken[input] = true;
    }
    return ok_status();
  }

  Status check(const Steps& steps) const {
    for (size_t i = 0; i < steps.size(); ++i) {
      const Status status = check(steps[i]);
      if (!status.ok()) return status.with_context(fmt::format("step {}", i));
    }
    return check_intervals(steps);
  }

  // Each start has its done in the same list, and what stands between leaves its memory alone.
  Status check_intervals(const Steps& steps) const {
    std::vector<const StartStep*> open;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto* done = std::get_if<DoneStep>(&steps[i].what);
      if (done != nullptr) {
        const auto start = std::ranges::find(open, done->number, &StartStep::number);
        if (start == open.end()) {
          return internal_error("step {}: done {} without its start", i, done->number);
        }
        if ((*start)->inputs != done->inputs || (*start)->outputs != done->outputs) {
          return internal_error("step {}: done {} names other slices than its start", i,
                                done->number);
        }
        open.erase(start);
      }
      const auto* next = std::get_if<StartStep>(&steps[i].what);
      if (next != nullptr &&
          std::ranges::find(open, next->number, &StartStep::number) != open.end()) {
        return internal_error("step {}: start {} while it is under way", i, next->number);
      }
      for (const StartStep* start : open) {
        const Status status = check_beside(steps[i], *start);
        if (!status.ok()) return status.with_context(fmt::format("step {}", i));
      }
      if (next != nullptr) open.push_back(next);
    }
    if (open.empty()) return ok_status();
    return internal_error("start {} is never awaited", open.front()->number);
  }

  // Of a step that runs while `start` is under way.
  Status check_beside(const Step& step, const StartStep& start) const {
    Status status = ok_status();
    const auto reject = [&](const Slice& slice, const char* what, const Slice& other) {
      if (!status.ok()) return;
      status = internal_error("{}: {} {} {} of {}, which is under way", to_string(step, plan_),
                              to_string(slice), what, to_string(other), to_string({start}, plan_));
    };
    for_each_slice_within(step, plan_, [&](const Slice& slice, const Use& use) {
      for (const Slice& input : start.inputs) {
        if (use.is_written && overlap(slice, input)) reject(slice, "is written beside", input);
      }
      for (const Slice& output : start.outputs) {
        if (overlap(slice, output)) reject(slice, "is used beside", output);
      }
    });
    return status;
  }

  // An output that may take an input's memory is that input.
  Buffer memory_of(const Slice& slice) const {
    if (slice.space != Slice::Space::kOutput) return buffer_of(slice);
    const int32_t input = plan_.output_input[static_cast<size_t>(slice.index)];
    return input < 0 ? buffer_of(slice) : Buffer{Slice::Space::kInput, input};
  }
  bool overlap(const Slice& a, const Slice& b) const {
    return memory_of(a) == memory_of(b) &&
           std::max(a.offset, b.offset) < std::min(a.offset + a.bytes, b.offset + b.bytes);
  }

  Status check(const Step& step) const {
    HEKLA_RETURN_IF_ERROR(
        std::visit([this](const auto& what) { return check_numbers(what); }, step.what));
    Status status = ok_status();
    // What is inside comes first: a RowsStep's slices are those of its kernels.
    for_each_list(step, [&](const Steps& inner) {
      if (status.ok()) status = check(inner);
    });
    if (!status.ok()) return status;
    for_each_slice(step, plan_, [&](const Slice& slice, const Use& use) {
      if (status.ok()) status = check(slice, use);
    });
    return status.ok() ? status : status.with_context(to_string(step, plan_));
  }

  // What is to be right of a type of step before its slices can be looked at, beside them.
  template <typename What>
  Status check_numbers(const What&) const {
    return ok_status();
  }

  Status check_numbers(const KernelStep& step) const {
    if (step.kernel < 0 || static_cast<size_t>(step.kernel) >= plan_.kernels.size()) {
      return internal_error("there is no kernel {}", step.kernel);
    }
    const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(step.kernel)];
    if (kernel.operands.size() != step.operands.size()) {
      return internal_error("kernel {} has {} operands, {} are given", kernel.name,
                            kernel.operands.size(), step.operands.size());
    }
    return ok_status();
  }

  Status check_numbers(const ContractionStep& step) const {
    if (step.contraction < 0 ||
        static_cast<size_t>(step.contraction) >= plan_.contractions.size()) {
      return internal_error("there is no contraction {}", step.contraction);
    }
    const kernel::Contraction& c = plan_.contractions[static_cast<size_t>(step.contraction)];
    const std::string why = kernel::why_no_chunks(c.chunks, c.depth.size());
    if (!why.empty()) return internal_error("contraction {}: {}", step.contraction, why);
    const auto& [type, products] = c.pieces;
    const bool are_pieces = c.lhs_dtype == DType::kF32 && c.rhs_dtype == DType::kF32 &&
                            (type == DType::kBF16 || type == DType::kF16) &&
                            (products == 3 || products == 4 || products == 6 || products == 9);
    if (products != 1 && !are_pieces) {
      return internal_error("contraction {}: {} products of {} are none of f32", step.contraction,
                            products, dtype_name(type));
    }
    return ok_status();
  }

  Status check_numbers(const TransformStep& step) const {
    const std::string why = kernel::why_not_a_transform(step.transform);
    if (!why.empty()) return internal_error("there is no transform: {}", why);
    HEKLA_RETURN_IF_ERROR(check_apart(step.to, step.from, "the transform"));
    return check_apart(step.to, step.roots, "the transform");
  }

  Status check_numbers(const CopyStep& step) const {
    const auto& [from, to] = step;
    const bool overlaps =
        buffer_of(from) == buffer_of(to) && from.offset != to.offset &&
        std::max(from.offset, to.offset) < std::min(from.offset, to.offset) + to.bytes;
    if (!overlaps) return ok_status();
    return internal_error("a copy of {} to {}, which overlap", to_string(from), to_string(to));
  }

  Status check_numbers(const HostStep& step) const { return check_program(step); }

  Status check_numbers(const StartStep& step) const {
    HEKLA_RETURN_IF_ERROR(check_program(step));
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      for (const Slice& input : step.inputs) {
        if (input == step.outputs[i]) continue;
        HEKLA_RETURN_IF_ERROR(check_apart(step.outputs[i], input, step.name));
      }
      for (size_t k = 0; k < i; ++k) {
        HEKLA_RETURN_IF_ERROR(check_apart(step.outputs[i], step.outputs[k], step.name));
      }
    }
    return ok_status();
  }
  Status check_apart(const Slice& result, const Slice& other, std::string_view name) const {
    // Slices were not looked at yet.
    if (bytes_there(result) < 0 || bytes_there(other) < 0 || !overlap(result, other)) {
      return ok_status();
    }
    return internal_error("{} has its result at {} beside {}", name, to_string(result),
                          to_string(other));
  }

  Status check_program(const auto& step) const {
    if (step.program == nullptr || step.program->entry() == nullptr) {
      return internal_error("host step {} has no program", step.name);
    }
    const ir::Type& type = step.program->entry()->type;
    const size_t inputs = ir::flat_types(type.elements()).size();
    const size_t outputs = ir::flat_types(type.results()).size();
    if (inputs == step.inputs.size() && outputs == step.outputs.size()) return ok_status();
    return internal_error("host step {} gives {} for {} inputs and has {} for {} outputs",
                          step.name, step.inputs.size(), inputs, step.outputs.size(), outputs);
  }

  Status check_numbers(const RepeatStep& step) const {
    if (step.count >= 0) return ok_status();
    return internal_error("a loop of {} iterations", step.count);
  }

  Status check_numbers(const BranchStep& step) const {
    const bool is_index = step.selector.bytes == 4 && step.selector.offset % 4 == 0;
    const bool is_predicate = step.selector.bytes == 1 && step.branches.size() == 2;
    if (!step.branches.empty() && (is_index || is_predicate)) return ok_status();
    return internal_error("{} cannot choose among {} branches", to_string(step.selector),
                          step.branches.size());
  }

  Status check_rows(const ContractionStep& step, int64_t rows) const {
    HEKLA_RETURN_IF_ERROR(check_numbers(step));
    const auto found = kernel::contraction_rows(
        plan_.contractions[static_cast<size_t>(step.contraction)], step.rows_of);
    if (found && found->rows == rows) return ok_status();
    return internal_error("contraction {} has no {} rows", step.contraction, rows);
  }

  Status check_numbers(const RowsStep& step) const {
    for (const Step& inner : step.steps) {
      if (const auto* product = std::get_if<ContractionStep>(&inner.what)) {
        HEKLA_RETURN_IF_ERROR(check_rows(*product, step.rows));
        if (product->leads ? &inner != step.steps.data() : step.is_led()) {
          return internal_error("a contraction leads, and is not the first and only one");
        }
        if (product->leads && product->rows_of != kernel::RowsOf::kOutByRows &&
            product->rows_of != kernel::RowsOf::kOutByColumns) {
          return internal_error("a contraction leads whose rows are not those of its result");
        }
      } else if (!std::holds_alternative<KernelStep>(inner.what)) {
        return internal_error("a row group has a step that is no kernel");
      }
    }
    for (const Slice& slice : step.scratch) {
      if (slice.space != Slice::Space::kArena || step.rows < 1 || slice.bytes % step.rows != 0) {
        return internal_error("{} is no scratch of {} rows", to_string(slice), step.rows);
      }
    }
    return ok_status();
  }

  // -1: there is no such memory.
  int64_t bytes_there(const Slice& slice) const {
    const auto index = static_cast<size_t>(slice.index);
    switch (slice.space) {
      case Slice::Space::kInput:
        return index < plan_.input_bytes.size() ? plan_.input_bytes[index] : -1;
      case Slice::Space::kOutput:
        return index < plan_.output_bytes.size() ? plan_.output_bytes[index] : -1;
      case Slice::Space::kArena:
        return index < plan_.arenas.size() ? plan_.arenas[index] : -1;
      case Slice::Space::kConstant:
        return index < plan_.constants.size() ? plan_.constants[index].size_bytes() : -1;
      case Slice::Space::kLaunch:
        return index == 0 ? kLaunchBytes : -1;
    }
    return -1;
  }

  Status check(const Slice& slice, const Use& use) const {
    if (slice.bytes != use.bytes) {
      return internal_error("{} stands for {} bytes", to_string(slice), use.bytes);
    }
    const int64_t there = bytes_there(slice);
    if (there < 0) return internal_error("{} is not there", to_string(slice));
    if (slice.offset < 0 || slice.bytes < 0 || slice.offset > there - slice.bytes) {
      return internal_error("{} is outside of its {} bytes", to_string(slice), there);
    }
    const bool is_fixed = slice.space == Slice::Space::kInput ||
                          slice.space == Slice::Space::kConstant ||
                          slice.space == Slice::Space::kLaunch;
    if (use.is_written && is_fixed) {
      return internal_error("{} may not be written", to_string(slice));
    }
    return ok_status();
  }

  const LaunchPlan& plan_;
};

}  // namespace

Status check(const LaunchPlan& plan) {
  const Status status = Checker(plan).run();
  return status.ok() ? status : status.with_context("launch plan");
}

}  // namespace hekla::plan
