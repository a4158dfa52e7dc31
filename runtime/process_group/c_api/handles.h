// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles of process_group_c.h, and how its functions report.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/c_report.h"
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

using hekla::c_report::last_error;
using hekla::c_report::report;
using hekla::c_report::run;

Timeout timeout_of(int64_t timeout_ms);
// Empty for null.
Result<Elements> elements_of(const hekla_group_array* array,
                             const std::shared_ptr<const void>& owner, DType dtype);
Result<Reduction> reduction_of(int32_t op, double factor);
// Null for 0. The last copy says that nobody looks at the memory any more.
std::shared_ptr<const void> owner_of(uint64_t keep);

}  // namespace hekla::process_group::c_api
