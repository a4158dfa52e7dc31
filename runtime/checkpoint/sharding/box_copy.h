// SPDX-License-Identifier: Apache-2.0
// Moving a region of a tensor between a stored box (dense, row major, types below eight bits
// packed) and an array in host memory (whole bytes an element, possibly with padding).
//
// A BoxCopy is an immutable value; any number of threads may use one, also to fill one array from
// different byte ranges. The caller has checked the boxes (check_box); sizes of buffers are the
// caller's promise. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

struct StoredRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const StoredRange&) const = default;
};

class BoxCopy {
 public:
  // `stored` and `memory` are boxes of one tensor in global coordinates, `region` lies in both and
  // has elements. The array in memory has dimensions `memory_dims`, none below memory.size; its
  // first element is that of `memory`.
  BoxCopy(DType dtype, const Box& stored, const Box& memory, const Dims& memory_dims,
          const Box& region);

  int64_t elements() const { return elements_; }
  // Stored elements that follow each other in both places, in bytes, rounded down.
  int64_t run_bytes() const;
  // The stored bytes from the region's first to its last.
  StoredRange stored_range() const;
  // Where stored bytes `range` of the box lie in the array as one run of the same bytes: the first
  // one's offset in bytes. -1: they are not all the region's, cut into runs, or packed.
  int64_t memory_offset(StoredRange range) const;
  // Adds the stored bytes that the region takes as ranges, ascending and apart; gaps below
  // `min_gap` bytes are taken in where that saves enumerating runs.
  void add_ranges(int64_t min_gap, std::vector<StoredRange>* ranges) const;

  // From `bytes`, which are stored bytes [begin, begin + bytes.size()) of the box, into `memory`.
  // Elements of whole bytes may be cut by the range's ends, packed ones that are cut are left out.
  void load(std::span<const std::byte> bytes, int64_t begin, std::byte* memory) const;
  // The other way. Bytes of packed types must be zero before, and belong to no other thread.
  void store(const std::byte* memory, std::span<std::byte> bytes, int64_t begin) const;

 private:
  struct Loop {
    int64_t count;
    int64_t stored_step;  // elements
    int64_t memory_step;
    int64_t stored_extent;  // elements from the first to behind the last of one whole loop
  };

  template <typename Visit>
  void visit_runs(size_t level, int64_t stored, int64_t memory, int64_t low, int64_t high,
                  const Visit& visit) const;
  void add_ranges_from(size_t level, size_t solid, int64_t stored,
                       std::vector<StoredRange>* ranges) const;

  DType dtype_;
  int bits_;
  int64_t elements_ = 0;
  int64_t stored_first_ = 0;  // element index in the stored box
  int64_t memory_first_ = 0;
  std::vector<Loop> loops_;  // outermost first; the last one has steps of 1
};

}  // namespace hekla::checkpoint
