// SPDX-License-Identifier: Apache-2.0
// PartitionSchedule: what users and tests choose of how a program over partitions becomes that of
// one device. Plain data.
#pragma once

#include <cstdint>

namespace hekla::spmd {

struct PartitionSchedule {
  // Off: what is at hand in some parts gets to others by collectives alone, and is never computed
  // once more. Sums may then be taken in another order: other bits.
  bool recompute = true;
};

// How often what may be switched off was done.
struct PartitionCounts {
  int64_t recomputed = 0;  // values in other parts
};

}  // namespace hekla::spmd
