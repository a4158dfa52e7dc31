// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "backends/compiler/passes/trip_count.h"
#include "runtime/base/host_array.h"

namespace hekla::spmd {
namespace {

using ir::OpCode;

// What an operand makes each of `n` devices of a group send, on average.
double ring_bytes(OpCode code, double operand, double n) {
  switch (code) {
    case OpCode::kAllGather:
      return operand * (n - 1);
    case OpCode::kAllReduce:
    case OpCode::kCrossReplicaSum:
      return 2 * operand * (n - 1) / n;
    default:
      return operand * (n - 1) / n;
  }
}

// One for each place that a fused location stands for, without repetitions; one for any other.
std::vector<std::string> location_strings(const ir::LocationRef& location) {
  constexpr size_t kMost = 16;
  std::vector<std::string> all;
  if (location != nullptr && location->kind == ir::Location::Kind::kFused) {
    for (const ir::LocationRef& child : location->children) {
      std::string one = ir::location_string(child);
      if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(std::move(one));
      if (all.size() == kMost) break;
    }
  }
  if (all.empty()) all.push_back(ir::location_string(location));
  return all;
}

struct Loops {
  int64_t runs = 1;
  bool is_counted = true;
};

Status report_region(const ir::Region& region, const Loops& loops, const ir::Module& module,
                     CollectiveReport& report) {
  for (const auto& block : region.blocks()) {
    for (const auto& op : block->operations()) {
      if (ir::is_collective(op->code()) && !ir::is_host_transfer(*op)) {
        HEKLA_ASSIGN_OR_RETURN(Collective found, collective_of(*op, report.grid, module.meshes));
        found.runs = loops.runs;
        found.is_counted = loops.is_counted;
        report.collectives.push_back(std::move(found));
      }
      Loops inner = loops;
      if (op->code() == OpCode::kWhile) {
        const int64_t trips = passes::trip_count(*op);
        if (trips < 0) inner.is_counted = false;
        if (trips > 0 && inner.runs > std::numeric_limits<int64_t>::max() / trips) {
          return out_of_range("{} at {} runs more often than is counted", op->name(),
                              ir::location_string(op->location()));
        }
        if (trips >= 0) inner.runs *= trips;
      }
      for (size_t r = 0; r < op->region_count(); ++r) {
        HEKLA_RETURN_IF_ERROR(report_region(op->region(r), inner, module, report));
      }
    }
  }
  return ok_status();
}

CollectiveReport::Total sum_of(const CollectiveReport& report, const OpCode* only) {
  CollectiveReport::Total total;
  for (const Collective& one : report.collectives) {
    if (only != nullptr && one.code != *only) continue;
    ++total.count;
    total.runs += one.runs;
    total.bytes += one.bytes * static_cast<double>(one.runs);
  }
  return total;
}

// In the order in which they come up.
std::vector<OpCode> kinds_of(const CollectiveReport& report) {
  std::vector<OpCode> kinds;
  for (const Collective& one : report.collectives) {
    if (std::find(kinds.begin(), kinds.end(), one.code) == kinds.end()) kinds.push_back(one.code);
  }
  return kinds;
}

}  // namespace

CollectiveReport::Total CollectiveReport::total() const { return sum_of(*this, nullptr); }
CollectiveReport::Total CollectiveReport::total(OpCode code) const { return sum_of(*this, &code); }

Result<Collective> collective_of(const ir::Operation& op, const ir::DeviceGrid& grid,
                                 std::span<const ir::Mesh> meshes) {
  Collective found;
  found.code = op.code();
  found.locations = location_strings(op.location());
  double operands = 0;
  for (const ir::Value* operand : op.operands()) {
    if (operand->type().is_token()) continue;
    found.operands.push_back(operand->type().to_string());
    if (!operand->type().is_static_tensor()) continue;
    HEKLA_ASSIGN_OR_RETURN(const int64_t bytes,
                           checked_bytes(operand->type().dtype(), operand->type().dims()));
    operands += static_cast<double>(bytes);
  }
  const auto devices = static_cast<double>(grid.size());
  if (op.code() == OpCode::kCollectivePermute || op.code() == OpCode::kSend ||
      op.code() == OpCode::kRecv) {
    HEKLA_ASSIGN_OR_RETURN(const auto pairs, device_pairs(op, grid));
    found.group = std::count_if(pairs.begin(), pairs.end(),
                                [](const auto& pair) { return pair.first != pair.second; });
    // What is received was sent elsewhere.
    if (op.code() != OpCode::kRecv) found.bytes = operands * static_cast<double>(found.group);
  } else {
    HEKLA_ASSIGN_OR_RETURN(const auto groups, device_groups(op, grid, meshes));
    for (const std::vector<int64_t>& group : groups) {
      const auto n = static_cast<double>(group.size());
      found.group = std::max(found.group, static_cast<int64_t>(group.size()));
      found.bytes += n * ring_bytes(op.code(), operands, n);
    }
  }
  found.bytes /= devices;
  return found;
}

Result<CollectiveReport> report_collectives(const ir::Module& module, const ir::DeviceGrid& grid) {
  CollectiveReport report;
  report.grid = grid;
  HEKLA_RETURN_IF_ERROR(report_region(module.entry()->body(), {}, module, report));
  return report;
}

std::string to_text(const CollectiveReport& report) {
  std::string text;
  for (const Collective& one : report.collectives) {
    text += fmt::format("{} {} {} of {}, {} {}{}, {:.0f} bytes, {}\n", ir::op_name(one.code),
                        fmt::join(one.operands, ", "),
                        one.code == OpCode::kCollectivePermute ? "transfers" : "groups", one.group,
                        one.runs, one.runs == 1 ? "run" : "runs",
                        one.is_counted ? "" : " (in a loop that is not counted)",
                        one.bytes * static_cast<double>(one.runs), fmt::join(one.locations, "; "));
  }
  for (OpCode kind : kinds_of(report)) {
    const CollectiveReport::Total total = report.total(kind);
    text += fmt::format("all {}: {} in the program, {} runs, {:.0f} bytes\n", ir::op_name(kind),
                        total.count, total.runs, total.bytes);
  }
  const CollectiveReport::Total total = report.total();
  text += fmt::format("each of {} devices sends {:.0f} bytes in {} runs of collectives\n",
                      report.grid.size(), total.bytes, total.runs);
  return text;
}

std::string to_json(const CollectiveReport& report) {
  using Json = nlohmann::ordered_json;
  const CollectiveReport::Total total = report.total();
  Json json = {{"devices", report.grid.size()}, {"runs", total.runs}, {"bytes", total.bytes}};
  json["kinds"] = Json::object();
  for (OpCode kind : kinds_of(report)) {
    const CollectiveReport::Total one = report.total(kind);
    json["kinds"][std::string(ir::op_name(kind))] = {
        {"count", one.count}, {"runs", one.runs}, {"bytes", one.bytes}};
  }
  json["collectives"] = Json::array();
  for (const Collective& one : report.collectives) {
    json["collectives"].push_back({{"kind", ir::op_name(one.code)},
                                   {"locations", one.locations},
                                   {"operands", one.operands},
                                   {"group", one.group},
                                   {"runs", one.runs},
                                   {"is_counted", one.is_counted},
                                   {"bytes", one.bytes * static_cast<double>(one.runs)}});
  }
  // Names in programs may be any bytes.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hekla::spmd
