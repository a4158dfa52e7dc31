// SPDX-License-Identifier: Apache-2.0
// SharedPiece: memory that two physical devices see, through which CrossLink moves bytes from one
// to the other without the host's processors.
//
// Owned by one link, which uses a piece for one copy at a time. Thread-compatible.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/vulkan/memory/device_memory.h"

namespace hekla::vulkan {

// How large copies go from one physical device to another, best first.
enum class CrossWay : uint8_t {
  kDeviceMemory,  // the source writes memory of the target's, by VK_KHR_external_memory_fd
  kHostMemory,    // both use memory of the host's in place, by VK_EXT_external_memory_host
  kStaged,        // the host copies between staging memory of the one and of the other
};
std::string_view cross_way_name(CrossWay way);

struct SharedPiece {
  CrossWay way = CrossWay::kStaged;  // by which it was made; kStaged: there is none
  AllocationRef at_source;           // the memory as the source's device has it
  AllocationRef at_target;
  // The queue family that owns it between the two; VK_QUEUE_FAMILY_IGNORED: it is the host's.
  uint32_t between = VK_QUEUE_FAMILY_IGNORED;
};

// What the features of both devices promise; kStaged is always the last one. A driver may still
// refuse.
std::vector<CrossWay> cross_ways(const Device& source, const Device& target);

// `way` is not kStaged. UNIMPLEMENTED: a driver does not take it; RESOURCE_EXHAUSTED: no memory.
Result<SharedPiece> make_shared_piece(DeviceMemory& source, DeviceMemory& target, CrossWay way,
                                      int64_t bytes);

}  // namespace hekla::vulkan
