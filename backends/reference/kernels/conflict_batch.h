// SPDX-License-Identifier: Apache-2.0
// Applying a reducer region to scattered elements of arrays, in order, where the same element may
// come again: updates are collected until one would hit an element that is already waiting, then
// run as one block. So every element sees its updates one after the other, and calls stay long.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/reference/kernels/region.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

class ConflictBatch {
 public:
  // Borrows everything. `targets` are written through; they have the region's dtypes, as have the
  // arrays of updates. RESOURCE_EXHAUSTED: no memory for one mark per element of a target.
  static Result<ConflictBatch> create(const ReducerRegion& region, std::span<HostArray> targets,
                                      std::span<const HostArray> updates);

  // target[at] = region(target[at], updates[from]), now or later.
  Status add(int64_t at, int64_t from);
  // Runs what is waiting. Must be called at the end.
  Status flush();

 private:
  ConflictBatch(const ReducerRegion& region, std::span<HostArray> targets,
                std::span<const HostArray> updates, HostArray marks);

  const ReducerRegion* region_;
  std::vector<std::byte*> targets_;
  std::vector<const std::byte*> updates_;
  HostArray marks_;  // ui32: the round in which an element was last collected
  uint32_t* mark_;
  uint32_t round_ = 1;
  std::vector<int64_t> at_;
  std::vector<int64_t> from_;
  std::vector<std::vector<std::byte>> left_, right_, out_;
};

}  // namespace hekla::reference
