// SPDX-License-Identifier: Apache-2.0
// `hekla group-check --faults`: what ranks hear of one that goes wrong, and how soon
// (runtime/process_group/conformance/faults.h).
#pragma once

#include <vector>

#include "tools/group_check_ranks.h"

namespace hekla::tools {

// One rank of a check, arguments.fault; prints what read_ranks of the other side reads.
int run_fault_rank(const GroupCheckArguments& arguments);
// All checks whose names contain the filter, by each of the parts; prints a table, or JSON. Exit
// code: 0 when each rank heard what it should.
int check_faults(const GroupCheckArguments& arguments, const std::vector<Part>& parts);

}  // namespace hekla::tools
