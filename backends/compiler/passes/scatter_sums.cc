// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/scatter_sums.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Operation;
using ir::Value;
using Numbers = std::vector<int64_t>;

const ir::ScatterDimensionNumbers* numbers_of(const Operation& scatter) {
  return scatter.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
}

// Components of an index; how many indices there are.
int64_t components(const Operation& scatter) {
  return static_cast<int64_t>(numbers_of(scatter)->scatter_dims_to_operand_dims.size());
}
int64_t index_count(const Operation& scatter) {
  return element_count(scatter.operand(1)->type().dims()) / components(scatter);
}

// Of the window, in each dimension of the operand.
Dims window_sizes(const Operation& scatter) {
  const ir::ScatterDimensionNumbers& n = *numbers_of(scatter);
  Dims sizes(scatter.operand(0)->type().dims().size(), 1);
  size_t next = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto& inserted = n.inserted_window_dims;
    if (std::ranges::find(inserted, static_cast<int64_t>(d)) != inserted.end()) continue;
    const auto place = static_cast<size_t>(n.update_window_dims[next++]);
    sizes[d] = scatter.operand(2)->type().dims()[place];
  }
  return sizes;
}

Numbers from_one(size_t count) {
  Numbers dims(count);
  std::iota(dims.begin(), dims.end(), int64_t{1});
  return dims;
}

// For each index the first one that is equal: i32 of `indices`' [count].
Value* first_equals(GraphBuilder& g, Value* indices) {
  const int64_t count = indices->type().dims()[0];
  Value* is_equal = nullptr;
  for (int64_t c = 0; c < indices->type().dims()[1]; ++c) {
    Value* component = g.reshape(g.slice(indices, {0, c}, {count, c + 1}), {count});
    Value* here = g.compare("EQ", g.broadcast(component, {count, count}, {0}),
                            g.broadcast(component, {count, count}, {1}));
    is_equal = is_equal == nullptr ? here : g.bit_and(is_equal, here);
  }
  Value* numbers = g.iota(DType::kI32, {count, count}, 1);
  Value* candidates =
      g.select(is_equal, numbers, g.integer_constant(DType::kI32, {count, count}, count));
  return g.reduce({candidates}, {g.integer_constant(DType::kI32, {}, count)}, {1},
                  [](GraphBuilder& body, const GraphBuilder::Values& v) {
                    return GraphBuilder::Values{body.binary(OpCode::kMinimum, v[0], v[1])};
                  })[0];
}

// A scatter of windows [count, window ...] at `indices`, [count, components].
Value* scatter_windows(GraphBuilder& g, Value* array, Value* indices, Value* windows,
                       ir::ScatterDimensionNumbers n, bool adds) {
  n.update_window_dims = from_one(windows->type().dims().size() - 1);
  n.index_vector_dim = 1;
  const ir::Type element = ir::Type::tensor(array->type().dtype(), {});
  const GraphBuilder::RegionSpec region{
      {element, element}, [adds](GraphBuilder& body, const GraphBuilder::Values& v) {
        return GraphBuilder::Values{adds ? body.add(v[0], v[1]) : v[1]};
      }};
  ir::AttributeMap attributes;
  attributes.set("scatter_dimension_numbers", ir::Attribute(std::move(n)));
  const Operation* op = g.make_op(OpCode::kScatter, {array, indices, windows},
                                  std::move(attributes), {region}, {array->type()});
  return op == nullptr ? nullptr : op->result();
}

// Windows [count, size ...] at `indices`; those of `collapsed` dimensions have one element there.
Value* gather_windows(GraphBuilder& g, Value* array, Value* indices, const Numbers& collapsed,
                      const Numbers& start_index_map, const Dims& sizes) {
  ir::GatherDimensionNumbers n;
  n.offset_dims = from_one(sizes.size() - collapsed.size());
  n.collapsed_slice_dims = collapsed;
  n.start_index_map = start_index_map;
  n.index_vector_dim = 1;
  ir::AttributeMap attributes;
  attributes.set("dimension_numbers", ir::Attribute(std::move(n)));
  attributes.set("slice_sizes", ir::i64_array(sizes));
  return g.make(OpCode::kGather, {array, indices}, std::move(attributes));
}

}  // namespace

bool has_sums_of_places(const Operation& scatter, int64_t most) {
  const ir::ScatterDimensionNumbers* n = numbers_of(scatter);
  if (n == nullptr || n->scatter_dims_to_operand_dims.empty() || !n->input_batching_dims.empty()) {
    return false;
  }
  const int64_t count = index_count(scatter);
  // Longer windows of several places might have some in common.
  const Dims sizes = window_sizes(scatter);
  if (count > 1 && !std::ranges::all_of(n->scatter_dims_to_operand_dims, [&](int64_t d) {
        return sizes[static_cast<size_t>(d)] == 1;
      })) {
    return false;
  }
  // Indices and windows are taken as [count, components] and [count, window ...].
  const ir::Type& indices = scatter.operand(1)->type();
  const int64_t rank = scatter.operand(2)->type().rank();
  const auto windows = static_cast<int64_t>(n->update_window_dims.size());
  for (int64_t i = 0; i < windows; ++i) {
    if (n->update_window_dims[static_cast<size_t>(i)] != rank - windows + i) return false;
  }
  const bool is_last = n->index_vector_dim == indices.rank() - 1;
  if (!is_last && n->index_vector_dim != indices.rank()) return false;
  return count > 0 && count <= most / count;
}

Value* change_by_sums(GraphBuilder& g, const Operation& scatter, Value* array,
                      const std::function<Value*(Value*, Value*)>& change) {
  const ir::ScatterDimensionNumbers& n = *numbers_of(scatter);
  const int64_t count = index_count(scatter);
  const Dims sizes = window_sizes(scatter);
  Dims windows{count}, sum_sizes{1};
  for (const int64_t d : n.update_window_dims) {
    windows.push_back(scatter.operand(2)->type().dims()[static_cast<size_t>(d)]);
    sum_sizes.push_back(windows.back());
  }
  Value* indices = g.reshape(scatter.operand(1), {count, components(scatter)});
  Value* updates = g.reshape(scatter.operand(2), windows);
  Value* sums = g.integer_constant(array->type().dtype(), windows, 0);
  if (count == 1) {
    sums = g.add(sums, updates);
  } else {
    Value* first = g.reshape(first_equals(g, indices), {count, 1});
    ir::ScatterDimensionNumbers rows;
    rows.inserted_window_dims = rows.scatter_dims_to_operand_dims = {0};
    sums = scatter_windows(g, sums, first, updates, rows, true);
    sums = gather_windows(g, sums, first, {0}, {0}, sum_sizes);
  }
  Value* old = gather_windows(g, array, indices, n.inserted_window_dims,
                              n.scatter_dims_to_operand_dims, sizes);
  return scatter_windows(g, array, indices, change(old, sums), n, false);
}

}  // namespace hekla::passes
