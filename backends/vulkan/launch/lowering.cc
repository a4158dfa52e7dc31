// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/lowering.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "backends/compiler/plan/visit.h"

namespace hekla::vulkan {
namespace {

using plan::Slice;

// What the copy shader does per group: 64 lanes of 4 words.
constexpr int64_t kBytesPerGroup = 64 * 4 * 4;
// The shader counts bytes in 32 bits.
constexpr int64_t kMaxBytesPerDispatch = int64_t{1} << 31;

// Of the loop states, beside the regions of region_of().
constexpr int64_t kLoopRegion = -1;
constexpr int64_t kWord = sizeof(uint32_t);

// How a gate decides; loop_gate.comp has the same numbers.
enum class GateKind : uint32_t { kAlways = 0, kPredicate = 1, kIndex = 2, kCounted = 3 };

// The regions of memory for the hazard tracker: an output that may take an input's memory is one
// with it.
int64_t region_of(const plan::LaunchPlan& plan, const Slice& slice) {
  const auto inputs = static_cast<int64_t>(plan.input_bytes.size());
  const auto outputs = static_cast<int64_t>(plan.output_bytes.size());
  switch (slice.space) {
    case Slice::Space::kInput:
      return slice.index;
    case Slice::Space::kOutput: {
      const int32_t taken = plan.output_input[static_cast<size_t>(slice.index)];
      return taken >= 0 ? taken : inputs + slice.index;
    }
    case Slice::Space::kArena:
      return inputs + outputs;
    case Slice::Space::kConstant:
      return inputs + outputs + 1 + slice.index;
    case Slice::Space::kLaunch:
      return inputs + outputs + 1 + static_cast<int64_t>(plan.constants.size());
  }
  return 0;
}

// A dispatch that may be recorded several times.
struct Item {
  LoweredDispatch dispatch;
  std::vector<Access> accesses;
  size_t block = 0;
};

// Items in the order of recording; or a list of such that repeats.
struct Node {
  std::vector<size_t> items;
  std::vector<Node> body;
  int64_t times = 1;
  int64_t loop = -1;  // into LoweredProgram::loops: `times` is what one piece holds
};
using Sequence = std::vector<Node>;

int64_t size_of(const Sequence& sequence) {
  int64_t size = 0;
  for (const Node& node : sequence) {
    size += static_cast<int64_t>(node.items.size()) + node.times * size_of(node.body);
  }
  return size;
}

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

class Lowering {
 public:
  Lowering(const LaunchProgram& program, const std::vector<bool>& is_shared,
           const LoweringOptions& options)
      : program_(program), plan_(*program.plan), is_shared_(is_shared), options_(options) {
    begin_part();
  }

  Result<LoweredProgram> run() {
    HEKLA_RETURN_IF_ERROR(add_parts(plan_.steps));
    HEKLA_RETURN_IF_ERROR(close_part());
    lowered_.loop_state.resize(static_cast<size_t>(part_state_));
    return std::move(lowered_);
  }

 private:
  // ---- what needs the host: parts of its own, in the order of the steps

  bool needs_host(const plan::Step& step) const {
    if (plan::is_on_host(step)) return true;
    const auto* run = std::get_if<plan::KernelStep>(&step.what);
    if (run != nullptr) return program_.kernels[static_cast<size_t>(run->kernel)].is_interpreted();
    bool found = false;
    plan::for_each_list(step, [&](const plan::Steps& inner) {
      found = found || std::any_of(inner.begin(), inner.end(),
                                   [this](const plan::Step& each) { return needs_host(each); });
    });
    return found;
  }

  Status add_parts(const plan::Steps& steps) {
    for (const plan::Step& step : steps) {
      if (!needs_host(step)) {
        std::visit([this](const auto& what) { add(what, top_); }, step.what);
        continue;
      }
      HEKLA_RETURN_IF_ERROR(close_part());
      HEKLA_RETURN_IF_ERROR(
          std::visit([&](const auto& what) { return add_on_host(step, what); }, step.what));
    }
    return ok_status();
  }

  size_t add_host_part(const HostPart& host) {
    lowered_.parts.emplace_back();
    lowered_.parts.back().host = host;
    return lowered_.parts.size() - 1;
  }
  // After these steps the launch goes on with part `next`.
  Result<size_t> add_parts_and_go(const plan::Steps& steps, std::vector<size_t> next) {
    HEKLA_RETURN_IF_ERROR(add_parts(steps));
    HEKLA_RETURN_IF_ERROR(close_part());
    const size_t part = add_host_part({HostPart::Kind::kGo});
    lowered_.parts[part].next = std::move(next);
    return part;
  }

  template <typename Other>
  Status add_on_host(const plan::Step& step, const Other&) {
    return internal_error("{} is no step of the host", plan::to_string(step, plan_));
  }
  Status add_on_host(const plan::Step& step, const plan::HostStep&) {
    add_host_part({HostPart::Kind::kRun, &step});
    ++lowered_.host_step_count;
    return ok_status();
  }
  // What the device does between a start and its done is a part of its own: it is submitted while
  // the collective is under way.
  Status add_on_host(const plan::Step& step, const plan::StartStep&) {
    add_host_part({HostPart::Kind::kStart, &step});
    return ok_status();
  }
  Status add_on_host(const plan::Step& step, const plan::DoneStep&) {
    add_host_part({HostPart::Kind::kDone, &step});
    return ok_status();
  }
  Status add_on_host(const plan::Step& step, const plan::KernelStep&) {
    add_host_part({HostPart::Kind::kRun, &step});
    ++lowered_.host_step_count;
    return ok_status();
  }
  Status add_on_host(const plan::Step&, const plan::RowsStep& rows) {
    return add_parts(rows.steps);
  }
  Status add_on_host(const plan::Step& step, const plan::RepeatStep& loop) {
    const size_t counter = lowered_.host_counter_count++;
    add_host_part({HostPart::Kind::kStartCount, &step, counter});
    const size_t test = add_host_part({HostPart::Kind::kCount, &step, counter});
    HEKLA_RETURN_IF_ERROR(add_parts_and_go(loop.body, {test}).status());
    lowered_.parts[test].next = {test + 1, lowered_.parts.size()};
    return ok_status();
  }
  Status add_on_host(const plan::Step& step, const plan::WhileStep& loop) {
    const size_t begin = lowered_.parts.size();
    HEKLA_RETURN_IF_ERROR(add_parts(loop.condition));
    HEKLA_RETURN_IF_ERROR(close_part());
    const size_t test = add_host_part({HostPart::Kind::kChoose, &step});
    HEKLA_RETURN_IF_ERROR(add_parts_and_go(loop.body, {begin}).status());
    lowered_.parts[test].next = {test + 1, lowered_.parts.size()};
    return ok_status();
  }
  Status add_on_host(const plan::Step& step, const plan::BranchStep& branch) {
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

  // ---- what the device does

  struct Gate {
    GateKind kind = GateKind::kAlways;
    Slice selector;
    std::vector<size_t> targets;
    int64_t iterations = 0;  // words into the loop state; 0: none
    int64_t counter = 0;     // the same
    uint32_t count = 0;      // of iterations
  };

  // The end of a block: how the next one is chosen, and among which.
  struct Block {
    std::vector<size_t> items;  // each once, its gate last
    GateKind kind = GateKind::kAlways;
    std::vector<size_t> targets;  // empty: the end of the part
  };

  void add(const plan::Steps& steps, Sequence& out) {
    for (const plan::Step& step : steps) {
      std::visit([&](const auto& what) { add(what, out); }, step.what);
    }
  }

  // check_program refuses them.
  void add(const plan::ContractionStep&, Sequence&) {}
  // They need the host.
  void add(const plan::HostStep&, Sequence&) {}
  void add(const plan::StartStep&, Sequence&) {}
  void add(const plan::DoneStep&, Sequence&) {}

  void add(const plan::RowsStep& rows, Sequence& out) { add(rows.steps, out); }

  void add(const plan::KernelStep& step, Sequence& out) {
    const auto number = static_cast<size_t>(step.kernel);
    const std::array<uint32_t, 3>& groups = program_.kernels[number].groups;
    if (std::find(groups.begin(), groups.end(), 0U) != groups.end()) return;
    std::vector<Access> accesses;
    std::vector<TableEntry> entries;
    plan::slices_of(step, plan_, [&](const Slice& slice, const plan::Use& use) {
      accesses.push_back(access(slice, use.is_written));
      entries.emplace_back(slice);
    });
    add_dispatch(number, std::move(entries), std::move(accesses), groups,
                 program_.kernels[number].constants, out);
  }

  void add(const plan::CopyStep& step, Sequence& out) {
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

  void add(const plan::RepeatStep& step, Sequence& out) {
    if (step.count == 0 || step.body.empty()) return;
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
    about.first_pieces =
        std::min((iterations + about.iterations_per_piece - 1) / about.iterations_per_piece,
                 about.max_pieces);
    end_loop(std::move(loop), out);
  }

  void add(const plan::WhileStep& step, Sequence& out) {
    add(step.condition, out);
    DeviceLoop loop = new_loop();
    Gate gate;
    gate.kind = GateKind::kPredicate;
    gate.selector = step.predicate;
    gate.iterations = add_state({0});
    gate.targets = {loop.body, loop.after};
    end_block(gate, out);
    add_body(loop, {&step.body, &step.condition}, gate);
    if (!has_loops(loop.node.body)) {
      lowered_.loops[loop.number].iterations_offset = gate.iterations * kWord;
    }
    end_loop(std::move(loop), out);
  }

  void add(const plan::BranchStep& step, Sequence& out) {
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

  // A loop whose iterations the device decides.
  struct DeviceLoop {
    size_t number = 0;  // in LoweredProgram::loops
    size_t body = 0;    // blocks
    size_t after = 0;
    Node node;
  };

  DeviceLoop new_loop() {
    DeviceLoop loop;
    loop.number = lowered_.loops.size();
    lowered_.loops.emplace_back();
    loop.body = new_block();
    loop.after = new_block();
    return loop;
  }

  // What an iteration runs, and the gate at its end.
  void add_body(DeviceLoop& loop, std::initializer_list<const plan::Steps*> lists,
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

  void end_loop(DeviceLoop loop, Sequence& out) {
    current_ = loop.after;
    loop.node.loop = static_cast<int64_t>(loop.number);
    loop.node.times = lowered_.loops[loop.number].iterations_per_piece;
    out.push_back(std::move(loop.node));
  }

  // That one iteration takes after the first, by the counted loops in it.
  int64_t more_pieces(const Sequence& sequence) const {
    int64_t more = 0;
    for (const Node& node : sequence) {
      if (node.loop >= 0) more += lowered_.loops[static_cast<size_t>(node.loop)].first_pieces - 1;
    }
    return more;
  }

  size_t new_block() {
    blocks_.emplace_back();
    return blocks_.size() - 1;
  }

  int64_t add_state(std::initializer_list<uint32_t> words) {
    const auto at = static_cast<int64_t>(lowered_.loop_state.size());
    lowered_.loop_state.insert(lowered_.loop_state.end(), words);
    return at;
  }

  // Ends the current block; the constants that need all blocks are filled in by link().
  void end_block(const Gate& gate, Sequence& out) {
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

  // A block of nothing but a way to one other block is that block.
  size_t resolve(size_t block) const {
    while (block != 0 && blocks_[block].kind == GateKind::kAlways &&
           blocks_[block].items.size() == 1 && blocks_[block].targets.size() == 1) {
      block = blocks_[block].targets[0];
    }
    return block;
  }

  // Gives the blocks their places in the loop state, and the gates what they need to know.
  void link(LoweredPart& part) {
    part.block_offset = part_state_ * kWord;
    part.end_block = static_cast<uint32_t>(current_);
    std::vector<std::array<uint32_t, 3>> at(blocks_.size());  // grids, live grids, words
    for (size_t b = 1; b < blocks_.size(); ++b) {
      const auto words = static_cast<uint32_t>(3 * blocks_[b].items.size());
      at[b] = {static_cast<uint32_t>(lowered_.loop_state.size()),
               static_cast<uint32_t>(lowered_.loop_state.size()) + words, words};
      uint32_t live = at[b][1];
      for (size_t item : blocks_[b].items) {
        LoweredDispatch& dispatch = items_[item].dispatch;
        lowered_.loop_state.insert(lowered_.loop_state.end(), dispatch.grid.begin(),
                                   dispatch.grid.end());
        dispatch.indirect_offset = int64_t{live} * kWord;
        items_[item].accesses.push_back(
            {kLoopRegion, dispatch.indirect_offset, dispatch.indirect_offset + 3 * kWord, false});
        live += 3;
      }
      lowered_.loop_state.resize(lowered_.loop_state.size() + words, 0);
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (b == current_) continue;  // the end has no gate
      uint32_t* constants = items_[blocks_[b].items.back()].dispatch.push.constants;
      constants[1] = at[b][1];
      constants[2] = at[b][2];
      constants[3] = static_cast<uint32_t>(blocks_[b].targets.size());
      constants[4] = static_cast<uint32_t>(lowered_.loop_state.size());
      constants[8] = static_cast<uint32_t>(b);
      constants[9] = static_cast<uint32_t>(part_state_);
      for (size_t target : blocks_[b].targets) {
        const size_t t = resolve(target);
        add_state({static_cast<uint32_t>(t), at[t][0], at[t][1], at[t][2]});
      }
    }
    const auto end = static_cast<int64_t>(lowered_.loop_state.size()) * kWord;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (b == current_) continue;
      Item& gate = items_[blocks_[b].items.back()];
      gate.accesses.push_back({kLoopRegion, part.block_offset, end, true});
    }
  }

  // The items of the sequence in the order of recording, without the gates of blocks that are
  // another one.
  void expand(const Sequence& sequence, std::vector<size_t>& out) const {
    for (const Node& node : sequence) {
      for (size_t item : node.items) {
        const size_t block = items_[item].block;
        if (resolve(block) == block) out.push_back(item);
      }
      for (int64_t i = 0; i < node.times && !node.body.empty(); ++i) expand(node.body, out);
    }
  }

  Access access(const Slice& slice, bool is_written) const {
    return {region_of(plan_, slice), slice.offset, slice.offset + slice.bytes, is_written};
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

  void add_dispatch(size_t pipeline, const std::vector<TableEntry>& operands,
                    std::vector<Access> accesses, const std::array<uint32_t, 3>& groups,
                    const std::vector<uint32_t>& constants, Sequence& out) {
    Item item;
    item.dispatch.pipeline = pipeline;
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

  void begin_part() {
    items_.clear();
    blocks_.assign(1, {});
    top_.clear();
    current_ = 0;
    part_state_ = static_cast<int64_t>(lowered_.loop_state.size());
    lowered_.loop_state.push_back(0);
  }

  // Ends a run of dispatches.
  Status close_part() {
    if (items_.empty()) return ok_status();
    LoweredPart part;
    if (blocks_.size() > 1) {
      if (!blocks_[current_].items.empty()) {
        Gate last;
        last.targets = {new_block()};
        end_block(last, top_);
        current_ = last.targets[0];
      }
      link(part);
    } else {
      lowered_.loop_state.resize(static_cast<size_t>(part_state_));
    }
    std::vector<size_t> open;
    for (const Node& node : top_) {
      const int64_t size = size_of(node.body);
      if (node.loop < 0 && node.times * size <= kMaxDispatchesPerRecording) {
        expand({node}, open);
        continue;
      }
      std::vector<size_t> piece;
      if (node.loop >= 0) {
        HEKLA_RETURN_IF_ERROR(close_recording(part, open, 1, -1));
        expand({{{}, node.body, node.times, -1}}, piece);
        HEKLA_RETURN_IF_ERROR(close_recording(part, piece, 1, node.loop));
        continue;
      }
      // The iterations that do not fill a piece come first.
      const int64_t iterations = std::max<int64_t>(kMaxDispatchesPerRecording / size, 1);
      expand({{{}, node.body, node.times % iterations, -1}}, open);
      HEKLA_RETURN_IF_ERROR(close_recording(part, open, 1, -1));
      expand({{{}, node.body, iterations, -1}}, piece);
      HEKLA_RETURN_IF_ERROR(close_recording(part, piece, node.times / iterations, -1));
    }
    HEKLA_RETURN_IF_ERROR(close_recording(part, open, 1, -1));
    if (!part.recordings.empty()) lowered_.parts.push_back(std::move(part));
    begin_part();
    return ok_status();
  }

  Status close_recording(LoweredPart& part, std::vector<size_t>& items, int64_t repeats,
                         int64_t loop) {
    if (items.empty()) return ok_status();
    std::vector<std::vector<Access>> accesses;
    for (size_t item : items) accesses.push_back(items_[item].accesses);
    std::vector<bool> barriers = place_barriers(accesses);
    if (options_.all_barriers) barriers.assign(barriers.size(), true);
    if (options_.check_barriers) HEKLA_RETURN_IF_ERROR(check_barriers(accesses, barriers));
    LoweredRecording recording;
    recording.repeats = repeats;
    recording.loop = loop;
    part.recording_of_block.resize(blocks_.size(), SIZE_MAX);
    for (size_t i = 0; i < items.size(); ++i) {
      const Item& item = items_[items[i]];
      size_t& first = part.recording_of_block[item.block];
      first = std::min(first, part.recordings.size());
      recording.dispatches.push_back(item.dispatch);
      // Recordings begin with a barrier of their own.
      recording.dispatches.back().has_barrier_before = barriers[i] && i > 0;
      recording.barrier_count += barriers[i] && i > 0 ? 1 : 0;
    }
    lowered_.dispatch_count += static_cast<int64_t>(items.size());
    lowered_.barrier_count += recording.barrier_count;
    part.recordings.push_back(std::move(recording));
    items.clear();
    return ok_status();
  }

  const LaunchProgram& program_;
  const plan::LaunchPlan& plan_;
  const std::vector<bool>& is_shared_;
  const LoweringOptions& options_;
  LoweredProgram lowered_;
  // Of the part that is open.
  std::vector<Item> items_;
  std::vector<Block> blocks_;  // the first is not behind any gate
  Sequence top_;
  size_t current_ = 0;
  int depth_ = 0;           // of loops and branches around what is added
  int64_t part_state_ = 0;  // words into the loop state
};

}  // namespace

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
