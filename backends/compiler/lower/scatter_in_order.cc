// SPDX-License-Identifier: Apache-2.0
// Scatters for machines with few fast threads: one point goes through all updates in order, reads
// what is there and writes it back. The points are the elements of a window's free dimensions and
// the batches, which share no element of the result; so the result is that of any other form of the
// scatter, and the work is that of the updates.
#include <algorithm>

#include "backends/compiler/lower/scatter_form.h"
#include "backends/compiler/lower/sequence.h"

namespace hekla::lower {

using kernel::Op;

namespace {

class ScatterInOrder {
 public:
  ScatterInOrder(const ir::Operation& op, const InMemory& in_memory, const LowerOptions& options)
      : op_(op), in_memory_(in_memory), options_(options), form_(op, in_memory) {}

  Result<LoweredSequence> run() {
    HEKLA_RETURN_IF_ERROR(form_.check());
    for (size_t i = 0; i < form_.scatter_sizes().size(); ++i) {
      (form_.scatter_batches()[i] ? batches_ : looped_).push_back(form_.scatter_sizes()[i]);
    }
    for (size_t r = 0; r < form_.count(); ++r) {
      // The reducer may look at all operands: each has a place, wanted or not.
      const ir::Value& operand = *op_.operand(r);
      if (operand.defining_op() == nullptr || in_memory_(operand)) {
        sequence_.copies.push_back({&operand, op_.result(r)});
      } else {
        HEKLA_RETURN_IF_ERROR(add_start(r));
      }
    }
    if (form_.entries() != 0 && form_.free() != 0) {
      const int64_t entries = element_count(looped_) * form_.offsets();
      const int64_t most =
          options_.most_updates_at_once == 0 ? entries : options_.most_updates_at_once;
      for (int64_t begin = 0; begin < entries; begin += most) {
        HEKLA_RETURN_IF_ERROR(add_updates(begin, std::min(most, entries - begin), entries > most));
      }
    }
    return std::move(sequence_);
  }

 private:
  Status finish(KernelMaker& k) {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(options_));
    sequence_.kernels.push_back(std::move(made));
    return ok_status();
  }

  // The result as it begins, when that is computed.
  Status add_start(size_t r) {
    const int64_t elements = element_count(form_.shape());
    KernelMaker k("scatter_start", {elements}, form_.largest(), in_memory_);
    k.store(*op_.result(r), k.at(0), k.emitter().emit(*op_.operand(r), Point{{}, k.at(0)}));
    return finish(k);
  }

  // `count` updates from `begin` on. Kernels of the same count are the same, so they load where
  // they begin.
  Status add_updates(int64_t begin, int64_t count, bool is_part) {
    const std::vector<bool> is_batch = form_.scatter_batches();
    KernelMaker k("scatter", {element_count(batches_), form_.free()}, form_.largest(), in_memory_);
    Builder& b = k.b();
    const std::vector<Value> batch = split_index(k, k.at(0), batches_);
    const std::vector<Value> free = form_.free_at(k, k.at(1));
    Value first = k.index(begin);
    if (is_part) {
      first = k.load(add_index_table(sequence_, k.index_dtype(), begin), k.index(0)).re;
    }
    k.loop(k.index(count), {}, {}, [&](Value iteration, const Elements&) {
      const Value number = b.add(first, iteration);
      ScatterForm::Entry entry;
      const Value vector = b.binary(Op::kDivU, number, k.index(form_.offsets()));
      entry.offsets = form_.offsets_at(k, b.binary(Op::kRemU, number, k.index(form_.offsets())));
      const std::vector<Value> at = split_index(k, vector, looped_);
      size_t next_batch = 0, next_looped = 0;
      for (const bool is_of_batch : is_batch) {
        entry.scatter.push_back(is_of_batch ? batch[next_batch++] : at[next_looped++]);
      }
      const ScatterForm::Destination to = form_.destination_of(k, entry);
      k.when(to.is_inside, [&] { add_update(k, entry, to, free); });
      return Elements();
    });
    return finish(k);
  }

  void add_update(KernelMaker& k, const ScatterForm::Entry& entry,
                  const ScatterForm::Destination& to, const std::vector<Value>& free) {
    Point target;
    for (size_t d = 0; d < form_.shape().size(); ++d) {
      target.dims.push_back(form_.dims()[d].is_free ? free[d] : to.dims[d]);
    }
    const Value at = k.emitter().linear_of(target, form_.shape());
    Elements before;
    for (size_t r = 0; r < form_.count(); ++r) before.push_back(k.load_back(*op_.result(r), at));
    const Elements after = form_.add(k, before, form_.source_of(k, entry, free));
    for (size_t r = 0; r < form_.count(); ++r) k.store(*op_.result(r), at, after[r]);
  }

  const ir::Operation& op_;
  const InMemory& in_memory_;
  const LowerOptions& options_;
  const ScatterForm form_;
  // Dimensions that number index vectors: those of batches, which are points, and the others.
  std::vector<int64_t> batches_, looped_;
  LoweredSequence sequence_;
};

}  // namespace

Result<LoweredSequence> lower_scatter_in_order(const ir::Operation& op, const InMemory& in_memory,
                                               const LowerOptions& options) {
  return ScatterInOrder(op, in_memory, options).run();
}

}  // namespace hekla::lower
