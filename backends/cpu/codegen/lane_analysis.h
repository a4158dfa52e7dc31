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
#include <optional>
#include <vector>

#include "backends/compiler/kernel/kernel.h"

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

// The dimension that vectors run along: the last one, whose neighbours are mostly neighbours in
// memory, unless it has less than half of `lanes` points; then the innermost one that has enough,
// or the largest. -1 for a grid without dimensions.
int choose_lane_dimension(const kernel::Kernel& kernel, int lanes);

// Neighbouring indices of one dimension, [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Points of a grid: one range per dimension.
using Box = std::vector<Range>;
Box whole_grid(const kernel::Kernel& kernel);

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
  // The value that this one always equals: what a select with a known condition picks; itself
  // mostly.
  kernel::Value resolved(kernel::Value v) const { return facts_[static_cast<size_t>(v)].resolved; }
  // A condition that is the same for all points: 0 or 1; -1 for anything else.
  int known(kernel::Value v) const;
  // Whether an integer is what its operation gives without wrapping, at all points; and whether it
  // is negative at none.
  bool is_exact(kernel::Value v) const { return facts_[static_cast<size_t>(v)].is_exact; }
  bool is_natural(kernel::Value v) const {
    return is_exact(v) && facts_[static_cast<size_t>(v)].low >= 0;
  }
  // Whether a store depends on it once known conditions are seen through.
  bool is_needed(kernel::Value v) const { return needed_[static_cast<size_t>(v)]; }
  // Where in the box's range of this dimension the outcome of a comparison changes, or may do so:
  // the sorted indices that end or begin a part in which it is known.
  std::vector<int64_t> changes(int dimension) const;
  // By how much an index grows from one point of a dimension to the next, where that is the same
  // for all points and known.
  std::optional<int64_t> slope(kernel::Value v, int dimension) const;
  // Loads whose lanes lie apart for no rule, loops included.
  int scattered_loads() const;
  // Whether the trip count of this kFor varies between lanes.
  bool is_divergent(kernel::Value loop) const;

 private:
  struct Facts {
    LaneShape shape;
    Level level = Level::kCall;
    // Bounds of the signed value over all points. When `is_exact` they are bounds of the
    // mathematical value, so nothing wrapped on the way.
    int64_t low = 0;
    int64_t high = 0;
    bool is_exact = false;
    // A power of two that divides the value in lane 0.
    int64_t factor = 1;
    kernel::Value resolved = kernel::kNoValue;
    // Dimensions of the grid that it may depend on, a bit each.
    uint64_t depends = ~uint64_t{0};
  };
  // slope * (index of a dimension) + something in [low, high] that does not depend on it.
  struct Line {
    __int128 slope = 0;
    __int128 low = 0;
    __int128 high = 0;
  };

  Facts& at(kernel::Value v) { return facts_[static_cast<size_t>(v)]; }
  void analyse_all(const kernel::Kernel& kernel);
  void mark_needed();
  void mark(kernel::Value v);
  void mark_loop_of(int32_t region);
  bool compare_known(const kernel::Instruction& inst, Facts& facts);
  std::optional<Line> line(kernel::Value v, int dimension) const;
  void analyse_region(int32_t region);
  void analyse(kernel::Value v);
  void analyse_loop(kernel::Value v);
  LaneShape shape_of(const kernel::Instruction& inst);
  LaneShape shape_of_parts(const kernel::Instruction& inst);
  int64_t factor_of(const kernel::Instruction& inst);
  void bound(kernel::Value v);
  void set_bounds(Facts& facts, kernel::ScalarType type, __int128 low, __int128 high);

  const kernel::Function& f_;  // the kernel's; not owned
  const int lane_dimension_;
  const int block_;
  const Box box_;
  std::vector<Facts> facts_;
  std::vector<bool> needed_;
  std::vector<kernel::Value> loop_of_;  // by region
};

}  // namespace hekla::cpu
