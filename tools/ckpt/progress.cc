// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/progress.h"

#include <fmt/core.h>

namespace hekla::tools {

std::string size_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  if (bytes < 1000 * 1000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1000 * 1000 * 1000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

Progress::Progress(std::string what, int64_t total_bytes)
    : what_(std::move(what)), total_(total_bytes) {}

void Progress::add(int64_t bytes) {
  const int64_t done = done_ += bytes;
  const auto ms = static_cast<int64_t>(seconds() * 1000);
  int64_t due = next_ms_.load();
  if (ms < due || !next_ms_.compare_exchange_strong(due, ms + 1000)) return;
  fmt::print(stderr, "{}: {} of {}, {} %, {}/s\n", what_, size_text(done), size_text(total_),
             total_ == 0 ? 100
                         : static_cast<int64_t>(100.0 * static_cast<double>(done) /
                                                static_cast<double>(total_)),
             size_text(static_cast<int64_t>(static_cast<double>(done) / seconds())));
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

}  // namespace hekla::tools
