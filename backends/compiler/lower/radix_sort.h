// SPDX-License-Identifier: Apache-2.0
// Sorts by digits of keys, the least significant first, on devices with teams (team.h). A block of
// a line is sorted by two bits at a time: points count what they have of each, scan the counts, and
// move elements to their places through shared memory. A line that is one block is thus sorted in
// one kernel. Longer ones take a pass over memory per digit of up to eight bits: how often each
// block has each digit; a scan of these counts, digit by digit and block by block; each block
// sorted by the digit and written where the counts say (Satish, Harris and Garland, "Designing
// efficient sorting algorithms for manycore GPUs", 2009). Stable. Of this folder alone; pure, one
// thread.
#pragma once

#include <functional>
#include <vector>

#include "backends/compiler/lower/sort_keys.h"
#include "backends/compiler/lower/team.h"

namespace hekla::lower {

// Lines of `size` elements along the middle of [outer, size, inner]. The functions are called in
// kernels whose first and third dimensions are the outer and the inner one.
struct RadixSort {
  LoweredSequence& sequence;
  const InMemory& in_memory;
  const LowerOptions& options;
  int64_t outer = 1, size = 1, inner = 1;
  std::vector<DType> dtypes;  // of what is moved for an element
  std::vector<SortKey> keys;
  // Element `i` of the line, as it is moved.
  std::function<Elements(KernelMaker& k, Value i)> load;
  // Place `i` of the sorted line.
  std::function<void(KernelMaker& k, Value i, const Elements& element)> store;
  // The number that a key is, as ordered_key gives it.
  std::function<Value(KernelMaker& k, const SortKey& key, const Elements& element)> number;
  int64_t largest = 1;  // an index that `load` computes
};

// Empty: it is done so.
kernel::Refusal why_no_radix_sort(const RadixSort& sort);
Status sort_by_radix(const RadixSort& sort);

}  // namespace hekla::lower
