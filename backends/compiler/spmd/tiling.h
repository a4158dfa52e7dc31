// SPDX-License-Identifier: Apache-2.0
// Tiling: a sharding inside the partitioner: lists of axes of one mesh that the whole program is
// over.
//
// The axes of a PrimeMesh are the program's mesh axes split into prime factors, so that whatever
// cuts evenly is a list of whole axes and shardings compare, share prefixes and split as lists of
// numbers. Plain values and pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/compiler/spmd/cut.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/sharding/hlo_sharding.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::spmd {

template <typename T>
bool contains(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Numbers of a PrimeMesh's axes, major to minor.
using Axes = std::vector<int>;

struct Tiling {
  std::vector<Axes> dims;  // one list a dimension; none replicates it
  Axes partial;            // the array is the sum over these, ascending

  static Tiling replicated(size_t rank) { return {std::vector<Axes>(rank), {}}; }
  bool is_replicated() const;
  // Whether any dimension, or the sum, uses the axis.
  bool uses(int axis) const;
  bool operator==(const Tiling&) const = default;
};

class PrimeMesh {
 public:
  // `mesh` passed sharding::check and is not maximal.
  explicit PrimeMesh(sharding::Mesh mesh);

  int axis_count() const { return static_cast<int>(sizes_.size()); }
  int64_t size(int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  int64_t partitions() const { return partitions_; }
  // In how many parts they cut.
  int64_t parts(const Axes& axes) const;
  // The axis of the program's mesh that this is a factor of, by number.
  int whole_axis(int axis) const { return whole_axes_[static_cast<size_t>(axis)]; }
  // Whether the list consists of complete axes of the program's mesh, each major to minor.
  bool is_whole(const Axes& axes) const;
  // The longest beginning of the list that consists of complete axes.
  Axes whole_prefix(const Axes& axes) const;

  // Of a sharding in the terms of this mesh. INVALID_ARGUMENT: one that is no list of these axes
  // (another order of devices, a border between primes), maximal and manual ones.
  Result<Tiling> tiling_of(const sharding::HloSharding& sharding, size_t rank) const;
  sharding::HloSharding to_hlo(const Tiling& tiling) const;
  // How partitions divide the array: what to_hlo's sharding would give.
  Cut cut_of(const Tiling& tiling) const;
  // The number of a partition's part along such axes, by partition.
  std::vector<int64_t> part_of_partitions(const Axes& axes) const;
  // Partitions that differ in these axes alone, in the order of their parts: rows of parts(axes).
  std::vector<std::vector<int64_t>> groups(const Axes& axes) const;

  // Shardy's text, for people: [{"x"}, {"y":(1)2}].
  std::string to_text(const Tiling& tiling) const;

 private:
  sharding::TensorSharding to_shardy(const Tiling& tiling) const;

  sharding::Mesh mesh_;
  int64_t partitions_ = 1;
  std::vector<int64_t> sizes_;
  std::vector<int> whole_axes_;
  std::vector<int64_t> pre_sizes_;    // within the whole axis
  std::vector<int64_t> strides_;      // of positions
  std::vector<int64_t> position_of_;  // by partition
};

// The shape of each partition's memory: blocks of ceil(n / parts).
Dims local_shape(const PrimeMesh& mesh, const Tiling& tiling, const Dims& whole);
// Whether no block is padded.
bool is_even(const PrimeMesh& mesh, const Tiling& tiling, const Dims& whole);

}  // namespace hekla::spmd
