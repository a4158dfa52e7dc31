// SPDX-License-Identifier: Apache-2.0
// MemoryRoom: how much memory this process may have: the host's, or less where it runs in a
// container or a batch job, whose control groups (cgroup v1 and v2) the kernel holds it to by
// killing, not by errors. For those that take much at once, to refuse in words before.
//
// Read anew with each call, some files; cannot fail, what the system does not tell bounds nothing.
// Thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace hekla {

struct MemoryRoom {
  struct Bound {
    int64_t bytes = std::numeric_limits<int64_t>::max();
    std::string whose;  // "the host's", "the control group's /jobs/7"; empty: there is no bound
  };
  Bound limit;  // of all processes together
  Bound left;   // of it; what the kernel keeps of files is left, as it drops that first
};

// `root` stands before /proc and before where control groups are mounted; for tests.
MemoryRoom memory_room(const std::string& root = "");

}  // namespace hekla
