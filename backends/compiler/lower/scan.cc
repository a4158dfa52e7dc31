// SPDX-License-Identifier: Apache-2.0
// Cumulative reductions: reduce_window whose windows all begin before the first element, or all end
// behind the last one. Blocks are summed, the sums scanned the same way, and each block is then run
// through once more from what stands before it. The order of additions depends on the shape alone.
// On devices with teams these scan blocks together (team_scan.h).
#include <fmt/format.h>

#include <array>

#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/sequence.h"
#include "backends/compiler/lower/team_scan.h"
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
};

ScanLimits scan_limits(const LowerOptions& options) {
  return options.small_limits ? ScanLimits{4, 8, 3, 2} : ScanLimits{};
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

  kernel::Refusal why_not_by_teams() { return lower::why_no_team_scan(team_scan({}, size_, {})); }

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

  // An index into lines of so many elements, and into what the operands are made of.
  int64_t largest(int64_t size) const {
    return std::max(outer_ * size * inner_, largest_inlined(op_, in_memory_));
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

  TeamScan team_scan(const Temporaries& from, int64_t size, const Temporaries& to) {
    TeamScan scan{sequence_,
                  in_memory_,
                  options_,
                  outer_,
                  size,
                  inner_,
                  dtypes_,
                  {},
                  {},
                  {},
                  largest_inlined(op_, in_memory_)};
    scan.reduce = [this](KernelMaker& k, const Elements& a, const Elements& b) {
      return reduce(k, a, b);
    };
    scan.load = [=, this](KernelMaker& k, Value i) { return load(k, from, size, i); };
    scan.store = [=, this](KernelMaker& k, Value i, const Elements& e) {
      store(k, to, size, i, e);
    };
    return scan;
  }

  // to[i] = the reduction of from[0 .. i], in scan order; the results when `to` is empty.
  Status scan(const Temporaries& from, int64_t size, const Temporaries& to) {
    TeamScan by_teams = team_scan(from, size, to);
    if (why_no_team_scan(by_teams).empty()) return scan_by_teams(by_teams);
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
    KernelMaker k("scan_sums", {outer_, blocks, inner_}, largest(size), in_memory_);
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
    KernelMaker k("scan", {outer_, blocks, inner_}, largest(size), in_memory_);
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

  // The results from the scan of the whole line.
  Status pick(const Temporaries& whole) {
    KernelMaker k("scan_pick", {outer_, to_size_, inner_}, largest(std::max(size_, to_size_)),
                  in_memory_);
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

kernel::Refusal why_no_team_scan(const ir::Operation& op, const LowerOptions& options) {
  if (kernel::Refusal why = why_no_scan(op, options); !why.empty()) return why;
  kernel::Refusal why;
  const std::optional<Cumulative> what = cumulative_of(op, scan_limits(options), why);
  const InMemory in_memory = [](const ir::Value&) { return true; };
  return ScanLowering(op, *what, {}, in_memory, options).why_not_by_teams();
}

Result<LoweredSequence> lower_scan(const ir::Operation& op, const Outputs& outputs,
                                   const InMemory& in_memory, const LowerOptions& options) {
  kernel::Refusal why;
  const std::optional<Cumulative> what = cumulative_of(op, scan_limits(options), why);
  if (!what.has_value()) return internal_error("not a cumulative reduction: {}", why);
  return ScanLowering(op, *what, outputs, in_memory, options).run();
}

}  // namespace hekla::lower
