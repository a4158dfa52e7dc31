// SPDX-License-Identifier: Apache-2.0
// Reductions of long lines to few results, in stages: parts of the lines are reduced side by side
// into temporary memory, then the parts. How a line is cut depends on shapes and reducer alone, so
// sums are the same in every schedule and with any number of threads. Reductions of the same lines
// may go through them together; each result is that of its reduction alone.
#include <fmt/format.h>

#include <algorithm>

#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;

namespace {

// Neighbours that are reduced side by side: a cache line of f32, so that a part is read in order.
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
  // Few neighbours do not fill a vector: worth it for large arrays only.
  int64_t large_array = 256 * 1024;
};

ReduceLimits reduce_limits(const LowerOptions& options) {
  return options.small_limits ? ReduceLimits{3, 2 * kSide, 32, 2, 64} : ReduceLimits{};
}

// What may be done with a reducer beside keeping the order of the elements.
enum class Order {
  kSum,         // they may be taken in any order, and -0 or 0 changes nothing
  kIdempotent,  // in any order, and any of them twice
  kAny,         // in any order
  kFixed,
};

Order order_of(const ir::Operation& op) {
  const ir::Block& block = op.region(0).front();
  const auto& ops = block.operations();
  if (op.result_count() != 1 || ops.size() != 2 || block.argument_count() != 2) {
    return Order::kFixed;
  }
  const ir::Operation& made = *ops[0];
  if (made.operand_count() != 2 || ops[1]->operand(0) != made.result()) return Order::kFixed;
  const ir::Value *a = made.operand(0), *b = made.operand(1);
  const ir::Value *x = block.argument(0), *y = block.argument(1);
  if (!((a == x && b == y) || (a == y && b == x))) return Order::kFixed;
  switch (made.code()) {
    case OpCode::kAdd:
      return Order::kSum;
    case OpCode::kAnd:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kOr:
      return Order::kIdempotent;
    case OpCode::kMultiply:
    case OpCode::kXor:
      return Order::kAny;
    default:
      return Order::kFixed;
  }
}

// The shape of a reduction: lines of `length` elements, one per element of the kept dimensions.
struct Lines {
  std::vector<size_t> kept, reduced;  // dimensions of the operands
  Dims kept_sizes, reduced_sizes;
  int64_t count = 1;
  int64_t length = 1;
  int64_t neighbours = 1;  // kept elements behind the last reduced dimension
  bool is_dense = false;   // a line's elements are neighbours
  bool is_column = false;  // neighbours belong to different lines
};

Lines lines_of(const ir::Operation& op) {
  Lines lines;
  const Dims& from = op.operand(0)->type().dims();
  const std::vector<int64_t> dimensions = ir::int_list(op, "dimensions");
  lines.is_dense = true;
  for (size_t d = 0; d < from.size(); ++d) {
    const bool is_reduced = std::find(dimensions.begin(), dimensions.end(),
                                      static_cast<int64_t>(d)) != dimensions.end();
    (is_reduced ? lines.reduced : lines.kept).push_back(d);
    (is_reduced ? lines.reduced_sizes : lines.kept_sizes).push_back(from[d]);
    (is_reduced ? lines.length : lines.count) *= from[d];
    lines.neighbours = is_reduced ? 1 : lines.neighbours * from[d];
    if (from[d] == 1) continue;
    lines.is_column = !is_reduced;
    if (!is_reduced && lines.length > 1) lines.is_dense = false;
  }
  return lines;
}

int64_t rows_of_part(const Lines& lines, const ReduceLimits& limits) {
  const int64_t rows = std::max(limits.few_rows, limits.part / lines.count);
  return std::max(rows, lines.length / kMostParts);
}

class ReduceLowering {
 public:
  // `outputs`: results of one operation, or of several that are_siblings.
  ReduceLowering(const Outputs& outputs, const InMemory& in_memory, const LowerOptions& options)
      : lines_(lines_of(*outputs.front()->defining_op())),
        outputs_(outputs),
        in_memory_(in_memory),
        options_(options) {
    for (const ir::Value* output : outputs) {
      const ir::Operation* op = output->defining_op();
      if (std::any_of(parts_.begin(), parts_.end(),
                      [&](const Part& part) { return part.op == op; })) {
        continue;
      }
      parts_.push_back({op, order_of(*op), dtypes_.size(), op->result_count()});
      for (size_t r = 0; r < op->result_count(); ++r) {
        dtypes_.push_back(op->result(r)->type().dtype());
      }
    }
  }

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
  using Temporaries = std::vector<Temporary>;
  // The elements of all parts, one part's behind the other's.
  using At = std::function<Elements(Value)>;

  // A reduction; its elements are `count` from `first` on.
  struct Part {
    const ir::Operation* op = nullptr;
    Order order = Order::kFixed;
    size_t first = 0;
    size_t count = 0;
  };
  static Elements of(const Part& part, const Elements& all) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(part.first);
    return {begin, begin + static_cast<ptrdiff_t>(part.count)};
  }
  static void append(Elements& to, const Elements& elements) {
    to.insert(to.end(), elements.begin(), elements.end());
  }

  Temporaries add(int64_t elements) {
    Temporaries added;
    for (DType dtype : dtypes_) added.push_back(add_temporary(sequence_, dtype, elements));
    return added;
  }

  Status finish(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  // A grid over the lines and what is given, in this order or the other.
  std::vector<int64_t> grid(std::vector<int64_t> outer, const std::vector<int64_t>& inner) const {
    outer.insert(outer.end(), lines_.kept_sizes.begin(), lines_.kept_sizes.end());
    outer.insert(outer.end(), inner.begin(), inner.end());
    return outer;
  }
  int64_t largest() const {
    return lines_.count * lines_.length + kSide * reduce_limits(options_).deep;
  }

  // The number of the line, whose dimensions begin at `first` in the grid.
  Value line(KernelMaker& k, size_t first) const {
    Value at = k.index(0);
    for (size_t i = 0; i < lines_.kept.size(); ++i) {
      at = k.b().add(k.b().mul(at, k.index(lines_.kept_sizes[i])), k.at(first + i));
    }
    return at;
  }

  // Element `t` of the line of this point.
  Elements element(KernelMaker& k, size_t first, Value t) const {
    Builder& b = k.b();
    Point point;
    if (lines_.is_dense) {
      point.linear = b.add(b.mul(line(k, first), k.index(lines_.length)), t);
    } else {
      point.dims.resize(lines_.kept.size() + lines_.reduced.size());
      for (size_t i = 0; i < lines_.kept.size(); ++i) point.dims[lines_.kept[i]] = k.at(first + i);
      for (size_t i = lines_.reduced.size(); i-- > 0;) {
        const Value size = k.index(lines_.reduced_sizes[i]);
        const bool is_outermost = i == 0;
        point.dims[lines_.reduced[i]] = is_outermost ? t : b.binary(Op::kRemU, t, size);
        if (!is_outermost) t = b.binary(Op::kDivU, t, size);
      }
    }
    Elements elements;
    for (const Part& part : parts_) {
      for (size_t r = 0; r < part.count; ++r) {
        elements.push_back(k.emitter().emit(*part.op->operand(r), point));
      }
    }
    return elements;
  }

  Elements load(KernelMaker& k, const Temporaries& from, Value at) const {
    Elements elements;
    for (const Temporary& each : from) elements.push_back(k.load(each, at));
    return elements;
  }
  void store(KernelMaker& k, const Temporaries& to, Value at, const Elements& elements) const {
    for (size_t r = 0; r < elements.size(); ++r) k.store(to[r], at, elements[r]);
  }
  void store_result(KernelMaker& k, const Elements& elements) const {
    const Value at = line(k, 0);
    for (const Part& part : parts_) {
      for (size_t r = 0; r < part.count; ++r) {
        const ir::Value* result = part.op->result(r);
        if (std::find(outputs_.begin(), outputs_.end(), result) != outputs_.end()) {
          k.store(*result, at, elements[part.first + r]);
        }
      }
    }
  }

  static Elements combine(KernelMaker& k, const Part& part, const Elements& before,
                          const Elements& after) {
    Elements arguments = before;
    append(arguments, after);
    const std::optional<Elements> reduced =
        k.emitter().apply_region(part.op->region(0).front(), arguments);
    if (!reduced.has_value() || reduced->size() != part.count) {
      k.emitter().fail(*part.op);
      return before;
    }
    return *reduced;
  }

  Elements initial(KernelMaker& k) const {
    Elements elements;
    for (const Part& part : parts_) {
      for (size_t r = 0; r < part.count; ++r) {
        elements.push_back(k.emitter().emit(*part.op->operand(part.count + r), Point{}));
      }
    }
    return elements;
  }

  // `total` and then elements 0 .. count of `at`.
  Elements add_chain(KernelMaker& k, int64_t count, const Elements& total, const At& at) const {
    if (count == 0) return total;
    return k.loop(k.index(count), dtypes_, total, [&](Value i, const Elements& carried) {
      const Elements here = at(i);
      Elements next;
      for (const Part& part : parts_) {
        append(next, combine(k, part, of(part, carried), of(part, here)));
      }
      return next;
    });
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
        errors.push_back(finite_or_zero(k, left));
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

  // An infinite sum has no error worth the name, only a NaN.
  static Element finite_or_zero(KernelMaker& k, Element e) {
    for (Value* part : {&e.re, &e.im}) {
      if (*part == kernel::kNoValue) continue;
      const Value is_number = k.b().binary(Op::kEq, *part, *part);
      *part = k.b().select(is_number, *part, k.b().integer(k.b().type(*part), 0));
    }
    return e;
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

  // x + -0 is x for every float x.
  Elements zero(KernelMaker& k, const Part& part) const {
    Element e = k.emitter().zero(dtypes_[part.first]);
    if (is_float(complex_part(dtypes_[part.first]))) {
      e.re = k.b().neg(e.re);
      if (e.im != kernel::kNoValue) e.im = k.b().neg(e.im);
    }
    return {e};
  }

  // Parts of rows first, then the parts: neighbours are different lines.
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
    store_result(k, total);
    return finish(k);
  }

  // A line in rows of kSide elements, which are reduced side by side: by parts of many rows, then
  // what is left of each part, then what is left of all.
  Status run_side_by_side() {
    const size_t kept = lines_.kept.size();
    const int64_t rows = lines_.length / kSide;
    const int64_t parts = std::max<int64_t>(1, rows / reduce_limits(options_).deep);
    const int64_t deep = rows / parts;
    const int64_t rest = rows % parts;
    Temporaries sums = add(lines_.count * parts * kSide);
    const auto side_at = [&](KernelMaker& k, Value row, size_t dim) {
      return k.b().add(k.b().mul(row, k.index(kSide)), k.at(dim));
    };
    {
      KernelMaker k("reduce_parts", grid({}, {parts, kSide}), largest(), in_memory_);
      const Value begin = k.b().mul(k.at(kept), k.index(deep));
      const Elements sum = fold(k, deep, [&](Value i) {
        return element(k, 0, side_at(k, k.b().add(begin, i), kept + 1));
      });
      const Value part = k.b().add(k.b().mul(line(k, 0), k.index(parts)), k.at(kept));
      store(k, sums, side_at(k, part, kept + 1), sum);
      HEKLA_RETURN_IF_ERROR(finish(k));
    }
    if (parts > 1) {
      const Temporaries fewer = add(lines_.count * kSide);
      KernelMaker k("reduce_sides", grid({}, {kSide}), largest(), in_memory_);
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
    const Value begin = k.b().mul(line(k, 0), k.index(kSide));
    Elements total = add_exactly(k, kSide, initial(k),
                                 [&](Value i) { return load(k, sums, k.b().add(begin, i)); });
    total = add_all(k, lines_.length % kSide, total,
                    [&](Value i) { return element(k, 0, k.b().add(i, k.index(rows * kSide))); });
    store_result(k, total);
    return finish(k);
  }

  // Runs of kChain neighbours become one, again and again; what is left over at the ends comes
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
    store_result(k, total);
    return finish(k);
  }

  const Lines lines_;
  const Outputs& outputs_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  std::vector<Part> parts_;
  std::vector<DType> dtypes_;  // of all elements
  LoweredSequence sequence_;
};

}  // namespace

kernel::Refusal why_no_staged_reduce(const ir::Operation& op, const LowerOptions& options) {
  if (op.code() != OpCode::kReduce || op.result_count() == 0 || op.region_count() != 1 ||
      op.operand_count() != 2 * op.result_count()) {
    return "it is no reduce";
  }
  for (size_t r = 0; r < op.result_count(); ++r) {
    const ir::Type& type = op.operand(r)->type();
    if (!type.is_static_tensor() || !op.result(r)->type().is_static_tensor()) {
      return "its types are no static tensors";
    }
    if (type.dtype() != op.result(r)->type().dtype()) return "its result has another type";
  }
  const ReduceLimits limits = reduce_limits(options);
  const Lines lines = lines_of(op);
  if (lines.count == 0 || lines.length == 0) return "it is empty";
  if (lines.is_column) {
    if (lines.neighbours < kFewNeighbours && lines.count * lines.length < limits.large_array) {
      return fmt::format("{} neighbours do not fill a vector, and {} elements are fewer than {}",
                         lines.neighbours, lines.count * lines.length, limits.large_array);
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
  const auto has_free_order = [](const ir::Operation& op) {
    const Order order = order_of(op);
    return order == Order::kSum || order == Order::kIdempotent;
  };
  return is_staged_reduce(a, options) && is_staged_reduce(b, options) && has_free_order(a) &&
         has_free_order(b) && a.operand(0)->type().dims() == b.operand(0)->type().dims() &&
         ir::int_list(a, "dimensions") == ir::int_list(b, "dimensions");
}

Result<LoweredSequence> lower_reduce(const Outputs& outputs, const InMemory& in_memory,
                                     const LowerOptions& options) {
  return ReduceLowering(outputs, in_memory, options).run();
}

}  // namespace hekla::lower
