// SPDX-License-Identifier: Apache-2.0
// Reductions by trees. The points of a team share a line, or a part of one: each reduces its share
// element by element, then pairs of points put together what they have, pairs of pairs and so on.
// What parts of a line gave is reduced in the same way. Teams and parts depend on shapes, the
// reducer and the size of the device's teams alone, so a sum has the same bits in every schedule.
//
// n terms in chains of c and trees of depth d are added with an error of (c + d) u instead of n u,
// so nothing is compensated (Higham, "The accuracy of floating point summation", 1993).
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backends/compiler/lower/reduce_kernels.h"

namespace hekla::lower {

using kernel::Op;

namespace {

// What sizes decide.
struct TreeLimits {
  // Shorter lines are reduced by one point each.
  int64_t least_line = 32;
  // Elements of a point, so that there are not more points than work: at least; those of a part
  // where that makes no more than `many_teams`; at most.
  int64_t least_share = 4;
  int64_t share = 16;
  int64_t most_share = 64;
  int64_t many_teams = 1024;
  // Points of all lines that are work enough.
  int64_t many_points = 256 * 1024;
  // So many columns are work enough, a point each.
  int64_t many_columns = 64 * 1024;
  // Columns that are read together: a subgroup's worth; and points of a team then, at least.
  int64_t columns = 32;
  int64_t few_points = 8;
  int64_t most_points = 256;
  // Neighbours in memory that a point takes at once; columns only where so many points are left.
  int64_t block = 4;
  int64_t enough_points = 4096;
};

TreeLimits tree_limits(const LowerOptions& options) {
  return options.small_limits ? TreeLimits{3, 1, 2, 3, 3, 64, 64, 4, 4, 16, 2, 8} : TreeLimits{};
}

}  // namespace

TreeShape tree_shape(const Lines& lines, int64_t length, const LowerOptions& options) {
  const TreeLimits limits = tree_limits(options);
  int64_t most = std::min(limits.most_points, options.team_points);
  if (lines.is_column) {
    const auto columns = static_cast<uint64_t>(std::min(lines.count, limits.columns));
    most = std::min(
        most, std::max(limits.few_points, most / static_cast<int64_t>(std::bit_ceil(columns))));
  }
  TreeShape shape;
  if (!lines.is_column && length % limits.block == 0) shape.block = limits.block;
  const int64_t blocks = length / shape.block;
  const auto fitting =
      static_cast<uint64_t>(std::clamp<int64_t>(length / limits.least_share, 1, blocks));
  shape.points = std::min(most, static_cast<int64_t>(std::bit_floor(fitting)));
  // Many lines are work enough for small teams, which meet at fewer barriers.
  while (!lines.is_column && shape.points > limits.columns &&
         lines.count * shape.points > limits.many_points &&
         length < limits.most_share / 2 * shape.points) {
    shape.points /= 2;
  }
  const auto parts_of = [&](int64_t share) {
    const int64_t elements = shape.points * share;
    return (length + elements - 1) / elements;
  };
  shape.parts = std::min(parts_of(limits.share),
                         std::max(parts_of(limits.most_share), limits.many_teams / lines.count));
  shape.parts = std::clamp<int64_t>(shape.parts, 1, blocks / shape.points);
  if (lines.is_column && lines.kept_sizes.back() % limits.block == 0 &&
      lines.count * shape.parts * shape.points >= limits.enough_points * limits.block) {
    shape.columns = limits.block;
  }
  return shape;
}

namespace {

class TreeLowering : private ReduceKernels {
 public:
  using ReduceKernels::ReduceKernels;

  Result<LoweredSequence> run() {
    by_index_ = parts_.size() == 1 && is_choice_by_index(*parts_.front().op);
    keeps_order_ = !by_index_ && !is_of_free_orders(*parts_.front().op);
    int64_t length = lines_.length;
    Temporaries from;
    for (;;) {
      const TreeShape shape = tree_shape(lines_, length, options_);
      const bool is_last = shape.parts == 1;
      const Temporaries to = is_last ? Temporaries() : add(lines_.count * shape.parts);
      HEKLA_RETURN_IF_ERROR(add_kernel(shape, length, from, to));
      if (is_last) return std::move(sequence_);
      from = to;
      length = shape.parts;
    }
  }

 private:
  // Dimensions of the grid: the line's, and the part and the point of its team. What is
  // contiguous in memory is so in the grid: columns, or points.
  struct GridDims {
    size_t line = 0, part = 0, point = 0;
  };

  // What combines the elements of one line.
  using Combine = std::function<Elements(const Part&, const Elements&, const Elements&)>;

  // The place of this point's column `c` in the last dimension.
  Value column(KernelMaker& k, const GridDims& dims, const TreeShape& shape, int64_t c) const {
    if (shape.columns == 1) return kernel::kNoValue;
    const Value first = k.b().mul(k.at(dims.line + lines_.kept.size() - 1), k.index(shape.columns));
    return k.b().add(first, k.index(c));
  }

  // Element `t` of this stage, of each column: of the operands, or of what the parts of the last
  // stage gave.
  Elements element_of(KernelMaker& k, const TreeShape& shape, const GridDims& dims,
                      const Temporaries& from, int64_t length, Value t) const {
    Elements elements;
    for (int64_t c = 0; c < shape.columns; ++c) {
      const Value last = column(k, dims, shape, c);
      append(elements, from.empty() ? element(k, dims.line, t, last)
                                    : load(k, from, number(k, dims, length, t, last)));
    }
    return elements;
  }

  // The elements of column `c`.
  Elements of_column(int64_t c, const Elements& all) const {
    const auto size = static_cast<ptrdiff_t>(dtypes_.size());
    const auto begin = all.begin() + static_cast<ptrdiff_t>(c) * size;
    return {begin, begin + size};
  }
  Elements combine_columns(const TreeShape& shape, const Elements& a, const Elements& b,
                           const Combine& combine_part) const {
    Elements all;
    for (int64_t c = 0; c < shape.columns; ++c) {
      const Elements mine = of_column(c, a), theirs = of_column(c, b);
      for (const Part& part : parts_) {
        append(all, combine_part(part, of(part, mine), of(part, theirs)));
      }
    }
    return all;
  }

  // Where what part `t` of `parts` of a line gave is.
  Value number(KernelMaker& k, const GridDims& dims, int64_t parts, Value t, Value last) const {
    const Value at = line(k, dims.line, last);
    return lines_.is_column ? k.b().add(k.b().mul(t, k.index(lines_.count)), at)
                            : k.b().add(k.b().mul(at, k.index(parts)), t);
  }

  // A kernel that reduces lines of `length` elements to `shape.parts` each; `to`: empty for the
  // last one.
  Status add_kernel(const TreeShape& shape, int64_t length, const Temporaries& from,
                    const Temporaries& to) {
    const size_t kept = lines_.kept.size();
    const std::vector<int64_t> team{shape.parts, shape.points};
    const GridDims dims = lines_.is_column ? GridDims{2, 0, 1} : GridDims{0, kept, kept + 1};
    std::vector<int64_t> sizes = lines_.is_column ? grid(team, {}) : grid({}, team);
    if (lines_.is_column) sizes.back() /= shape.columns;
    KernelMaker k(to.empty() ? "reduce" : "reduce_parts", std::move(sizes),
                  largest() + lines_.count * shape.parts * shape.points, in_memory_);
    const Elements share = reduce_share(k, shape, length, dims, from);
    const Elements total = reduce_team(k, shape, dims, share);
    const auto store_total = [&] {
      const Elements before = to.empty() ? initial(k) : Elements();
      for (int64_t c = 0; c < shape.columns; ++c) {
        const Value last = column(k, dims, shape, c);
        const Elements here = of_column(c, total);
        if (!to.empty()) {
          store(k, to, number(k, dims, shape.parts, k.at(dims.part), last), here);
          continue;
        }
        Elements all;
        for (const Part& part : parts_)
          append(all, combine(k, part, of(part, before), of(part, here)));
        store_result(k, dims.line, all, last);
      }
    };
    if (shape.points == 1) {
      store_total();
    } else {
      k.when(k.b().binary(Op::kEq, k.at(dims.point), k.index(0)), store_total);
    }
    return finish(k);
  }

  // The elements of this point, at least one block: every so-many-th of the line, so that the
  // points of a team read contiguous elements, or where the order counts those next to each other.
  Elements reduce_share(KernelMaker& k, const TreeShape& shape, int64_t length,
                        const GridDims& dims, const Temporaries& from) const {
    Builder& b = k.b();
    const int64_t block = shape.block;
    const int64_t blocks = length / block;
    const int64_t points = shape.parts * shape.points;  // of a line
    const int64_t whole = blocks / points;
    const int64_t rest = blocks % points;  // the first points have one more
    const Value point = b.add(b.mul(k.at(dims.part), k.index(shape.points)), k.at(dims.point));
    // Element `j` of block `t`.
    const auto in_block = [&](Value t, int64_t j) {
      return element_of(k, shape, dims, from, length,
                        block == 1 ? t : b.add(b.mul(t, k.index(block)), k.index(j)));
    };
    const auto at = [&](Value i, int64_t j) {
      Value t = b.add(b.mul(i, k.index(points)), point);
      if (keeps_order_) {
        t = b.add(b.mul(point, k.index(whole)), i);
        if (rest != 0) t = b.add(t, k.at_most(point, rest));
      }
      return in_block(t, j);
    };
    const auto add_block = [&](Elements sum, int64_t first, const auto& element_at) {
      std::vector<Elements> elements;
      for (int64_t j = first; j < block; ++j) elements.push_back(element_at(j));
      for (const Elements& here : elements) {
        sum = combine_columns(
            shape, sum, here, [&](const Part& part, const Elements& x, const Elements& y) {
              // The elements of a point are in order, what parts of a line gave is not.
              return from.empty() ? combine(k, part, x, y) : put_together(k, part, x, y);
            });
      }
      return sum;
    };
    const bool has_start = std::all_of(parts_.begin(), parts_.end(),
                                       [](const Part& part) { return part.order == Order::kSum; });
    Elements start;
    std::vector<DType> dtypes;
    for (int64_t c = 0; c < shape.columns; ++c) {
      dtypes.insert(dtypes.end(), dtypes_.begin(), dtypes_.end());
      if (!has_start) continue;
      for (const Part& part : parts_) append(start, zero(k, part));
    }
    if (!has_start) {
      start = add_block(at(k.index(0), 0), 1, [&](int64_t j) { return at(k.index(0), j); });
    }
    const int64_t first = has_start ? 0 : 1;
    Elements sum = start;
    if (whole > first) {
      sum = k.loop(k.index(whole - first), dtypes, start, [&](Value i, const Elements& carried) {
        const Value t = b.add(i, k.index(first));
        return add_block(carried, 0, [&](int64_t j) { return at(t, j); });
      });
    }
    if (rest == 0) return sum;
    // Behind its share a point without one more reads any block.
    const Value has_more = b.binary(Op::kLtS, point, k.index(rest));
    const Value more =
        k.at_most(keeps_order_ ? b.add(b.mul(point, k.index(whole + 1)), k.index(whole))
                               : b.add(point, k.index(whole * points)),
                  blocks - 1);
    return k.choose(has_more, add_block(sum, 0, [&](int64_t j) { return in_block(more, j); }), sum);
  }

  // What the first point of the team has in the end is what all had, in their order.
  Elements reduce_team(KernelMaker& k, const TreeShape& shape, const GridDims& dims,
                       Elements mine) const {
    for (int64_t distance = 1; distance < shape.points; distance *= 2) {
      Elements theirs;
      for (const Element& e : mine) theirs.push_back(k.from_team(e, dims.point, distance));
      mine = combine_columns(shape, mine, theirs,
                             [&](const Part& part, const Elements& x, const Elements& y) {
                               return put_together(k, part, x, y);
                             });
    }
    return mine;
  }

  // What two sets of elements gave, of which none need come before the other unless the order
  // counts.
  Elements put_together(KernelMaker& k, const Part& part, const Elements& mine,
                        const Elements& theirs) const {
    if (!by_index_) return combine(k, part, mine, theirs);
    const Value is_mine_first = k.b().binary(Op::kLtS, mine[1].re, theirs[1].re);
    return combine(k, part, k.choose(is_mine_first, mine, theirs),
                   k.choose(is_mine_first, theirs, mine));
  }

  bool keeps_order_ = false;
  bool by_index_ = false;  // is_choice_by_index
};

}  // namespace

kernel::Refusal why_no_tree_reduce(const ir::Operation& op, const LowerOptions& options) {
  if (options.team_points < 2) return "the device takes elements in their order";
  if (kernel::Refusal why = why_no_lines(op); !why.empty()) return why;
  if (!is_of_free_orders(op) && !is_choice(op)) {
    return "its reducer is none that is known to be associative";
  }
  const TreeLimits limits = tree_limits(options);
  const Lines lines = lines_of(op);
  if (lines.length < limits.least_line) {
    return fmt::format("lines of {} elements, fewer than {}", lines.length, limits.least_line);
  }
  if (lines.is_column && lines.count >= limits.many_columns) {
    return fmt::format("{} columns, no fewer than {}, are work enough side by side", lines.count,
                       limits.many_columns);
  }
  return {};
}

Result<LoweredSequence> lower_tree_reduce(const Outputs& outputs, const InMemory& in_memory,
                                          const LowerOptions& options) {
  return TreeLowering(outputs, in_memory, options).run();
}

}  // namespace hekla::lower
