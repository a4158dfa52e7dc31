// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/trace_lines.h"

#include <utility>

#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/location.h"

namespace hekla::spmd {

size_t TraceLines::begin(std::string what, std::string location) {
  if (trace_ == nullptr) return 0;
  open_.push_back({trace_->lines.size(), resharder_.collectives().size()});
  trace_->lines.push_back({depth_, std::move(what), std::move(location), {}, {}, {}});
  return trace_->lines.size() - 1;
}

size_t TraceLines::begin(const ir::Operation& op) {
  if (trace_ == nullptr) return 0;
  return begin(is_call_of(op, kConstraint) ? "constraint" : std::string(op.name()),
               ir::location_string(op.location()));
}

void TraceLines::end(size_t line, const std::vector<const ir::Value*>& values) {
  if (trace_ == nullptr) return;
  for (const ir::Value* value : values) {
    const ir::Type& type = versions_.type(value);
    if (!type.is_static_tensor()) continue;
    ShardingTrace::Array array{type.to_string(), "", type.to_string(), {}};
    for (const Tiling& tiling : versions_.tilings(value)) {
      if (tiling.is_replicated()) continue;
      array.sharding = mesh_->to_text(tiling);
      const Dims local = local_shape(*mesh_, tiling, type.dims());
      array.local = ir::Type::tensor(type.element(), local).to_string();
      array.cut = mesh_->cut_of(tiling);
      break;
    }
    trace_->lines[line].arrays.push_back(std::move(array));
  }
  const std::vector<ir::Operation*>& made = resharder_.collectives();
  for (size_t i = open_.back().collectives; i < made.size(); ++i) maker_of_.emplace(made[i], line);
  open_.pop_back();
}

void TraceLines::note(std::string text) {
  if (trace_ == nullptr || open_.empty()) return;
  trace_->lines[open_.back().line].note = std::move(text);
}

void TraceLines::finish(const ir::DeviceGrid& grid) {
  if (trace_ == nullptr) return;
  for (const ir::Operation* op : resharder_.collectives()) {
    const auto maker = maker_of_.find(op);
    const Result<Collective> known = collective_of(*op, grid, {});
    if (maker == maker_of_.end() || !known.ok()) continue;
    trace_->lines[maker->second].collectives.push_back(*known);
  }
}

}  // namespace hekla::spmd
