// SPDX-License-Identifier: Apache-2.0
// Cumulative reductions: reduce_window whose windows all begin before the first element, or all end
// behind the last one. Blocks are summed, the sums scanned the same way, and each block is then run
// through once more from what stands before it. The order of additions depends on the shape alone.
//
// On devices with teams (team.h) the points of one scan a block of a line together: their elements
// go through shared memory, so that both memory and the order are right; what points have is
// scanned by exchanges. A team goes on from block to block where there are lines enough to do side
// by side.
#include <fmt/format.h>

#include <array>

#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/sequence.h"
#include "backends/compiler/lower/team.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using kernel::Op;

namespace {

// What sizes decide.
struct ScanLimits {
  // Elements of a block; a line of up to `line` is run through by one point.
  int64_t block = 64;
  int64_t line = 256;
  // Below this a window is short enough to be gone through for every element.
  int64_t short_window = 64;
  int64_t few_outputs = 8;
  // Of teams: elements of a point and instructions of a kernel, at most; columns side by side from
  // which on a point for each is as good; lines that are work enough with a team each; and blocks
  // that one goes through, at most.
  int64_t most_share = 16;
  size_t most_instructions = 4000;
  int64_t many_columns = 32;
  int64_t many_lines = 512;
  int64_t many_blocks = 64;
};

ScanLimits scan_limits(const LowerOptions& options) {
  return options.small_limits ? ScanLimits{4, 8, 3, 2, 4, 4000, 4, 3, 4} : ScanLimits{};
}

// Output o is the reduction of the first o + shift + 1 elements; of the last size - o - shift ones
// when `is_reverse`.
struct Cumulative {
  size_t dim = 0;
  bool is_reverse = false;
  int64_t shift = 0;
};

// nullopt, and why: it is none that is done in blocks.
std::optional<Cumulative> cumulative_of(const ir::Operation& op, const ScanLimits& limits,
                                        kernel::Refusal& why) {
  const Dims& from = op.operand(0)->type().dims();
  const Dims& to = op.result()->type().dims();
  const std::vector<int64_t> window = ir::int_list(op, "window_dimensions");
  const std::vector<std::array<int64_t, 2>> padding = ir::padding_of(op);
  std::optional<Cumulative> found;
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t w = at_or(window, d, 1);
    const int64_t low = d < padding.size() ? padding[d][0] : 0;
    const int64_t high = d < padding.size() ? padding[d][1] : 0;
    const bool is_dense = at_or(ir::int_list(op, "window_strides"), d, 1) == 1 &&
                          at_or(ir::int_list(op, "base_dilations"), d, 1) == 1 &&
                          at_or(ir::int_list(op, "window_dilations"), d, 1) == 1;
    if (!is_dense) {
      why = "strides or dilations";
      return std::nullopt;
    }
    if (w == 1 && low == 0 && high == 0) continue;
    if (found.has_value()) {
      why = "windows along several dimensions";
      return std::nullopt;
    }
    if (const int64_t least = std::min(w, from[d]); least <= limits.short_window) {
      why = fmt::format("windows of {} elements, not more than {}", least, limits.short_window);
      return std::nullopt;
    }
    // No more work than reading all for each.
    if (to[d] <= limits.few_outputs) {
      why = fmt::format("{} outputs, not more than {}", to[d], limits.few_outputs);
      return std::nullopt;
    }
    // The window of output o is [o - low, o - low + w).
    if (to[d] - 1 <= low) {
      found = Cumulative{d, false, w - 1 - low};
    } else if (w - low >= from[d]) {
      found = Cumulative{d, true, -low};
    } else {
      why = "windows that neither begin nor end with the line";
      return std::nullopt;
    }
  }
  if (!found) why = "windows of one element";
  return found;
}

class ScanLowering {
 public:
  ScanLowering(const ir::Operation& op, const Cumulative& what, const Outputs& outputs,
               const InMemory& in_memory, const LowerOptions& options)
      : op_(op),
        is_reverse_(what.is_reverse),
        shift_(what.shift),
        outputs_(outputs),
        in_memory_(in_memory),
        options_(options) {
    const Dims& dims = op.operand(0)->type().dims();
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d == what.dim) {
        size_ = dims[d];
      } else {
        (d < what.dim ? outer_ : inner_) *= dims[d];
      }
    }
    to_size_ = op.result()->type().dims()[what.dim];
    for (size_t r = 0; r < op.result_count(); ++r) {
      dtypes_.push_back(op.result(r)->type().dtype());
    }
  }

  Result<LoweredSequence> run() {
    for (size_t r = 0; r < dtypes_.size(); ++r) {
      if (op_.operand(r)->type().dtype() != dtypes_[r]) {
        return unimplemented("a cumulative reduction that changes dtypes");
      }
    }
    if (shift_ == 0 && to_size_ == size_) {
      HEKLA_RETURN_IF_ERROR(scan({}, size_, {}));
      return std::move(sequence_);
    }
    const Temporaries whole = add(size_);
    HEKLA_RETURN_IF_ERROR(scan({}, size_, whole));
    HEKLA_RETURN_IF_ERROR(pick(whole));
    return std::move(sequence_);
  }

 private:
  using Temporaries = std::vector<Temporary>;

  Temporaries add(int64_t size) {
    Temporaries added;
    for (DType dtype : dtypes_) {
      added.push_back(add_temporary(sequence_, dtype, outer_ * size * inner_));
    }
    return added;
  }

  Status finish(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  // The reducer, with the elements in the order of the line.
  Elements reduce(KernelMaker& k, const Elements& before, const Elements& after) {
    Elements arguments = is_reverse_ ? after : before;
    const Elements& second = is_reverse_ ? before : after;
    arguments.insert(arguments.end(), second.begin(), second.end());
    const std::optional<Elements> reduced =
        k.emitter().apply_region(op_.region(0).front(), arguments);
    if (!reduced.has_value() || reduced->size() != dtypes_.size()) {
      k.emitter().fail(op_);
      return before;
    }
    return *reduced;
  }

  Elements initial(KernelMaker& k) {
    Elements elements;
    for (size_t r = 0; r < dtypes_.size(); ++r) {
      elements.push_back(k.emitter().emit(*op_.operand(dtypes_.size() + r), Point{}));
    }
    return elements;
  }

  Value index_of(KernelMaker& k, int64_t size, Value i) {
    Builder& b = k.b();
    return b.add(b.mul(b.add(b.mul(k.at(0), k.index(size)), i), k.index(inner_)), k.at(2));
  }

  // Element i in scan order: of the operands when `from` is empty.
  Elements load(KernelMaker& k, const Temporaries& from, int64_t size, Value i) {
    Elements elements;
    if (from.empty()) {
      if (is_reverse_) i = k.b().sub(k.index(size - 1), i);
      const Point point{{}, index_of(k, size, i)};
      for (size_t r = 0; r < dtypes_.size(); ++r) {
        elements.push_back(k.emitter().emit(*op_.operand(r), point));
      }
    } else {
      for (const Temporary& each : from) elements.push_back(k.load(each, index_of(k, size, i)));
    }
    return elements;
  }

  void store_result(KernelMaker& k, Value at, const Elements& elements) {
    for (size_t r = 0; r < elements.size(); ++r) {
      for (const ir::Value* output : outputs_) {
        if (output == op_.result(r)) k.store(*output, at, elements[r]);
      }
    }
  }

  void store(KernelMaker& k, const Temporaries& to, int64_t size, Value i, const Elements& e) {
    if (!to.empty()) {
      for (size_t r = 0; r < e.size(); ++r) k.store(to[r], index_of(k, size, i), e[r]);
      return;
    }
    if (is_reverse_) i = k.b().sub(k.index(size - 1), i);
    const Elements start = initial(k);
    store_result(k, index_of(k, size, i), is_reverse_ ? reduce(k, e, start) : reduce(k, start, e));
  }

  // to[i] = the reduction of from[0 .. i], in scan order; the results when `to` is empty.
  Status scan(const Temporaries& from, int64_t size, const Temporaries& to) {
    if (uses_teams()) return scan_by_teams(from, size, to);
    if (size <= limits_.line) return run_lines(from, size, size, {}, to);
    const int64_t blocks = (size + limits_.block - 1) / limits_.block;
    const Temporaries totals = add(blocks);
    HEKLA_RETURN_IF_ERROR(sum_blocks(from, size, totals));
    const Temporaries before = add(blocks);
    HEKLA_RETURN_IF_ERROR(scan(totals, blocks, before));
    return run_lines(from, size, limits_.block, before, to);
  }

  Status sum_blocks(const Temporaries& from, int64_t size, const Temporaries& totals) {
    const int64_t blocks = (size + limits_.block - 1) / limits_.block;
    KernelMaker k("scan_sums", {outer_, blocks, inner_}, outer_ * size * inner_, in_memory_);
    Builder& b = k.b();
    const Value first = b.mul(k.at(1), k.index(limits_.block));
    const Elements sums = k.loop(k.index(limits_.block - 1), dtypes_, load(k, from, size, first),
                                 [&](Value t, const Elements& carried) {
                                   const Value i = b.add(first, b.add(t, k.index(1)));
                                   const Elements x = load(k, from, size, k.at_most(i, size - 1));
                                   const Value exists = b.binary(Op::kLtS, i, k.index(size));
                                   return k.choose(exists, reduce(k, carried, x), carried);
                                 });
    store(k, totals, blocks, k.at(1), sums);
    return finish(k);
  }

  // One point runs through each block, from the reduction of all blocks before it.
  Status run_lines(const Temporaries& from, int64_t size, int64_t block, const Temporaries& before,
                   const Temporaries& to) {
    const int64_t blocks = (size + block - 1) / block;
    KernelMaker k("scan", {outer_, blocks, inner_}, outer_ * size * inner_, in_memory_);
    Builder& b = k.b();
    const Value first = b.mul(k.at(1), k.index(block));
    Elements start = load(k, from, size, first);
    if (!before.empty()) {
      const Value is_first = b.binary(Op::kEq, k.at(1), k.index(0));
      const Value last = b.select(is_first, k.index(0), b.sub(k.at(1), k.index(1)));
      Elements prefix;
      for (const Temporary& each : before)
        prefix.push_back(k.load(each, index_of(k, blocks, last)));
      start = k.choose(is_first, start, reduce(k, prefix, start));
    }
    store(k, to, size, first, start);
    k.loop(k.index(block - 1), dtypes_, start, [&](Value t, const Elements& carried) {
      // Beyond the end the last element is stored again.
      Value i = b.add(first, b.add(t, k.index(1)));
      Elements next;
      if (size % block == 0) {
        next = reduce(k, carried, load(k, from, size, i));
      } else {
        const Value exists = b.binary(Op::kLtS, i, k.index(size));
        i = k.at_most(i, size - 1);
        next = k.choose(exists, reduce(k, carried, load(k, from, size, i)), carried);
      }
      store(k, to, size, i, next);
      return next;
    });
    return finish(k);
  }

  bool uses_teams() {
    return options_.team_words > 0 && options_.team_points > 1 && inner_ < limits_.many_columns &&
           most_share() > 0;
  }

  // Elements of a point of a team that do not make too much code; 0: there are none.
  int64_t most_share() {
    KernelMaker k("scan", {2, 2}, 2, in_memory_);
    Elements a, b;
    for (const DType dtype : dtypes_) {
      const auto some = [&](size_t dim) {
        return kernel::convert_element(k.b(), {k.at(dim), kernel::kNoValue}, DType::kI32, dtype);
      };
      a.push_back(some(0));
      b.push_back(some(1));
    }
    const size_t before = k.b().size();
    reduce(k, a, b);
    const size_t instructions = k.b().size() - before + 1;
    int64_t share = limits_.most_share;
    constexpr size_t kExchanges = 20;
    while (share > 0 && (2 * static_cast<size_t>(share) + kExchanges) * instructions >
                            limits_.most_instructions) {
      share /= 2;
    }
    return share;
  }

  // to[i] = the reduction of from[0 .. i], as in `scan`.
  Status scan_by_teams(const Temporaries& from, int64_t size, const Temporaries& to) {
    const TeamShape shape = team_shape(size, most_share(), options_);
    const int64_t blocks = (size + shape.block() - 1) / shape.block();
    if (blocks == 1 || (blocks <= limits_.many_blocks && outer_ * inner_ >= limits_.many_lines)) {
      return scan_blocks(shape, from, size, {}, to);
    }
    // Nothing stands behind the last block.
    const Temporaries totals = add(blocks - 1);
    HEKLA_RETURN_IF_ERROR(total_blocks(shape, from, size, totals));
    const Temporaries before = add(blocks - 1);
    HEKLA_RETURN_IF_ERROR(scan_by_teams(totals, blocks - 1, before));
    return scan_blocks(shape, from, size, before, to);
  }

  // The elements of this point, blocked, each with those of this point before it.
  std::vector<Elements> scan_share(KernelMaker& k, Team& team, const TeamShape& shape,
                                   const Temporaries& from, int64_t size, Value first) {
    std::vector<Elements> elements;
    for (int64_t j = 0; j < shape.share; ++j) {
      Value i = k.b().add(first, team.as_index(team.striped(j)));
      // What is read again behind the end stands before nothing.
      if (size % shape.block() != 0) i = k.at_most(i, size - 1);
      elements.push_back(load(k, from, size, i));
    }
    if (shape.share == 1) return elements;
    elements = team.move(elements, dtypes_, team.striped_places(), team.blocked_places());
    for (size_t j = 1; j < elements.size(); ++j) {
      elements[j] = reduce(k, elements[j - 1], elements[j]);
    }
    return elements;
  }

  Team::Reduce reducer(KernelMaker& k) {
    return [this, &k](const Elements& a, const Elements& b) { return reduce(k, a, b); };
  }

  // The totals of all blocks but the last.
  Status total_blocks(const TeamShape& shape, const Temporaries& from, int64_t size,
                      const Temporaries& totals) {
    const int64_t blocks = (size - 1) / shape.block();
    KernelMaker k("scan_totals", {outer_, blocks, inner_, shape.points},
                  outer_ * (size + shape.block()) * inner_, in_memory_);
    Team team(k, 3, shape);
    const Value first = k.b().mul(k.at(1), k.index(shape.block()));
    const Elements mine = scan_share(k, team, shape, from, size, first).back();
    const Elements total = team.scan(mine, reducer(k)).total;
    k.when(k.b().binary(Op::kEq, k.at(3), k.index(0)),
           [&] { store(k, totals, blocks, k.at(1), total); });
    return finish(k);
  }

  // Each block from what `before` says of those before it; a team each, or where there is none one
  // team for all blocks of a line.
  Status scan_blocks(const TeamShape& shape, const Temporaries& from, int64_t size,
                     const Temporaries& before, const Temporaries& to) {
    const int64_t blocks = (size + shape.block() - 1) / shape.block();
    const int64_t teams = before.empty() ? 1 : blocks;  // of a line
    KernelMaker k("scan_blocks", {outer_, teams, inner_, shape.points},
                  outer_ * (size + shape.block()) * inner_, in_memory_);
    Builder& b = k.b();
    Team team(k, 3, shape);
    const Value is_first_point = b.binary(Op::kEq, k.at(3), k.index(0));
    // `carried`: what stands before the block, unless `is_first`. Gives what stands behind it.
    const auto run = [&](Value block, Value is_first, const Elements& carried) {
      const Value first = b.mul(block, k.index(shape.block()));
      std::vector<Elements> elements = scan_share(k, team, shape, from, size, first);
      const Team::Scan all = team.scan(elements.back(), reducer(k));
      Elements prefix = all.before, behind = all.total;
      if (!carried.empty()) {
        const Elements both = k.choose(is_first_point, carried, reduce(k, carried, all.before));
        prefix = k.choose(is_first, all.before, both);
        behind = k.choose(is_first, all.total, reduce(k, carried, all.total));
      }
      const Value has_none = b.bit_and(is_first, is_first_point);
      for (Elements& each : elements) each = k.choose(has_none, each, reduce(k, prefix, each));
      if (shape.share > 1) {
        elements = team.move(elements, dtypes_, team.blocked_places(), team.striped_places());
      }
      for (int64_t j = 0; j < shape.share; ++j) {
        const Value i = b.add(first, team.as_index(team.striped(j)));
        const auto store_one = [&] { store(k, to, size, i, elements[static_cast<size_t>(j)]); };
        if (size % shape.block() == 0) {
          store_one();
        } else {
          k.when(b.binary(Op::kLtS, i, k.index(size)), store_one);
        }
      }
      return behind;
    };
    const auto is_zero = [&](Value v) { return b.binary(Op::kEq, v, k.index(0)); };
    if (blocks == 1) {
      run(k.index(0), b.boolean(true), {});
    } else if (before.empty()) {
      Elements none;
      for (const DType dtype : dtypes_) none.push_back(kernel::integer_element(b, dtype, 0));
      k.loop(k.index(blocks), dtypes_, none,
             [&](Value t, const Elements& carried) { return run(t, is_zero(t), carried); });
    } else {
      const Value is_first = is_zero(k.at(1));
      const Value last = b.select(is_first, k.index(0), b.sub(k.at(1), k.index(1)));
      Elements carried;
      for (const Temporary& each : before) {
        carried.push_back(k.load(each, index_of(k, blocks - 1, last)));
      }
      run(k.at(1), is_first, carried);
    }
    return finish(k);
  }

  // The results from the scan of the whole line.
  Status pick(const Temporaries& whole) {
    KernelMaker k("scan_pick", {outer_, to_size_, inner_},
                  outer_ * std::max(size_, to_size_) * inner_, in_memory_);
    Builder& b = k.b();
    // How many elements are behind an output, less one, in scan order.
    const Value o = k.at(1);
    const Value last =
        is_reverse_ ? b.sub(k.index(size_ - 1 - shift_), o) : b.add(o, k.index(shift_));
    const Value is_empty = b.binary(Op::kLtS, last, k.index(0));
    const Value at = b.select(is_empty, k.index(0), k.at_most(last, size_ - 1));
    const Elements total = load(k, whole, size_, at);
    const Elements start = initial(k);
    const Elements reduced = is_reverse_ ? reduce(k, total, start) : reduce(k, start, total);
    store_result(k, index_of(k, to_size_, o), k.choose(is_empty, start, reduced));
    return finish(k);
  }

  const ir::Operation& op_;
  const bool is_reverse_;
  const int64_t shift_;
  const Outputs& outputs_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const ScanLimits limits_ = scan_limits(options_);
  int64_t outer_ = 1, size_ = 1, inner_ = 1;
  int64_t to_size_ = 1;
  std::vector<DType> dtypes_;
  LoweredSequence sequence_;
};

}  // namespace

kernel::Refusal why_no_scan(const ir::Operation& op, const LowerOptions& options) {
  if (op.operand_count() == 0 || !op.operand(0)->type().is_static_tensor() ||
      !op.result()->type().is_static_tensor()) {
    return "sizes are not known";
  }
  kernel::Refusal why;
  return cumulative_of(op, scan_limits(options), why) ? "" : why;
}

Result<LoweredSequence> lower_scan(const ir::Operation& op, const Outputs& outputs,
                                   const InMemory& in_memory, const LowerOptions& options) {
  kernel::Refusal why;
  const std::optional<Cumulative> what = cumulative_of(op, scan_limits(options), why);
  if (!what.has_value()) return internal_error("not a cumulative reduction: {}", why);
  return ScanLowering(op, *what, outputs, in_memory, options).run();
}

}  // namespace hekla::lower
