// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/fork_mark.h"

#include <pthread.h>

#include <atomic>
#include <new>

namespace hekla {
namespace {

// Between this process and the one that asked first.
std::atomic<uint64_t> fork_count = 0;

}  // namespace

ForkMark::ForkMark() {
  static const bool is_counting = [] {
    if (::pthread_atfork(nullptr, nullptr, [] { ++fork_count; }) != 0) throw std::bad_alloc();
    return true;
  }();
  static_cast<void>(is_counting);
  forks_ = fork_count;
}

bool ForkMark::is_inherited() const { return forks_ != fork_count; }

}  // namespace hekla
