// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/cut.h"

#include <algorithm>

namespace hekla::spmd {

using sharding::HloSharding;
using Kind = HloSharding::Kind;

bool Cut::is_whole() const {
  return std::all_of(dimensions.begin(), dimensions.end(),
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

Result<Cut> cut_of(const HloSharding& sharding, int64_t partitions, size_t rank,
                   const std::string& what) {
  Cut cut;
  cut.dimensions.resize(rank);
  if (sharding.kind == Kind::kReplicated) return cut;
  const auto refused = [&](const char* why) {
    return unimplemented(
        "{} has the sharding {}: {}. Cut it into tiles or replicate it (a PartitionSpec of axes), "
        "or send the program of one device with use_spmd_partitioning off",
        what, to_text(sharding), why);
  };
  if (sharding.kind != Kind::kTiled) {
    return refused(sharding.kind == Kind::kMaximal ? "arrays on one partition alone are not there"
                                                   : "it says nothing outside of a program");
  }
  const bool is_summed =
      std::any_of(sharding.subgroups.begin(), sharding.subgroups.end(),
                  [](Kind kind) { return kind != Kind::kReplicated && kind != Kind::kManual; });
  if (is_summed) return refused("partial sums over partitions are not there");
  const std::vector<int64_t> devices = tile_devices(sharding);
  if (sharding.tile_dims.size() != rank + sharding.subgroups.size()) {
    return invalid_argument("{} has {} dimensions and the sharding {}", what, rank,
                            to_text(sharding));
  }
  if (static_cast<int64_t>(devices.size()) != partitions) {
    return invalid_argument("{} has the sharding {}, of {} partitions; the program has {}", what,
                            to_text(sharding), devices.size(), partitions);
  }
  int64_t stride = partitions;
  for (size_t i = 0; i < rank; ++i) {
    Cut::Dimension& dimension = cut.dimensions[i];
    dimension.parts = sharding.tile_dims[i];
    stride /= dimension.parts;
    if (dimension.parts == 1) continue;
    dimension.part.resize(devices.size());
    dimension.group.resize(devices.size());
    for (size_t tile = 0; tile < devices.size(); ++tile) {
      const auto partition = static_cast<size_t>(devices[tile]);
      const int64_t part = static_cast<int64_t>(tile) / stride % dimension.parts;
      dimension.part[partition] = part;
      dimension.group[partition] = static_cast<int64_t>(tile) - part * stride;
    }
  }
  return cut;
}

}  // namespace hekla::spmd
