// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/loop_memory.h"

#include <algorithm>
#include <tuple>

#include "backends/compiler/plan/visit.h"

namespace hekla::cpu {

using plan::Slice;

LoopMemory::LoopMemory(const plan::Step& loop, const plan::LaunchPlan& plan) : plan_(plan) {
  std::vector<Region> all;
  plan::for_each_slice_within(loop, plan, [&](const Slice& slice, plan::Use) {
    const Slice base{slice.space, slice.index, 0, 0};
    if (std::find(bases_.begin(), bases_.end(), base) == bases_.end()) bases_.push_back(base);
    if (slice.bytes > 0) all.push_back(bytes_of(slice));
  });
  std::sort(all.begin(), all.end(), [](const Region& a, const Region& b) {
    return std::tie(a.space, a.index, a.begin) < std::tie(b.space, b.index, b.begin);
  });
  for (const Region& one : all) {
    Region* last = regions_.empty() ? nullptr : &regions_.back();
    if (last != nullptr && last->space == one.space && last->index == one.index &&
        one.begin < last->end) {
      last->end = std::max(last->end, one.end);
    } else {
      regions_.push_back(one);
    }
  }
}

size_t LoopMemory::base_of(const Slice& slice) const {
  const auto it = std::find(bases_.begin(), bases_.end(), Slice{slice.space, slice.index, 0, 0});
  return static_cast<size_t>(it - bases_.begin());
}

size_t LoopMemory::region_of(const Slice& slice) const {
  const Region wanted = bytes_of(slice);
  const auto it = std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) {
    return region.space == wanted.space && region.index == wanted.index &&
           region.begin <= wanted.begin && wanted.begin < region.end;
  });
  return static_cast<size_t>(it - regions_.begin());
}

// Outputs that may take an input's memory count as that input.
LoopMemory::Region LoopMemory::bytes_of(const Slice& slice) const {
  Region bytes{slice.space, slice.index, slice.offset, slice.offset + slice.bytes};
  if (slice.space != Slice::Space::kOutput) return bytes;
  const int32_t input = plan_.output_input[static_cast<size_t>(slice.index)];
  if (input < 0) return bytes;
  bytes.space = Slice::Space::kInput;
  bytes.index = input;
  return bytes;
}

}  // namespace hekla::cpu
