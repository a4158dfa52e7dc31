// SPDX-License-Identifier: Apache-2.0
// PreemptionSignal: SIGTERM and its kin as news for a thread.
//
// The handler only sets a flag and writes a byte into a pipe; a thread without signals reads it and
// calls back. A second signal ends the process at once, without exit handlers, with code 76. Signal
// handlers belong to the process: one object at a time. The handlers of before come back with the
// destructor.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

// What a process ends with that was preempted: EX_TEMPFAIL after a committed save, so that a
// launcher starts it again without counting a failure; the other one when the save failed.
inline constexpr int kPreemptedExitCode = 75;
inline constexpr int kPreemptedUnsavedExitCode = 76;

class PreemptionSignal {
 public:
  // ALREADY_EXISTS: there is one. `on_signal` is called once, on a thread of its own.
  static Result<std::unique_ptr<PreemptionSignal>> install(const std::vector<int>& signals,
                                                           std::function<void()> on_signal);
  ~PreemptionSignal();

  bool is_received() const;

 private:
  PreemptionSignal() = default;
  struct Before;
  std::unique_ptr<Before> before_;
  std::jthread reader_;
};

}  // namespace hekla::checkpoint
