// SPDX-License-Identifier: Apache-2.0
// Blocks of calls that go together: what DeviceGroup collects, and how the queue hands it on.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/process_group/device_arrays/device_queue.h"

namespace hekla::process_group {

DeviceWork::State* DeviceGroup::block() {
  if (block_count_.load() == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(std::this_thread::get_id());
  return found == blocks_.end() ? nullptr : found->second.get();
}

Status DeviceGroup::begin_coalescing() {
  const std::lock_guard lock(mutex_);
  auto& own = blocks_[std::this_thread::get_id()];
  if (own != nullptr) {
    return failed_precondition("calls of group {} are being coalesced already", name());
  }
  own = std::make_shared<DeviceWork::State>();
  ++block_count_;
  return ok_status();
}

Status DeviceGroup::check_may_wait(std::string_view call) {
  DeviceWork::State* const own = block();
  if (own == nullptr) return ok_status();
  Status why = failed_precondition(
      "{} has no place between begin_coalescing and end_coalescing of group {}", call, name());
  if (own->refused.ok()) own->refused = why;
  return why;
}

DeviceWork DeviceGroup::end_coalescing(Timeout timeout) {
  std::shared_ptr<DeviceWork::State> own;
  {
    const std::lock_guard lock(mutex_);
    auto node = blocks_.extract(std::this_thread::get_id());
    if (!node.empty()) {
      own = std::move(node.mapped());
      --block_count_;
    }
  }
  if (own == nullptr) {
    own = std::make_shared<DeviceWork::State>();
    own->call = "coalesced calls";
    own->end_unissued(failed_precondition("no calls of group {} are being coalesced", name()));
    return DeviceWork(own);
  }
  own->call = fmt::format("{} calls at once", own->members.size() + own->points.size());
  constexpr size_t kNamed = 4;
  for (size_t i = 0; i < std::min(kNamed, own->members.size()); ++i) {
    own->call += (i == 0 ? ": " : ", ") + own->members[i]->call;
  }
  if (own->members.size() > kNamed) own->call += ", ..";
  own->deadline = Deadline::in(timeout.value_or(group_->timeout()));
  own->begin_block = [this] { return group_->begin_coalescing(); };
  own->end_block = [this](std::chrono::nanoseconds left) { return group_->end_coalescing(left); };
  own->refuse = [this, text = own->call](const Status& why) { group_->refuse(text, why); };
  std::vector<CompletionRef> ends;
  for (const auto* parts : {&own->members, &own->points}) {
    for (const auto& part : *parts) {
      part->is_held = false;
      ends.emplace_back(part, &part->done);  // keeps the state alive
    }
  }
  if (own->refused.ok()) {
    // By whoever ends the last.
    Completion::all(std::move(ends))->on_done([own](const Status& status) {
      own->done.complete(status);
    });
  } else {
    // Known at once; the others hear of it when it is the block's turn.
    for (const auto& member : own->members) member->end_unissued(own->refused);
    own->end(own->refused);
  }
  queue_->add(own);
  return DeviceWork(own);
}

void DeviceQueue::issue_block(DeviceWork::State& block) {
  std::vector<DeviceElements> memories;
  Status refused = block.refused;
  for (const StateRef& member : block.members) {
    if (!refused.ok()) break;
    Result<DeviceElements> memory = open(*member);
    refused = memory.status().with_context(member->call);
    if (memory.ok()) memories.push_back(*std::move(memory));
  }
  if (refused.ok()) refused = block.begin_block();
  if (!refused.ok()) {
    block.refuse(refused);
    block.end_unissued(refused);
    return;
  }
  const std::chrono::nanoseconds left = block.deadline.left();
  for (size_t i = 0; i < memories.size(); ++i) {
    block.members[i]->works = {block.members[i]->issue(memories[i].out, memories[i].in, left)};
  }
  // Members hear of its end by their own works.
  static_cast<void>(block.end_block(left));
  for (const StateRef& member : block.members) member->issued.complete(ok_status());
  block.issued.complete(ok_status());
}

}  // namespace hekla::process_group
