// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of process_group_c.h, and how its functions report.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "runtime/process_group/c_api/process_group_c.h"
#include "runtime/process_group/process_group.h"

// Calls hold the group that they run on, so that another thread may close it meanwhile.
struct hekla_group {
  std::mutex mutex;
  std::shared_ptr<hekla::process_group::ProcessGroup> group;  // null: closed

  hekla::Result<std::shared_ptr<hekla::process_group::ProcessGroup>> get() {
    const std::lock_guard lock(mutex);
    if (group == nullptr) return hekla::cancelled("the process group has been shut down");
    return group;
  }
};

struct hekla_group_work {
  hekla::process_group::Work work;
};

struct hekla_group_value {
  std::string bytes;
};

namespace hekla::process_group::c_api {

// Of this thread's last call that failed.
std::string& last_error();

inline int report(const Status& status) {
  if (status.ok()) return 0;
  last_error() = status.message();
  return static_cast<int>(status.code());
}

// The body of a C function: a Status, and no memory as an error instead of an exception.
template <typename Body>
int run(const Body& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(resource_exhausted("out of memory"));
  } catch (const std::exception& error) {
    return report(internal_error("{}", error.what()));
  }
}

// Null for 0. The last copy says that nobody looks at the memory any more.
std::shared_ptr<const void> owner_of(uint64_t keep);

}  // namespace hekla::process_group::c_api
