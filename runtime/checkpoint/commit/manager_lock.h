// SPDX-License-Identifier: Apache-2.0
// ManagerLock: of all managers on one root folder, the one that may delete and recover.
//
// flock on LOCK, which the kernel frees when the holder dies, and a line in it that says who holds
// it, written again with every heartbeat. Where flock does not reach (another machine's lock on
// some network file systems) that line counts: a holder of another machine is dead after three
// periods without a heartbeat, and the lock may be stolen. Move-only; thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"

namespace hekla::checkpoint {

class ManagerLock {
 public:
  // ALREADY_EXISTS names the holder.
  static Result<ManagerLock> acquire(Io& io, const std::string& root,
                                     std::chrono::nanoseconds period = std::chrono::seconds(30));
  ManagerLock();
  ManagerLock(ManagerLock&&) noexcept;
  ManagerLock& operator=(ManagerLock&&) noexcept;
  ~ManagerLock();

  // False when it was never acquired, released, or stolen (this process was silent too long).
  bool is_held() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hekla::checkpoint
