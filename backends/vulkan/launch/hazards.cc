// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/hazards.h"

#include <algorithm>
#include <iterator>

namespace hekla::vulkan {

bool HazardTracker::overlaps(const Intervals& intervals, int64_t begin, int64_t end) {
  const auto after = intervals.lower_bound(begin);
  if (after != intervals.end() && after->first < end) return true;
  return after != intervals.begin() && std::prev(after)->second > begin;
}

void HazardTracker::add(Intervals& intervals, int64_t begin, int64_t end) {
  auto at = intervals.lower_bound(begin);
  if (at != intervals.begin() && std::prev(at)->second >= begin) --at;
  while (at != intervals.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = intervals.erase(at);
  }
  intervals.emplace(begin, end);
}

bool HazardTracker::step(std::span<const Access> accesses) {
  bool is_needed = false;
  for (const Access& access : accesses) {
    if (access.begin >= access.end) continue;
    is_needed |= overlaps(written_[access.region], access.begin, access.end);
    if (access.is_write) is_needed |= overlaps(read_[access.region], access.begin, access.end);
    if (is_needed) break;
  }
  if (is_needed) reset();
  for (const Access& access : accesses) {
    if (access.begin >= access.end) continue;
    add((access.is_write ? written_ : read_)[access.region], access.begin, access.end);
  }
  return is_needed;
}

void HazardTracker::reset() {
  read_.clear();
  written_.clear();
}

void HazardTracker::join(const HazardTracker& other) {
  const auto join = [](auto& mine, const auto& theirs) {
    for (const auto& [region, intervals] : theirs) {
      for (const auto& [begin, end] : intervals) add(mine[region], begin, end);
    }
  };
  join(read_, other.read_);
  join(written_, other.written_);
}

std::vector<bool> place_barriers(std::span<const std::vector<Access>> steps) {
  HazardTracker tracker;
  std::vector<bool> barriers;
  for (const std::vector<Access>& step : steps) barriers.push_back(tracker.step(step));
  return barriers;
}

Status check_barriers(std::span<const std::vector<Access>> steps,
                      const std::vector<bool>& has_barrier_before) {
  size_t first = 0;  // of the steps that no barrier separates from step i
  for (size_t i = 0; i < steps.size(); ++i) {
    if (has_barrier_before[i]) first = i;
    for (size_t j = first; j < i; ++j) {
      for (const Access& a : steps[j]) {
        for (const Access& b : steps[i]) {
          if (a.region != b.region || !(a.is_write || b.is_write)) continue;
          if (std::max(a.begin, b.begin) >= std::min(a.end, b.end)) continue;
          return internal_error(
              "no barrier between step {}, which {} bytes {} to {} of region {}, and step {}, "
              "which {} bytes {} to {}",
              j, a.is_write ? "writes" : "reads", a.begin, a.end, a.region, i,
              b.is_write ? "writes" : "reads", b.begin, b.end);
        }
      }
    }
  }
  return ok_status();
}

}  // namespace hekla::vulkan
