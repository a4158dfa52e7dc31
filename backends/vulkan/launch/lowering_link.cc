// SPDX-License-Identifier: Apache-2.0
// Lowering: the ends of blocks and parts: where blocks are in the loop state, what gates know, and
// which dispatches are recorded together.
#include <algorithm>
#include <utility>

#include "backends/vulkan/launch/lowering_state.h"

namespace hekla::vulkan {

int64_t size_of(const Sequence& sequence) {
  int64_t size = 0;
  for (const Node& node : sequence) {
    size += static_cast<int64_t>(node.items.size()) + node.times * size_of(node.body);
  }
  return size;
}

size_t Lowering::resolve(size_t block) const {
  while (block != 0 && blocks_[block].kind == GateKind::kAlways &&
         blocks_[block].items.size() == 1 && blocks_[block].targets.size() == 1) {
    block = blocks_[block].targets[0];
  }
  return block;
}

void Lowering::link(LoweredPart& part) {
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

void Lowering::expand(const Sequence& sequence, std::vector<size_t>& out) const {
  for (const Node& node : sequence) {
    for (size_t item : node.items) {
      const size_t block = items_[item].block;
      if (resolve(block) == block) out.push_back(item);
    }
    for (int64_t i = 0; i < node.times && !node.body.empty(); ++i) expand(node.body, out);
  }
}

void Lowering::begin_part() {
  items_.clear();
  blocks_.assign(1, {});
  top_.clear();
  current_ = 0;
  part_state_ = static_cast<int64_t>(lowered_.loop_state.size());
  lowered_.loop_state.push_back(0);
}

Status Lowering::close_part() {
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

Status Lowering::close_recording(LoweredPart& part, std::vector<size_t>& items, int64_t repeats,
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

}  // namespace hekla::vulkan
