// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/lowering.h"

#include <algorithm>
#include <utility>

namespace hekla::vulkan {
namespace {

// What the copy and fill shaders do per group: 64 lanes of 4 words.
constexpr int64_t kBytesPerGroup = 64 * 4 * 4;
// The shaders count bytes in 32 bits; a multiple of 4 keeps patterns in phase.
constexpr int64_t kMaxBytesPerDispatch = int64_t{1} << 31;

int64_t space_size(const LaunchProgram& program, Slice::Space space) {
  switch (space) {
    case Slice::Space::kInput:
      return static_cast<int64_t>(program.input_bytes.size());
    case Slice::Space::kOutput:
      return static_cast<int64_t>(program.outputs.size());
    case Slice::Space::kArena:
      return 1;
    case Slice::Space::kConstant:
      return static_cast<int64_t>(program.constants.size());
    case Slice::Space::kLoopState:
      break;
  }
  return 0;
}

int64_t bytes_of(const LaunchProgram& program, const Slice& slice) {
  const auto i = static_cast<size_t>(slice.index);
  switch (slice.space) {
    case Slice::Space::kInput:
      return program.input_bytes[i];
    case Slice::Space::kOutput:
      return program.outputs[i].bytes;
    case Slice::Space::kArena:
      return program.arena_bytes;
    case Slice::Space::kConstant:
      return static_cast<int64_t>(program.constants[i].size());
    case Slice::Space::kLoopState:
      break;
  }
  return 0;
}

Status check_slice(const LaunchProgram& program, const Slice& slice, bool is_written) {
  if (slice.index < 0 || slice.index >= space_size(program, slice.space)) {
    return invalid_argument("{} names memory that is not there", slice_string(slice));
  }
  const int64_t size = bytes_of(program, slice);
  if (slice.offset < 0 || slice.bytes < 0 || slice.offset > size ||
      slice.bytes > size - slice.offset) {
    return invalid_argument("{} is outside of its {} bytes", slice_string(slice), size);
  }
  if (is_written &&
      (slice.space == Slice::Space::kInput || slice.space == Slice::Space::kConstant)) {
    return invalid_argument("{} may not be written", slice_string(slice));
  }
  return ok_status();
}

Status check_operands(const LaunchProgram& program, const std::vector<Slice>& operands,
                      const std::vector<bool>& is_written) {
  if (operands.size() != is_written.size()) {
    return invalid_argument("{} operands but {} flags for writing", operands.size(),
                            is_written.size());
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    HEKLA_RETURN_IF_ERROR(check_slice(program, operands[i], is_written[i]));
  }
  return ok_status();
}

Status check_step(const LaunchProgram& program, const DispatchStep& step) {
  if (step.pipeline < 0 || step.pipeline >= static_cast<int64_t>(program.kernels.size())) {
    return invalid_argument("there is no kernel {}", step.pipeline);
  }
  if (step.constants.size() > kMaxKernelConstants) {
    return invalid_argument("{} push constants; there is room for {}", step.constants.size(),
                            kMaxKernelConstants);
  }
  uint64_t groups = 1;
  for (uint32_t n : step.groups) {
    if (n != 0 && groups > kMaxGroups / n) groups = kMaxGroups + 1;
    if (groups <= kMaxGroups) groups *= n;
  }
  if (std::find(step.groups.begin(), step.groups.end(), 0U) == step.groups.end() &&
      groups > kMaxGroups) {
    return invalid_argument("a grid of {} x {} x {} groups is above {}; let a group do more",
                            step.groups[0], step.groups[1], step.groups[2], kMaxGroups);
  }
  return check_operands(program, step.operands, step.is_written);
}

Status check_step(const LaunchProgram& program, const CopyStep& step) {
  HEKLA_RETURN_IF_ERROR(check_slice(program, step.from, false));
  HEKLA_RETURN_IF_ERROR(check_slice(program, step.to, true));
  if (step.from.bytes != step.to.bytes) {
    return invalid_argument("a copy of {} to {}", slice_string(step.from), slice_string(step.to));
  }
  if (step.from.space == step.to.space && step.from.index == step.to.index &&
      std::max(step.from.offset, step.to.offset) <
          std::min(step.from.offset, step.to.offset) + step.to.bytes) {
    return invalid_argument("a copy of {} to {}, which overlap", slice_string(step.from),
                            slice_string(step.to));
  }
  return ok_status();
}

Status check_step(const LaunchProgram& program, const FillStep& step) {
  return check_slice(program, step.to, true);
}

Status check_step(const LaunchProgram& program, const HostStep& step) {
  if (!step.run) return invalid_argument("a host step without a function");
  for (int64_t target : step.targets) {
    if (target < 0 || target > static_cast<int64_t>(program.steps.size())) {
      return invalid_argument("there is no step {} to go on with", target);
    }
  }
  return check_operands(program, step.operands, step.is_written);
}

Status check_step(const LaunchProgram& program, const LoopStep& step) {
  if (step.condition) {
    HEKLA_RETURN_IF_ERROR(check_slice(program, *step.condition, false));
    if (step.condition->bytes != 1) {
      return invalid_argument("the condition {} is not one byte", slice_string(*step.condition));
    }
  }
  if (step.trip_count < 0 || (step.condition && step.trip_count != 0)) {
    return invalid_argument("a loop of {} turns{}", step.trip_count,
                            step.condition ? " with a condition" : "");
  }
  for (size_t i = 0; i < step.body.size(); ++i) {
    const Status status =
        std::visit([&](const auto& one) { return check_step(program, one); }, step.body[i]);
    if (!status.ok()) return status.with_context(fmt::format("step {} of the loop", i));
  }
  return ok_status();
}

// The regions of memory for the hazard tracker.
int64_t region_of(const LaunchProgram& program, const Slice& slice) {
  const auto inputs = static_cast<int64_t>(program.input_bytes.size());
  const auto outputs = static_cast<int64_t>(program.outputs.size());
  switch (slice.space) {
    case Slice::Space::kInput:
      return slice.index;
    case Slice::Space::kOutput: {
      const int64_t alias = program.outputs[static_cast<size_t>(slice.index)].alias_input;
      return alias >= 0 ? alias : inputs + slice.index;
    }
    case Slice::Space::kArena:
      return inputs + outputs;
    case Slice::Space::kConstant:
      return inputs + outputs + 1 + slice.index;
    case Slice::Space::kLoopState:
      return -1;
  }
  return 0;
}

class Lowering {
 public:
  Lowering(const LaunchProgram& program, const LoweringOptions& options)
      : program_(program), options_(options) {}

  Result<LoweredProgram> run(const std::vector<bool>& is_copied) {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const OutputPlan& output = program_.outputs[i];
      if (output.alias_input < 0 || !is_copied[i]) continue;
      const CopyStep copy = {{Slice::Space::kInput, output.alias_input, 0, output.bytes},
                             {Slice::Space::kOutput, static_cast<int64_t>(i), 0, output.bytes}};
      // The two are different memory in this variant, and one region for the tracker, so that
      // later steps wait for the copy.
      add_copy(copy, true);
    }
    // A part begins wherever the program may go on.
    std::vector<bool> is_target(program_.steps.size() + 1, false);
    for (const Step& step : program_.steps) {
      if (const auto* host = std::get_if<HostStep>(&step)) {
        for (int64_t target : host->targets) is_target[static_cast<size_t>(target)] = true;
      }
    }
    std::vector<size_t> part_of_step;
    for (size_t i = 0; i <= program_.steps.size(); ++i) {
      if (is_target[i]) HEKLA_RETURN_IF_ERROR(close_part());
      part_of_step.push_back(lowered_.parts.size());
      if (i == program_.steps.size()) break;
      std::visit([this](const auto& one) { add(one); }, program_.steps[i]);
    }
    HEKLA_RETURN_IF_ERROR(close_part());
    for (LoweredPart& part : lowered_.parts) {
      if (part.host == nullptr) continue;
      for (int64_t target : part.host->targets) {
        part.next.push_back(part_of_step[static_cast<size_t>(target)]);
      }
    }
    return std::move(lowered_);
  }

 private:
  void add(const DispatchStep& step) {
    if (std::find(step.groups.begin(), step.groups.end(), 0U) != step.groups.end()) return;
    std::vector<Access> accesses;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      accesses.push_back(access(step.operands[i], step.is_written[i]));
    }
    add_dispatch(static_cast<size_t>(step.pipeline), step.operands, std::move(accesses),
                 step.groups, step.constants);
  }

  void add(const CopyStep& step) { add_copy(step, false); }

  void add_copy(const CopyStep& step, bool is_alias) {
    for (int64_t at = 0; at < step.to.bytes; at += kMaxBytesPerDispatch) {
      Slice from = step.from;
      Slice to = step.to;
      from.offset += at;
      to.offset += at;
      from.bytes = to.bytes = std::min(kMaxBytesPerDispatch, step.to.bytes - at);
      std::vector<Access> accesses = {words(to, true)};
      if (!is_alias) accesses.push_back(access(from, false));
      add_dispatch(program_.kernels.size(), {from, to}, std::move(accesses), groups_of(to),
                   {static_cast<uint32_t>(to.bytes)});
    }
  }

  void add(const FillStep& step) {
    for (int64_t at = 0; at < step.to.bytes; at += kMaxBytesPerDispatch) {
      Slice to = step.to;
      to.offset += at;
      to.bytes = std::min(kMaxBytesPerDispatch, step.to.bytes - at);
      add_dispatch(program_.kernels.size() + 1, {to}, {words(to, true)}, groups_of(to),
                   {static_cast<uint32_t>(to.bytes), step.pattern});
    }
  }

  void add(const HostStep& step) {
    note(close_part());
    LoweredPart part;
    part.host = &step;
    lowered_.parts.push_back(std::move(part));
    ++lowered_.host_step_count;
  }

  // Counted turns in this submission; what is more becomes pieces of its own.
  void add_counted(const LoopStep& step, size_t first) {
    const std::vector<LoweredDispatch> body(dispatches_.begin() + static_cast<int64_t>(first),
                                            dispatches_.end());
    const std::vector<std::vector<Access>> accesses(accesses_.begin() + static_cast<int64_t>(first),
                                                    accesses_.end());
    const auto append = [&](int64_t turns) {
      for (int64_t turn = 0; turn < turns; ++turn) {
        dispatches_.insert(dispatches_.end(), body.begin(), body.end());
        accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
      }
    };
    dispatches_.resize(first);
    accesses_.resize(first);
    if (body.empty()) return;
    const int64_t turns_at_once =
        std::max<int64_t>(kMaxInlineDispatches / static_cast<int64_t>(body.size()), 1);
    if (step.trip_count > turns_at_once) {
      note(close_part());
      append(turns_at_once);
      note(close_part());
      lowered_.parts.back().repeats = step.trip_count / turns_at_once;
      append(step.trip_count % turns_at_once);
    } else {
      append(step.trip_count);
    }
  }

  void add(const LoopStep& step) {
    if (step.condition) note(close_part());
    // One turn, to be repeated; turns share their table entries.
    const size_t first = dispatches_.size();
    for (const DeviceStep& one : step.body) {
      std::visit([this](const auto& s) { add(s); }, one);
    }
    if (!step.condition) {
      add_counted(step, first);
      return;
    }
    std::vector<LoweredDispatch> body = std::exchange(dispatches_, {});
    std::vector<std::vector<Access>> accesses = std::exchange(accesses_, {});
    // The state of this loop: flag, grids, grids to dispatch.
    const auto word = static_cast<int64_t>(sizeof(uint32_t));
    const auto begin = static_cast<int64_t>(lowered_.loop_state.size()) * word;
    const auto n = static_cast<int64_t>(body.size());
    lowered_.loop_state.push_back(0);
    for (const LoweredDispatch& dispatch : body) {
      lowered_.loop_state.insert(lowered_.loop_state.end(), dispatch.grid.begin(),
                                 dispatch.grid.end());
    }
    lowered_.loop_state.insert(lowered_.loop_state.end(), static_cast<size_t>(3 * n), 0);
    const auto end = static_cast<int64_t>(lowered_.loop_state.size()) * word;
    for (int64_t i = 0; i < n; ++i) {
      LoweredDispatch& dispatch = body[static_cast<size_t>(i)];
      dispatch.indirect_offset = begin + (1 + 3 * n + 3 * i) * word;
      accesses[static_cast<size_t>(i)].push_back(
          {kLoopRegion, dispatch.indirect_offset, dispatch.indirect_offset + 3 * word, false});
    }
    const Slice state = {Slice::Space::kLoopState, 0, begin, end - begin};
    add_dispatch(program_.kernels.size() + 2, {*step.condition, state},
                 {access(*step.condition, false), {kLoopRegion, begin, end, true}}, {1, 1, 1},
                 {static_cast<uint32_t>(n)});
    const LoweredDispatch gate = dispatches_.back();
    const std::vector<Access> gate_accesses = accesses_.back();
    const int64_t turns = std::clamp<int64_t>(kDispatchesPerChunk / (n + 1), 1, kMaxTurnsPerChunk);
    for (int64_t turn = 0; turn < turns; ++turn) {
      dispatches_.insert(dispatches_.end(), body.begin(), body.end());
      accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
      // After the last turn it says whether there are more.
      dispatches_.push_back(gate);
      accesses_.push_back(gate_accesses);
    }
    note(close_part());
    lowered_.parts.back().flag_offset = begin;
  }

  void note(const Status& status) {
    if (pending_status_.ok()) pending_status_ = status;
  }

  Access access(const Slice& slice, bool is_written) const {
    return {region_of(program_, slice), slice.offset, slice.offset + slice.bytes, is_written};
  }

  // The 32-bit words that a byte range touches: the shaders rewrite the rest of them.
  Access words(const Slice& slice, bool is_written) const {
    Access result = access(slice, is_written);
    result.begin = result.begin / 4 * 4;
    result.end = (result.end + 3) / 4 * 4;
    return result;
  }

  static std::array<uint32_t, 3> groups_of(const Slice& to) {
    const int64_t touched = to.bytes + to.offset % 4;
    return {static_cast<uint32_t>((touched + kBytesPerGroup - 1) / kBytesPerGroup), 1, 1};
  }

  void add_dispatch(size_t pipeline, const std::vector<Slice>& operands,
                    std::vector<Access> accesses, const std::array<uint32_t, 3>& groups,
                    const std::vector<uint32_t>& constants) {
    LoweredDispatch dispatch;
    dispatch.pipeline = pipeline;
    dispatch.first_entry = lowered_.table.size();
    std::copy(groups.begin(), groups.end(), dispatch.push.groups);
    std::copy(constants.begin(), constants.end(), dispatch.push.constants);
    dispatch.grid = fold_grid(groups, options_.max_group_count);
    lowered_.table.insert(lowered_.table.end(), operands.begin(), operands.end());
    dispatches_.push_back(dispatch);
    accesses_.push_back(std::move(accesses));
  }

  // Ends a run of dispatches.
  Status close_part() {
    if (dispatches_.empty()) return pending_status_;
    std::vector<bool> barriers = place_barriers(accesses_);
    if (options_.all_barriers) barriers.assign(barriers.size(), true);
    if (options_.check_barriers) note(check_barriers(accesses_, barriers));
    for (size_t i = 0; i < dispatches_.size(); ++i) {
      // Recordings begin with a barrier of their own.
      dispatches_[i].has_barrier_before = barriers[i] && i > 0;
      lowered_.barrier_count += dispatches_[i].has_barrier_before ? 1 : 0;
    }
    lowered_.dispatch_count += static_cast<int64_t>(dispatches_.size());
    lowered_.parts.emplace_back();
    lowered_.parts.back().barrier_count =
        std::count_if(dispatches_.begin(), dispatches_.end(),
                      [](const LoweredDispatch& d) { return d.has_barrier_before; });
    lowered_.parts.back().dispatches = std::move(dispatches_);
    dispatches_.clear();
    accesses_.clear();
    return pending_status_;
  }

  // Of the loop states, beside the regions of region_of().
  static constexpr int64_t kLoopRegion = -1;

  const LaunchProgram& program_;
  const LoweringOptions& options_;
  LoweredProgram lowered_;
  std::vector<LoweredDispatch> dispatches_;
  std::vector<std::vector<Access>> accesses_;
  Status pending_status_;
};

}  // namespace

std::string slice_string(const Slice& slice) {
  constexpr const char* kNames[] = {"in", "out", "arena", "constant", "loop"};
  const char* name = kNames[static_cast<size_t>(slice.space)];
  if (slice.space == Slice::Space::kArena) {
    return fmt::format("{}[{}+{}]", name, slice.offset, slice.bytes);
  }
  return fmt::format("{}{}[{}+{}]", name, slice.index, slice.offset, slice.bytes);
}

Status check_program(const LaunchProgram& program) {
  std::vector<bool> is_aliased(program.input_bytes.size());
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const OutputPlan& output = program.outputs[i];
    if (output.bytes < 0) return invalid_argument("output {} has {} bytes", i, output.bytes);
    if (output.alias_input < 0) continue;
    const auto input = static_cast<size_t>(output.alias_input);
    if (input >= is_aliased.size() || is_aliased[input] ||
        program.input_bytes[input] != output.bytes) {
      return invalid_argument("output {} of {} bytes cannot alias input {}", i, output.bytes,
                              output.alias_input);
    }
    is_aliased[input] = true;
  }
  if (program.arena_bytes < 0) {
    return invalid_argument("an arena of {} bytes", program.arena_bytes);
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Status status =
        std::visit([&](const auto& step) { return check_step(program, step); }, program.steps[i]);
    if (!status.ok()) return status.with_context(fmt::format("step {} of {}", i, program.name));
  }
  return ok_status();
}

std::array<uint32_t, 3> fold_grid(const std::array<uint32_t, 3>& groups,
                                  const std::array<uint32_t, 3>& limits) {
  if (groups[0] <= limits[0] && groups[1] <= limits[1] && groups[2] <= limits[2]) return groups;
  const uint64_t total = uint64_t{groups[0]} * groups[1] * groups[2];
  const auto ceil = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
  const uint64_t rest = ceil(total, limits[0]);
  const uint64_t z = ceil(rest, limits[1]);
  const uint64_t y = ceil(rest, z);
  const uint64_t x = ceil(total, y * z);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

Result<LoweredProgram> lower_program(const LaunchProgram& program,
                                     const std::vector<bool>& is_copied,
                                     const LoweringOptions& options) {
  return Lowering(program, options).run(is_copied);
}

}  // namespace hekla::vulkan
