// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/shared_piece.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

namespace hekla::vulkan {
namespace {

std::optional<SharedHandle> shared_handle(const Device& source, const Device& target) {
  const DeviceSnapshot &a = source.snapshot(), &b = target.snapshot();
  const Features &from = source.plan().features, &to = target.plan().features;
  // The specification lets these go between devices of one GPU and driver alone.
  const bool is_same = a.device_uuid == b.device_uuid && a.driver_uuid == b.driver_uuid;
  if (is_same && from.opaque_fd_memory && to.opaque_fd_memory) return SharedHandle::kOpaqueFd;
  if (from.dma_buf_memory && to.dma_buf_memory) return SharedHandle::kDmaBuf;
  return std::nullopt;
}

}  // namespace

std::string_view cross_way_name(CrossWay way) {
  switch (way) {
    case CrossWay::kDeviceMemory:
      return "memory of the target's";
    case CrossWay::kHostMemory:
      return "memory of the host's that both devices use in place";
    case CrossWay::kStaged:
      break;
  }
  return "staging memory";
}

std::vector<CrossWay> cross_ways(const Device& source, const Device& target) {
  std::vector<CrossWay> ways;
  if (shared_handle(source, target)) ways.push_back(CrossWay::kDeviceMemory);
  if (source.plan().features.host_memory_import && target.plan().features.host_memory_import) {
    ways.push_back(CrossWay::kHostMemory);
  }
  ways.push_back(CrossWay::kStaged);
  return ways;
}

Result<SharedPiece> make_shared_piece(DeviceMemory& source, DeviceMemory& target, CrossWay way,
                                      int64_t bytes) {
  const Device &from = *source.device(), &to = *target.device();
  SharedPiece piece{.way = way};
  if (way == CrossWay::kDeviceMemory) {
    const std::optional<SharedHandle> handle = shared_handle(from, to);
    if (!handle) {
      return unimplemented("{} and {} share no memory", from.snapshot().name, to.snapshot().name);
    }
    HEKLA_ASSIGN_OR_RETURN(piece.at_target, target.allocate_shared(bytes, *handle));
    HEKLA_ASSIGN_OR_RETURN(piece.at_source, source.import_shared(*piece.at_target, *handle));
    piece.between =
        *handle == SharedHandle::kOpaqueFd ? VK_QUEUE_FAMILY_EXTERNAL : VK_QUEUE_FAMILY_FOREIGN_EXT;
    return piece;
  }
  // Whole units of both drivers, so that nothing else lies in pages that devices write.
  const auto unit = static_cast<size_t>(
      std::max({from.snapshot().limits.min_imported_host_alignment_bytes,
                to.snapshot().limits.min_imported_host_alignment_bytes, uint64_t{4096}}));
  const size_t size = (static_cast<size_t>(bytes) + unit - 1) / unit * unit;
  const std::shared_ptr<void> host(std::aligned_alloc(unit, size), std::free);
  if (host == nullptr) return resource_exhausted("the host has no memory for {} bytes", size);
  HEKLA_ASSIGN_OR_RETURN(piece.at_source, source.import_host(host.get(), bytes, [host] {}));
  HEKLA_ASSIGN_OR_RETURN(piece.at_target, target.import_host(host.get(), bytes, [host] {}));
  return piece;
}

}  // namespace hekla::vulkan
