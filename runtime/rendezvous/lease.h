// SPDX-License-Identifier: Apache-2.0
// Lease: a file that says "a live process needs this".
//
// The file carries the machine's boot id and is locked by flock as long as its owner lives; the
// owner also writes it again every some seconds. Another process of the same machine sees a free
// lock: the owner is dead. A process of another machine, which the lock may not reach, believes the
// time of change, by the file system's own clock. A lease is locked before its name can be seen.
// Children made by fork without exec keep the lock alive. A Lease may be moved; thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"

namespace hekla::rendezvous {

struct LeaseTimes {
  std::chrono::nanoseconds period = std::chrono::seconds(10);   // between heartbeats
  std::chrono::nanoseconds silence = std::chrono::seconds(60);  // after which an owner is dead
};

enum class LeaseState {
  kNone,   // no such file
  kLive,   // its lock is held
  kFresh,  // no lock is seen, but another machine may have written it a moment ago: take it for
           // live
  kDead,
};

class Lease {
 public:
  // Takes the lease at `path`, over a dead one too; `text`: one line for people and for read_lease.
  // ALREADY_EXISTS: a live process has it. Of two processes that take a dead lease at the same
  // moment both may succeed: where that can be, a lock of the caller must stand around the call.
  static Result<Lease> hold(Io& io, std::string path, std::string_view text,
                            const LeaseTimes& times = {});
  Lease();
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  ~Lease();  // gives it up

  bool is_held() const { return state_ != nullptr; }
  // Removes the file and the lock.
  Status release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// kFresh also when nobody can tell (the folder is read-only).
Result<LeaseState> lease_state(Io& io, const std::string& path, const LeaseTimes& times = {});
// The text given to hold; NOT_FOUND without a file.
Result<std::string> read_lease(Io& io, const std::string& path);

}  // namespace hekla::rendezvous
