// SPDX-License-Identifier: Apache-2.0
// Threads of Hekla's own, which take no signal away from the program that it is loaded into.
//
// No signal is delivered to them: handlers of the program run on its own threads. Faults of the
// thread itself still end the process, with the program's handler. They are std::jthreads: whoever
// owns one asks it to stop and waits for it when it destroys it, so a thread that uses members
// stands behind them. A program that one of them starts inherits the blocked signals.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace hekla {

// While it lives, threads that the caller starts begin with signals blocked, and so is the caller.
class SignalsBlocked {
 public:
  SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked();

 private:
  sigset_t before_;
};

// `run` may take a std::stop_token. Throws std::system_error where the system has no more threads.
template <typename Run>
std::jthread start_thread(Run run) {
  const SignalsBlocked blocked;
  return std::jthread(std::move(run));
}

// A thread that calls `beat` every `period`, for the first time after one, until it returns false.
// To stop it waits for the call under way alone.
std::jthread start_heartbeat(std::chrono::nanoseconds period, std::function<bool()> beat);

}  // namespace hekla
