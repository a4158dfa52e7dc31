// SPDX-License-Identifier: Apache-2.0
// Scatters with many updates: the places that updates go to are sorted, stably, and each run of
// equal places is reduced in the order of its updates. So the result is that of going through all
// updates in order, for any reducer, without atomics; the work grows with the updates, not with
// their product with the result. A scatter with few of both looks through all updates for every
// element instead (emit_scatter.cc): one kernel, which fuses.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/compiler/lower/scatter_form.h"
#include "backends/compiler/lower/sequence.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/uses.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;

namespace {

// Elements of the result times updates that each would look through. Sorting takes a dozen
// kernels, which is what so much work takes in one.
constexpr double kMaxLooked = 1 << 17;
// The same against going through the updates once, after a copy of the operand.
constexpr double kMaxLookedInOrder = 1 << 12;
constexpr double kMaxLookedForTests = 8;  // LowerOptions::small_limits
// Elements of the result for each number of all updates, those of all batches, from which on going
// through these takes less time than going through the elements, of which each looks at one.
constexpr int64_t kElementsOfUpdate = 16;

class ScatterLowering {
 public:
  ScatterLowering(const ir::Operation& op, const Outputs& outputs, const InMemory& in_memory,
                  const LowerOptions& options)
      : op_(op),
        outputs_(outputs),
        in_memory_(in_memory),
        options_(options),
        form_(op, in_memory) {}

  Result<LoweredSequence> run() {
    HEKLA_RETURN_IF_ERROR(form_.check());
    for (size_t r = 0; r < count_; ++r) {
      if (!is_wanted(r)) continue;
      if (is_loaded(*op_.operand(r))) {
        sequence_.copies.push_back({op_.operand(r), op_.result(r)});
      } else {
        HEKLA_RETURN_IF_ERROR(add_start(r));
      }
    }
    if (entries_ == 0 || free_ == 0) return std::move(sequence_);
    index_dtype_ = is_wide_index(largest_) ? DType::kI64 : DType::kI32;
    const Temporary keys = add_temporary(sequence_, index_dtype_, entries_);
    HEKLA_RETURN_IF_ERROR(add_keys(keys));
    const Temporary sorted = add_temporary(sequence_, index_dtype_, entries_);
    const Temporary order = add_temporary(sequence_, index_dtype_, entries_);
    HEKLA_RETURN_IF_ERROR(add_sort(keys, sorted, order));
    const Temporary lengths = add_temporary(sequence_, index_dtype_, entries_);
    HEKLA_RETURN_IF_ERROR(add_lengths(sorted, lengths));
    const int64_t most =
        options_.most_updates_at_once == 0 ? entries_ : options_.most_updates_at_once;
    // What a part leaves for the next of results that nobody wants: one is read, one written.
    std::array<std::vector<Temporary>, 2> unwanted;
    for (size_t r = 0; r < count_ && entries_ > most; ++r) {
      const DType dtype = op_.operand(r)->type().dtype();
      for (std::vector<Temporary>& each : unwanted) {
        each.push_back(is_wanted(r) ? Temporary()
                                    : add_temporary(sequence_, dtype, element_count(shape_)));
      }
    }
    for (int64_t begin = 0; begin < entries_; begin += most) {
      HEKLA_RETURN_IF_ERROR(add_runs(sorted, order, lengths, begin, most, unwanted));
      std::swap(unwanted[0], unwanted[1]);
    }
    return std::move(sequence_);
  }

 private:
  bool is_wanted(size_t r) const {
    return std::find(outputs_.begin(), outputs_.end(), op_.result(r)) != outputs_.end();
  }
  bool is_loaded(const ir::Value& value) const {
    return value.defining_op() == nullptr || in_memory_(value);
  }

  Status finish(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  static Element as_element(Value v) { return {v, kernel::kNoValue}; }

  // The result as it begins, when that is computed.
  Status add_start(size_t r) {
    const int64_t elements = element_count(shape_);
    KernelMaker k("scatter_start", {elements}, form_.largest(), in_memory_);
    k.store(*op_.result(r), k.at(0), k.emitter().emit(*op_.operand(r), Point{{}, k.at(0)}));
    return finish(k);
  }

  ScatterForm::Entry entry_at(KernelMaker& k, Value number) {
    const Value offsets = k.index(form_.offsets());
    const Value vector = k.b().binary(Op::kDivU, number, offsets);
    return {split_index(k, vector, form_.scatter_sizes()),
            form_.offsets_at(k, k.b().binary(Op::kRemU, number, offsets))};
  }

  // Where each entry goes: the place among the operand's dimensions that are not free, or their
  // number where the window does not lie inside.
  Status add_keys(const Temporary& keys) {
    KernelMaker k("scatter_keys", {entries_}, largest_, in_memory_);
    Builder& b = k.b();
    const ScatterForm::Destination to = form_.destination_of(k, entry_at(k, k.at(0)));
    Value key = k.index(0);
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (!form_.dims()[d].is_free) key = b.add(b.mul(key, k.index(shape_[d])), to.dims[d]);
    }
    k.store(keys, k.at(0), as_element(b.select(to.is_inside, key, k.index(keys_))));
    return finish(k);
  }

  // Sorts entries by key, equal ones in order: the sort of two tensors that stand for temporaries.
  Status add_sort(const Temporary& keys, const Temporary& sorted, const Temporary& order) {
    ir::Region region(nullptr);
    ir::Block& block = region.add_block();
    const ir::Type type = ir::Type::tensor(index_dtype_, {entries_});
    const ir::Type scalar = ir::Type::tensor(index_dtype_, {});
    ir::Value* key = block.add_argument(type);
    ir::AttributeMap attributes;
    attributes.set("iota_dimension", ir::i64_attribute(0));
    ir::Value* number = block.append(OpCode::kIota, {}, {type}, std::move(attributes))->result();
    attributes = {};
    attributes.set("dimension", ir::i64_attribute(0));
    attributes.set("is_stable", ir::BoolValue{true});
    ir::Operation* sort =
        block.append(OpCode::kSort, {key, number}, {type, type}, std::move(attributes));
    ir::Block& comparator = sort->add_region().add_block();
    ir::Value* a = comparator.add_argument(scalar);
    ir::Value* b = comparator.add_argument(scalar);
    comparator.add_argument(scalar);
    comparator.add_argument(scalar);
    attributes = {};
    attributes.set("comparison_direction", ir::enum_attribute("comparison_direction", "LT"));
    ir::Value* is_less = comparator
                             .append(OpCode::kCompare, {a, b}, {ir::Type::tensor(DType::kI1, {})},
                                     std::move(attributes))
                             ->result();
    comparator.append(OpCode::kReturn, {is_less}, {});
    block.append(OpCode::kReturn, {sort->result(0), sort->result(1)}, {});  // all of it is read
    const InMemory in_memory = [&](const ir::Value& value) { return &value != number; };
    HEKLA_ASSIGN_OR_RETURN(
        LoweredSequence lowered,
        lower_sort(*sort, {sort->result(0), sort->result(1)}, in_memory, options_));
    const auto first = static_cast<int32_t>(sequence_.temporaries.size());
    sequence_.temporaries.insert(sequence_.temporaries.end(), lowered.temporaries.begin(),
                                 lowered.temporaries.end());
    const auto first_constant = static_cast<int32_t>(sequence_.constants.size());
    sequence_.constants.insert(sequence_.constants.end(), lowered.constants.begin(),
                               lowered.constants.end());
    const std::unordered_map<const ir::Value*, int32_t> places = {
        {key, keys.index}, {sort->result(0), sorted.index}, {sort->result(1), order.index}};
    for (LoweredKernel& each : lowered.kernels) {
      for (BoundOperand& bound : each.operands) {
        if (bound.value != nullptr) {
          bound.temporary = places.at(bound.value);
          bound.value = nullptr;
        } else if (bound.constant >= 0) {
          bound.constant += first_constant;
        } else {
          bound.temporary += first;
        }
      }
      sequence_.kernels.push_back(std::move(each));
    }
    return ok_status();
  }

  // How many entries the run has that begins here; 0 where none begins, or none is inside.
  Status add_lengths(const Temporary& sorted, const Temporary& lengths) {
    KernelMaker k("scatter_runs", {entries_}, largest_, in_memory_);
    Builder& b = k.b();
    const Value here = k.at(0);
    const Value key = k.load(sorted, here).re;
    const Value is_first = b.binary(Op::kEq, here, k.index(0));
    const Value before = b.select(is_first, here, b.sub(here, k.index(1)));
    const Value is_new = b.bit_or(is_first, b.binary(Op::kNe, k.load(sorted, before).re, key));
    const Value begins = b.bit_and(is_new, b.binary(Op::kLtS, key, k.index(keys_)));
    int64_t trips = 1;
    while ((int64_t{1} << (trips - 1)) < entries_) ++trips;
    const Value one_trip = b.convert(Op::kBoolToInt, b.index_type(), begins);
    // The first place with a larger key, by bisection; only where a run begins.
    const Value count = b.mul(one_trip, k.index(trips));
    const Elements range =
        k.loop(count, {index_dtype_, index_dtype_},
               {as_element(here), as_element(k.index(entries_))}, [&](Value, const Elements& r) {
                 const Value low = r[0].re, high = r[1].re;
                 const Value is_open = b.binary(Op::kLtS, low, high);
                 const Value middle = b.binary(Op::kShrU, b.add(low, high), k.index(1));
                 const Value last = k.index(entries_ - 1);
                 const Value at = b.select(b.binary(Op::kLtS, last, middle), last, middle);
                 const Value is_same = b.binary(Op::kEq, k.load(sorted, at).re, key);
                 const Value up = b.bit_and(is_open, is_same);
                 const Value down = b.bit_and(is_open, b.logical_not(is_same));
                 return Elements{as_element(b.select(up, b.add(middle, k.index(1)), low)),
                                 as_element(b.select(down, middle, high))};
               });
    const Value length = b.sub(range[0].re, here);
    k.store(lengths, here, as_element(b.select(begins, length, k.index(0))));
    return finish(k);
  }

  // Reduces the entries of each run from the `begin`th on, `most` at most, into the elements that
  // they are for. Parts behind the first are one kernel, which loads where they begin.
  Status add_runs(const Temporary& sorted, const Temporary& order, const Temporary& lengths,
                  int64_t begin, int64_t most,
                  const std::array<std::vector<Temporary>, 2>& unwanted) {
    const bool is_part = most < entries_;
    KernelMaker k("scatter", {entries_, free_}, largest_, in_memory_);
    Builder& b = k.b();
    const Value here = k.at(0);
    std::vector<int64_t> keyed;
    for (size_t d = 0; d < shape_.size(); ++d) {
      keyed.push_back(form_.dims()[d].is_free ? 1 : shape_[d]);
    }
    const Value key = k.load(sorted, here).re;
    const Value last = k.index(keys_ - 1);
    const std::vector<Value> outer =
        split_index(k, b.select(b.binary(Op::kLtS, last, key), last, key), keyed);
    const std::vector<Value> inner = form_.free_at(k, k.at(1));
    Point place;
    for (size_t d = 0; d < shape_.size(); ++d) {
      place.dims.push_back(form_.dims()[d].is_free ? inner[d] : outer[d]);
    }
    const Value target = k.emitter().linear_of(place, shape_);
    Value length = k.load(lengths, here).re;
    Value from = here;
    if (begin > 0) {
      const Value done = k.load(add_index_table(sequence_, index_dtype_, begin), k.index(0)).re;
      length = b.sub(length, done);
      from = b.add(here, done);
    }
    if (is_part) length = k.at_most(length, most);
    const Value begins = b.binary(Op::kLtS, k.index(0), length);
    // The element is read inside of the loop, so only where a run begins: no other point may.
    const Value trips = b.convert(Op::kBoolToInt, b.index_type(), begins);
    k.loop(trips, {index_dtype_}, {as_element(target)}, [&](Value, const Elements& carried) {
      const Value at = carried[0].re;
      std::vector<DType> dtypes;
      Elements start;
      for (size_t r = 0; r < count_; ++r) {
        const ir::Value& operand = *op_.operand(r);
        dtypes.push_back(operand.type().dtype());
        if (begin > 0) {
          start.push_back(is_wanted(r) ? k.load_back(*op_.result(r), at)
                                       : k.load(unwanted[0][r], at));
        } else {
          start.push_back(is_wanted(r) && is_loaded(operand)
                              ? k.load_own(operand, at)
                              : k.emitter().emit(operand, Point{{}, at}));
        }
      }
      const Elements total = k.loop(length, dtypes, start, [&](Value t, const Elements& sums) {
        const Value number = k.load(order, b.add(from, t)).re;
        return form_.add(k, sums, form_.source_of(k, entry_at(k, number), inner));
      });
      for (size_t r = 0; r < count_; ++r) {
        if (is_wanted(r)) {
          k.store(*op_.result(r), at, total[r]);
        } else if (is_part) {
          k.store(unwanted[1][r], at, total[r]);
        }
      }
      return carried;
    });
    return finish(k);
  }

  const ir::Operation& op_;
  const Outputs& outputs_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const ScatterForm form_;
  const size_t count_ = form_.count();
  const Dims& shape_ = form_.shape();
  const int64_t entries_ = form_.entries();
  const int64_t free_ = form_.free();
  const int64_t keys_ = form_.keys();
  const int64_t largest_ = form_.largest();
  DType index_dtype_ = DType::kI32;
  LoweredSequence sequence_;
};

double most_looked(const LowerOptions& options) {
  return options.small_limits        ? kMaxLookedForTests
         : options.scatters_in_order ? kMaxLookedInOrder
                                     : kMaxLooked;
}

bool is_of_static_tensors(const ir::Operation& op) {
  return op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>() != nullptr &&
         op.operand_count() >= 3 &&
         std::ranges::all_of(op.operands(), [](const ir::Value* operand) {
           return operand->type().is_static_tensor();
         });
}

// Whether an array that is only passed on gets so few updates that the time of taking them in place
// does not grow with it: as where each example of a batch changes its own little of it.
bool has_few_updates(const ir::Operation& op, const LowerOptions& options) {
  if (!is_of_static_tensors(op)) return false;
  const int64_t elements = element_count(op.operand(0)->type().dims());
  const int64_t updates = element_count(op.operand(op.operand_count() - 1)->type().dims());
  if (static_cast<double>(elements) <= most_looked(options) ||
      updates > elements / kElementsOfUpdate) {
    return false;
  }
  for (size_t r = 0; r < op.result_count(); ++r) {
    if (!ir::is_only_passed_on(*op.result(r))) return false;
  }
  return true;
}

}  // namespace

kernel::Refusal why_no_large_scatter(const ir::Operation& op, const LowerOptions& options) {
  if (!is_of_static_tensors(op)) return "it is no scatter of static tensors";
  const double updates = scatter_updates(op);
  const auto elements = static_cast<double>(element_count(op.operand(0)->type().dims()));
  const double most = most_looked(options);
  if (updates <= 1) return "an element looks at one update";
  if (updates * elements <= most) {
    return fmt::format("{} elements that look through {} updates, in all no more than {}", elements,
                       updates, most);
  }
  return {};
}

kernel::Refusal why_no_scatter_in_order(const ir::Operation& op, const LowerOptions& options) {
  if (!options.scatters_in_order) return "the device sorts updates";
  if (kernel::Refusal why = why_no_large_scatter(op, options);
      !why.empty() && !has_few_updates(op, options)) {
    return why;
  }
  // Every operand has a place of its own then, which results that nobody wants do not have.
  for (size_t r = 0; r < op.result_count(); ++r) {
    if (op.result_count() > 1 && !op.result(r)->has_uses()) {
      return fmt::format("nobody reads result {} of {}", r, op.result_count());
    }
  }
  return {};
}

Result<LoweredSequence> lower_scatter(const ir::Operation& op, const Outputs& outputs,
                                      const InMemory& in_memory, const LowerOptions& options) {
  if (is_scatter_in_order(op, options)) {
    return lower_scatter_in_order(op, in_memory, options);
  }
  return ScatterLowering(op, outputs, in_memory, options).run();
}

}  // namespace hekla::lower
