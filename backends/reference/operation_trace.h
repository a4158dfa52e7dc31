// SPDX-License-Identifier: Apache-2.0
// OperationTrace: shows a profiler when an operation ran, from this object's beginning to its end.
// Costs one load where none watches.
#pragma once

#include "runtime/base/trace.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

class OperationTrace {
 public:
  // `device`: LaunchContext::device. `op` outlives this object.
  OperationTrace(TraceLine line, int device, const ir::Operation& op)
      : line_(line), device_(device), op_(op), is_on_(device >= 0 && Trace::is_on()) {
    if (is_on_) begin_ = Trace::now();
  }
  OperationTrace(const OperationTrace&) = delete;
  OperationTrace& operator=(const OperationTrace&) = delete;
  ~OperationTrace() {
    if (!is_on_) return;
    const int64_t end = Trace::now();
    TraceDetail detail{std::string(op_.name()), std::move(stats_)};
    auto [name, place] = ir::location_parts(op_.location());
    if (!name.empty()) detail.stats.push_back({"tf_op", std::move(name)});
    if (!place.empty()) detail.stats.push_back({"source", std::move(place)});
    Trace::add(
        {line_, device_, std::make_shared<const TraceDetail>(std::move(detail)), begin_, end});
  }
  bool is_on() const { return is_on_; }
  void add(TraceStat stat) { stats_.push_back(std::move(stat)); }

 private:
  const TraceLine line_;
  const int device_;
  const ir::Operation& op_;
  const bool is_on_;
  int64_t begin_ = 0;
  std::vector<TraceStat> stats_;
};

}  // namespace hekla::reference
