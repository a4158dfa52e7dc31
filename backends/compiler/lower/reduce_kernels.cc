// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/reduce_kernels.h"

#include <algorithm>

#include "backends/compiler/lower/extremes.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;

namespace {

// Of an operation that a reducer yields, on these of its arguments and nothing else.
Order order_of_made(const ir::Operation& made, const ir::Value* x, const ir::Value* y) {
  if (made.operand_count() != 2) return Order::kFixed;
  const ir::Value *a = made.operand(0), *b = made.operand(1);
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

}  // namespace

Order order_of(const ir::Operation& op) {
  const ir::Block& block = op.region(0).front();
  const auto& ops = block.operations();
  if (op.result_count() != 1 || ops.size() != 2 || block.argument_count() != 2 ||
      ops[1]->operand(0) != ops[0]->result()) {
    return Order::kFixed;
  }
  return order_of_made(*ops[0], block.argument(0), block.argument(1));
}

bool is_of_free_orders(const ir::Operation& op) {
  const ir::Block& block = op.region(0).front();
  const ir::Operation* yield = block.terminator();
  const size_t count = op.result_count();
  if (yield == nullptr || yield->operand_count() != count || block.argument_count() != 2 * count) {
    return false;
  }
  for (size_t r = 0; r < count; ++r) {
    const ir::Operation* made = yield->operand(r)->defining_op();
    if (made == nullptr || made->block() != &block ||
        order_of_made(*made, block.argument(r), block.argument(count + r)) == Order::kFixed) {
      return false;
    }
  }
  return true;
}

bool is_choice(const ir::Operation& op) {
  const ir::Block& block = op.region(0).front();
  const ir::Operation* yield = block.terminator();
  return yield != nullptr &&
         std::all_of(block.operations().begin(), block.operations().end(), [&](const auto& made) {
           switch (made->code()) {
             case OpCode::kAnd:
             case OpCode::kCompare:
             case OpCode::kConstant:
             case OpCode::kImag:
             case OpCode::kMaximum:
             case OpCode::kMinimum:
             case OpCode::kNot:
             case OpCode::kOr:
             case OpCode::kReal:
             case OpCode::kSelect:
             case OpCode::kXor:
               return true;
             default:
               return made.get() == yield;
           }
         });
}

namespace {

// Whether an operation of two operands, which may change places, makes `value` of what `first` and
// `second` accept.
template <typename First, typename Second>
bool is_of_both(const ir::Value& value, OpCode code, const First& first, const Second& second) {
  const ir::Operation* op = value.defining_op();
  if (op == nullptr || op->code() != code || op->operand_count() != 2) return false;
  const ir::Value &a = *op->operand(0), &b = *op->operand(1);
  return (first(a) && second(b)) || (first(b) && second(a));
}

bool is_comparison(const ir::Value& value, std::string_view direction, const ir::Value* a,
                   const ir::Value* b) {
  const ir::Operation* op = value.defining_op();
  return op != nullptr && op->code() == OpCode::kCompare && op->operand(0) == a &&
         op->operand(1) == b && ir::text_value(*op, "comparison_direction") == direction;
}

bool is_selection(const ir::Value& value, const ir::Value* a, const ir::Value* b) {
  const ir::Operation* op = value.defining_op();
  return op != nullptr && op->code() == OpCode::kSelect && op->operand(1) == a &&
         op->operand(2) == b;
}

}  // namespace

bool is_choice_by_index(const ir::Operation& op) {
  if (op.result_count() != 2 || op.result(0)->has_uses()) return false;
  const std::vector<int64_t> dimensions = ir::int_list(op, "dimensions");
  const ir::Operation* indices = op.operand(1)->defining_op();
  if (dimensions.size() != 1 || indices == nullptr || indices->code() != OpCode::kIota ||
      ir::int_value(*indices, "iota_dimension") != dimensions[0] ||
      !is_integer(op.operand(1)->type().dtype())) {
    return false;
  }
  const ir::Block& block = op.region(0).front();
  const ir::Operation* yield = block.terminator();
  const ir::Value *x = block.argument(0), *xi = block.argument(1);
  const ir::Value *y = block.argument(2), *yi = block.argument(3);
  if (!is_selection(*yield->operand(0), x, y) || !is_selection(*yield->operand(1), xi, yi)) {
    return false;
  }
  const ir::Value* takes_value = yield->operand(0)->defining_op()->operand(0);
  const ir::Value* takes_index = yield->operand(1)->defining_op()->operand(0);
  const auto is_better = [&](const ir::Value& v) {
    return is_comparison(v, "GT", x, y) || is_comparison(v, "LT", x, y);
  };
  const auto is_nan = [&](const ir::Value& v) { return is_comparison(v, "NE", x, x); };
  const auto is_same = [&](const ir::Value& v) { return is_comparison(v, "EQ", x, y); };
  const auto is_before = [&](const ir::Value& v) { return is_comparison(v, "LT", xi, yi); };
  const bool may_be_nan = !is_integer(op.operand(0)->type().dtype());
  return (is_of_both(*takes_value, OpCode::kOr, is_better, is_nan) ||
          (!may_be_nan && is_better(*takes_value))) &&
         is_of_both(
             *takes_index, OpCode::kOr, [&](const ir::Value& v) { return &v == takes_value; },
             [&](const ir::Value& v) { return is_of_both(v, OpCode::kAnd, is_same, is_before); });
}

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
    lines.contiguous = is_reduced ? 1 : lines.contiguous * from[d];
    if (from[d] == 1) continue;
    lines.is_column = !is_reduced;
    if (!is_reduced && lines.length > 1) lines.is_dense = false;
  }
  return lines;
}

Element negative_zero(KernelMaker& k, DType dtype) {
  Element e = k.emitter().zero(dtype);
  if (is_float(complex_part(dtype))) {
    e.re = k.b().neg(e.re);
    if (e.im != kernel::kNoValue) e.im = k.b().neg(e.im);
  }
  return e;
}

kernel::Refusal why_no_lines(const ir::Operation& op) {
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
  const Lines lines = lines_of(op);
  if (lines.count == 0 || lines.length == 0) return "it is empty";
  return {};
}

ReduceKernels::ReduceKernels(const Outputs& outputs, const InMemory& in_memory,
                             const LowerOptions& options)
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
    inlined_ = std::max(inlined_, largest_inlined(*op, in_memory));
    parts_.push_back({op, order_of(*op), dtypes_.size(), op->result_count()});
    for (size_t r = 0; r < op->result_count(); ++r) {
      dtypes_.push_back(op->result(r)->type().dtype());
    }
  }
}

ReduceKernels::Temporaries ReduceKernels::add(int64_t elements) {
  Temporaries added;
  for (DType dtype : dtypes_) added.push_back(add_temporary(sequence_, dtype, elements));
  return added;
}

Status ReduceKernels::finish(KernelMaker& k) {
  HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
  sequence_.kernels.push_back(std::move(made));
  return ok_status();
}

std::vector<int64_t> ReduceKernels::grid(std::vector<int64_t> outer,
                                         const std::vector<int64_t>& inner) const {
  outer.insert(outer.end(), lines_.kept_sizes.begin(), lines_.kept_sizes.end());
  outer.insert(outer.end(), inner.begin(), inner.end());
  return outer;
}

int64_t ReduceKernels::largest() const { return std::max(lines_.count * lines_.length, inlined_); }

Value ReduceKernels::place(KernelMaker& k, size_t first, size_t kept, Value last) const {
  return last == kernel::kNoValue || kept + 1 < lines_.kept.size() ? k.at(first + kept) : last;
}

Value ReduceKernels::line(KernelMaker& k, size_t first, Value last) const {
  Value at = k.index(0);
  for (size_t i = 0; i < lines_.kept.size(); ++i) {
    at = k.b().add(k.b().mul(at, k.index(lines_.kept_sizes[i])), place(k, first, i, last));
  }
  return at;
}

Elements ReduceKernels::element(KernelMaker& k, size_t first, Value t, Value last) const {
  Builder& b = k.b();
  Point point;
  if (lines_.is_dense) {
    point.linear = b.add(b.mul(line(k, first, last), k.index(lines_.length)), t);
  } else {
    point.dims.resize(lines_.kept.size() + lines_.reduced.size());
    for (size_t i = 0; i < lines_.kept.size(); ++i) {
      point.dims[lines_.kept[i]] = place(k, first, i, last);
    }
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

Elements ReduceKernels::load(KernelMaker& k, const Temporaries& from, Value at) const {
  Elements elements;
  for (const Temporary& each : from) elements.push_back(k.load(each, at));
  return elements;
}

void ReduceKernels::store(KernelMaker& k, const Temporaries& to, Value at,
                          const Elements& elements) const {
  for (size_t r = 0; r < elements.size(); ++r) k.store(to[r], at, elements[r]);
}

void ReduceKernels::store_result(KernelMaker& k, size_t first, const Elements& elements,
                                 Value last) const {
  const Value at = line(k, first, last);
  for (const Part& part : parts_) {
    for (size_t r = 0; r < part.count; ++r) {
      const ir::Value* result = part.op->result(r);
      if (std::find(outputs_.begin(), outputs_.end(), result) != outputs_.end()) {
        k.store(*result, at, elements[part.first + r]);
      }
    }
  }
}

Elements ReduceKernels::combine(KernelMaker& k, const Part& part, const Elements& before,
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

Elements ReduceKernels::initial(KernelMaker& k) const {
  Elements elements;
  for (const Part& part : parts_) {
    for (size_t r = 0; r < part.count; ++r) {
      elements.push_back(k.emitter().emit(*part.op->operand(part.count + r), Point{}));
    }
  }
  return elements;
}

Elements ReduceKernels::zero(KernelMaker& k, const Part& part) const {
  return {negative_zero(k, dtypes_[part.first])};
}

Elements ReduceKernels::add_chain(KernelMaker& k, int64_t count, const Elements& total,
                                  const At& at) const {
  if (count == 0) return total;
  std::vector<std::optional<Extremes>> extremes;
  std::vector<DType> dtypes;
  Elements start;
  for (const Part& part : parts_) {
    extremes.push_back(part.count == 1
                           ? Extremes::of(part.op->region(0).front(), dtypes_[part.first])
                           : std::nullopt);
    if (extremes.back().has_value()) {
      dtypes.insert(dtypes.end(), Extremes::kStates, Extremes::kStateType);
      append(start, extremes.back()->start(k.b(), total[part.first]));
    } else {
      const auto first = dtypes_.begin() + static_cast<ptrdiff_t>(part.first);
      dtypes.insert(dtypes.end(), first, first + static_cast<ptrdiff_t>(part.count));
      append(start, of(part, total));
    }
  }
  // Calls `use` with each part and what is carried for it.
  const auto for_each = [&](const Elements& carried, const auto& use) {
    size_t next = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const size_t size = extremes[i].has_value() ? Extremes::kStates : parts_[i].count;
      use(i, Elements(carried.begin() + static_cast<ptrdiff_t>(next),
                      carried.begin() + static_cast<ptrdiff_t>(next + size)));
      next += size;
    }
  };
  const Elements last =
      k.loop(k.index(count), dtypes, start, [&](Value iteration, const Elements& carried) {
        const Elements here = at(iteration);
        Elements next;
        for_each(carried, [&](size_t i, const Elements& state) {
          const Part& part = parts_[i];
          append(next, extremes[i].has_value() ? extremes[i]->add(k.b(), state, here[part.first])
                                               : combine(k, part, state, of(part, here)));
        });
        return next;
      });
  Elements results;
  for_each(last, [&](size_t i, const Elements& state) {
    append(results, extremes[i].has_value() ? Elements{extremes[i]->result(k.b(), state)} : state);
  });
  return results;
}

}  // namespace hekla::lower
