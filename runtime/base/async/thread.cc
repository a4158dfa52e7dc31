// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/thread.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace hekla {

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  ::sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
    ::sigdelset(&all, fault);
  }
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::jthread start_heartbeat(std::chrono::nanoseconds period, std::function<bool()> beat) {
  return start_thread([period, beat = std::move(beat)](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, stop, period, [&] { return stop.stop_requested(); })) {
      if (stop.stop_requested() || !beat()) return;
    }
  });
}

}  // namespace hekla
