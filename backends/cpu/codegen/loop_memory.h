// SPDX-License-Identifier: Apache-2.0
// LoopMemory: what memory a loop of a launch plan touches, and which of its slices may share bytes.
// Pure; immutable once made.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/compiler/plan/launch_plan.h"

namespace hekla::cpu {

class LoopMemory {
 public:
  // `loop`: a step of `plan`.
  LoopMemory(const plan::Step& loop, const plan::LaunchPlan& plan);

  // The buffers that the loop touches, as slices of no bytes at offset 0. An output that may take
  // the memory of an input is a buffer of its own.
  const std::vector<plan::Slice>& bases() const { return bases_; }
  // The place among them; `slice` is one that a step of the loop names.
  size_t base_of(const plan::Slice& slice) const;

  // Slices of different regions share no byte, whichever outputs have the memory of their inputs.
  size_t region_of(const plan::Slice& slice) const;
  size_t region_count() const { return regions_.size(); }

 private:
  // [begin, end) of a buffer, one behind the other within it.
  struct Region {
    plan::Slice::Space space;
    int32_t index;
    int64_t begin;
    int64_t end;
  };
  Region bytes_of(const plan::Slice& slice) const;

  const plan::LaunchPlan& plan_;
  std::vector<plan::Slice> bases_;
  std::vector<Region> regions_;
};

}  // namespace hekla::cpu
