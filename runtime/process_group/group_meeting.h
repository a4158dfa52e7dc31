// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group come to share memory: in its first call, which still goes by messages.
#pragma once

#include <memory>
#include <string>

#include "runtime/process_group/exchange.h"
#include "runtime/process_group/group_memory.h"

namespace hekla::process_group {

struct GroupMeeting {
  std::unique_ptr<GroupMemory> memory;  // null: they share none
  std::string reason;                   // why, on all ranks the same
  HostLayout layout;                    // of all ranks, where none of them hides its host
};

// A barrier, by the end of which all ranks share memory or none does.
Result<GroupMeeting> meet_in_memory(Exchange& exchange, const Options& options);

}  // namespace hekla::process_group
