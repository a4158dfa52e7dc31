// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/plan/donation.h"

#include <algorithm>
#include <limits>

#include "backends/compiler/plan/visit.h"

namespace hekla::plan {
namespace {

using Space = Slice::Space;

class Donations {
 public:
  Donations(const ir::Function& entry, LaunchPlan& plan)
      : entry_(entry),
        plan_(plan),
        last_read_(plan.input_bytes.size(), -1),
        first_write_(plan.output_bytes.size(), std::numeric_limits<int64_t>::max()) {
    for (size_t at = 0; at < plan.steps.size(); ++at) {
      for_each_slice_within(plan.steps[at], plan, [&](const Slice& slice, const Use& use) {
        const auto index = static_cast<size_t>(slice.index);
        if (slice.space == Space::kInput) last_read_[index] = static_cast<int64_t>(at);
        if (slice.space == Space::kOutput && use.is_written) {
          first_write_[index] = std::min(first_write_[index], static_cast<int64_t>(at));
        }
      });
    }
  }

  void run() {
    plan_.output_input.assign(plan_.output_bytes.size(), -1);
    std::vector<size_t> donors;
    for (size_t i = 0; i < entry_.argument_attributes.size() && i < last_read_.size(); ++i) {
      const ir::AttributeMap& attributes = entry_.argument_attributes[i];
      if (const auto* output = attributes.get("tf.aliasing_output").get<ir::IntegerValue>()) {
        give(i, output->value);
      } else if (const auto* donor = attributes.get("jax.buffer_donor").get<ir::BoolValue>()) {
        if (donor->value) donors.push_back(i);
      }
    }
    // First to outputs that are updates of the input, then to any.
    for (const bool same_step : {true, false}) {
      for (size_t& i : donors) {
        for (size_t o = 0; i < last_read_.size() && o < first_write_.size(); ++o) {
          if (same_step && first_write_[o] != last_read_[i]) continue;
          if (give(i, static_cast<int64_t>(o))) i = last_read_.size();
        }
      }
    }
  }

 private:
  bool give(size_t input, int64_t output) {
    if (output < 0 || output >= static_cast<int64_t>(first_write_.size())) return false;
    const auto o = static_cast<size_t>(output);
    if (plan_.output_input[o] >= 0 || plan_.output_bytes[o] == 0 ||
        plan_.output_bytes[o] != plan_.input_bytes[input]) {
      return false;
    }
    const int64_t read = last_read_[input];
    const int64_t write = first_write_[o];
    if (read > write || (read == write && !updates(plan_.steps[static_cast<size_t>(read)],
                                                   static_cast<int32_t>(input), output))) {
      return false;
    }
    plan_.output_input[o] = static_cast<int32_t>(input);
    return true;
  }

  // Whether the step does the same when input and output are one memory.
  bool updates(const Step& step, int32_t input, int64_t output) const {
    if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
      return copy->from.offset == copy->to.offset;
    }
    if (const auto* rows = std::get_if<RowsStep>(&step.what)) {
      return updates(rows->steps, input, output);
    }
    if (const auto* branch = std::get_if<BranchStep>(&step.what)) {
      return (branch->selector.space != Space::kInput || branch->selector.index != input) &&
             std::ranges::all_of(branch->branches, [&](const Steps& steps) {
               return reads_before_it_writes(steps, input, output);
             });
    }
    const auto* run = std::get_if<KernelStep>(&step.what);
    if (run == nullptr) return false;
    const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(run->kernel)];
    for (size_t i = 0; i < run->operands.size(); ++i) {
      const Slice& slice = run->operands[i];
      const bool is_input = slice.space == Space::kInput && slice.index == input;
      const bool is_output = slice.space == Space::kOutput && slice.index == output;
      if (!is_input && !is_output) continue;
      // Whole buffers, so that equal elements have equal places.
      if (slice.offset != 0 || slice.bytes != plan_.output_bytes[static_cast<size_t>(output)]) {
        return false;
      }
      if (is_input && !kernel.operands[i].is_pointwise) return false;
    }
    return true;
  }

  // Of steps that go row by row: one kernel alone touches either.
  bool updates(const Steps& steps, int32_t input, int64_t output) const {
    const Step* only = nullptr;
    for (const Step& step : steps) {
      bool touches = false;
      for_each_slice(step, plan_, [&](const Slice& slice, const Use&) {
        touches = touches || (slice.space == Space::kInput && slice.index == input) ||
                  (slice.space == Space::kOutput && slice.index == output);
      });
      if (touches && only != nullptr) return false;
      if (touches) only = &step;
    }
    return only != nullptr && updates(*only, input, output);
  }

  // Of steps that run one after the other.
  bool reads_before_it_writes(const Steps& steps, int32_t input, int64_t output) const {
    bool is_written = false;
    for (const Step& step : steps) {
      bool reads = false, writes = false;
      for_each_slice_within(step, plan_, [&](const Slice& slice, const Use& use) {
        reads = reads || (slice.space == Space::kInput && slice.index == input);
        writes =
            writes || (slice.space == Space::kOutput && slice.index == output && use.is_written);
      });
      if (reads && (is_written || (writes && !updates(step, input, output)))) return false;
      is_written = is_written || writes;
    }
    return true;
  }

  const ir::Function& entry_;
  LaunchPlan& plan_;
  std::vector<int64_t> last_read_;    // by input: the step, -1 for none
  std::vector<int64_t> first_write_;  // by output
};

}  // namespace

void choose_donations(const ir::Function& entry, LaunchPlan& plan) { Donations(entry, plan).run(); }

}  // namespace hekla::plan
