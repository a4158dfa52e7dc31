// SPDX-License-Identifier: Apache-2.0
// LaunchInfo: what handlers may ask of the launch that calls them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace hekla::ffi {

// Values that the client attached to a call of Execute, by the number of their type. They are the
// client's, valid until the launch has ended.
using UserData = std::map<int64_t, void*>;

struct LaunchInfo {
  int64_t run_id = 0;          // the same on all devices of a launch, and of no other launch
  int32_t device_ordinal = 0;  // among this process's devices
  std::shared_ptr<const UserData> user_data;  // null: none
};

}  // namespace hekla::ffi
