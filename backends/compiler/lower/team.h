// SPDX-License-Identifier: Apache-2.0
// Team: what the points of a team (kernel::TeamMemory) do together in a kernel that is written by
// hand: each holds `share` elements of a block, which change places through memory that they share.
//
// An element's place in the block is a number below points * share. Striped, point p holds the
// places p, p + points, p + 2 * points ...: neighbours read neighbouring memory. Blocked, it holds
// share * p and the places behind it: order is within points first. One thread, and one kernel.
#pragma once

#include <functional>
#include <vector>

#include "backends/compiler/lower/kernel_maker.h"

namespace hekla::lower {

// How a block is shared out.
struct TeamShape {
  int64_t points = 1;  // a power of two
  int64_t share = 1;   // elements of a point, a power of two
  int64_t block() const { return points * share; }
};
// Words of team memory that a Team of this shape takes.
int64_t team_words(const TeamShape& shape);
// The shape for lines of `length` elements, one at least: as many points as make few elements for
// each, then more for each; blocks no longer than what a team has memory for beside `exchanged`
// words of each point.
TeamShape team_shape(int64_t length, int64_t most_share, int64_t exchanged,
                     const LowerOptions& options);

class Team {
 public:
  // `dim`: of the kernel's grid, of shape.points.
  Team(KernelMaker& k, size_t dim, const TeamShape& shape);

  // A number of a point, as kI32.
  Value point() const { return point_; }
  Value number(int64_t value) const { return k_.b().integer(kernel::ScalarType::kI32, value); }
  // Places of this point, kI32.
  Value striped(int64_t j) const { return k_.b().add(number(j * shape_.points), point_); }
  Value blocked(int64_t j) const {
    return k_.b().add(k_.b().mul(point_, number(shape_.share)), number(j));
  }
  // A number as an index, and an index below 2^31 as a number.
  Value as_index(Value number) const;
  Value as_number(Value index) const;

  // What stands in words `to` of elements that this point and the others put in words `from`, all
  // different: `elements` has a list of elements of the same dtypes for each. The word of a place,
  // and those of the places of this point.
  std::vector<Elements> move(const std::vector<Elements>& elements,
                             const std::vector<DType>& dtypes, const std::vector<Value>& from,
                             const std::vector<Value>& to);
  Value word_of(Value place) const;
  std::vector<Value> striped_words() const;
  std::vector<Value> blocked_words() const;

  // Of what each point has: before it, of all points; after reductions in the order of points.
  struct Scan {
    Elements before;  // undefined at the first point
    Elements total;
  };
  using Reduce = std::function<Elements(const Elements& before, const Elements& after)>;
  Scan scan(const Elements& mine, const Reduce& reduce);
  // The same of numbers that are added, kI32: `totals` has what this point has and becomes what all
  // have; to `before` what the points before it have is added.
  void scan_sums(const std::vector<Value*>& totals, const std::vector<Value*>& before);

  // An array of the team's of its own.
  kernel::TeamMemory array(int64_t words);

 private:
  KernelMaker& k_;
  const size_t dim_;
  const TeamShape shape_;
  const kernel::TeamMemory memory_;
  Value point_;
};

}  // namespace hekla::lower
