// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/cut.h"

#include <algorithm>
#include <numeric>

namespace hekla::spmd {

using sharding::HloSharding;
using Kind = HloSharding::Kind;

bool Cut::is_whole() const {
  return sum.parts == 1 && std::all_of(dimensions.begin(), dimensions.end(),
                                       [](const Dimension& one) { return one.parts == 1; });
}

Dims Cut::local_shape(const Dims& whole) const {
  Dims local = whole;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    local[i] = sharding::block_of(whole[i], dimensions[i].parts, 0).size;
  }
  return local;
}

bool Cut::is_even(const Dims& whole) const {
  for (size_t i = 0; i < dimensions.size(); ++i) {
    if (whole[i] % dimensions[i].parts != 0) return false;
  }
  return true;
}

namespace {

// One dimension of the tiles: `stride` tiles lie between its neighbours.
Cut::Dimension dimension_of(const std::vector<int64_t>& devices, int64_t parts, int64_t stride) {
  Cut::Dimension dimension;
  dimension.parts = parts;
  if (parts == 1) return dimension;
  dimension.part.resize(devices.size());
  dimension.group.resize(devices.size());
  for (size_t tile = 0; tile < devices.size(); ++tile) {
    const auto partition = static_cast<size_t>(devices[tile]);
    const int64_t part = static_cast<int64_t>(tile) / stride % parts;
    dimension.part[partition] = part;
    dimension.group[partition] = static_cast<int64_t>(tile) - part * stride;
  }
  return dimension;
}

}  // namespace

Result<Cut> cut_of(const HloSharding& given, int64_t partitions, size_t rank,
                   const std::string& what) {
  Cut cut;
  cut.dimensions.resize(rank);
  const HloSharding sharding = sharding::canonical(given);
  if (sharding.kind == Kind::kReplicated) return cut;
  if (sharding.kind == Kind::kUnreduced) {
    std::vector<int64_t> all(static_cast<size_t>(partitions));
    std::iota(all.begin(), all.end(), 0);
    cut.sum = dimension_of(all, partitions, 1);
    return cut;
  }
  if (sharding.kind != Kind::kTiled) {
    return unimplemented(
        "{} has the sharding {}: {}. Cut it into tiles or replicate it (a PartitionSpec of axes), "
        "or send the program of one device with use_spmd_partitioning off",
        what, to_text(sharding),
        sharding.kind == Kind::kMaximal ? "arrays on one partition alone are not there"
                                        : "it says nothing outside of a program");
  }
  if (sharding.tile_dims.size() != rank + sharding.subgroups.size()) {
    return invalid_argument("{} has {} dimensions and the sharding {}", what, rank,
                            to_text(sharding));
  }
  const std::vector<int64_t> devices = tile_devices(sharding);
  if (static_cast<int64_t>(devices.size()) != partitions) {
    return invalid_argument("{} has the sharding {}, of {} partitions; the program has {}", what,
                            to_text(sharding), devices.size(), partitions);
  }
  int64_t stride = partitions;
  for (size_t i = 0; i < sharding.tile_dims.size(); ++i) {
    const int64_t parts = sharding.tile_dims[i];
    stride /= parts;
    if (i < rank) {
      cut.dimensions[i] = dimension_of(devices, parts, stride);
    } else if (sharding.subgroups[i - rank] == Kind::kUnreduced) {
      cut.sum = dimension_of(devices, parts, stride);  // canonical: one at most
    }
  }
  return cut;
}

}  // namespace hekla::spmd
