// SPDX-License-Identifier: Apache-2.0
// CollectiveCounters: how often a device met others, with how many bytes, and how long it waited.
//
// One for each device of a client, shared with its launches. Thread-safe; never fails.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/ir/op_code.h"

namespace hekla::pjrt {

class CollectiveCounters {
 public:
  // The device has done a collective, to which it brought operands of so many bytes, and was kept
  // so long by those that came later and by what they sent. Other operations are not counted.
  void count(ir::OpCode code, int64_t bytes, int64_t waited_ns) {
    for (size_t i = 0; i < kKinds.size(); ++i) {
      if (kKinds[i] != code) continue;
      kinds_[i].runs.fetch_add(1, std::memory_order_relaxed);
      kinds_[i].bytes.fetch_add(bytes, std::memory_order_relaxed);
      kinds_[i].waited_ns.fetch_add(waited_ns, std::memory_order_relaxed);
    }
  }

  // "all_reduce runs", "all_reduce bytes", "all_reduce waited ns" ... of the kinds that ran.
  std::vector<std::pair<std::string, int64_t>> values() const {
    std::vector<std::pair<std::string, int64_t>> values;
    for (size_t i = 0; i < kKinds.size(); ++i) {
      const int64_t runs = kinds_[i].runs.load(std::memory_order_relaxed);
      if (runs == 0) continue;
      std::string name(ir::op_name(kKinds[i]));
      name.erase(0, name.rfind('.') + 1);
      values.emplace_back(name + " runs", runs);
      values.emplace_back(name + " bytes", kinds_[i].bytes.load(std::memory_order_relaxed));
      values.emplace_back(name + " waited ns", kinds_[i].waited_ns.load(std::memory_order_relaxed));
    }
    return values;
  }

 private:
  static constexpr std::array kKinds = {
      ir::OpCode::kAllGather,         ir::OpCode::kAllReduce,
      ir::OpCode::kAllToAll,          ir::OpCode::kCollectiveBroadcast,
      ir::OpCode::kCollectivePermute, ir::OpCode::kCollectiveReduce,
      ir::OpCode::kCrossReplicaSum,   ir::OpCode::kRecv,
      ir::OpCode::kReduceScatter,     ir::OpCode::kSend};
  struct Kind {
    std::atomic<int64_t> runs{0}, bytes{0}, waited_ns{0};
  };
  std::array<Kind, kKinds.size()> kinds_;
};

}  // namespace hekla::pjrt
