// SPDX-License-Identifier: Apache-2.0
// Sums and differences of an array and of one that is zero almost everywhere: what differentiating
// `table[i]` in a loop gives in each iteration, and a step of gradient descent on rows of a table.
// The rest of the array stays as it is, so only a little of it has to be looked at. It is no such
// thing where the array has a -0, which + 0 makes +0 of.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "backends/compiler/passes/only_operation.h"
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "backends/compiler/passes/scatter_region.h"
#include "backends/compiler/passes/scatter_sums.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/uses.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Operation;
using ir::Value;

bool is_number_with_zero(DType dtype) {
  // The narrowest floats have no zero, or only one.
  return is_integer(dtype) || is_complex(dtype) || (is_float(dtype) && dtype_bytes(dtype) >= 2);
}

// A constant whose elements are all 0 and not -0.
bool is_zero(const Value& value) {
  const ir::DenseValue* dense = ir::constant_value(value);
  return dense != nullptr && dense->values.size() == 1 && value.type().is_static_tensor() &&
         is_number_with_zero(value.type().dtype()) &&
         std::ranges::all_of(dense->values.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

// Proves that values have no -0. A sum has one only where both terms have, so an array that begins
// at 0 and that loops add to never has: what loops carry is taken to have none while their bodies
// are looked at.
class NoNegativeZero {
 public:
  bool has_none(const Value& value) {
    if (is_integer(value.type().dtype()) || is_zero(value)) return true;
    if (std::ranges::find(taken_, &value) != taken_.end()) return true;
    if (++looked_ > kMostLooked) return false;
    // What was concluded from a premise falls with it.
    const size_t before = taken_.size();
    taken_.push_back(&value);
    const bool none = value.defining_op() == nullptr ? argument_has_none(value)
                                                     : result_has_none(value, *value.defining_op());
    if (!none) taken_.resize(before);
    return none;
  }

 private:
  static constexpr int kMostLooked = 200;

  bool argument_has_none(const Value& value) {
    const Operation* loop = value.argument_of()->region()->parent();
    if (loop == nullptr || loop->code() != OpCode::kWhile) return false;
    const auto i = static_cast<size_t>(value.index());
    return has_none(*loop->operand(i)) &&
           has_none(*loop->region(1).front().terminator()->operand(i));
  }

  bool result_has_none(const Value& value, const Operation& op) {
    const auto operands_have_none = [&](size_t first, size_t count) {
      for (size_t i = first; i < first + count; ++i) {
        if (!has_none(*op.operand(i))) return false;
      }
      return true;
    };
    const auto result = static_cast<size_t>(value.index());
    switch (op.code()) {
      case OpCode::kAbs:
        return true;
      case OpCode::kAdd:
        return has_none(*op.operand(0)) || has_none(*op.operand(1));
      case OpCode::kBroadcastInDim:
      case OpCode::kDynamicSlice:
      case OpCode::kGather:
      case OpCode::kReshape:
      case OpCode::kSlice:
      case OpCode::kSubtract:  // only -0 - 0 is -0
      case OpCode::kTranspose:
        return has_none(*op.operand(0));
      case OpCode::kConvert:
        return is_integer(op.operand(0)->type().dtype());
      case OpCode::kDynamicUpdateSlice:
        return operands_have_none(0, 2);
      case OpCode::kSelect:
        return operands_have_none(1, 2);
      case OpCode::kScatter:
        if (op.operand_count() != 3 || !has_none(*op.operand(0))) return false;
        return only_operation(op.region(0)) == OpCode::kAdd ||
               (scatter_region_of(op).kind == ScatterRegion::Kind::kSet &&
                has_none(*op.operand(2)));
      case OpCode::kWhile:
        return has_none(*op.region(1).front().argument(result));
      case OpCode::kCase:
      case OpCode::kIf:
        for (size_t i = 0; i < op.region_count(); ++i) {
          if (!has_none(*op.region(i).front().terminator()->operand(result))) return false;
        }
        return true;
      default:
        return false;
    }
  }

  std::vector<const Value*> taken_;
  int looked_ = 0;
};

// An array that is zero but for a little: a window among zeros, what a scatter adds to zeros, one
// of both in a branch; sums of such, and their multiples by a constant.
class SparseTerm {
 public:
  explicit SparseTerm(const WindowLimits& limits) : limits_(limits) {}

  struct Form {
    bool is_negative = false;           // what is zero is -0
    const Operation* branch = nullptr;  // the operation that is run in one way or another
  };
  // Nullopt where `term` is none that `block` computes for a single user.
  std::optional<Form> form_of(const Value& term, const ir::Block& block) const {
    const Operation* op = term.defining_op();
    if (op == nullptr || op->block() != &block || term.users().size() != 1) return std::nullopt;
    switch (op->code()) {
      case OpCode::kDynamicUpdateSlice:
        return form_if(has_plain_types(*op) && is_zero(*op->operand(0)) &&
                       is_little(*op->operand(1), term));
      case OpCode::kPad:
        return form_if(has_plain_types(*op) && is_zero(*op->operand(1)) &&
                       is_little(*op->operand(0), term) && only_surrounds(*op));
      case OpCode::kScatter:
        return form_if(is_scatter(*op));
      case OpCode::kCase:
      case OpCode::kIf:
        return form_of_branch(*op, static_cast<size_t>(term.index()));
      case OpCode::kAdd:
        return form_of_sum(*op, block);
      default:
        return form_of_multiple(*op, block);
    }
  }

  // `array` plus or minus `term`, in front of `before`, where `g` builds too.
  Result<Value*> add(GraphBuilder& g, const Operation& before, Value* array, const Value& term,
                     bool subtracts) const {
    return add(g, {before, subtracts, {}}, array, term);
  }

 private:
  // How a term goes into a sum.
  struct Place {
    const Operation& before;
    bool subtracts;
    std::vector<const Operation*> multiples;  // of the term, the last one first
  };

  static std::optional<Form> form_if(bool is_one) {
    return is_one ? std::optional(Form()) : std::nullopt;
  }

  bool is_little(const Value& window, const Value& array) const {
    const int64_t points = element_count(array.type().dims());
    const int64_t looked = element_count(window.type().dims());
    return looked > 0 && limits_.is_little(looked, points) &&
           points <= std::numeric_limits<int32_t>::max();  // starts are i32
  }

  static bool only_surrounds(const Operation& op) {
    const auto all = [&](const char* name, auto is_right) {
      return std::ranges::all_of(ir::int_list(op, name), is_right);
    };
    const auto is_positive = [](int64_t n) { return n >= 0; };
    return all("edge_padding_low", is_positive) && all("edge_padding_high", is_positive) &&
           all("interior_padding", [](int64_t n) { return n == 0; });
  }

  bool is_scatter(const Operation& op) const {
    if (op.operand_count() != 3 || !has_plain_types(op) || !is_zero(*op.operand(0)) ||
        only_operation(op.region(0)) != OpCode::kAdd) {
      return false;
    }
    const DType dtype = op.result()->type().dtype();
    const int64_t points = element_count(op.result()->type().dims());
    // Else the sum is taken in a type of its own.
    return op.operand(0)->type().dtype() == dtype && op.operand(2)->type().dtype() == dtype &&
           limits_.is_little(element_count(op.operand(2)->type().dims()), points) &&
           has_sums_of_places(op, points);
  }

  // Some branches give such a term, the others zero.
  std::optional<Form> form_of_branch(const Operation& op, size_t result) const {
    bool some = false;
    for (size_t i = 0; i < op.region_count(); ++i) {
      const ir::Block& block = op.region(i).front();
      const Value& given = *block.terminator()->operand(result);
      if (is_zero(given)) continue;
      const std::optional<Form> form = form_of(given, block);
      if (!form || form->is_negative) return std::nullopt;
      some = true;
    }
    return some ? std::optional(Form{false, &op}) : std::nullopt;
  }

  std::optional<Form> form_of_sum(const Operation& op, const ir::Block& block) const {
    // One after the other, small terms would be lost in a large element of bf16 or f16.
    const DType dtype = op.result()->type().dtype();
    if (!has_plain_types(op) || (is_float(dtype) && dtype_bytes(dtype) < 4)) return std::nullopt;
    const std::optional<Form> first = form_of(*op.operand(0), block);
    if (!first || first->branch != nullptr) return std::nullopt;
    const std::optional<Form> second = form_of(*op.operand(1), block);
    if (!second || second->branch != nullptr) return std::nullopt;
    return Form{first->is_negative && second->is_negative, nullptr};
  }

  // The operand that a multiple is of; its sign for a form that is +0.
  static std::optional<std::pair<size_t, bool>> multiplied(const Operation& op) {
    if (op.code() == OpCode::kNegate) return std::pair(size_t{0}, true);
    if (op.code() == OpCode::kMultiply) {
      for (const size_t factor : {size_t{0}, size_t{1}}) {
        const std::optional<double> number = finite_splat(*op.operand(factor));
        if (number) return std::pair(1 - factor, std::signbit(*number));
      }
    }
    return std::nullopt;
  }

  std::optional<Form> form_of_multiple(const Operation& op, const ir::Block& block) const {
    if (!has_plain_types(op) || is_complex(op.result()->type().dtype())) return std::nullopt;
    const auto of = multiplied(op);
    if (!of) return std::nullopt;
    std::optional<Form> form = form_of(*op.operand(of->first), block);
    if (form) form->is_negative ^= of->second;
    return form;
  }

  // The number that all elements are, unless it makes something else than zero of zero.
  static std::optional<double> finite_splat(const Value& value) {
    const ir::DenseValue* dense = ir::constant_value(value);
    if (dense == nullptr || dense->values.size() != 1) return std::nullopt;
    const DType dtype = value.type().dtype();
    if (is_integer(dtype)) return 1;  // zero has no sign
    if (!is_float(dtype)) return std::nullopt;
    uint64_t bits = 0;
    std::memcpy(&bits, dense->values.data(), static_cast<size_t>(dtype_bytes(dtype)));
    const double number = float_from_bits(dtype, bits);
    return std::isfinite(number) ? std::optional(number) : std::nullopt;
  }

  static Value* multiplied(GraphBuilder& g, Value* x, const Place& place) {
    for (size_t i = place.multiples.size(); i-- > 0;) {
      const Operation& op = *place.multiples[i];
      std::vector<Value*> operands(op.operand_count(), x);
      const size_t of = multiplied(op)->first;
      if (op.operand_count() == 2) {
        const HostArray& number = ir::constant_value(*op.operand(1 - of))->values;
        operands[1 - of] =
            g.broadcast(g.constant(number.with_shape(number.dtype(), {})), x->type().dims(), {});
      }
      x = g.make(op.code(), operands);
    }
    return x;
  }

  Result<Value*> add(GraphBuilder& g, Place place, Value* array, const Value& term) const {
    Operation& op = *term.defining_op();
    const auto join = [&](Value* old, Value* update) {
      update = multiplied(g, update, place);
      return place.subtracts ? g.subtract(old, update) : g.add(old, update);
    };
    switch (op.code()) {
      case OpCode::kDynamicUpdateSlice: {
        const GraphBuilder::Values starts(op.operands().begin() + 2, op.operands().end());
        Value* old = g.dynamic_slice(array, starts, op.operand(1)->type().dims());
        array = g.dynamic_update_slice(array, join(old, op.operand(1)), starts);
        break;
      }
      case OpCode::kPad: {
        const std::vector<int64_t> begin = ir::int_list(op, "edge_padding_low");
        const Dims& dims = op.operand(0)->type().dims();
        std::vector<int64_t> end;
        GraphBuilder::Values starts;
        for (size_t d = 0; d < begin.size(); ++d) {
          end.push_back(begin[d] + dims[d]);
          starts.push_back(g.integer_constant(DType::kI32, {}, begin[d]));
        }
        Value* old = g.slice(array, begin, end);
        array = g.dynamic_update_slice(array, join(old, op.operand(0)), starts);
        break;
      }
      case OpCode::kScatter:
        array = change_by_sums(g, op, array, join);
        break;
      case OpCode::kAdd: {
        HEKLA_ASSIGN_OR_RETURN(array, add(g, place, array, *op.operand(0)));
        return add(g, place, array, *op.operand(1));
      }
      case OpCode::kCase:
      case OpCode::kIf:
        return add_in_branches(place, array, op, static_cast<size_t>(term.index()));
      default:
        place.multiples.push_back(&op);
        return add(g, place, array, *op.operand(multiplied(op)->first));
    }
    HEKLA_RETURN_IF_ERROR(g.status());
    return array;
  }

  Result<Value*> add_in_branches(const Place& place, Value* array, Operation& op,
                                 size_t result) const {
    for (size_t i = 0; i < op.region_count(); ++i) {
      Operation& end = *op.region(i).front().terminator();
      const Value& given = *end.operand(result);
      if (is_zero(given)) {
        end.set_operand(result, array);
        continue;
      }
      GraphBuilder g(op.region(i).front(), &end, end.location());
      HEKLA_ASSIGN_OR_RETURN(Value * sum,
                             add(g, {end, place.subtracts, place.multiples}, array, given));
      end.set_operand(result, sum);
    }
    return op.result(result);
  }

  const WindowLimits& limits_;
};

struct Sum {
  Operation* op;
  size_t array;  // which operand; the other one is the term
  const Value& term() const { return *op->operand(1 - array); }
};

class SumsInPlace {
 public:
  SumsInPlace(ir::Block& block, const WindowLimits& limits) : block_(block), terms_(limits) {}

  Status run() {
    std::vector<Sum> sums = find();
    // One that goes takes those with it that it was in memory for.
    while (std::erase_if(sums, [&](const Sum& sum) { return !stays_in_memory(sum, sums); }) > 0) {
    }
    for (const Sum& sum : sums) {
      GraphBuilder g(block_, sum.op, sum.op->location());
      HEKLA_ASSIGN_OR_RETURN(Value * made,
                             terms_.add(g, *sum.op, sum.op->operand(sum.array), sum.term(),
                                        sum.op->code() == OpCode::kSubtract));
      sum.op->result()->replace_all_uses_with(made);
      block_.erase(sum.op);
    }
    return ok_status();
  }

 private:
  std::vector<Sum> find() const {
    std::vector<Sum> sums;
    std::vector<const Operation*> before;  // in their order
    for (const auto& op : block_.operations()) {
      before.push_back(op.get());
      const bool subtracts = op->code() == OpCode::kSubtract;
      if ((op->code() != OpCode::kAdd && !subtracts) || !has_plain_types(*op)) continue;
      for (const size_t array : {size_t{0}, size_t{1}}) {
        if (array == 1 && subtracts) continue;
        const Sum sum{op.get(), array};
        const Value& added = *op->operand(array);
        const std::optional<SparseTerm::Form> form = terms_.form_of(sum.term(), block_);
        if (!form || (form->branch != nullptr && !is_known_before(added, *form->branch, before)) ||
            // x + -0 and x - 0 are x.
            (form->is_negative == subtracts && !NoNegativeZero().has_none(added))) {
          continue;
        }
        sums.push_back(sum);
        break;
      }
    }
    return sums;
  }

  // Branches look at the array where they stand; others are made anew where the sum is.
  static bool is_known_before(const Value& array, const Operation& branch,
                              const std::vector<const Operation*>& before) {
    const Operation* op = array.defining_op();
    if (op == nullptr || op->block() != branch.block()) return true;
    return std::ranges::find(before, op) < std::ranges::find(before, &branch);
  }

  // The array is in memory already, and nobody computes with all of the sum.
  static bool stays_in_memory(const Sum& sum, const std::vector<Sum>& sums) {
    const Value& array = *sum.op->operand(sum.array);
    const auto is_another = [&](const Operation* op, const Value* of) {
      return std::ranges::any_of(sums, [&](const Sum& other) {
        return other.op == op && (of == nullptr || other.op->operand(other.array) == of);
      });
    };
    const Value& result = *sum.op->result();
    return (ir::is_stored(array) || is_another(array.defining_op(), nullptr)) &&
           std::ranges::all_of(result.users(), [&](const Operation* user) {
             return ir::is_passed_on_by(*user, result) || is_another(user, &result);
           });
  }

  ir::Block& block_;
  const SparseTerm terms_;
};

}  // namespace

Status add_in_place(ir::Module& module, const WindowLimits& limits) {
  return for_each_block(module, [&](ir::Block& block) { return SumsInPlace(block, limits).run(); });
}

}  // namespace hekla::passes
