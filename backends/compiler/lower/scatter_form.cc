// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/scatter_form.h"

#include <algorithm>

#include "backends/compiler/lower/dimensions.h"

namespace hekla::lower {

using kernel::Op;

std::vector<Value> split_index(KernelMaker& k, Value v, const std::vector<int64_t>& sizes) {
  std::vector<Value> parts(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    parts[i] = i == 0 ? v : k.b().binary(Op::kRemU, v, k.index(sizes[i]));
    v = k.b().binary(Op::kDivU, v, k.index(sizes[i]));
  }
  return parts;
}

ScatterForm::ScatterForm(const ir::Operation& op, const InMemory& in_memory)
    : op_(op),
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
  largest_ =
      std::max({element_count(shape_), entries() * free_, element_count(update_),
                element_count(indices_.type().dims()), keys_, largest_inlined(op, in_memory)});
}

std::vector<int64_t> ScatterForm::scatter_sizes() const {
  std::vector<int64_t> sizes;
  for (size_t d : scatter_dims_) sizes.push_back(update_[d]);
  return sizes;
}

std::vector<bool> ScatterForm::scatter_batches() const {
  std::vector<bool> batches;
  for (size_t d : index_dims_) batches.push_back(contains(n_.scatter_indices_batching_dims, d));
  return batches;
}

Status ScatterForm::check() const {
  for (size_t r = 0; r < count_; ++r) {
    const DType dtype = op_.operand(r)->type().dtype();
    if (op_.operand(count_ + 1 + r)->type().dtype() != dtype ||
        op_.result(r)->type().dtype() != dtype) {
      return unimplemented("a scatter that changes dtypes");
    }
  }
  return ok_status();
}

std::vector<Value> ScatterForm::offsets_at(KernelMaker& k, Value offset) const {
  std::vector<int64_t> windows;
  for (const Dim& dim : dims_) windows.push_back(dim.is_free ? 1 : dim.window);
  return split_index(k, offset, windows);
}

std::vector<Value> ScatterForm::free_at(KernelMaker& k, Value number) const {
  std::vector<int64_t> windows;
  for (const Dim& dim : dims_) windows.push_back(dim.is_free ? dim.window : 1);
  return split_index(k, number, windows);
}

Value ScatterForm::start_of(KernelMaker& k, const Point& where, size_t dim) const {
  const DType dtype = indices_.type().dtype();
  const Element element = k.emitter().emit(indices_, where);
  // One that is negative is beyond any size as an unsigned number.
  if (dtype == DType::kI32) {
    if (k.b().index_type() == kernel::ScalarType::kI32) return element.re;
    return k.b().convert(Op::kSignExtend, k.b().index_type(), element.re);
  }
  // Starts outside stay outside: -1 and the size fit no window.
  return k.emitter().clamped_index(element, dtype, -1, shape_[dim]);
}

ScatterForm::Destination ScatterForm::destination_of(KernelMaker& k, const Entry& entry) const {
  Builder& b = k.b();
  Destination to{{}, b.boolean(true)};
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
      const Value start = start_of(k, where, d);
      const Value last = k.index(shape_[d] - dims_[d].window);
      to.is_inside = b.bit_and(to.is_inside, b.binary(Op::kLeU, start, last));
      at = b.add(start, entry.offsets[d]);
    }
    to.dims.push_back(dims_[d].is_free ? k.index(0) : at);
  }
  return to;
}

Point ScatterForm::source_of(KernelMaker& k, const Entry& entry,
                             const std::vector<Value>& free) const {
  Point source;
  source.dims.assign(update_.size(), k.index(0));
  for (size_t i = 0; i < scatter_dims_.size(); ++i) {
    source.dims[scatter_dims_[i]] = entry.scatter[i];
  }
  for (size_t d = 0; d < shape_.size(); ++d) {
    if (dims_[d].update_dim < 0) continue;
    source.dims[static_cast<size_t>(dims_[d].update_dim)] =
        dims_[d].is_free ? free[d] : entry.offsets[d];
  }
  return source;
}

Elements ScatterForm::add(KernelMaker& k, const Elements& sums, const Point& source) const {
  Elements arguments = sums;
  for (size_t r = 0; r < count_; ++r) {
    arguments.push_back(k.emitter().emit(*op_.operand(count_ + 1 + r), source));
  }
  std::optional<Elements> next = k.emitter().apply_region(op_.region(0).front(), arguments);
  if (!next.has_value() || next->size() != count_) {
    k.emitter().fail(op_);
    return sums;
  }
  return std::move(*next);
}

}  // namespace hekla::lower
