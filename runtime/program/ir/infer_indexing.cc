// SPDX-License-Identifier: Apache-2.0
// Ops that read or write at places given by operands: dynamic slices, gather, scatter.
#include <algorithm>

#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/infer_support.h"

namespace hekla::ir::infer {
namespace {

Status expect_scalar_indices(const Operation& op, size_t first, int64_t rank) {
  if (static_cast<int64_t>(op.operand_count() - first) != rank) {
    return op_error(op, "takes {} start indices, has {}", rank, op.operand_count() - first);
  }
  for (size_t i = first; i < op.operand_count(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(Type index, tensor_operand(op, i));
    if (index.rank() != 0 || !is_integer(index.dtype())) {
      return op_error(op, "start index {} must be an integer scalar, is {}", i - first,
                      index.to_string());
    }
  }
  return ok_status();
}

Result<Types> infer_dynamic_slice(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_RETURN_IF_ERROR(expect_scalar_indices(op, 1, x.rank()));
  HEKLA_ASSIGN_OR_RETURN(auto sizes, int_list(op, "slice_sizes"));
  if (static_cast<int64_t>(sizes.size()) != x.rank()) {
    return op_error(op, "slice_sizes has {} entries for rank {}", sizes.size(), x.rank());
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || (x.dims()[i] != kDynamic && sizes[i] > x.dims()[i])) {
      return op_error(op, "slice size {} of dimension {} does not fit into {}", sizes[i], i,
                      x.to_string());
    }
  }
  return Types{Type::tensor(x.element(), sizes)};
}

Result<Types> infer_dynamic_update_slice(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type update, tensor_operand(op, 1));
  HEKLA_RETURN_IF_ERROR(expect_scalar_indices(op, 2, x.rank()));
  bool fits = update.rank() == x.rank() && same_element(x, update);
  for (size_t i = 0; fits && i < x.dims().size(); ++i) {
    const int64_t size = x.dims()[i];
    fits = size == kDynamic || update.dims()[i] == kDynamic || update.dims()[i] <= size;
  }
  if (!fits) {
    return op_error(op, "the update {} does not fit into {}", update.to_string(), x.to_string());
  }
  return Types{x};
}

// The shape of an index operand without its index vector dimension.
Result<Dims> batch_shape(const Operation& op, const Type& indices, int64_t index_vector_dim,
                         size_t index_count, std::string_view what) {
  if (!is_integer_tensor(indices)) {
    return op_error(op, "{} must be integers, are {}", what, indices.to_string());
  }
  if (index_vector_dim < 0 || index_vector_dim > indices.rank()) {
    return op_error(op, "index_vector_dim {} is outside of {}", index_vector_dim,
                    indices.to_string());
  }
  Dims dims = indices.dims();
  const int64_t length =
      index_vector_dim == indices.rank() ? 1 : dims[static_cast<size_t>(index_vector_dim)];
  if (!dims_agree(length, static_cast<int64_t>(index_count))) {
    return op_error(op, "index vectors have {} entries, the index map {}", length, index_count);
  }
  if (index_vector_dim < indices.rank()) dims.erase(dims.begin() + index_vector_dim);
  return dims;
}

Status expect_disjoint(const Operation& op, std::string_view what, std::vector<int64_t> a,
                       const std::vector<int64_t>& b, int64_t rank) {
  a.insert(a.end(), b.begin(), b.end());
  return expect_dimensions(op, what, a, rank);
}

// Batching dimensions pair up in order and have equal sizes.
Status expect_batching(const Operation& op, const Type& operand, const std::vector<int64_t>& dims,
                       const Type& indices, const std::vector<int64_t>& index_dims,
                       int64_t index_vector_dim) {
  if (dims.size() != index_dims.size()) {
    return op_error(op, "has {} operand batching dimensions and {} of the indices", dims.size(),
                    index_dims.size());
  }
  HEKLA_RETURN_IF_ERROR(
      expect_dimensions(op, "indices' batching dimensions", index_dims, indices.rank()));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (index_dims[i] == index_vector_dim) {
      return op_error(op, "dimension {} of the indices is batching and index vector at once",
                      index_dims[i]);
    }
    if (!dims_agree(operand.dims()[static_cast<size_t>(dims[i])],
                    indices.dims()[static_cast<size_t>(index_dims[i])])) {
      return op_error(op, "batching dimension {} differs in size between {} and {}", i,
                      operand.to_string(), indices.to_string());
    }
  }
  return ok_status();
}

Result<Types> infer_gather(const Operation& op, bool dynamic) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, dynamic ? 3 : 2));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type indices, tensor_operand(op, 1));
  const auto* numbers = op.attribute("dimension_numbers").get<GatherDimensionNumbers>();
  if (numbers == nullptr) return op_error(op, "has no dimension_numbers");
  const GatherDimensionNumbers& n = *numbers;
  std::vector<int64_t> sizes(x.dims().size(), kDynamic);
  if (!dynamic) {
    HEKLA_ASSIGN_OR_RETURN(sizes, int_list(op, "slice_sizes"));
    if (static_cast<int64_t>(sizes.size()) != x.rank()) {
      return op_error(op, "slice_sizes has {} entries for rank {}", sizes.size(), x.rank());
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] < 0 || (x.dims()[i] != kDynamic && sizes[i] > x.dims()[i])) {
        return op_error(op, "slice size {} of dimension {} does not fit into {}", sizes[i], i,
                        x.to_string());
      }
    }
  }
  HEKLA_ASSIGN_OR_RETURN(Dims batch, batch_shape(op, indices, n.index_vector_dim,
                                                 n.start_index_map.size(), "start indices"));
  HEKLA_RETURN_IF_ERROR(expect_disjoint(op, "collapsed and batching dimensions",
                                        n.collapsed_slice_dims, n.operand_batching_dims, x.rank()));
  HEKLA_RETURN_IF_ERROR(expect_disjoint(op, "start_index_map and batching dimensions",
                                        n.start_index_map, n.operand_batching_dims, x.rank()));
  HEKLA_RETURN_IF_ERROR(expect_batching(op, x, n.operand_batching_dims, indices,
                                        n.start_indices_batching_dims, n.index_vector_dim));
  Dims offsets;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t dim = static_cast<int64_t>(i);
    const auto has = [&](const std::vector<int64_t>& list) {
      return std::find(list.begin(), list.end(), dim) != list.end();
    };
    if (has(n.collapsed_slice_dims) || has(n.operand_batching_dims)) {
      if (sizes[i] != kDynamic && sizes[i] > 1) {
        return op_error(op, "dimension {} goes, but its slice size is {}", i, sizes[i]);
      }
    } else {
      offsets.push_back(sizes[i]);
    }
  }
  if (offsets.size() != n.offset_dims.size()) {
    return op_error(op, "offset_dims has {} entries, the slices have {} dimensions",
                    n.offset_dims.size(), offsets.size());
  }
  const int64_t rank = static_cast<int64_t>(batch.size() + offsets.size());
  HEKLA_RETURN_IF_ERROR(expect_dimensions(op, "offset_dims", n.offset_dims, rank, true));
  Dims dims;
  size_t next_offset = 0;
  size_t next_batch = 0;
  for (int64_t i = 0; i < rank; ++i) {
    const bool is_offset = next_offset < offsets.size() && n.offset_dims[next_offset] == i;
    dims.push_back(is_offset ? offsets[next_offset++] : batch[next_batch++]);
  }
  return Types{Type::tensor(x.element(), dims)};
}

Result<Types> infer_scatter(const Operation& op) {
  HEKLA_ASSIGN_OR_RETURN(Types operands, tensor_operands(op));
  if (operands.size() % 2 == 0) {
    return op_error(op, "takes n inputs, indices and n updates, has {} operands", operands.size());
  }
  HEKLA_RETURN_IF_ERROR(expect_regions(op, 1));
  const size_t n_inputs = operands.size() / 2;
  if (n_inputs == 0) return op_error(op, "takes at least one input");
  const auto* numbers = op.attribute("scatter_dimension_numbers").get<ScatterDimensionNumbers>();
  if (numbers == nullptr) return op_error(op, "has no scatter_dimension_numbers");
  const ScatterDimensionNumbers& n = *numbers;
  const Type& indices = operands[n_inputs];
  const Type& x = operands[0];
  HEKLA_ASSIGN_OR_RETURN(Dims batch,
                         batch_shape(op, indices, n.index_vector_dim,
                                     n.scatter_dims_to_operand_dims.size(), "scatter indices"));
  HEKLA_RETURN_IF_ERROR(expect_disjoint(op, "inserted and batching dimensions",
                                        n.inserted_window_dims, n.input_batching_dims, x.rank()));
  HEKLA_RETURN_IF_ERROR(expect_disjoint(op, "index map and batching dimensions",
                                        n.scatter_dims_to_operand_dims, n.input_batching_dims,
                                        x.rank()));
  HEKLA_RETURN_IF_ERROR(expect_batching(op, x, n.input_batching_dims, indices,
                                        n.scatter_indices_batching_dims, n.index_vector_dim));
  const size_t window_rank =
      x.dims().size() - n.inserted_window_dims.size() - n.input_batching_dims.size();
  if (n.update_window_dims.size() != window_rank) {
    return op_error(op, "update_window_dims has {} entries, the windows have {} dimensions",
                    n.update_window_dims.size(), window_rank);
  }
  for (size_t k = 0; k < n_inputs; ++k) {
    const Type& input = operands[k];
    const Type& update = operands[n_inputs + 1 + k];
    if (!shapes_agree(input.dims(), x.dims())) {
      return op_error(op, "inputs differ in shape: {} and {}", x.to_string(), input.to_string());
    }
    if (update.dims().size() != batch.size() + window_rank) {
      return op_error(op, "update {} must have rank {}, is {}", k, batch.size() + window_rank,
                      update.to_string());
    }
    HEKLA_RETURN_IF_ERROR(
        expect_dimensions(op, "update_window_dims", n.update_window_dims, update.rank(), true));
    size_t next_window = 0;
    size_t next_batch = 0;
    std::vector<int64_t> window_dims;
    for (int64_t i = 0; i < x.rank(); ++i) {
      const auto has = [&](const std::vector<int64_t>& list) {
        return std::find(list.begin(), list.end(), i) != list.end();
      };
      if (!has(n.inserted_window_dims) && !has(n.input_batching_dims)) window_dims.push_back(i);
    }
    for (int64_t i = 0; i < update.rank(); ++i) {
      const int64_t size = update.dims()[static_cast<size_t>(i)];
      if (next_window < window_rank && n.update_window_dims[next_window] == i) {
        const int64_t bound = x.dims()[static_cast<size_t>(window_dims[next_window++])];
        if (size != kDynamic && bound != kDynamic && size > bound) {
          return op_error(op, "the window of update {} {} exceeds {}", k, update.to_string(),
                          input.to_string());
        }
      } else if (!dims_agree(size, batch[next_batch++])) {
        return op_error(op, "update {} {} does not fit indices {}", k, update.to_string(),
                        indices.to_string());
      }
    }
  }
  HEKLA_RETURN_IF_ERROR(expect_scalar_region(op, 0, 2 * n_inputs, n_inputs));
  Types results;
  for (size_t k = 0; k < n_inputs; ++k) {
    // The region may promote: its results' element types are the op's.
    const Value* returned = op.region(0).front().terminator()->operand(k);
    results.push_back(
        Type::tensor(is_quantized(operands[k]) ? operands[k].element() : returned->type().element(),
                     operands[k].dims(), operands[k].bounds()));
  }
  return results;
}

Result<Types> infer_index_select(const Operation& op) {
  HEKLA_RETURN_IF_ERROR(expect_operands(op, 2));
  HEKLA_ASSIGN_OR_RETURN(Type x, tensor_operand(op, 0));
  HEKLA_ASSIGN_OR_RETURN(Type indices, tensor_operand(op, 1));
  HEKLA_ASSIGN_OR_RETURN(int64_t dim, int_value(op, "dim"));
  HEKLA_ASSIGN_OR_RETURN(int64_t batch, int_value(op, "batch_dims"));
  HEKLA_RETURN_IF_ERROR(expect_dimension(op, "dim", dim, x.rank()));
  if (batch < 0 || batch > dim || batch > indices.rank() || !is_integer_tensor(indices)) {
    return op_error(op, "batch_dims {} and dim {} do not fit {} and {}", batch, dim, x.to_string(),
                    indices.to_string());
  }
  Dims dims(x.dims().begin(), x.dims().begin() + dim);
  dims.insert(dims.end(), indices.dims().begin() + batch, indices.dims().end());
  dims.insert(dims.end(), x.dims().begin() + dim + 1, x.dims().end());
  return Types{Type::tensor(x.element(), dims)};
}

}  // namespace

Outcome infer_indexing(const Operation& op) {
  switch (op.code()) {
    case OpCode::kDynamicSlice:
      return {true, infer_dynamic_slice(op)};
    case OpCode::kDynamicUpdateSlice:
      return {true, infer_dynamic_update_slice(op)};
    case OpCode::kGather:
      return {true, infer_gather(op, false)};
    case OpCode::kDynamicGather:
      return {true, infer_gather(op, true)};
    case OpCode::kScatter:
      return {true, infer_scatter(op)};
    case OpCode::kTorchIndexSelect:
      return {true, infer_index_select(op)};
    default:
      return not_handled();
  }
}

}  // namespace hekla::ir::infer
