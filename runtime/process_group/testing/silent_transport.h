// SPDX-License-Identifier: Apache-2.0
// For tests: a transport whose messages go nowhere; what comes a test delivers by itself.
#pragma once

#include <string>

#include "runtime/collectives/transport.h"

namespace hekla::process_group {

class SilentTransport final : public collectives::Transport {
 public:
  SilentTransport(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int process) const override { return "process " + std::to_string(process); }
  Status status(int) const override { return ok_status(); }
  std::chrono::nanoseconds silent_for(int process) const override {
    return process == silent ? std::chrono::seconds(2) : std::chrono::seconds(0);
  }
  void send(int, collectives::Message, CompletionRef sent) override {
    if (sent != nullptr) sent->complete(ok_status());
  }

  int silent = -1;  // the process that gives no sign of life, for two seconds so far

 private:
  const int rank_, size_;
};

}  // namespace hekla::process_group
