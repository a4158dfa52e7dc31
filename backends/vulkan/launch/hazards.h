// SPDX-License-Identifier: Apache-2.0
// Where barriers must stand, and an independent proof that they do. Pure.
//
// Memory is a set of numbered regions that do not overlap each other (an input with the output that
// aliases it is one region); an access is a byte range of a region. A barrier orders everything
// before it against everything after it. Two accesses conflict when their ranges share a byte, at
// least one writes, and no barrier stands between their steps.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::vulkan {

struct Access {
  int64_t region = 0;
  int64_t begin = 0;  // bytes
  int64_t end = 0;    // exclusive; begin == end touches nothing
  bool is_write = false;
};

// Told the steps in their order; remembers what was read and written since the last barrier as
// joined intervals, so a step costs O(its accesses * log n).
class HazardTracker {
 public:
  // Whether a barrier is needed in front of this step; if so it counts as placed.
  bool step(std::span<const Access> accesses);
  // A barrier stands here.
  void reset();
  // Another way may lead here: what `other` remembers is remembered as well.
  void join(const HazardTracker& other);

 private:
  using Intervals = std::map<int64_t, int64_t>;  // begin -> end, disjoint
  static bool overlaps(const Intervals& intervals, int64_t begin, int64_t end);
  static void add(Intervals& intervals, int64_t begin, int64_t end);
  std::map<int64_t, Intervals> read_;     // by region
  std::map<int64_t, Intervals> written_;  // by region
};

// Barriers in front of each step, by a HazardTracker.
std::vector<bool> place_barriers(std::span<const std::vector<Access>> steps);

// INTERNAL naming the first two steps that conflict without a barrier between them. Compares each
// pair of steps between two barriers, and shares no code with the tracker.
Status check_barriers(std::span<const std::vector<Access>> steps,
                      const std::vector<bool>& has_barrier_before);

}  // namespace hekla::vulkan
