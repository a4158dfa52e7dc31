// SPDX-License-Identifier: Apache-2.0
// Cut: how the partitions of a program divide an array among them.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

struct Cut {
  // Blocks of ceil(n / parts) elements.
  struct Dimension {
    int64_t parts = 1;
    // By partition; both empty where there is one part.
    std::vector<int64_t> part;   // the block that it holds
    std::vector<int64_t> group;  // partitions of one number hold the blocks of one array
    bool operator==(const Dimension&) const = default;
  };
  std::vector<Dimension> dimensions;
  // Where the array is a sum of what several partitions hold: the addends, numbered as parts are.
  Dimension sum;

  bool is_whole() const;  // each partition holds everything
  // The shape of each partition's memory, the padding of last blocks included.
  Dims local_shape(const Dims& whole) const;
  // Whether no block of such an array is padded.
  bool is_even(const Dims& whole) const;
  bool operator==(const Cut&) const = default;
};

// Of an array of `rank` dimensions over so many partitions; `what` stands in front of errors.
// INVALID_ARGUMENT: another number of partitions or dimensions; UNIMPLEMENTED: arrays on one
// partition alone, and what only a manual computation knows.
Result<Cut> cut_of(const sharding::HloSharding& sharding, int64_t partitions, size_t rank,
                   const std::string& what);

}  // namespace hekla::spmd
