// SPDX-License-Identifier: Apache-2.0
// For tests of process groups: each way in which collectives go, and what tests say of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process_group/testing/ranks.h"

namespace hekla::process_group {

inline bool says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

inline std::vector<float> noise(int64_t count, int rank) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = 77 + static_cast<uint32_t>(rank) * 7919;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-24F;
  }
  return values;
}

inline std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// How collectives go: by messages, from host to host, through shared memory, through it in the
// smallest pieces.
enum class Way { kMessages, kHosts, kMemory, kPieces };

class ByWays : public ::testing::TestWithParam<Way> {
 protected:
  static Options with_way(Options options) {
    const bool is_by_messages = GetParam() == Way::kMessages || GetParam() == Way::kHosts;
    options.shared_memory = is_by_messages ? "off" : "on";
    if (GetParam() == Way::kHosts) {
      options.ranks_per_host = 2;
      options.flat_bytes = 0;
      options.early_pieces = 0;
      options.stream_piece_bytes = 0;
    }
    if (GetParam() == Way::kPieces) {
      options.shared_flat_bytes = 0;
      options.shared_slot_bytes = 1;
      options.shared_stream_bytes = 0;
      options.shared_spin = std::chrono::nanoseconds(0);
    }
    return options;
  }
  static void on_ranks(int size, const Body& body, const Options& options = {}) {
    process_group::on_ranks(size, body, with_way(options));
  }
  static std::vector<int> on_processes(int size, const std::function<int(ProcessGroup&)>& body) {
    return process_group::on_processes(size, body, with_way({}));
  }
};

inline std::string name_of(const ::testing::TestParamInfo<Way>& info) {
  constexpr std::string_view kNames[] = {"messages", "hosts", "memory", "pieces"};
  return std::string(kNames[static_cast<size_t>(info.param)]);
}
inline const auto kWays =
    ::testing::Values(Way::kMessages, Way::kHosts, Way::kMemory, Way::kPieces);

}  // namespace hekla::process_group
