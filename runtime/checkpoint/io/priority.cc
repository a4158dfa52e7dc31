// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/priority.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hekla::checkpoint {
namespace {

// A thirtieth of a core that a thread of nice 0 wants whole: steps of training take 3 % longer at
// most. Nice 19 is a seventieth, and saves beside other programs took up to 3 times as long;
// SCHED_IDLE is less and gets the class of I/O that waits for all others.
constexpr int kBackgroundNice = 15;

}  // namespace

Priority::Watch::Watch(std::shared_ptr<Priority> priority, std::function<void()> changed)
    : priority_(std::move(priority)) {
  const std::lock_guard lock(priority_->mutex_);
  place_ = priority_->watchers_.insert(priority_->watchers_.end(), std::move(changed));
}

Priority::Watch::~Watch() {
  const std::lock_guard lock(priority_->mutex_);
  priority_->watchers_.erase(place_);
}

void Priority::add(int change) {
  const std::lock_guard lock(mutex_);
  const bool was_raised = holds_ > 0;
  holds_ += change;
  if (was_raised == (holds_ > 0)) return;
  for (const std::function<void()>& changed : watchers_) changed();
}

void lower_this_thread() {
  // Fails where a sandbox forbids it: the thread then keeps its priority, which is no error.
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &none);
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));  // on Linux, of this thread alone
  errno = 0;
  const int nice = ::getpriority(PRIO_PROCESS, thread);
  if (errno == 0) ::setpriority(PRIO_PROCESS, thread, std::max(nice, kBackgroundNice));
}

}  // namespace hekla::checkpoint
