// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/sharding_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "runtime/program/ir/op_code.h"

namespace hekla::spmd {

std::string to_text(const ShardingTrace& trace) {
  std::string text;
  for (const ShardingTrace::Line& line : trace.lines) {
    const std::string indent(static_cast<size_t>(2 * line.depth), ' ');
    text += fmt::format("{}{}", indent, line.what);
    if (!line.location.empty()) text += fmt::format(" at {}", line.location);
    for (size_t i = 0; i < line.arrays.size(); ++i) {
      const ShardingTrace::Array& array = line.arrays[i];
      text += fmt::format("{} {}", i == 0 ? ":" : ",", array.type);
      if (array.local == array.type) {
        text += " whole";
      } else {
        if (!array.sharding.empty()) text += fmt::format(" as {}", array.sharding);
        text += fmt::format(", {} a device", array.local);
      }
    }
    if (!line.note.empty()) text += fmt::format("; {}", line.note);
    text += "\n";
    for (const Collective& one : line.collectives) {
      text += fmt::format("{}    {} of {}, {} of {}: {:.0f} bytes\n", indent, ir::op_name(one.code),
                          fmt::join(one.operands, ", "),
                          one.code == ir::OpCode::kCollectivePermute ? "transfers" : "groups",
                          one.group, one.bytes);
    }
  }
  return text;
}

std::string to_json(const ShardingTrace& trace) {
  using Json = nlohmann::ordered_json;
  Json lines = Json::array();
  for (const ShardingTrace::Line& line : trace.lines) {
    Json one = {{"depth", line.depth},
                {"what", line.what},
                {"location", line.location},
                {"note", line.note}};
    one["arrays"] = Json::array();
    for (const ShardingTrace::Array& array : line.arrays) {
      one["arrays"].push_back(
          {{"type", array.type}, {"sharding", array.sharding}, {"local", array.local}});
    }
    one["collectives"] = Json::array();
    for (const Collective& collective : line.collectives) {
      one["collectives"].push_back({{"kind", ir::op_name(collective.code)},
                                    {"operands", collective.operands},
                                    {"group", collective.group},
                                    {"bytes", collective.bytes}});
    }
    lines.push_back(std::move(one));
  }
  // Names in programs may be any bytes.
  return lines.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hekla::spmd
