// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <vector>

#include "runtime/process_group/c_api/handles.h"

using namespace hekla;                        // NOLINT: the C functions stand in no namespace
using namespace hekla::process_group::c_api;  // NOLINT

namespace hekla::process_group::c_api {
namespace {

// Never destroyed: threads of groups may end after static objects do.
struct Finished {
  std::mutex mutex;
  std::vector<uint64_t> keeps;
};
Finished& finished() {
  static Finished* const all = new Finished;
  return *all;
}

}  // namespace

std::shared_ptr<const void> owner_of(uint64_t keep) {
  if (keep == 0) return nullptr;
  return {&finished(), [keep](const void*) {
            const std::lock_guard lock(finished().mutex);
            finished().keeps.push_back(keep);
          }};
}

}  // namespace hekla::process_group::c_api

extern "C" {

int32_t hekla_group_version(void) { return HEKLA_GROUP_VERSION; }
const char* hekla_group_error(void) { return last_error().c_str(); }
void hekla_group_set_error(const char* message) { last_error() = message; }

int64_t hekla_group_finished(uint64_t* keeps, int64_t capacity) {
  const std::lock_guard lock(finished().mutex);
  std::vector<uint64_t>& all = finished().keeps;
  const int64_t count = std::clamp<int64_t>(capacity, 0, static_cast<int64_t>(all.size()));
  std::copy_n(all.begin(), count, keeps);
  all.erase(all.begin(), all.begin() + count);
  return count;
}

void hekla_group_work_destroy(hekla_group_work* work) { delete work; }

int hekla_group_work_wait(hekla_group_work* work, int64_t timeout_ms) {
  return run([&] {
    if (timeout_ms < 0) return work->work.wait();
    return work->work.wait(std::chrono::milliseconds(timeout_ms));
  });
}

int32_t hekla_group_work_test(hekla_group_work* work) { return work->work.test() ? 1 : 0; }
int32_t hekla_group_work_source(hekla_group_work* work) { return work->work.source(); }

int hekla_group_work_then(hekla_group_work* work,
                          void (*callback)(void* context, int code, const char* message),
                          void* context) {
  return run([&] {
    work->work.then([callback, context](const Status& status) {
      callback(context, static_cast<int>(status.code()), status.message().c_str());
    });
    return ok_status();
  });
}

}  // extern "C"
