// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/factor_step.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hekla::spmd {
namespace {

uint32_t bit(int axis) { return uint32_t{1} << axis; }

bool is_prefix(const Axes& first, const Axes& second) {
  return first.size() <= second.size() && std::equal(first.begin(), first.end(), second.begin());
}

// What `axes` and `other` agree in. With `may_grow` the longer of the two; it ends where they
// differ.
void join(Axes& axes, const Axes& other, bool& may_grow) {
  const size_t both = std::min(axes.size(), other.size());
  size_t equal = 0;
  while (equal < both && axes[equal] == other[equal]) ++equal;
  if (equal < both) {
    axes.resize(equal);
    may_grow = false;
  } else if (may_grow && other.size() > both) {
    axes.insert(axes.end(), other.begin() + static_cast<std::ptrdiff_t>(both), other.end());
  }
}

}  // namespace

OpenTiling OpenTiling::of(const Dims& sizes) {
  OpenTiling made;
  made.sizes = sizes;
  made.axes.resize(sizes.size());
  made.open.assign(sizes.size(), true);
  return made;
}

FactorRule::FactorRule(sharding::ShardingRule given) : rule(std::move(given)) {
  passes.assign(factor_count(), true);
  blocked.assign(factor_count(), false);
  for (const auto* kind : {&rule.reduction, &rule.need_replication, &rule.permutation}) {
    for (int64_t factor : *kind) {
      passes[static_cast<size_t>(factor)] = false;
      all_pass = false;
    }
  }
  exchanged.assign(factor_count(), false);
  for (int64_t factor : rule.permutation) exchanged[static_cast<size_t>(factor)] = true;
  for (int64_t factor : rule.blocked_propagation) blocked[static_cast<size_t>(factor)] = true;
}

FactorRule identity_rule(const Dims& sizes, size_t operands) {
  sharding::ShardingRule rule;
  rule.factor_sizes = sizes;
  sharding::ShardingRule::Tensor tensor;
  for (size_t i = 0; i < sizes.size(); ++i) tensor.push_back({static_cast<int64_t>(i)});
  rule.operands.assign(operands, tensor);
  rule.results.push_back(std::move(tensor));
  return FactorRule(std::move(rule));
}

bool OpenTiling::cuts_by(int axis) const {
  return std::any_of(axes.begin(), axes.end(),
                     [axis](const Axes& list) { return contains(list, axis); });
}

FactorStep::FactorStep(const PrimeMesh& mesh) : mesh_(mesh) {}

const std::vector<size_t>& FactorStep::run(const FactorRule& rule,
                                           std::span<OpenTiling* const> arrays,
                                           std::span<const Direction> directions,
                                           bool is_elementwise) {
  changed_.clear();
  const auto is_cut = [](const OpenTiling* array) { return array != nullptr && array->is_cut; };
  if (std::none_of(arrays.begin(), arrays.end(), is_cut)) return changed_;
  rule_ = &rule;
  arrays_ = arrays;
  factors_ = rule.factor_count();
  // Once more after a change: a factor cut into single elements lets the next one of its dimension
  // be cut.
  do {
    cells_.resize(std::max(cells_.size(), array_count() * factors_));
    for (size_t i = 0; i < array_count() * factors_; ++i) cells_[i].is_there = false;
    for (size_t i = 0; i < array_count(); ++i) {
      if (arrays_[i] != nullptr) project(i);
    }
    find_compatible(directions);
    order_factors(is_elementwise);
  } while (extend_all(is_elementwise));
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  return changed_;
}

// The axes of each dimension fill its factors from the major one. Where one does not divide what is
// left of a factor, it stands across factors, and the dimension stays as it is.
void FactorStep::project(size_t i) {
  const sharding::ShardingRule::Tensor& tensor = rule_->array(i);
  const OpenTiling& array = *arrays_[i];
  for (size_t d = 0; d < tensor.size(); ++d) {
    const Axes& axes = array.axes[d];
    size_t next = 0;
    bool is_open = array.open[d] && array.sizes[d] > 1;
    for (size_t k = 0; k < tensor[d].size(); ++k) {
      Cell& at = cell(i, static_cast<size_t>(tensor[d][k]));
      at.is_there = true;
      at.is_minor_most = k + 1 == tensor[d].size();
      at.is_single = tensor[d].size() == 1;
      at.dimension = d;
      at.axes.clear();
      int64_t rest = factor_size(tensor[d][k]);
      while (next < axes.size() && (at.is_minor_most || rest % mesh_.size(axes[next]) == 0)) {
        if (!at.is_minor_most) rest /= mesh_.size(axes[next]);
        at.axes.push_back(axes[next++]);
      }
      if (next < axes.size() && rest > 1) {
        is_open = false;
        next = axes.size();
      }
      at.is_open = is_open;
    }
  }
}

// By factor the longest list that all arrays' lists are beginnings of.
void FactorStep::find_compatible(std::span<const Direction> directions) {
  const size_t operands = rule_->rule.operands.size();
  compatible_.resize(std::max(compatible_.size(), factors_));
  for (size_t factor = 0; factor < factors_; ++factor) {
    Axes& axes = compatible_[factor];
    axes.clear();
    const Direction direction = directions[factor];
    if (rule_->blocked[factor] || direction == Direction::kNone) continue;
    bool may_grow = true;
    const auto join_all = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        if (cell(i, factor).is_there) join(axes, cell(i, factor).axes, may_grow);
      }
    };
    if (direction == Direction::kBackward) {
      join_all(operands, array_count());
      may_grow = false;
      join_all(0, operands);
    } else {
      join_all(0, operands);
      if (direction == Direction::kForward) may_grow = false;
      join_all(operands, array_count());
    }
  }
}

// Which factor gets an axis that several want: that of the larger array which the axes come from;
// in elementwise operations then the one that is cut more.
void FactorStep::order_factors(bool is_elementwise) {
  order_.clear();
  for (size_t factor = 0; factor < factors_; ++factor) {
    if (!compatible_[factor].empty()) order_.push_back(factor);
  }
  if (order_.size() < 2) return;
  struct Key {
    double size = -1;
    int64_t parts = 0;
    size_t source = 0;
  };
  std::vector<Key> keys(factors_);
  for (size_t i = 0; i < array_count(); ++i) {
    double size = 1;
    for (const auto& dimension : rule_->array(i)) {
      for (int64_t factor : dimension) size *= static_cast<double>(factor_size(factor));
    }
    for (size_t factor : order_) {
      if (is_elementwise) keys[factor].parts = mesh_.parts(compatible_[factor]);
      const Cell& at = cell(i, factor);
      if (at.is_there && size > keys[factor].size && is_prefix(compatible_[factor], at.axes)) {
        keys[factor].size = size;
        keys[factor].source = i;
      }
    }
  }
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return std::tuple(-keys[a].size, -keys[a].parts, keys[a].source, a) <
           std::tuple(-keys[b].size, -keys[b].parts, keys[b].source, b);
  });
}

// Results first: with `is_elementwise` they say how far operands take over from each other.
bool FactorStep::extend_all(bool is_elementwise) {
  const size_t operands = rule_->rule.operands.size();
  bool any = false;
  const auto extend_one = [&](size_t i) {
    bool is_changed = false;
    for (size_t factor : order_) {
      if (!cell(i, factor).is_there) continue;
      const Axes* to = &compatible_[factor];
      for (size_t r = operands; is_elementwise && i < operands && r < array_count(); ++r) {
        const Cell& result = cell(r, factor);
        if (result.is_there && is_prefix(result.axes, *to)) to = &result.axes;
      }
      is_changed |= extend(i, factor, *to);
    }
    if (is_changed) changed_.push_back(i);
    any |= is_changed;
  };
  for (size_t i = operands; i < array_count(); ++i) extend_one(i);
  for (size_t i = 0; i < operands; ++i) extend_one(i);
  return any;
}

bool FactorStep::extend(size_t i, size_t factor, const Axes& to) {
  Cell& at = cell(i, factor);
  if (!at.is_open || at.axes.size() >= to.size() || !is_prefix(at.axes, to)) return false;
  if (!is_full_before(i, factor)) return false;
  OpenTiling& array = *arrays_[i];
  bool is_changed = false;
  for (size_t k = at.axes.size(); k < to.size(); ++k) {
    const int axis = to[k];
    // Asked of the array: it may be several of the operands, and have got the axis as another one.
    if (array.cuts_by(axis) || (array.excluded & bit(axis)) != 0 || !divides(i, factor, axis))
      break;
    at.axes.push_back(axis);
    // At the end: the factors minor to this one have none.
    array.axes[at.dimension].push_back(axis);
    array.is_cut = true;
    is_changed = true;
  }
  return is_changed;
}

// Whether the factors major to it in its dimension are cut into single elements.
bool FactorStep::is_full_before(size_t i, size_t factor) {
  for (int64_t major : rule_->array(i)[cell(i, factor).dimension]) {
    const auto other = static_cast<size_t>(major);
    if (other == factor) return true;
    if (mesh_.parts(cell(i, other).axes) < factor_size(major)) return false;
  }
  return true;
}

bool FactorStep::divides(size_t i, size_t factor, int axis) {
  const Cell& at = cell(i, factor);
  const OpenTiling& array = *arrays_[i];
  const int64_t size = rule_->rule.factor_sizes[factor];
  if (!at.is_minor_most) return size % (mesh_.parts(at.axes) * mesh_.size(axis)) == 0;
  // The dimension may have another size than the factor, as a slice's has.
  const int64_t whole = array.sizes[at.dimension];
  if (whole % (mesh_.parts(array.axes[at.dimension]) * mesh_.size(axis)) == 0) return true;
  // Neighbours exchange what they need whatever the blocks; empty ones would be of no use.
  if (at.is_single && rule_->exchanged[factor] &&
      whole >= mesh_.parts(array.axes[at.dimension]) * mesh_.size(axis)) {
    return true;
  }
  // Somewhere an uneven cut was given: a dimension that is the same one may be cut alike.
  if (!at.is_single || whole != size || !rule_->passes[factor]) return false;
  for (size_t k = 0; k < array_count(); ++k) {
    const Cell& source = cell(k, factor);
    if (source.is_there && source.is_single && source.axes.size() > at.axes.size() &&
        source.axes[at.axes.size()] == axis && is_prefix(at.axes, source.axes) &&
        arrays_[k]->sizes[source.dimension] == size) {
      return true;
    }
  }
  return false;
}

}  // namespace hekla::spmd
