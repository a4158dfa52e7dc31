// SPDX-License-Identifier: Apache-2.0
// Outbox: what this process has still to write to its standard output or error.
//
// Nobody waits for who reads it: a launcher that did could end no rank meanwhile. What does not fit
// stays here; where that is much, ranks are not read from, and wait in their own writes. Of the
// thread that launches. The file is not made non-blocking, since others share it; so where others
// write to the same pipe as well, a write may wait for its reader.
#pragma once

#include <poll.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/signals.h"

namespace hekla::launch {

class Outbox {
 public:
  // Of STDOUT_FILENO or STDERR_FILENO.
  static Outbox& of(int file);
  // Once a run has ended: until all is written, and for as long as somebody reads; after a signal
  // no longer than `patience` without progress.
  static void drain(const Signals& signals, std::chrono::milliseconds patience);

  void add(std::string_view text) {
    text_ += text;
    write();
  }
  // As much as there is room for.
  void write();
  bool is_full() const { return text_.size() >= kMost; }
  bool is_empty() const { return text_.empty(); }
  // For poll, where something is to be written.
  void await(std::vector<pollfd>& polled) const {
    if (!is_empty()) polled.push_back({file_, POLLOUT, 0});
  }

 private:
  static constexpr size_t kMost = 256 << 10;
  explicit Outbox(int file) : file_(file) {}

  const int file_;
  std::string text_;
};

}  // namespace hekla::launch
