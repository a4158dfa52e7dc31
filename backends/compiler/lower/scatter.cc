// SPDX-License-Identifier: Apache-2.0
// Scatters with many updates: the places that updates go to are sorted, stably, and each run of
// equal places is reduced in the order of its updates. So the result is that of going through all
// updates in order, for any reducer, without atomics; the work grows with the updates, not with
// their product with the result. A scatter with few of both looks through all updates for every
// element instead (emit_scatter.cc): one kernel, which fuses.
#include <algorithm>
#include <unordered_map>

#include "backends/compiler/ir/op_attributes.h"
#include "backends/compiler/lower/sequence.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;

namespace {

// Elements of the result times updates that each would look through. Sorting takes a dozen
// kernels, which is what so much work takes in one.
constexpr double kMaxLooked = 1 << 17;

bool contains(const std::vector<int64_t>& list, size_t d) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(d)) != list.end();
}

size_t position(const std::vector<int64_t>& list, size_t d) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), static_cast<int64_t>(d)) -
                             list.begin());
}

class ScatterLowering {
 public:
  ScatterLowering(const ir::Operation& op, const Outputs& outputs, const InMemory& in_memory,
                  const LowerOptions& options)
      : op_(op),
        outputs_(outputs),
        in_memory_(in_memory),
        options_(options),
        n_(*op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>()),
        count_(op.result_count()),
        shape_(op.operand(0)->type().dims()),
        indices_(*op.operand(count_)),
        update_(op.operand(count_ + 1)->type().dims()) {
    const auto vector_dim = static_cast<size_t>(n_.index_vector_dim);
    for (size_t d = 0; d < update_.size(); ++d) {
      if (!contains(n_.update_window_dims, d)) {
        scatter_dims_.push_back(d);
        vectors_ *= update_[d];
      }
    }
    for (size_t d = 0; d < indices_.type().dims().size(); ++d) {
      if (d != vector_dim) index_dims_.push_back(d);
    }
    size_t next_window = 0;
    for (size_t d = 0; d < shape_.size(); ++d) {
      Dim dim;
      const bool is_window =
          !contains(n_.inserted_window_dims, d) && !contains(n_.input_batching_dims, d);
      if (is_window) {
        dim.update_dim = static_cast<int64_t>(n_.update_window_dims[next_window++]);
        dim.window = update_[static_cast<size_t>(dim.update_dim)];
      }
      const bool is_indexed = contains(n_.scatter_dims_to_operand_dims, d);
      // A window over the whole dimension, or one that always begins at 0, never moves.
      dim.is_free = is_window && (!is_indexed || dim.window == shape_[d]);
      if (dim.is_free) {
        free_ *= dim.window;
      } else {
        keys_ *= shape_[d];
        offsets_ *= dim.window;
      }
      dims_.push_back(dim);
    }
    entries_ = vectors_ * offsets_;
    largest_ = std::max({element_count(shape_), entries_ * free_, element_count(update_),
                         element_count(indices_.type().dims()), keys_});
  }

  Result<LoweredSequence> run() {
    for (size_t r = 0; r < count_; ++r) {
      const DType dtype = op_.operand(r)->type().dtype();
      if (op_.operand(count_ + 1 + r)->type().dtype() != dtype ||
          op_.result(r)->type().dtype() != dtype) {
        return unimplemented("a scatter that changes dtypes");
      }
    }
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
    HEKLA_RETURN_IF_ERROR(add_runs(sorted, order, lengths));
    return std::move(sequence_);
  }

 private:
  // A dimension of the operand.
  struct Dim {
    int64_t update_dim = -1;  // of its window
    int64_t window = 1;
    bool is_free = false;  // the window covers it: no part of where an update goes
  };

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
    KernelMaker k("scatter_start", {elements}, elements, in_memory_);
    k.store(*op_.result(r), k.at(0), k.emitter().emit(*op_.operand(r), Point{{}, k.at(0)}));
    return finish(k);
  }

  // Splits `v` into parts below these sizes, the last one fastest.
  std::vector<Value> split(KernelMaker& k, Value v, const std::vector<int64_t>& sizes) {
    std::vector<Value> parts(sizes.size());
    for (size_t i = sizes.size(); i-- > 0;) {
      parts[i] = i == 0 ? v : k.b().binary(Op::kRemU, v, k.index(sizes[i]));
      v = k.b().binary(Op::kDivU, v, k.index(sizes[i]));
    }
    return parts;
  }

  // An entry is an index vector and, where windows move, a place in the window.
  struct Entry {
    std::vector<Value> scatter;  // by scatter dimension of the updates
    std::vector<Value> offsets;  // by dimension of the operand
  };
  Entry entry_at(KernelMaker& k, Value number) {
    Entry entry;
    std::vector<int64_t> sizes, windows;
    for (size_t d : scatter_dims_) sizes.push_back(update_[d]);
    for (const Dim& dim : dims_) windows.push_back(dim.is_free ? 1 : dim.window);
    entry.scatter = split(k, k.b().binary(Op::kDivU, number, k.index(offsets_)), sizes);
    entry.offsets = split(k, k.b().binary(Op::kRemU, number, k.index(offsets_)), windows);
    return entry;
  }

  // Where each entry goes: the place among the operand's dimensions that are not free, or their
  // number where the window does not lie inside.
  Status add_keys(const Temporary& keys) {
    KernelMaker k("scatter_keys", {entries_}, largest_, in_memory_);
    Builder& b = k.b();
    const Entry entry = entry_at(k, k.at(0));
    Value key = k.index(0);
    Value is_inside = b.boolean(true);
    for (size_t d = 0; d < shape_.size(); ++d) {
      Value at = k.index(0);
      if (contains(n_.input_batching_dims, d)) {
        const int64_t of_indices =
            n_.scatter_indices_batching_dims[position(n_.input_batching_dims, d)];
        const auto it =
            std::find(index_dims_.begin(), index_dims_.end(), static_cast<size_t>(of_indices));
        at = entry.scatter[static_cast<size_t>(it - index_dims_.begin())];
      } else if (contains(n_.scatter_dims_to_operand_dims, d)) {
        const auto component = static_cast<int64_t>(position(n_.scatter_dims_to_operand_dims, d));
        Point where;
        size_t next = 0;
        for (size_t i = 0; i < indices_.type().dims().size(); ++i) {
          where.dims.push_back(static_cast<int64_t>(i) == n_.index_vector_dim
                                   ? k.index(component)
                                   : entry.scatter[next++]);
        }
        // Starts outside stay outside: -1 and the size fit no window.
        const Value start = k.emitter().clamped_index(k.emitter().emit(indices_, where),
                                                      indices_.type().dtype(), -1, shape_[d]);
        const Value last = k.index(shape_[d] - dims_[d].window);
        is_inside = b.bit_and(is_inside, b.binary(Op::kLeS, k.index(0), start));
        is_inside = b.bit_and(is_inside, b.binary(Op::kLeS, start, last));
        at = b.add(start, entry.offsets[d]);
      }
      if (!dims_[d].is_free) key = b.add(b.mul(key, k.index(shape_[d])), at);
    }
    k.store(keys, k.at(0), as_element(b.select(is_inside, key, k.index(keys_))));
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
    const std::unordered_map<const ir::Value*, int32_t> places = {
        {key, keys.index}, {sort->result(0), sorted.index}, {sort->result(1), order.index}};
    for (LoweredKernel& each : lowered.kernels) {
      for (BoundOperand& bound : each.operands) {
        if (bound.value != nullptr) {
          bound.temporary = places.at(bound.value);
          bound.value = nullptr;
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

  // Reduces each run into the elements that it is for.
  Status add_runs(const Temporary& sorted, const Temporary& order, const Temporary& lengths) {
    KernelMaker k("scatter", {entries_, free_}, largest_, in_memory_);
    Builder& b = k.b();
    const Value here = k.at(0);
    std::vector<int64_t> keyed, windows;
    for (size_t d = 0; d < shape_.size(); ++d) {
      keyed.push_back(dims_[d].is_free ? 1 : shape_[d]);
      windows.push_back(dims_[d].is_free ? dims_[d].window : 1);
    }
    const Value key = k.load(sorted, here).re;
    const Value last = k.index(keys_ - 1);
    const std::vector<Value> outer =
        split(k, b.select(b.binary(Op::kLtS, last, key), last, key), keyed);
    const std::vector<Value> inner = split(k, k.at(1), windows);
    Point place;
    for (size_t d = 0; d < shape_.size(); ++d) {
      place.dims.push_back(dims_[d].is_free ? inner[d] : outer[d]);
    }
    const Value target = k.emitter().linear_of(place, shape_);
    const Value length = k.load(lengths, here).re;
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
        start.push_back(is_wanted(r) && is_loaded(operand)
                            ? k.load_own(operand, at)
                            : k.emitter().emit(operand, Point{{}, at}));
      }
      const Elements total = k.loop(length, dtypes, start, [&](Value t, const Elements& sums) {
        const Value number = k.load(order, b.add(here, t)).re;
        const Entry entry = entry_at(k, number);
        Point source;
        source.dims.assign(update_.size(), k.index(0));
        for (size_t i = 0; i < scatter_dims_.size(); ++i) {
          source.dims[scatter_dims_[i]] = entry.scatter[i];
        }
        for (size_t d = 0; d < shape_.size(); ++d) {
          if (dims_[d].update_dim < 0) continue;
          source.dims[static_cast<size_t>(dims_[d].update_dim)] =
              dims_[d].is_free ? inner[d] : entry.offsets[d];
        }
        Elements arguments = sums;
        for (size_t r = 0; r < count_; ++r) {
          arguments.push_back(k.emitter().emit(*op_.operand(count_ + 1 + r), source));
        }
        std::optional<Elements> next = k.emitter().apply_region(op_.region(0).front(), arguments);
        if (!next.has_value() || next->size() != count_) {
          k.emitter().fail(op_);
          return sums;
        }
        return *next;
      });
      for (size_t r = 0; r < count_; ++r) {
        if (is_wanted(r)) k.store(*op_.result(r), at, total[r]);
      }
      return carried;
    });
    return finish(k);
  }

  const ir::Operation& op_;
  const Outputs& outputs_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const ir::ScatterDimensionNumbers& n_;
  const size_t count_;
  const Dims& shape_;
  const ir::Value& indices_;
  const Dims& update_;
  std::vector<size_t> scatter_dims_;  // of the updates: those that count index vectors
  std::vector<size_t> index_dims_;    // of the indices: the ones they follow
  std::vector<Dim> dims_;
  int64_t vectors_ = 1;  // index vectors
  int64_t offsets_ = 1;  // places in windows that move
  int64_t entries_ = 1;
  int64_t free_ = 1;  // elements of a window along free dimensions
  int64_t keys_ = 1;  // places that an entry may go to
  int64_t largest_ = 1;
  DType index_dtype_ = DType::kI32;
  LoweredSequence sequence_;
};

}  // namespace

bool is_large_scatter(const ir::Operation& op) {
  const auto* n = op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
  if (n == nullptr || op.operand_count() < 3) return false;
  const ir::Type& indices = op.operand(op.operand_count() / 2)->type();
  if (!indices.is_static_tensor() || !op.operand(0)->type().is_static_tensor()) return false;
  double updates = 1;
  for (size_t d = 0; d < indices.dims().size(); ++d) {
    if (static_cast<int64_t>(d) != n->index_vector_dim &&
        !contains(n->scatter_indices_batching_dims, d)) {
      updates *= static_cast<double>(indices.dims()[d]);
    }
  }
  return updates > 1 &&
         updates * static_cast<double>(element_count(op.operand(0)->type().dims())) > kMaxLooked;
}

Result<LoweredSequence> lower_scatter(const ir::Operation& op, const Outputs& outputs,
                                      const InMemory& in_memory, const LowerOptions& options) {
  return ScatterLowering(op, outputs, in_memory, options).run();
}

}  // namespace hekla::lower
