// SPDX-License-Identifier: Apache-2.0
// PartitionSchedule: what users and tests choose of how a program over partitions becomes that of
// one device. Plain data.
#pragma once

#include <cstdint>

namespace hekla::spmd {

// What a device computes and what it sends, as far as it is known: for estimates.
struct LinkSpeed {
  double flops = 0;            // a second
  double bytes = 0;            // a second, to another device; 0: unknown
  double latency_seconds = 0;  // of one collective
};

// Whether products whose operand would be gathered, or whose result would be scattered, are
// computed in steps around a ring of devices.
enum class Rings : uint8_t { kByCost, kNever, kAlways };

struct PartitionSchedule {
  // Off: what is at hand in some parts gets to others by collectives alone, and is never computed
  // once more. Sums may then be taken in another order: other bits.
  bool recompute = true;
  // What arrange_collectives.h does; no bit of any result depends on it.
  bool merge_collectives = true;
  bool hoist_collectives = true;
  // Of results that a loop's collectives, and what goes with them, keep in memory while it runs,
  // once they stand in front.
  int64_t hoist_bytes = int64_t{64} << 20;
  // Operands of one combined collective; 0: none is combined.
  int64_t combine_bytes = int64_t{1} << 20;
  // By cost: where transfers of known speed hide behind products. Sums that are scattered are taken
  // in another order: other bits.
  Rings rings = Rings::kByCost;
  LinkSpeed link = {};
};

// How often what may be switched off was done.
struct PartitionCounts {
  int64_t recomputed = 0;                         // values in other parts
  int64_t rings = 0;                              // products around rings
  int64_t merged = 0, hoisted = 0, combined = 0;  // collectives
};

}  // namespace hekla::spmd
