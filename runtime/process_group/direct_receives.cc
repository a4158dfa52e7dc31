// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/direct_receives.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

namespace hekla::process_group {

struct DirectReceives::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, uint64_t>, std::span<std::byte>> expected;  // guarded by mutex, as all
  std::map<int, int64_t> under_way;                                   // by who sends it
  int64_t claimed = 0, let_go = 0;
};

DirectReceives::DirectReceives() : state_(std::make_shared<State>()) {}

void DirectReceives::expect(int from, uint64_t step, std::span<std::byte> to) {
  const std::lock_guard lock(state_->mutex);
  state_->expected[{from, step}] = to;
}

std::shared_ptr<void> DirectReceives::claim(int from, uint64_t step, int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->expected.find({from, step});
  if (found == state_->expected.end()) return nullptr;
  const std::span<std::byte> to = found->second;
  if (static_cast<int64_t>(to.size()) != bytes) return nullptr;
  state_->expected.erase(found);
  ++state_->under_way[from];
  ++state_->claimed;
  return {to.data(), [state = state_, from](void*) {
            {
              const std::lock_guard lock(state->mutex);
              if (--state->under_way[from] == 0) state->under_way.erase(from);
              ++state->let_go;
            }
            state->changed.notify_all();
          }};
}

void DirectReceives::close() {
  const std::lock_guard lock(state_->mutex);
  state_->expected.clear();
}

bool DirectReceives::wait_for_one(std::chrono::nanoseconds time) {
  std::unique_lock lock(state_->mutex);
  const int64_t before = state_->let_go;
  return state_->changed.wait_for(
      lock, time, [&] { return state_->under_way.empty() || state_->let_go > before; });
}

std::vector<int> DirectReceives::senders() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<int> all;
  for (const auto& [from, count] : state_->under_way) all.push_back(from);
  return all;
}

int64_t DirectReceives::claimed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->claimed;
}

}  // namespace hekla::process_group
