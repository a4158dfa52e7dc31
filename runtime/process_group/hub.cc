// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/hub.h"

#include <algorithm>

#include "runtime/base/async/thread.h"
#include "runtime/base/log.h"
#include "runtime/process_group/backend_registry.h"
#include "runtime/process_group/member.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {
namespace {

// How late a deadline of a message may be noticed.
constexpr std::chrono::milliseconds kBeat(20);

// A store of which nobody waits for longer than the group's deadline.
class ValuesUntil final : public rendezvous::KeyValueStore {
 public:
  ValuesUntil(std::shared_ptr<rendezvous::KeyValueStore> store, Deadline deadline)
      : store_(std::move(store)), deadline_(deadline) {}

  Result<std::string> get(std::string_view key, std::chrono::milliseconds timeout) override {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_.left());
    return store_->get(key, std::min(timeout, left));
  }
  Result<std::string> try_get(std::string_view key) override { return store_->try_get(key); }
  Status put(std::string_view key, std::string_view value) override {
    return store_->put(key, value);
  }

 private:
  const std::shared_ptr<rendezvous::KeyValueStore> store_;  // shared with the caller
  const Deadline deadline_;
};

}  // namespace

Result<std::shared_ptr<Hub>> Hub::create(std::shared_ptr<rendezvous::KeyValueStore> store, int rank,
                                         int size, const Options& options, Deadline deadline) {
  auto hub = std::make_shared<Hub>();
  Hub* const own = hub.get();
  HEKLA_ASSIGN_OR_RETURN(const Backend backend, find_backend(options.engine));
  HEKLA_ASSIGN_OR_RETURN(
      hub->transport_,
      backend.create({std::make_shared<ValuesUntil>(std::move(store), deadline),
                      "hekla/group/" + options.name,
                      rank,
                      size,
                      {[own](int from, collectives::Message message) {
                         own->received(from, std::move(message));
                       },
                       [own](int process, const Status& why) { own->lost(process, why); },
                       [own](int from, const collectives::Message& begun, int64_t bytes) {
                         return own->place(from, begun, bytes);
                       }},
                      options,
                      deadline}));
  hub->beat_ = start_heartbeat(kBeat, [own] { return own->beat(); });
  return hub;
}

void Hub::add(uint64_t group, const std::shared_ptr<Member>& member) {
  // Under the lock, so that nothing overtakes what came early; the member has no calls yet.
  const std::lock_guard lock(mutex_);
  members_[group] = member;
  for (Early& early : early_[group]) {
    member->deliver(early.from, std::move(early.head), std::move(early.blocks));
  }
  early_.erase(group);
  for (const auto& [process, why] : lost_) member->lose(process, why);
}

void Hub::remove(uint64_t group) {
  const std::lock_guard lock(mutex_);
  members_.erase(group);
  left_.insert(group);
}

void Hub::send(int process, const Head& head, std::vector<HostArray> blocks, CompletionRef sent) {
  transport_->send(process, {head.bytes(), std::move(blocks)}, std::move(sent));
}

void Hub::received(int from, collectives::Message message) {
  Result<Head> head = Head::read(message.head);
  if (!head.ok()) {
    log_message(LogLevel::kWarning, "process {}: {}", from, head.status().message());
    return;
  }
  std::shared_ptr<Member> member;
  {
    const std::lock_guard lock(mutex_);
    const auto found = members_.find(head->group);
    if (found != members_.end()) {
      member = found->second.lock();
    } else if (!left_.contains(head->group)) {
      early_[head->group].push_back({from, *std::move(head), std::move(message.blocks)});
      return;
    }
  }
  if (member != nullptr) member->deliver(from, *std::move(head), std::move(message.blocks));
}

std::shared_ptr<void> Hub::place(int from, const collectives::Message& begun, int64_t bytes) {
  const Result<Head> head = Head::read(begun.head);
  if (!head.ok() || !begun.blocks.empty()) return nullptr;
  std::shared_ptr<Member> member;
  {
    const std::lock_guard lock(mutex_);
    const auto found = members_.find(head->group);
    if (found != members_.end()) member = found->second.lock();
  }
  return member == nullptr ? nullptr : member->place(from, *head, bytes);
}

void Hub::lost(int process, const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    lost_.emplace(process, why);
  }
  for (const auto& member : members()) member->lose(process, why);
}

bool Hub::beat() {
  for (const auto& member : members()) member->expire();
  return true;
}

std::vector<std::shared_ptr<Member>> Hub::members() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Member>> all;
  for (const auto& [group, member] : members_) {
    if (auto live = member.lock(); live != nullptr) all.push_back(std::move(live));
  }
  return all;
}

}  // namespace hekla::process_group
