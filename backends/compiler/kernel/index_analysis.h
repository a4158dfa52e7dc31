// SPDX-License-Identifier: Apache-2.0
// IndexAnalysis: what is known of a kernel's values before it runs, which schedules and addresses
// rest on. The questions that its users ask:
//
//   - does a value depend on a dimension of the grid, or on the iteration of a loop?
//   - by how much does an index grow with one of these (its slope)?
//   - between which numbers does it lie, and which operations never wrap?
//   - which number divides it, where an index starts at a multiple of another?
//   - which conditions are the same at all points, and what do they select?
//   - which indices differ by a constant?
//
// One forward pass gives each value its bounds and what it depends on, and each integer an affine
// form: sum of factor * term + constant, where a term is a variable (a grid index, an iteration) or
// a value that is no sum. Quotients, remainders and selections keep the part of their argument that
// goes through them (x = 24 * row + column: x / 8 grows by 3 with row). What a loop carries keeps
// the form that it starts with where each iteration adds to it. Bodies of loops are analysed again
// until nothing changes. Time and memory are linear in the instructions but for that.
//
// Every claim holds at every point of the box and every iteration that runs there. It is held to
// the interpreter by index_analysis_test. Pure and immutable; any thread; nothing fails. The
// kernel's body must verify and outlive the analysis.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/compiler/kernel/affine_form.h"
#include "backends/compiler/kernel/bounds.h"
#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {

// Consecutive indices of one dimension, [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Points of a grid: one range per dimension.
using Box = std::vector<Range>;
Box whole_grid(const Kernel& kernel);

// Takes the index of a dimension apart into size * (number of a block) + (index within it), two
// variables: vectors, tiles and rows of a grid are such blocks.
struct IndexBlocks {
  int dimension = -1;  // none
  int64_t size = 1;
};

// Iterations that estimates take for a loop whose trip count nothing is known of.
inline constexpr int64_t kUnknownTrips = 64;

class IndexAnalysis {
 public:
  // What a value may depend on: one dimension of the grid or the iteration of one loop.
  using Variable = int;

  // A term is a value that is no sum, or a number from the function's size on, which stands for a
  // part of a value.
  using Term = AffineTerm;

  // The sum of variables times their slopes, and a rest within [low, high].
  struct Line {
    std::vector<int64_t> slopes;
    __int128 low = 0;
    __int128 high = 0;
    bool is_flat = true;  // the rest depends on none of these variables
  };

  // Of all points. No dimension of the grid is 0.
  explicit IndexAnalysis(const Kernel& kernel, IndexBlocks blocks = {});
  // Of the points in `box`; blocks count from index 0 all the same.
  IndexAnalysis(const Kernel& kernel, Box box, IndexBlocks blocks = {});

  const Kernel& kernel() const { return *kernel_; }
  const Box& box() const { return box_; }
  const IndexBlocks& blocks() const { return blocks_; }

  // The index of a dimension; of the dimension that is cut into blocks, the index within a block.
  Variable dimension(int d) const { return d; }
  Variable block_number() const { return static_cast<int>(box_.size()); }
  // Of the loop with this body.
  Variable iteration(int32_t region) const { return static_cast<int>(box_.size()) + region; }

  // Whether points and iterations that differ in this variable alone may have different values.
  bool depends(Value v, Variable x) const { return (facts(v).depends & bit(x)) != 0; }
  // On an index of this dimension, be it in blocks or not.
  bool depends_on_dimension(Value v, int d) const;
  // What an integer grows by with a variable, modulo its type: 0 where it does not depend on it;
  // nullopt where it is not the same everywhere or not known.
  std::optional<int64_t> slope(Value v, Variable x) const;
  // From index to index of a dimension, from block to block too.
  std::optional<int64_t> slope_of_dimension(Value v, int d) const;
  // Without wrapping; nullopt where the value may wrap or its rest is too large.
  std::optional<Line> line(Value v, std::span<const Variable> variables) const;

  Bounds bounds(Value v) const { return {facts(v).low, facts(v).high, facts(v).is_exact}; }
  bool is_exact(Value v) const { return facts(v).is_exact; }
  // A condition that is the same at all points: 0 or 1; -1 for anything else.
  int known(Value v) const;
  // The value that this one always equals: what a select with a known condition picks; itself
  // mostly.
  Value resolved(Value v) const { return facts(v).resolved; }

  // Whether the kernel stores to this operand.
  bool is_written(int32_t operand) const {
    const auto i = static_cast<size_t>(operand);
    return i < is_written_.size() && is_written_[i];
  }

  // A power of two that divides an integer wherever `x` is a multiple of `multiple`, up to 2^30.
  int64_t factor(Value v, Variable x = -1, int64_t multiple = 1) const;
  // An integer as a sum, modulo its type; terms in ascending order. Values with equal terms differ
  // by the difference of their constants.
  std::span<const Term> terms(Value v) const;
  int64_t constant(Value v) const { return facts(v).constant; }

  // How often a loop's body runs, for estimates: its count, or the limit that a selection sets for
  // it; of others at most kUnknownTrips.
  int64_t trips(Value loop) const;

 private:
  static constexpr int kMostVariables = 63;  // the others share a bit
  using Facts = ValueFacts;

  static uint64_t bit(Variable x) {
    return uint64_t{1} << (x < kMostVariables ? x : kMostVariables);
  }
  const Facts& facts(Value v) const { return facts_[static_cast<size_t>(v)]; }
  Facts& facts(Value v) { return facts_[static_cast<size_t>(v)]; }

  void analyse_parameters();
  void analyse_region(int32_t region);
  void analyse(Value v);
  void analyse_loop(Value v);
  void analyse_result(Value v);
  void analyse_condition(Value v);
  void analyse_integer(Value v);
  void keep_common(Value v);
  void divide(Value v, int64_t by);
  void take_remainder(Value v, Value of, int64_t by);
  void be_carried(Value v, Value initial, Value change, uint64_t depends, int zeros);
  void be_term(Value v);
  void bound(Value v);
  void set_bounds(Value v, const Bounds& bounds);
  void set_form(Value v, const AffineForm& form);
  Value new_term(const Bounds& bounds, uint64_t depends, int zeros = 0);
  void add_part(AffineForm& to, Value v, const Bounds& bounds, uint64_t depends, int zeros);
  AffineForm form(Value v) const;
  void add(AffineForm& to, Value v, int64_t times) const;
  Value term_of(Variable x) const;

  const Kernel* kernel_;  // not owned
  const Function* f_;     // its body
  Box box_;
  IndexBlocks blocks_;
  Value index_in_block_ = kNoValue;  // terms of the dimension that is cut into blocks
  Value block_ = kNoValue;
  std::vector<Facts> facts_;  // by Value, then of terms that are parts of values
  std::vector<Term> terms_;
  std::vector<Value> changes_;    // by region: the first of the terms of what it carries
  std::vector<bool> is_written_;  // by operand
};

}  // namespace hekla::kernel
