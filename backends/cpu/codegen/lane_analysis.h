// SPDX-License-Identifier: Apache-2.0
// LaneAnalysis: how each value of a kernel differs between the lanes of a vector, where lanes are
// neighbouring points of one dimension of the grid, the lane dimension.
//
// A uniform value is equal in all lanes and stays scalar. An affine one is an integer with a
// constant difference from lane to lane, so lane 0 tells it all: what addresses are made of. All
// else varies and is a vector. A loop whose trip count varies is divergent: its lanes stop at
// different iterations, and what it carries varies. Pure and immutable; nothing fails. The kernel's
// body must verify.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/compiler/kernel/index_analysis.h"

namespace hekla::cpu {

enum class LaneKind : uint8_t { kUniform, kAffine, kVarying };

// Where a value can be computed at the earliest: once a call, once for a row (all grid dimensions
// but the lane dimension are fixed), or in the loop over the row.
enum class Level : uint8_t { kCall, kRow, kPoint };

struct LaneShape {
  LaneKind kind = LaneKind::kUniform;
  // From lane to lane; wrapped to the type's width, sign-extended. 0 unless affine.
  int64_t stride = 0;
  bool operator==(const LaneShape&) const = default;
};

// The dimension that vectors run along: the last one, whose points are mostly contiguous in
// memory, unless it has less than half of `lanes` points; then the innermost one that has enough,
// or the largest. -1 for a grid without dimensions.
int choose_lane_dimension(const kernel::Kernel& kernel, int lanes);

using kernel::Box;
using kernel::Range;
using kernel::whole_grid;

class LaneAnalysis {
 public:
  // Of the points in `box` only: conditions that are the same for all of them are known, and what
  // they select is seen through.
  LaneAnalysis(const kernel::Kernel& kernel, int lane_dimension, Box box);
  // `block`: vectors of that many lanes start at multiples of it, so that quotients and remainders
  // by multiples of it are uniform and affine; 1 where nothing is known of where vectors start.
  LaneAnalysis(const kernel::Kernel& kernel, int lane_dimension, int block = 1);

  int lane_dimension() const { return lane_dimension_; }

  LaneShape shape(kernel::Value v) const { return facts_[static_cast<size_t>(v)].shape; }
  bool is_varying(kernel::Value v) const { return shape(v).kind == LaneKind::kVarying; }
  Level level(kernel::Value v) const { return facts_[static_cast<size_t>(v)].level; }
  // What is known of values apart from lanes.
  const kernel::IndexAnalysis& index() const { return index_; }
  kernel::Value resolved(kernel::Value v) const { return index_.resolved(v); }
  int known(kernel::Value v) const { return index_.known(v); }
  bool is_exact(kernel::Value v) const { return index_.is_exact(v); }
  // Whether a store depends on it once known conditions are seen through.
  bool is_needed(kernel::Value v) const { return needed_[static_cast<size_t>(v)]; }
  // Where in the box's range of this dimension the outcome of a comparison changes, or may do so:
  // the sorted indices that end or begin a part in which it is known. Of an analysis of a box.
  std::vector<int64_t> changes(int dimension) const;
  // Loads whose lanes lie apart for no rule, loops included.
  int scattered_loads() const;
  // Whether the trip count of this kFor varies between lanes.
  bool is_divergent(kernel::Value loop) const;

 private:
  struct Facts {
    LaneShape shape;
    Level level = Level::kCall;
  };

  void analyse();
  void analyse_region(int32_t region);
  void analyse(kernel::Value v);
  void analyse_loop(kernel::Value v);
  LaneShape shape_of(kernel::Value v) const;
  void mark_needed();
  void mark(kernel::Value v, const std::vector<kernel::Value>& loops);
  Facts& at(kernel::Value v) { return facts_[static_cast<size_t>(v)]; }

  kernel::IndexAnalysis index_;
  const kernel::Function& f_;  // the kernel's; not owned
  int lane_dimension_;
  std::vector<Facts> facts_;
  std::vector<bool> needed_;
  std::vector<bool> varies_;  // carried values that vary because what comes into them does
  bool is_new_ = false;       // one of them was found
};

}  // namespace hekla::cpu
