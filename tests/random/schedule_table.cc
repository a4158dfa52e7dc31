// SPDX-License-Identifier: Apache-2.0
#include "tests/random/schedule_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace hekla::testing {
namespace {

struct Prefix {
  std::string_view prefix;
  std::string_view family;
};

// The first that fits; operations that none fits are elementwise.
constexpr Prefix kFamilies[] = {
    {"select_and_scatter", "scatter"},
    {"reduce_window", "window"},
    {"reduce_precision", "elementwise"},
    {"reduce", "reduction"},
    {"sort", "sort"},
    {"scan", "scan"},
    {"scatter", "scatter"},
    {"fft", "fft"},
    {"random", "random bits"},
    {"dot", "contraction"},
    {"convolution", "contraction"},
    {"packed contraction", "packed contraction"},
    {"matrix product", "matrix product"},
    {"gather", "gather"},
    {"dynamic_update_slice", "update"},
    {"broadcast", "movement"},
    {"concatenate", "movement"},
    {"copy", "movement"},
    {"dynamic_slice", "movement"},
    {"iota", "movement"},
    {"pad", "movement"},
    {"reshape", "movement"},
    {"reverse", "movement"},
    {"slice", "movement"},
    {"transpose", "movement"},
    {"partitioner", "partitioner"},
    {"loop", "loop"},
};

struct Required {
  std::string_view device;  // empty: any
  std::vector<std::string_view> families;
  std::vector<std::string_view> schedules;
};

// What planners can choose, by what kernels of a family are like. Those with loops get every
// schedule; kernels without loops only units of points. Not here: columns side by side for kernels
// that all have loops (sorts); blocks of rows for kernels whose results are no rows (scans, sorts
// of other dimensions); tiles of rows, which have no loops, for families that have. What only long
// runs see (README.md) is left out too.
const std::vector<Required>& required() {
  static const std::vector<Required> all = {
      {"cpu",
       {"contraction", "elementwise", "gather", "movement", "random bits", "reduction", "scan",
        "scatter", "sort", "update", "window"},
       {"points one by one", "vectors"}},
      // Rarer: few rows, products with a vector. cpu_contraction_test has them.
      {"cpu", {"packed contraction"}, {"rows in place", "rows packed"}},
      {"cpu", {"fft"}, {"vectors", "whole lines"}},
      {"cpu", {"contraction", "movement", "scan", "scatter", "sort", "window"}, {"segments"}},
      {"cpu", {"elementwise", "gather", "movement", "update"}, {"tiles of rows"}},
      {"cpu", {"movement"}, {"staged tiles"}},
      {"cpu", {"elementwise", "movement", "reduction"}, {"blocks of rows"}},
      {"cpu", {"loop"}, {"one function", "step by step"}},
      {"vulkan",
       {"contraction", "elementwise", "fft", "gather", "movement", "random bits", "reduction",
        "scan", "scatter", "sort", "update", "window"},
       {"points"}},
      // Rarer: few kernels, and none that would take the host some time.
      {"vulkan",
       {"contraction", "elementwise", "movement", "reduction", "sort", "window"},
       {"on the host"}},
      {"vulkan",
       {"contraction", "elementwise", "fft", "gather", "movement", "random bits", "reduction",
        "scatter", "update", "window"},
       {"points, adjacent columns"}},
      {"vulkan",
       {"contraction", "reduction", "scan", "scatter", "sort", "window"},
       {"tile", "tile, lanes load for each other", "shared memory"}},
      // Rarer: columns that divide the grid. Of contractions vulkan_codegen_device_test has them.
      {"vulkan", {"reduction", "scan", "scatter", "sort", "window"}, {"tile, adjacent columns"}},
      {"vulkan",
       {"reduction", "sort", "window"},
       {"tile, adjacent columns, lanes load for each other"}},
      {"vulkan", {"contraction", "reduction", "scan", "scatter", "window"}, {"subgroup per point"}},
      {"vulkan", {"reduction", "scan", "sort"}, {"teams, shared memory", "teams, subgroups"}},
      {"vulkan", {"loop"}, {"one workgroup", "dispatches"}},
      {"",
       {"partitioner"},
       {"computed once more", "sent alone", "collectives merged", "collectives not merged",
        "collectives out of loops", "collectives left in loops", "collectives combined",
        "collectives apart", "products around rings", "products at once"}},
  };
  return all;
}

int64_t count_of(const ScheduleTable& table, std::string_view family, std::string_view schedule) {
  const auto row = table.find(std::string(family));
  if (row == table.end()) return 0;
  const auto cell = row->second.find(std::string(schedule));
  return cell == row->second.end() ? 0 : cell->second;
}

}  // namespace

std::string_view family_of(std::string_view kernel) {
  for (const Prefix& each : kFamilies) {
    if (kernel.starts_with(each.prefix)) return each.family;
  }
  return "elementwise";
}

ScheduleTable schedule_table(const std::map<std::string, int64_t>& lines) {
  ScheduleTable table;
  for (const auto& [line, count] : lines) {
    const size_t end = line.find(": ");
    if (end == std::string::npos) continue;
    table[std::string(family_of(line.substr(0, end)))][line.substr(end + 2)] += count;
  }
  return table;
}

std::string to_text(const ScheduleTable& table) {
  std::set<std::string> schedules;
  for (const auto& [family, row] : table) {
    for (const auto& [schedule, count] : row) schedules.insert(schedule);
  }
  std::string text = fmt::format("{:18}", "");
  size_t number = 0;
  for (size_t i = 0; i < schedules.size(); ++i) text += fmt::format("{:>9}", i + 1);
  text += "\n";
  for (const auto& [family, row] : table) {
    text += fmt::format("{:18}", family);
    for (const std::string& schedule : schedules) {
      text += fmt::format("{:>9}", count_of(table, family, schedule));
    }
    text += "\n";
  }
  for (const std::string& schedule : schedules)
    text += fmt::format("{:>3} {}\n", ++number, schedule);
  return text;
}

std::vector<std::string> missing_pairs(const std::string& device, const ScheduleTable& table) {
  std::vector<std::string> missing;
  for (const Required& each : required()) {
    // Programs over partitions have decisions of the partitioner's, on any device.
    const bool is_asked =
        each.device.empty() ? table.contains("partitioner") : each.device == device;
    if (!is_asked) continue;
    for (const std::string_view family : each.families) {
      for (const std::string_view schedule : each.schedules) {
        if (count_of(table, family, schedule) == 0) {
          missing.push_back(fmt::format("{}: {}", family, schedule));
        }
      }
    }
  }
  return missing;
}

}  // namespace hekla::testing
