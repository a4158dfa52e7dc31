// SPDX-License-Identifier: Apache-2.0
// DirectReceives: memory of a caller's that pieces of one call are received straight into, by
// transports that ask for places (collectives::Transport::Events::place).
//
// A piece that is claimed may be written at any time until what the claim gave is let go. So the
// call ends with close() and then waits: its caller may free the memory afterwards. Thread-safe;
// claims may outlive this object.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hekla::process_group {

class DirectReceives {
 public:
  DirectReceives();

  // Step `step` of what `from` sends goes there, once.
  void expect(int from, uint64_t step, std::span<std::byte> to);
  // The memory of a piece that is expected and has that size; null: there is none (any more).
  std::shared_ptr<void> claim(int from, uint64_t step, int64_t bytes);
  // Nothing is expected any more.
  void close();
  // Until one claim less is under way, for `time` at most; whether that came true or none is.
  bool wait_for_one(std::chrono::nanoseconds time);
  // Who sends what is under way.
  std::vector<int> senders() const;
  int64_t claimed() const;  // so far

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with claims
};

}  // namespace hekla::process_group
