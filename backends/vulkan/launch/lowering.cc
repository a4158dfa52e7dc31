// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/lowering.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/launch/lowering_state.h"

namespace hekla::vulkan {
namespace {

using plan::Slice;

// What the copy shader does per group: 64 lanes of 4 words.
constexpr int64_t kBytesPerGroup = 64 * 4 * 4;
// The shader counts bytes in 32 bits.
constexpr int64_t kMaxBytesPerDispatch = int64_t{1} << 31;

bool has_loops(const Sequence& sequence) {
  return std::any_of(sequence.begin(), sequence.end(),
                     [](const Node& node) { return node.loop >= 0 || has_loops(node.body); });
}

// What a step would be when unrolled.
struct Cost {
  bool has_decisions = false;
  double dispatches = 0;
};

Cost cost_of(const plan::Steps& steps);

template <typename Simple>
Cost cost_of(const Simple&) {
  return {false, 1};
}
Cost cost_of(const plan::BranchStep&) { return {true, 0}; }
Cost cost_of(const plan::WhileStep&) { return {true, 0}; }
Cost cost_of(const plan::RowsStep& rows) { return cost_of(rows.steps); }
Cost cost_of(const plan::RepeatStep& loop) {
  Cost cost = cost_of(loop.body);
  cost.dispatches *= static_cast<double>(loop.count);
  cost.has_decisions |= cost.dispatches > static_cast<double>(kMaxDispatchesPerRecording);
  return cost;
}
Cost cost_of(const plan::Steps& steps) {
  Cost sum;
  for (const plan::Step& step : steps) {
    const Cost one = std::visit([](const auto& what) { return cost_of(what); }, step.what);
    sum.has_decisions |= one.has_decisions;
    sum.dispatches += one.dispatches;
  }
  return sum;
}

}  // namespace

Result<LoweredProgram> Lowering::run() {
  HEKLA_RETURN_IF_ERROR(add_parts(plan_.steps));
  HEKLA_RETURN_IF_ERROR(close_part());
  HEKLA_RETURN_IF_ERROR(std::move(status_));
  lowered_.loop_state.resize(static_cast<size_t>(part_state_));
  return std::move(lowered_);
}

void Lowering::add(const plan::Steps& steps, Sequence& out) {
  for (const plan::Step& step : steps) {
    step_ = &step;
    std::visit([&](const auto& what) { add(what, out); }, step.what);
  }
}

void Lowering::add_code(const auto& step, size_t pipeline, const DeviceKernel& code,
                        Sequence& out) {
  const std::array<uint32_t, 3>& groups = code.groups;
  if (std::find(groups.begin(), groups.end(), 0U) != groups.end()) return;
  std::vector<Access> accesses;
  std::vector<TableEntry> entries;
  plan::slices_of(step, plan_, [&](const Slice& slice, const plan::Use& use) {
    accesses.push_back(access(slice, use.is_written));
    entries.emplace_back(slice);
  });
  add_dispatch(pipeline, std::move(entries), std::move(accesses), groups, code.constants, out);
}

void Lowering::add(const plan::KernelStep& step, Sequence& out) {
  const auto number = static_cast<size_t>(step.kernel);
  add_code(step, number, program_.kernels[number], out);
}

void Lowering::add(const plan::ContractionStep& step, Sequence& out) {
  const auto number = static_cast<size_t>(step.contraction);
  add_code(step, contraction_pipeline(program_, number), program_.contractions[number], out);
}

void Lowering::add(const plan::TransformStep& step, Sequence&) {
  if (!status_.ok()) return;
  status_ = internal_error("{}: the device has no code for {}", program_.name,
                           plan::to_string({step}, plan_));
}

void Lowering::add(const plan::CopyStep& step, Sequence& out) {
  if (step.from == step.to) return;
  if (step.from.space == Slice::Space::kInput && step.to.space == Slice::Space::kOutput) {
    const auto to = static_cast<size_t>(step.to.index);
    const bool is_one_memory = is_shared_[to] && plan_.output_input[to] == step.from.index;
    if (is_one_memory && step.from.offset == step.to.offset) return;
  }
  for (int64_t at = 0; at < step.to.bytes; at += kMaxBytesPerDispatch) {
    Slice from = step.from;
    Slice to = step.to;
    from.offset += at;
    to.offset += at;
    from.bytes = to.bytes = std::min(kMaxBytesPerDispatch, step.to.bytes - at);
    add_dispatch(copy_pipeline(program_), {from, to}, {words(to, true), access(from, false)},
                 groups_of(to), {static_cast<uint32_t>(to.bytes)}, out);
  }
}

void Lowering::add_loop_kernel(const DeviceLoopKernel& loop, int64_t iterations, int64_t state,
                               Sequence& out) {
  std::vector<Access> accesses;
  for (size_t i = 0; i < loop.operands.size(); ++i) {
    accesses.push_back(access(loop.operands[i], loop.is_written[i]));
  }
  std::vector<TableEntry> entries(loop.operands.begin(), loop.operands.end());
  if (loop.state_words > 0) {
    entries.push_back(std::nullopt);
    accesses.push_back({kLoopRegion, state * kWord, (state + loop.state_words) * kWord, true});
  }
  const auto number = static_cast<size_t>(&loop - program_.loops.data());
  step_ = loop.step;
  add_dispatch(loop_pipeline(program_, number), entries, std::move(accesses), loop.code.groups,
               {static_cast<uint32_t>(iterations), static_cast<uint32_t>(state)}, out);
}

// Dispatches until the state says that the loop is done; it then is what it was before.
void Lowering::add_resumed_loop(const DeviceLoopKernel& kernel, Sequence& out) {
  const auto state = static_cast<int64_t>(lowered_.loop_state.size());
  lowered_.loop_state.resize(lowered_.loop_state.size() + static_cast<size_t>(kernel.state_words));
  add_loop_kernel(kernel, kernel.most_iterations, state, out);
  DeviceLoop loop = new_loop();
  Gate gate;
  gate.kind = GateKind::kResumed;
  gate.counter = state;
  gate.iterations = add_state({0});
  gate.targets = {loop.body, loop.after};
  end_block(gate, out);
  add_body(loop, kernel, state, gate);
  lowered_.loops[loop.number].iterations_offset = gate.iterations * kWord;
  end_loop(std::move(loop), out);
}

void Lowering::add(const plan::RepeatStep& step, Sequence& out) {
  if (step.count == 0 || step.body.empty()) return;
  if (const auto* loop = loop_kernel_of(program_, step_); loop != nullptr) {
    if (loop->state_words > 0) return add_resumed_loop(*loop, out);
    // As a loop of whole dispatches, and what is left.
    const int64_t whole = step.count / loop->most_iterations;
    const int64_t rest = step.count % loop->most_iterations;
    if (whole > 0) {
      Node node;
      node.times = whole;
      add_loop_kernel(*loop, loop->most_iterations, 0, node.body);
      out.push_back(std::move(node));
    }
    if (rest > 0) add_loop_kernel(*loop, rest, 0, out);
    return;
  }
  const Cost cost = cost_of(step.body);
  const double total = cost.dispatches * static_cast<double>(step.count);
  const bool is_short = total <= static_cast<double>(kMaxDispatchesPerRecording);
  const bool is_repeated = depth_ == 0 &&
                           cost.dispatches <= static_cast<double>(kMaxDispatchesPerRecording) &&
                           total <= static_cast<double>(options_.max_dispatches_per_submission);
  if (!cost.has_decisions && (is_short || is_repeated)) {
    Node loop;
    loop.times = step.count;
    ++depth_;
    add(step.body, loop.body);
    --depth_;
    out.push_back(std::move(loop));
    return;
  }
  DeviceLoop loop = new_loop();
  Gate gate;
  gate.targets = {loop.body};
  end_block(gate, out);
  gate.kind = GateKind::kCounted;
  gate.counter = add_state({0});
  gate.count = static_cast<uint32_t>(std::min<int64_t>(step.count, UINT32_MAX));
  gate.targets = {loop.body, loop.after};
  add_body(loop, {&step.body}, gate);
  LoweredLoop& about = lowered_.loops[loop.number];
  about.iterations_per_piece = std::min(about.iterations_per_piece, step.count);
  // An iteration with a loop in it that has more than were recorded takes several pieces.
  const int64_t iterations = step.count * (1 + more_pieces(loop.node.body));
  about.first_pieces = std::min(
      (iterations + about.iterations_per_piece - 1) / about.iterations_per_piece, about.max_pieces);
  end_loop(std::move(loop), out);
}

void Lowering::add(const plan::WhileStep& step, Sequence& out) {
  const DeviceLoopKernel* kernel = loop_kernel_of(program_, step_);
  if (kernel != nullptr && kernel->state_words > 0) return add_resumed_loop(*kernel, out);
  add(step.condition, out);
  DeviceLoop loop = new_loop();
  Gate gate;
  gate.kind = GateKind::kPredicate;
  gate.selector = step.predicate;
  gate.iterations = add_state({0});
  gate.targets = {loop.body, loop.after};
  end_block(gate, out);
  if (kernel != nullptr) {
    add_body(loop, *kernel, 0, gate);
  } else {
    add_body(loop, {&step.body, &step.condition}, gate);
  }
  if (!has_loops(loop.node.body)) {
    lowered_.loops[loop.number].iterations_offset = gate.iterations * kWord;
  }
  end_loop(std::move(loop), out);
}

void Lowering::add(const plan::BranchStep& step, Sequence& out) {
  Gate gate;
  gate.kind = step.selector.bytes == 1 ? GateKind::kPredicate : GateKind::kIndex;
  gate.selector = step.selector;
  for (size_t i = 0; i < step.branches.size(); ++i) gate.targets.push_back(new_block());
  const size_t after = new_block();
  end_block(gate, out);
  Gate end;
  end.targets = {after};
  ++depth_;
  for (size_t i = 0; i < step.branches.size(); ++i) {
    current_ = gate.targets[i];
    add(step.branches[i], out);
    end_block(end, out);
  }
  --depth_;
  current_ = after;
}

Lowering::DeviceLoop Lowering::new_loop() {
  DeviceLoop loop;
  loop.number = lowered_.loops.size();
  lowered_.loops.emplace_back();
  loop.body = new_block();
  loop.after = new_block();
  return loop;
}

void Lowering::add_body(DeviceLoop& loop, std::initializer_list<const plan::Steps*> lists,
                        const Gate& gate) {
  current_ = loop.body;
  ++depth_;
  for (const plan::Steps* steps : lists) add(*steps, loop.node.body);
  --depth_;
  end_block(gate, loop.node.body);
  LoweredLoop& about = lowered_.loops[loop.number];
  const int64_t size = std::max<int64_t>(size_of(loop.node.body), 1);
  about.iterations_per_piece =
      std::clamp<int64_t>(kDispatchesPerPiece / size, 1, kMaxIterationsPerPiece);
  about.max_pieces = std::max<int64_t>(
      options_.max_dispatches_per_submission / (about.iterations_per_piece * size), 1);
}

// As many dispatches as do the iterations that a piece of a loop step by step has: mostly one.
void Lowering::add_body(DeviceLoop& loop, const DeviceLoopKernel& kernel, int64_t state,
                        const Gate& gate) {
  current_ = loop.body;
  add_loop_kernel(kernel, kernel.most_iterations, state, loop.node.body);
  end_block(gate, loop.node.body);
  LoweredLoop& about = lowered_.loops[loop.number];
  about.iterations_per_piece =
      std::max<int64_t>(kMaxIterationsPerPiece / kernel.most_iterations, 1);
  about.max_pieces = std::max<int64_t>(
      options_.max_dispatches_per_submission /
          (about.iterations_per_piece * std::max<int64_t>(size_of(loop.node.body), 1)),
      1);
}

void Lowering::end_loop(DeviceLoop loop, Sequence& out) {
  current_ = loop.after;
  loop.node.loop = static_cast<int64_t>(loop.number);
  loop.node.times = lowered_.loops[loop.number].iterations_per_piece;
  out.push_back(std::move(loop.node));
}

int64_t Lowering::more_pieces(const Sequence& sequence) const {
  int64_t more = 0;
  for (const Node& node : sequence) {
    if (node.loop >= 0) more += lowered_.loops[static_cast<size_t>(node.loop)].first_pieces - 1;
  }
  return more;
}

size_t Lowering::new_block() {
  blocks_.emplace_back();
  return blocks_.size() - 1;
}

int64_t Lowering::add_state(std::initializer_list<uint32_t> words) {
  const auto at = static_cast<int64_t>(lowered_.loop_state.size());
  lowered_.loop_state.insert(lowered_.loop_state.end(), words);
  return at;
}

void Lowering::end_block(const Gate& gate, Sequence& out) {
  Block& block = blocks_[current_];
  block.kind = gate.kind;
  block.targets = gate.targets;
  const TableEntry state = std::nullopt;
  std::vector<Access> accesses;
  const bool reads = gate.kind == GateKind::kPredicate || gate.kind == GateKind::kIndex;
  if (reads) accesses.push_back(access(gate.selector, false));
  add_dispatch(
      gate_pipeline(program_), {reads ? TableEntry(gate.selector) : state, state},
      std::move(accesses), {1, 1, 1},
      {static_cast<uint32_t>(gate.kind), 0, 0, 0, 0, static_cast<uint32_t>(gate.iterations),
       static_cast<uint32_t>(gate.counter), gate.count, 0, 0},
      out);
}

Access Lowering::access(const Slice& slice, bool is_written) const {
  return access_of(plan_, slice, is_written);
}

Access Lowering::words(const Slice& slice, bool is_written) const {
  Access result = access(slice, is_written);
  result.begin = result.begin / 4 * 4;
  result.end = (result.end + 3) / 4 * 4;
  return result;
}

std::array<uint32_t, 3> Lowering::groups_of(const Slice& to) {
  const int64_t touched = to.bytes + to.offset % 4;
  return {static_cast<uint32_t>((touched + kBytesPerGroup - 1) / kBytesPerGroup), 1, 1};
}

void Lowering::add_dispatch(size_t pipeline, const std::vector<TableEntry>& operands,
                            std::vector<Access> accesses, const std::array<uint32_t, 3>& groups,
                            const std::vector<uint32_t>& constants, Sequence& out) {
  Item item;
  item.dispatch.pipeline = pipeline;
  item.dispatch.step = step_;
  item.dispatch.first_entry = lowered_.table.size();
  std::copy(groups.begin(), groups.end(), item.dispatch.push.groups);
  std::copy(constants.begin(), constants.end(), item.dispatch.push.constants);
  item.dispatch.grid = fold_grid(groups, options_.max_group_count);
  item.accesses = std::move(accesses);
  item.block = current_;
  lowered_.table.insert(lowered_.table.end(), operands.begin(), operands.end());
  blocks_[current_].items.push_back(items_.size());
  if (out.empty() || !out.back().body.empty()) out.emplace_back();
  out.back().items.push_back(items_.size());
  items_.push_back(std::move(item));
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
                                     const std::vector<bool>& is_shared,
                                     const LoweringOptions& options) {
  return Lowering(program, is_shared, options).run();
}

}  // namespace hekla::vulkan
