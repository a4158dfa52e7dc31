// SPDX-License-Identifier: Apache-2.0
// Reductions of long lines to few results, in stages: parts of the lines are reduced side by side
// into temporary memory, then the parts. How a line is cut depends on shapes and reducer alone, so
// sums are the same in every schedule and with any number of threads. Reductions of the same lines
// may go through them together; each result is that of its reduction alone.
#include <fmt/format.h>

#include <algorithm>

#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/reduce_kernels.h"
#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;

namespace {

// Contiguous lines that are reduced side by side: a cache line of f32, so that a part is read in
// order.
constexpr int64_t kSide = 16;
// Elements that are added in a row before the sum goes to others with compensation, which bounds
// the rounding error; and that become one where the order is fixed.
constexpr int64_t kChain = 64;
// More lines than this are reduced by one kernel where the order is fixed or their elements are no
// neighbours, which takes as long either way.
constexpr int64_t kManyLines = 32;
// Columns: parts at most; and more columns than these are enough work side by side.
constexpr int64_t kMostParts = 256;
constexpr int64_t kManyColumns = 2048;

// What sizes decide.
struct ReduceLimits {
  // Elements per point: with kSide a part of 64 Ki elements, 10 to 20 us of one thread.
  int64_t deep = 4096;
  // Lines shorter than this are reduced by one kernel, a line a lane.
  int64_t short_line = 512;
  // Of columns: elements of a part, and rows of a part at least.
  int64_t part = 16 * 1024;
  int64_t few_rows = 16;
  // Few contiguous elements do not fill a vector: worth it for large arrays only.
  int64_t large_array = 256 * 1024;
};

ReduceLimits reduce_limits(const LowerOptions& options) {
  return options.small_limits ? ReduceLimits{3, 2 * kSide, 32, 2, 64} : ReduceLimits{};
}

int64_t rows_of_part(const Lines& lines, const ReduceLimits& limits) {
  const int64_t rows = std::max(limits.few_rows, limits.part / lines.count);
  return std::max(rows, lines.length / kMostParts);
}

class ReduceLowering : private ReduceKernels {
 public:
  using ReduceKernels::ReduceKernels;

  Result<LoweredSequence> run() {
    if (lines_.is_column) {
      HEKLA_RETURN_IF_ERROR(run_columns());
    } else if (parts_.front().order == Order::kFixed) {
      HEKLA_RETURN_IF_ERROR(run_in_order());
    } else {
      HEKLA_RETURN_IF_ERROR(run_side_by_side());
    }
    return std::move(sequence_);
  }

 private:
  int64_t largest() const {
    return ReduceKernels::largest() + 2 * kSide * reduce_limits(options_).deep;
  }

  bool is_rounded(const Part& part) const {
    const DType dtype = dtypes_[part.first];
    return part.order == Order::kSum && (is_float(dtype) || is_complex(dtype));
  }
  bool is_any_rounded() const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [this](const Part& part) { return is_rounded(part); });
  }

  Element plus(KernelMaker& k, OpCode code, const Part& part, const Element& a,
               const Element& b) const {
    const std::optional<Element> sum = kernel::binary(k.b(), code, dtypes_[part.first], a, b);
    if (!sum.has_value()) k.emitter().fail(*part.op);
    return sum.value_or(a);
  }

  // `count` steps from `total` on. A step gives, of rounded parts, what is added with compensation
  // (Kahan, "Further remarks on reducing truncation errors", 1965), so that the error does not grow
  // with `count`; of the others the new total.
  using StepOf = std::function<Elements(Value, const Elements& totals)>;
  Elements add_steps(KernelMaker& k, int64_t count, const Elements& total,
                     const StepOf& step) const {
    if (count == 0) return total;
    // The errors of the parts, those of rounded ones used, lie behind the totals.
    std::vector<DType> dtypes = dtypes_;
    Elements start = total;
    for (const Part& part : parts_) {
      if (!is_rounded(part)) continue;
      dtypes.push_back(dtypes_[part.first]);
      start.push_back(k.emitter().zero(dtypes_[part.first]));
    }
    const auto size = static_cast<ptrdiff_t>(dtypes_.size());
    Elements state = k.loop(k.index(count), dtypes, start, [&](Value i, const Elements& carried) {
      const Elements totals(carried.begin(), carried.begin() + size);
      const Elements here = step(i, totals);
      Elements next, errors;
      for (const Part& part : parts_) {
        if (!is_rounded(part)) {
          append(next, of(part, here));
          continue;
        }
        const Element& sum = totals[part.first];
        const Element& error = carried[dtypes_.size() + errors.size()];
        const Element y = plus(k, OpCode::kSubtract, part, here[part.first], error);
        next.push_back(plus(k, OpCode::kAdd, part, sum, y));
        Element left = plus(k, OpCode::kSubtract, part, next.back(), sum);
        left = plus(k, OpCode::kSubtract, part, left, y);
        errors.push_back(finite_or_zero(k.b(), left));
      }
      append(next, errors);
      return next;
    });
    state.resize(dtypes_.size());
    return state;
  }

  // add_chain with compensation where sums are rounded.
  Elements add_exactly(KernelMaker& k, int64_t count, const Elements& total, const At& at) const {
    if (!is_any_rounded()) return add_chain(k, count, total, at);
    return add_steps(k, count, total, [&](Value i, const Elements& totals) {
      const Elements here = at(i);
      Elements next;
      for (const Part& part : parts_) {
        append(next, is_rounded(part) ? of(part, here)
                                      : combine(k, part, of(part, totals), of(part, here)));
      }
      return next;
    });
  }

  // add_chain in short chains, whose sums are added with compensation.
  Elements add_all(KernelMaker& k, int64_t count, const Elements& total, const At& at) const {
    if (!is_any_rounded()) return add_chain(k, count, total, at);
    const auto chain = [&](int64_t length, Value base, const Elements& totals) {
      Elements start;
      for (const Part& part : parts_) {
        append(start, is_rounded(part) ? zero(k, part) : of(part, totals));
      }
      return add_chain(k, length, start, [&](Value i) { return at(k.b().add(base, i)); });
    };
    const int64_t blocks = count / kChain;
    const Elements sum = add_steps(k, blocks, total, [&](Value block, const Elements& totals) {
      return chain(kChain, k.b().mul(block, k.index(kChain)), totals);
    });
    if (count % kChain == 0) return sum;
    const Elements rest = chain(count % kChain, k.index(blocks * kChain), sum);
    Elements all;
    for (const Part& part : parts_) {
      append(all,
             is_rounded(part) ? combine(k, part, of(part, sum), of(part, rest)) : of(part, rest));
    }
    return all;
  }

  // What a fold begins with: of sums nothing, of others the first element, once more.
  Elements start(KernelMaker& k, const At& at) const {
    const bool has_first = std::any_of(parts_.begin(), parts_.end(),
                                       [](const Part& part) { return part.order != Order::kSum; });
    const Elements first = has_first ? at(k.index(0)) : Elements();
    Elements elements;
    for (const Part& part : parts_) {
      append(elements, part.order == Order::kSum ? zero(k, part) : of(part, first));
    }
    return elements;
  }

  // Elements 0 .. count of `at`, one at least.
  Elements fold(KernelMaker& k, int64_t count, const At& at) const {
    const Elements first = start(k, at);
    const Order order = parts_.front().order;
    if (order == Order::kSum || order == Order::kIdempotent) return add_all(k, count, first, at);
    return add_chain(k, count - 1, first, [&](Value i) { return at(k.b().add(i, k.index(1))); });
  }

  // Parts of rows first, then the parts: contiguous elements are of different lines.
  Status run_columns() {
    const int64_t rows = rows_of_part(lines_, reduce_limits(options_));
    const int64_t parts = lines_.length / rows;
    const int64_t rest = lines_.length % rows;
    const Temporaries sums = add(parts * lines_.count);
    {
      KernelMaker k("reduce_rows", grid({parts}, {}), largest(), in_memory_);
      const Value begin = k.b().mul(k.at(0), k.index(rows));
      const Elements sum =
          fold(k, rows, [&](Value i) { return element(k, 1, k.b().add(begin, i)); });
      const Value at = k.b().add(k.b().mul(k.at(0), k.index(lines_.count)), line(k, 1));
      store(k, sums, at, sum);
      HEKLA_RETURN_IF_ERROR(finish(k));
    }
    KernelMaker k("reduce", grid({}, {}), largest(), in_memory_);
    Elements total = add_all(k, parts, initial(k), [&](Value i) {
      return load(k, sums, k.b().add(k.b().mul(i, k.index(lines_.count)), line(k, 0)));
    });
    total = add_chain(k, rest, total,
                      [&](Value i) { return element(k, 0, k.b().add(i, k.index(parts * rows))); });
    store_result(k, 0, total);
    return finish(k);
  }

  // Of maxima, minima and the like, which are the same in any order, elements of 16 bits and less
  // fill a cache line, too.
  int64_t side_of_lines() const {
    const bool is_narrow = std::all_of(parts_.begin(), parts_.end(), [this](const Part& part) {
      return part.order == Order::kIdempotent && dtype_bytes(dtypes_[part.first]) <= 2;
    });
    const int64_t wide = 2 * kSide;
    const bool divides = lines_.is_dense || lines_.reduced_sizes.back() % wide == 0;
    return is_narrow && divides && lines_.length >= wide ? wide : kSide;
  }

  // A line in rows of elements that are reduced side by side: by parts of many rows, then
  // what is left of each part, then what is left of all.
  Status run_side_by_side() {
    const int64_t side = side_of_lines();
    const size_t kept = lines_.kept.size();
    const int64_t rows = lines_.length / side;
    // Parts have as many elements whatever their side is.
    const int64_t most = std::max<int64_t>(1, reduce_limits(options_).deep * kSide / side);
    const int64_t parts = std::max<int64_t>(1, rows / most);
    const int64_t deep = rows / parts;
    const int64_t rest = rows % parts;
    Temporaries sums = add(lines_.count * parts * side);
    const auto side_at = [&](KernelMaker& k, Value row, size_t dim) {
      return k.b().add(k.b().mul(row, k.index(side)), k.at(dim));
    };
    {
      KernelMaker k("reduce_parts", grid({}, {parts, side}), largest(), in_memory_);
      const Value begin = k.b().mul(k.at(kept), k.index(deep));
      const Elements sum = fold(k, deep, [&](Value i) {
        return element(k, 0, side_at(k, k.b().add(begin, i), kept + 1));
      });
      const Value part = k.b().add(k.b().mul(line(k, 0), k.index(parts)), k.at(kept));
      store(k, sums, side_at(k, part, kept + 1), sum);
      HEKLA_RETURN_IF_ERROR(finish(k));
    }
    if (parts > 1) {
      const Temporaries fewer = add(lines_.count * side);
      KernelMaker k("reduce_sides", grid({}, {side}), largest(), in_memory_);
      const Value begin = k.b().mul(line(k, 0), k.index(parts));
      const At at = [&](Value i) { return load(k, sums, side_at(k, k.b().add(begin, i), kept)); };
      Elements sum = parts_.front().order == Order::kAny ? fold(k, parts, at)
                                                         : add_exactly(k, parts, start(k, at), at);
      sum = add_all(k, rest, sum, [&](Value i) {
        return element(k, 0, side_at(k, k.b().add(i, k.index(parts * deep)), kept));
      });
      store(k, fewer, side_at(k, line(k, 0), kept), sum);
      HEKLA_RETURN_IF_ERROR(finish(k));
      sums = fewer;
    }
    KernelMaker k("reduce", grid({}, {}), largest(), in_memory_);
    const Value begin = k.b().mul(line(k, 0), k.index(side));
    Elements total = add_exactly(k, side, initial(k),
                                 [&](Value i) { return load(k, sums, k.b().add(begin, i)); });
    total = add_all(k, lines_.length % side, total,
                    [&](Value i) { return element(k, 0, k.b().add(i, k.index(rows * side))); });
    store_result(k, 0, total);
    return finish(k);
  }

  // Runs of kChain elements become one, again and again; what is left over at the ends comes
  // last.
  Status run_in_order() {
    const size_t kept = lines_.kept.size();
    std::vector<Temporaries> levels;
    std::vector<int64_t> sizes{lines_.length};
    const auto at_level = [&](KernelMaker& k, size_t level, Value i) {
      if (level == 0) return element(k, 0, i);
      const Value begin = k.b().mul(line(k, 0), k.index(sizes[level]));
      return load(k, levels[level - 1], k.b().add(begin, i));
    };
    while (sizes.back() > 2 * kChain) {
      const size_t level = levels.size();
      const int64_t runs = sizes.back() / kChain;
      KernelMaker k("reduce_runs", grid({}, {runs}), largest(), in_memory_);
      const Value begin = k.b().mul(k.at(kept), k.index(kChain));
      const Elements sum =
          fold(k, kChain, [&](Value i) { return at_level(k, level, k.b().add(i, begin)); });
      const Temporaries next = add(lines_.count * runs);
      store(k, next, k.b().add(k.b().mul(line(k, 0), k.index(runs)), k.at(kept)), sum);
      HEKLA_RETURN_IF_ERROR(finish(k));
      levels.push_back(next);
      sizes.push_back(runs);
    }
    KernelMaker k("reduce", grid({}, {}), largest(), in_memory_);
    Elements total = add_chain(k, sizes.back(), initial(k),
                               [&](Value i) { return at_level(k, levels.size(), i); });
    for (size_t level = levels.size(); level-- > 0;) {
      const int64_t begin = sizes[level + 1] * kChain;
      total = add_chain(k, sizes[level] - begin, total,
                        [&](Value i) { return at_level(k, level, k.b().add(i, k.index(begin))); });
    }
    store_result(k, 0, total);
    return finish(k);
  }
};

}  // namespace

kernel::Refusal why_no_staged_reduce(const ir::Operation& op, const LowerOptions& options) {
  if (kernel::Refusal why = why_no_lines(op); !why.empty()) return why;
  const ReduceLimits limits = reduce_limits(options);
  const Lines lines = lines_of(op);
  if (lines.is_column) {
    if (lines.contiguous < kFewContiguous && lines.count * lines.length < limits.large_array) {
      return fmt::format(
          "{} contiguous elements do not fill a vector, and {} elements are fewer than {}",
          lines.contiguous, lines.count * lines.length, limits.large_array);
    }
    if (lines.count > kManyColumns) {
      return fmt::format("{} columns, more than {}, are work enough side by side", lines.count,
                         kManyColumns);
    }
    if (lines.length / rows_of_part(lines, limits) < 2) {
      return fmt::format("{} rows are less than two parts of {}", lines.length,
                         rows_of_part(lines, limits));
    }
    return {};
  }
  if (lines.length < limits.short_line) {
    return fmt::format("lines of {} elements, fewer than {}", lines.length, limits.short_line);
  }
  if (lines.is_dense && order_of(op) != Order::kFixed) return {};
  // Elsewhere a line's number is taken apart, which is cheap where vectors do not cross its ends.
  if (!lines.is_dense && lines.reduced_sizes.back() % kSide != 0) {
    return fmt::format("lines of {} contiguous elements, no multiple of {}",
                       lines.reduced_sizes.back(), kSide);
  }
  if (lines.count > kManyLines) {
    return fmt::format("{} lines, more than {}, are work enough side by side", lines.count,
                       kManyLines);
  }
  return {};
}

bool are_siblings(const ir::Operation& a, const ir::Operation& b, const LowerOptions& options) {
  if (!is_staged_reduce(a, options) || !is_staged_reduce(b, options) ||
      a.operand(0)->type().dims() != b.operand(0)->type().dims() ||
      ir::int_list(a, "dimensions") != ir::int_list(b, "dimensions")) {
    return false;
  }
  const bool is_tree = is_tree_reduce(a, options);
  if (is_tree != is_tree_reduce(b, options)) return false;
  if (is_tree) return is_of_free_orders(a) && is_of_free_orders(b);
  const auto has_free_order = [](const ir::Operation& op) {
    const Order order = order_of(op);
    return order == Order::kSum || order == Order::kIdempotent;
  };
  return has_free_order(a) && has_free_order(b);
}

Result<LoweredSequence> lower_reduce(const Outputs& outputs, const InMemory& in_memory,
                                     const LowerOptions& options) {
  if (is_tree_reduce(*outputs.front()->defining_op(), options)) {
    return lower_tree_reduce(outputs, in_memory, options);
  }
  return ReduceLowering(outputs, in_memory, options).run();
}

}  // namespace hekla::lower
