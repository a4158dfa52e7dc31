// SPDX-License-Identifier: Apache-2.0
// Which schedules ran which families of operations, and which pairs a run of random programs must
// have exercised.
//
// A family is what the operation that a kernel is named after does. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hekla::testing {

// By the name of a kernel: "sort_merge" is of the family "sort".
std::string_view family_of(std::string_view kernel);

// Counts by family, then schedule.
using ScheduleTable = std::map<std::string, std::map<std::string, int64_t>>;
// `lines`: how often each line of an executable's artefact "schedules" was seen, "KERNEL:
// SCHEDULE".
ScheduleTable schedule_table(const std::map<std::string, int64_t>& lines);

// A row a family, a column a schedule.
std::string to_text(const ScheduleTable& table);

// The pairs that must be in the table of a device ("cpu", "vulkan"; none for others) and are not:
// "scan: tile".
std::vector<std::string> missing_pairs(const std::string& device, const ScheduleTable& table);

}  // namespace hekla::testing
