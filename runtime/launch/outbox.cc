// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/outbox.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hekla::launch {

Outbox& Outbox::of(int file) {
  static Outbox output(STDOUT_FILENO), errors(STDERR_FILENO);
  return file == STDOUT_FILENO ? output : errors;
}

void Outbox::write() {
  size_t at = 0;
  while (at < text_.size()) {
    pollfd polled = {file_, POLLOUT, 0};
    const int ready = ::poll(&polled, 1, 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    // A pipe that is ready has room for so much.
    const ssize_t count =
        ::write(file_, text_.data() + at, std::min<size_t>(text_.size() - at, PIPE_BUF));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    // Nobody will read it.
    if (count <= 0) at = text_.size();
    if (count > 0) at += static_cast<size_t>(count);
  }
  text_.erase(0, at);
}

void Outbox::drain(const Signals& signals, std::chrono::milliseconds patience) {
  using DrainClock = std::chrono::steady_clock;
  DrainClock::time_point latest = DrainClock::now() + patience;
  size_t before = 0;
  for (;;) {
    std::vector<pollfd> polled = {{signals.file(), POLLIN, 0}};
    size_t left = 0;
    for (Outbox* box : {&of(STDOUT_FILENO), &of(STDERR_FILENO)}) {
      box->write();
      box->await(polled);
      left += box->text_.size();
    }
    if (left == 0) return;
    const bool is_told = signals.take() != 0;
    if (left != before || is_told) latest = DrainClock::now() + patience;
    before = left;
    if (signals.has_come() && DrainClock::now() >= latest) return;
    ::poll(polled.data(), polled.size(), 100);
  }
}

}  // namespace hekla::launch
