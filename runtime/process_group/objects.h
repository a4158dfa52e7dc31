// SPDX-License-Identifier: Apache-2.0
// Objects: texts of any length, other on each rank, by the calls of a group: torch's object forms,
// of which the caller makes the bytes and reads them. What comes is another process's to choose: do
// not believe it.
//
// Each is two collectives, of sizes and of bytes, and waits for both. Errors are those of calls;
// FAILED_PRECONDITION: in a block of calls that go together. Where one rank has no room for what
// comes (RESOURCE_EXHAUSTED), the others' calls fail at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

// What each rank brought, by rank.
Result<std::vector<std::string>> all_gather_objects(ProcessGroup& group, std::string_view own,
                                                    Timeout timeout = {});
// The same on the root; nothing on the others.
Result<std::vector<std::string>> gather_objects(ProcessGroup& group, std::string_view own, int root,
                                                Timeout timeout = {});
// The root's; `own` counts there alone.
Result<std::string> broadcast_object(ProcessGroup& group, std::string_view own, int root,
                                     Timeout timeout = {});
// Of the root's, which has one for each rank, this rank's; `all` counts there alone.
// INVALID_ARGUMENT on the root, and on the others once their call is over: as many as ranks.
Result<std::string> scatter_object(ProcessGroup& group, const std::vector<std::string>& all,
                                   int root, Timeout timeout = {});

}  // namespace hekla::process_group
