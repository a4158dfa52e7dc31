// SPDX-License-Identifier: Apache-2.0
// The extension of holds: values of buffers for those who have no PJRT_Buffer.
#include <unordered_map>

#include "backends/pjrt/abi.h"
#include "plugin_api/hekla_holds.h"

struct Hekla_Hold {
  Hekla_Hold() = default;
  Hekla_Hold(const Hekla_Hold&) = delete;
  Hekla_Hold& operator=(const Hekla_Hold&) = delete;
  ~Hekla_Hold() {
    if (storage != nullptr) --storage->holds;
  }

  hekla::pjrt::StateRef state;  // the backend lives as long
  hekla::pjrt::StorageRef storage;
  hekla::CompletionRef ready;
  int64_t size_bytes = 0;
};

namespace hekla::pjrt {
namespace {

thread_local bool is_on = false;

// Those that were not released. Whoever reads one keeps it: another thread may release it
// meanwhile.
using HoldRef = std::shared_ptr<Hekla_Hold>;
struct AllHolds {
  std::mutex mutex;
  std::unordered_map<const Hekla_Hold*, HoldRef> holds;  // guarded by mutex
};

// Never destroyed: threads may still read when the process ends.
AllHolds& all_holds() {
  static auto* const made = new AllHolds;
  return *made;
}

// Null: there is no such hold.
HoldRef find_hold(const Hekla_Hold* address) {
  AllHolds& all = all_holds();
  const std::lock_guard lock(all.mutex);
  const auto found = all.holds.find(address);
  return found == all.holds.end() ? nullptr : found->second;
}

Status Holds_Switch(Hekla_Holds_Switch_Args* args) {
  HEKLA_REQUIRE(args, Hekla_Holds_Switch_Args, is_on);
  is_on = args->is_on;
  return ok_status();
}

Status Hold_Find(Hekla_Hold_Find_Args* args) {
  HEKLA_REQUIRE(args, Hekla_Hold_Find_Args, size_bytes);
  const HoldRef hold = find_hold(reinterpret_cast<const Hekla_Hold*>(args->pointer));
  args->hold = hold.get();
  args->size_bytes = hold == nullptr ? 0 : hold->size_bytes;
  return ok_status();
}

Status Hold_Read(Hekla_Hold_Read_Args* args) {
  HEKLA_REQUIRE(args, Hekla_Hold_Read_Args, into);
  const HoldRef found = find_hold(args->hold);
  if (found == nullptr) return invalid_argument("there is no such hold");
  const Hekla_Hold& hold = *found;
  if (hold.state != nullptr) HEKLA_RETURN_IF_ERROR(hold.state->check_process());
  if (args->offset < 0 || args->size_bytes < 0 || args->size_bytes > hold.size_bytes ||
      args->offset > hold.size_bytes - args->size_bytes) {
    return invalid_argument("bytes [{}, {} more) are not within the {} of the hold", args->offset,
                            args->size_bytes, hold.size_bytes);
  }
  HEKLA_RETURN_IF_ERROR(hold.ready->await());
  if (args->size_bytes == 0) return ok_status();
  HEKLA_REQUIRE_HANDLE(args, into);
  const CompletionRef done = Completion::make();
  hold.state->backend->copy_to_host(hold.storage, args->offset, args->into, args->size_bytes, done);
  return done->await();
}

Status Hold_Release(Hekla_Hold_Release_Args* args) {
  HEKLA_REQUIRE(args, Hekla_Hold_Release_Args, hold);
  AllHolds& all = all_holds();
  HoldRef released;  // outside of the lock
  const std::lock_guard lock(all.mutex);
  const auto found = all.holds.find(args->hold);
  if (found == all.holds.end()) return invalid_argument("there is no such hold");
  HEKLA_KEEP_IF_INHERITED(found->second);
  released = std::move(found->second);
  all.holds.erase(found);
  return ok_status();
}

Hekla_Holds_Extension holds_node = {
    {PJRT_STRUCT_SIZE(Hekla_Holds_Extension, hold_release),
     static_cast<PJRT_Extension_Type>(Hekla_Extension_Type_Holds), nullptr},
    Slot<Holds_Switch>::call,
    Slot<Hold_Find>::call,
    Slot<Hold_Read>::call,
    Slot<Hold_Release>::call,
};

}  // namespace

PJRT_Extension_Base* holds_extension() { return &holds_node.base; }

bool wants_holds() { return is_on; }

Result<uintptr_t> make_hold(PJRT_Buffer& buffer) {
  // Whoever reads a hold takes its bytes for row-major ones.
  if (!buffer.order.empty()) {
    return unimplemented("values of an array with the layout {} are read through the client",
                         layout_text(buffer.order, buffer.dims.size()));
  }
  const HoldRef hold = std::make_shared<Hekla_Hold>();
  hold->state = buffer.state;
  hold->ready = buffer.ready;
  hold->size_bytes = buffer.size_bytes();
  {
    // A launch that takes the storage does so under this lock too, and sees the hold.
    const std::lock_guard lock(buffer.mutex);
    if (!buffer.is_usable()) return deleted_or_donated();
    hold->storage = buffer.storage;
    ++hold->storage->holds;
  }
  AllHolds& all = all_holds();
  const std::lock_guard lock(all.mutex);
  all.holds.emplace(hold.get(), hold);
  return reinterpret_cast<uintptr_t>(hold.get());
}

}  // namespace hekla::pjrt
