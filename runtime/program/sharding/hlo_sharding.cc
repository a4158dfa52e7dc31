// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/hlo_sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "runtime/program/sharding/tile_table.h"

namespace hekla::sharding {
namespace {

using Kind = HloSharding::Kind;

Status check_tiled(const HloSharding& sharding) {
  int64_t count = 1;
  if (sharding.tile_dims.empty()) return invalid_argument("a tiled sharding without tiles");
  for (size_t d = 0; d < sharding.tile_dims.size(); ++d) {
    const int64_t tiles = sharding.tile_dims[d];
    if (tiles < 1) return invalid_argument("dimension {} of a sharding has {} tiles", d, tiles);
    if (tiles > kMaxDevices / count) {
      return invalid_argument("a sharding of more than {} tiles at dimension {} of {}", kMaxDevices,
                              d, tiles);
    }
    count *= tiles;
  }
  if (sharding.subgroups.size() > sharding.tile_dims.size()) {
    return invalid_argument("a sharding of {} tile dimensions gives a meaning to the last {}",
                            sharding.tile_dims.size(), sharding.subgroups.size());
  }
  for (Kind kind : sharding.subgroups) {
    if (kind != Kind::kReplicated && kind != Kind::kManual && kind != Kind::kUnreduced) {
      return invalid_argument(
          "trailing tile dimension of kind {}: it may be copies (0), manual (4) "
          "or partial sums (6)",
          static_cast<int>(kind));
    }
  }
  if (sharding.iota_dims.empty()) {
    if (static_cast<int64_t>(sharding.devices.size()) != count) {
      return invalid_argument("a sharding of {} tiles lists {} devices", count,
                              sharding.devices.size());
    }
    std::unordered_set<int64_t> seen;
    for (size_t i = 0; i < sharding.devices.size(); ++i) {
      const int64_t device = sharding.devices[i];
      if (device < 0 || device >= kMaxDevices) {
        return invalid_argument("tile {} of a sharding is on device {}", i, device);
      }
      if (!seen.insert(device).second) {
        return invalid_argument("device {} stands twice in a sharding, again at tile {}", device,
                                i);
      }
    }
    if (!sharding.iota_perm.empty()) {
      return invalid_argument("a sharding with an explicit list of devices transposes an iota");
    }
    return ok_status();
  }
  if (!sharding.devices.empty()) {
    return invalid_argument("a sharding with both an iota and an explicit list of devices");
  }
  int64_t total = 1;
  for (size_t d = 0; d < sharding.iota_dims.size(); ++d) {
    const int64_t size = sharding.iota_dims[d];
    if (size < 1 || size > count / total) {
      return invalid_argument("iota dimension {} of {} in a sharding of {} tiles", d, size, count);
    }
    total *= size;
  }
  if (total != count) {
    return invalid_argument("an iota of {} devices for a sharding of {} tiles", total, count);
  }
  if (sharding.iota_perm.size() != sharding.iota_dims.size()) {
    return invalid_argument("an iota of {} dimensions is transposed by {}",
                            sharding.iota_dims.size(), sharding.iota_perm.size());
  }
  std::vector<bool> is_used(sharding.iota_perm.size());
  for (int64_t d : sharding.iota_perm) {
    if (d < 0 || d >= static_cast<int64_t>(is_used.size()) || is_used[static_cast<size_t>(d)]) {
      return invalid_argument("an iota of {} dimensions is transposed by [{}]", is_used.size(),
                              fmt::join(sharding.iota_perm, ","));
    }
    is_used[static_cast<size_t>(d)] = true;
  }
  return ok_status();
}

// The tiles per dimension of a tensor of this rank; empty where each partition has the whole.
Result<std::vector<int64_t>> tiles_for(const HloSharding& sharding, const Dims& shape) {
  HEKLA_RETURN_IF_ERROR(check(sharding));
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      return invalid_argument("dimension {} of a tensor to cut has size {}", d, shape[d]);
    }
  }
  if (sharding.kind == Kind::kTuple || sharding.kind == Kind::kUnknown) {
    return invalid_argument("{} says not where one tensor is", to_text(sharding));
  }
  if (sharding.kind != Kind::kTiled) return std::vector<int64_t>();
  const size_t rank = sharding.tile_dims.size() - sharding.subgroups.size();
  if (rank != shape.size()) {
    return invalid_argument("{} cuts {} dimensions, the tensor has {}", to_text(sharding), rank,
                            shape.size());
  }
  return std::vector<int64_t>(sharding.tile_dims.begin(),
                              sharding.tile_dims.begin() + static_cast<int64_t>(rank));
}

}  // namespace

Status check(const HloSharding& sharding) {
  const bool has_tiles = !sharding.tile_dims.empty() || !sharding.iota_dims.empty() ||
                         !sharding.iota_perm.empty() || !sharding.subgroups.empty();
  if (sharding.kind == Kind::kTuple) {
    if (sharding.group) {
      return invalid_argument("a sharding of a tuple is in shard group {}: its elements may be",
                              sharding.group->id);
    }
    for (size_t i = 0; i < sharding.elements.size(); ++i) {
      const HloSharding& element = sharding.elements[i];
      if (element.kind == Kind::kTuple) {
        return invalid_argument("element {} of a sharding of a tuple is a tuple", i);
      }
      const Status status = check(element);
      if (!status.ok()) return status.with_context(fmt::format("element {}", i));
    }
  } else if (!sharding.elements.empty()) {
    return invalid_argument("a sharding that is no tuple has elements");
  }
  if (sharding.kind == Kind::kTiled) return check_tiled(sharding);
  if (has_tiles) return invalid_argument("a sharding that is not tiled has tiles");
  if (sharding.kind == Kind::kMaximal) {
    if (sharding.devices.size() == 1 && sharding.devices[0] >= 0) return ok_status();
    return invalid_argument("a maximal sharding names one device, not [{}]",
                            fmt::join(sharding.devices, ","));
  }
  if (!sharding.devices.empty()) {
    return invalid_argument("a sharding that is not tiled lists devices");
  }
  return ok_status();
}

std::vector<int64_t> tile_devices(const HloSharding& sharding) {
  if (sharding.iota_dims.empty()) return sharding.devices;
  const size_t rank = sharding.iota_dims.size();
  std::vector<int64_t> strides(rank, 1);
  for (size_t d = rank; d-- > 1;) strides[d - 1] = strides[d] * sharding.iota_dims[d];
  const int64_t count = strides[0] * sharding.iota_dims[0];
  std::vector<int64_t> devices;
  devices.reserve(static_cast<size_t>(count));
  std::vector<int64_t> digits(rank, 0);
  int64_t device = 0;
  for (int64_t i = 0; i < count; ++i) {
    devices.push_back(device);
    for (size_t k = rank; k-- > 0;) {
      const auto d = static_cast<size_t>(sharding.iota_perm[k]);
      device += strides[d];
      if (++digits[k] < sharding.iota_dims[d]) break;
      device -= strides[d] * sharding.iota_dims[d];
      digits[k] = 0;
    }
  }
  return devices;
}

HloSharding canonical(HloSharding sharding) {
  if (sharding.kind == Kind::kTuple) {
    for (HloSharding& element : sharding.elements) element = canonical(std::move(element));
  }
  if (sharding.kind != Kind::kTiled) return sharding;
  TileTable tiles = tile_table(sharding);
  const auto count = static_cast<int64_t>(tiles.table.size());
  HloSharding result;
  result.group = sharding.group;
  const bool is_uncut = tiles.manual * tiles.unreduced * tiles.replicated == count;
  const std::optional<std::vector<Digit>> digits = digits_of(tiles.table);
  // The words stand for all partitions, which a list of some of them does not.
  std::vector<int64_t> sorted = tiles.table;
  std::sort(sorted.begin(), sorted.end());
  const bool has_all = sorted.back() == count - 1;
  if (is_uncut && has_all) {
    result.kind = Kind::kTiled;
    if (tiles.replicated == count) result.kind = Kind::kReplicated;
    if (count > 1 && tiles.manual == count) result.kind = Kind::kManual;
    if (count > 1 && tiles.unreduced == count) result.kind = Kind::kUnreduced;
    if (result.kind != Kind::kTiled) return result;
  }
  result.kind = Kind::kTiled;
  result.tile_dims = std::move(tiles.tile_dims);
  const std::pair<Kind, int64_t> trailing[] = {{Kind::kManual, tiles.manual},
                                               {Kind::kUnreduced, tiles.unreduced},
                                               {Kind::kReplicated, tiles.replicated}};
  for (const auto& [kind, size] : trailing) {
    // A scalar has no other tile dimension.
    const bool is_needed = result.tile_dims.empty() && kind == Kind::kReplicated;
    if (size == 1 && !is_needed) continue;
    result.tile_dims.push_back(size);
    result.subgroups.push_back(kind);
  }
  if (!digits) {
    result.devices = std::move(tiles.table);
    return result;
  }
  std::vector<Digit> by_stride = *digits;
  std::sort(by_stride.begin(), by_stride.end(),
            [](const Digit& a, const Digit& b) { return a.stride > b.stride; });
  for (const Digit& digit : by_stride) result.iota_dims.push_back(digit.size);
  for (size_t k = digits->size(); k-- > 0;) {
    size_t d = 0;
    while (by_stride[d].stride != (*digits)[k].stride) ++d;
    result.iota_perm.push_back(static_cast<int64_t>(d));
  }
  if (digits->empty()) {
    result.iota_dims = {1};
    result.iota_perm = {0};
  }
  return result;
}

Result<std::vector<DeviceBox>> device_boxes(const HloSharding& sharding, int64_t partitions,
                                            const Dims& shape) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> tiles, tiles_for(sharding, shape));
  const Box whole{Dims(shape.size(), 0), shape};
  std::vector<DeviceBox> boxes;
  if (sharding.kind == Kind::kMaximal) {
    boxes.push_back({sharding.devices[0], whole});
    return boxes;
  }
  if (sharding.kind != Kind::kTiled) {
    for (int64_t i = 0; i < partitions; ++i) boxes.push_back({i, whole});
    return boxes;
  }
  const std::vector<int64_t> devices = tile_devices(sharding);
  int64_t copies = static_cast<int64_t>(devices.size());
  for (int64_t count : tiles) copies /= count;
  for (size_t i = 0; i < devices.size(); ++i) {
    DeviceBox box{devices[i], whole};
    int64_t tile = static_cast<int64_t>(i) / copies;
    for (size_t d = tiles.size(); d-- > 0;) {
      const Block block = block_of(shape[d], tiles[d], tile % tiles[d]);
      tile /= tiles[d];
      // An uncut dimension is whole even when it is empty.
      if (tiles[d] == 1) continue;
      box.box.start[d] = block.start;
      box.box.size[d] = block.size;
    }
    boxes.push_back(std::move(box));
  }
  std::sort(boxes.begin(), boxes.end(),
            [](const DeviceBox& a, const DeviceBox& b) { return a.device < b.device; });
  return boxes;
}

Result<Dims> local_shape(const HloSharding& sharding, const Dims& shape) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> tiles, tiles_for(sharding, shape));
  Dims local = shape;
  for (size_t d = 0; d < tiles.size(); ++d) local[d] = block_of(shape[d], tiles[d], 0).size;
  return local;
}

}  // namespace hekla::sharding
