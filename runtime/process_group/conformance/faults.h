// SPDX-License-Identifier: Apache-2.0
// What ranks hear of one that goes wrong: each collective by what happens to one rank, the victim:
// killed, ended, stopped, late, or with another size, dtype, operation or root than the others.
//
// Ranks are processes, of which some checks lose one. All call run_fault_check with the same check;
// who is left says what it heard and when, by a clock of the host.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

struct FaultCheck {
  std::string fault;      // "kill", "exit", "stop", "delay"; "size", "dtype", "operation", "root"
  std::string operation;  // "all_reduce", ...; "send_receive" and "objects", too
  int64_t bytes = 0;      // of the arrays, about

  std::string name() const;  // "kill/all_reduce/4096"
  // INVALID_ARGUMENT: no such name.
  static Result<FaultCheck> read(std::string_view name);
  // Whether what befalls the victim ends it, so that it says nothing.
  bool ends_victim() const { return fault == "kill" || fault == "exit" || fault == "stop"; }
};

// All that there are for arrays of these sizes.
std::vector<FaultCheck> fault_checks(const std::vector<int64_t>& sizes);

struct FaultReport {
  std::string problem;  // empty: as it should be
  std::string heard;    // the error's words
  int64_t at_ns = 0;    // when
};

// Of a group of two ranks and more. The victim, rank 1, calls `happens` with the time right before
// it is lost. Who is stopped is killed some seconds later, so that nothing of it stays.
FaultReport run_fault_check(ProcessGroup& world, const FaultCheck& check,
                            const std::function<void(int64_t at_ns)>& happens);

}  // namespace hekla::process_group
