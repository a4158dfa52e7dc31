// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/device/testing/fault_injection.h"

#include <string_view>

namespace hekla::vulkan::testing {
namespace {

Faults the_faults;
DeviceFunctions the_originals;
VkDevice the_device = VK_NULL_HANDLE;

// Whether this call is to fail.
bool strikes(const char* name) {
  const int64_t call = the_faults.calls++;
  const int64_t at = the_faults.at;
  if (at < 0 || call < at) return false;
  // Out of memory passes; a lost device stays lost.
  if (call > at && the_faults.result != VK_ERROR_DEVICE_LOST) return false;
  if (!the_faults.has_struck.exchange(true)) the_faults.where = name;
  return true;
}

template <auto Member, typename Function>
struct Shim;

template <auto Member, typename... Args>
struct Shim<Member, VkResult(VKAPI_PTR*)(Args...)> {
  static inline const char* name = "";
  static VKAPI_ATTR VkResult VKAPI_CALL call(Args... args) {
    if (!strikes(name)) return (the_originals.*Member)(args...);
    // Both wait for the device's work.
    if (std::string_view(name) == "vkWaitSemaphores" ||
        std::string_view(name) == "vkDeviceWaitIdle") {
      // The device is not really lost: nothing may be freed under the work that it still does.
      if (the_faults.result == VK_ERROR_DEVICE_LOST) the_originals.DeviceWaitIdle(the_device);
    }
    return the_faults.result;
  }
};

}  // namespace

void Faults::arm(int64_t call, VkResult with) {
  calls = 0;
  has_struck = false;
  where = nullptr;
  result = with;
  at = call;
}

void Faults::disarm() {
  at = -1;
  calls = 0;
}

Faults& inject_faults(Device& device) {
  DeviceFunctions& table = device.mutable_functions();
  if (table.QueueSubmit == Shim<&DeviceFunctions::QueueSubmit, PFN_vkQueueSubmit>::call) {
    return the_faults;  // installed already
  }
  the_originals = table;
  the_device = device.handle();
  the_faults.disarm();
#define HEKLA_SHIM(function)                                                 \
  Shim<&DeviceFunctions::function, PFN_vk##function>::name = "vk" #function; \
  table.function = Shim<&DeviceFunctions::function, PFN_vk##function>::call;
  HEKLA_VULKAN_RESULT_FUNCTIONS(HEKLA_SHIM)
#define HEKLA_OPTIONAL_SHIM(function) \
  if (table.function != nullptr) {    \
    HEKLA_SHIM(function)              \
  }
  HEKLA_VULKAN_OPTIONAL_FUNCTIONS(HEKLA_OPTIONAL_SHIM)
#undef HEKLA_OPTIONAL_SHIM
#undef HEKLA_SHIM
  return the_faults;
}

}  // namespace hekla::vulkan::testing
