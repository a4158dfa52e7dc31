// SPDX-License-Identifier: Apache-2.0
// One step of propagation: what the arrays of one operation learn from each other by its rule.
//
// Knows nothing of programs. One object a propagation, which keeps its memory; one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::spmd {

// An array while it is propagated.
struct OpenTiling {
  Dims sizes;
  std::vector<Axes> axes;  // by dimension
  std::vector<bool> open;  // by dimension: axes may be appended
  uint32_t excluded = 0;   // bit by axis: may not be appended
  bool is_cut = false;     // some dimension has axes

  // Everything open and nothing cut.
  static OpenTiling of(const Dims& sizes);
  bool cuts_by(int axis) const;
};

// Whose axes others may take over: the operands' forward, the results' backward.
enum class Direction : uint8_t { kNone = 0, kForward = 1, kBackward = 2, kBoth = 3 };

// A rule in the form that steps need.
struct FactorRule {
  explicit FactorRule(sharding::ShardingRule rule);

  // Operands, then results.
  size_t array_count() const { return rule.operands.size() + rule.results.size(); }
  const sharding::ShardingRule::Tensor& array(size_t i) const {
    return i < rule.operands.size() ? rule.operands[i] : rule.results[i - rule.operands.size()];
  }
  size_t factor_count() const { return rule.factor_sizes.size(); }

  sharding::ShardingRule rule;
  std::vector<bool> passes;     // by factor: neither reduced, permuted nor needed whole
  std::vector<bool> blocked;    // by factor
  std::vector<bool> exchanged;  // by factor: of the kind "permutation"
  bool all_pass = true;
};

// Of an operation whose arrays have one shape and correspond element by element.
FactorRule identity_rule(const Dims& sizes, size_t operands);

class FactorStep {
 public:
  // The mesh must outlive this.
  explicit FactorStep(const PrimeMesh& mesh);

  // Appends axes to arrays as others have them; blocked factors are left alone. `arrays` are the
  // rule's, null where there is none; `directions` are by factor. With `is_elementwise` an operand
  // takes from another one only what the results have, too. The numbers of the arrays that changed,
  // ascending, until the next call.
  const std::vector<size_t>& run(const FactorRule& rule, std::span<OpenTiling* const> arrays,
                                 std::span<const Direction> directions, bool is_elementwise);

 private:
  // A factor in an array.
  struct Cell {
    bool is_there = false;
    bool is_open = false;        // axes may be appended here
    bool is_minor_most = false;  // in its dimension
    bool is_single = false;      // the dimension is this factor and nothing else
    size_t dimension = 0;
    Axes axes;
  };

  size_t array_count() const { return arrays_.size(); }
  Cell& cell(size_t array, size_t factor) { return cells_[array * factors_ + factor]; }
  int64_t factor_size(int64_t factor) const {
    return rule_->rule.factor_sizes[static_cast<size_t>(factor)];
  }
  void project(size_t i);
  void find_compatible(std::span<const Direction> directions);
  void order_factors(bool is_elementwise);
  bool extend_all(bool is_elementwise);
  bool extend(size_t i, size_t factor, const Axes& to);
  bool is_full_before(size_t i, size_t factor);
  bool divides(size_t i, size_t factor, int axis);

  const PrimeMesh& mesh_;
  // Of the call:
  const FactorRule* rule_ = nullptr;
  std::span<OpenTiling* const> arrays_;
  size_t factors_ = 0;
  std::vector<Cell> cells_;       // by array and factor
  std::vector<Axes> compatible_;  // by factor
  std::vector<size_t> order_;     // of factors with compatible axes
  std::vector<size_t> changed_;
};

}  // namespace hekla::spmd
