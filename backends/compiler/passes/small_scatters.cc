// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "backends/compiler/passes/only_operation.h"
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Value;
using Numbers = std::vector<int64_t>;

bool is_wide(DType dtype) { return dtype_bytes(dtype) >= 4 && !is_complex(dtype); }

// A scatter that adds windows which fill all dimensions but those that indices choose.
class SmallScatter {
 public:
  SmallScatter(ir::Operation& op, const SmallScatterLimits& limits) : op_(op), limits_(limits) {}

  bool is_one() {
    n_ = op_.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
    if (n_ == nullptr || op_.operand_count() != 3 || !has_plain_types(op_) ||
        !n_->input_batching_dims.empty() || op_.region_count() != 1) {
      return false;
    }
    // Sums of bf16 and f16 are rounded at each update; here they would not be.
    if (only_operation(op_.region(0)) != OpCode::kAdd || !is_wide(dtype())) return false;
    // Narrow indices cannot count all places.
    if (dtype_bytes(op_.operand(1)->type().dtype()) < 4) return false;
    if (op_.operand(2)->type().dtype() != dtype() || op_.result()->type().dtype() != dtype()) {
      return false;  // the sum is taken in a type of its own
    }
    Numbers chosen = n_->scatter_dims_to_operand_dims, inserted = n_->inserted_window_dims;
    std::sort(chosen.begin(), chosen.end());
    std::sort(inserted.begin(), inserted.end());
    if (chosen.empty() || chosen != inserted) return false;
    size_t window = 0;
    for (size_t d = 0; d < operand().size(); ++d) {
      if (is_chosen(d)) continue;
      const auto place = static_cast<size_t>(n_->update_window_dims[window++]);
      if (updates()[place] != operand()[d]) return false;
    }
    const int64_t elements = element_count(operand());
    const int64_t all = element_count(updates());
    if (elements == 0 || all == 0) return false;
    int64_t chosen_size = 1;
    for (const int64_t d : chosen) chosen_size *= operand()[static_cast<size_t>(d)];
    const int64_t count = all / (elements / chosen_size);
    return count >= limits_.least_updates && count <= limits_.most_looked / elements;
  }

  Status replace() {
    GraphBuilder g(*op_.block(), &op_, op_.location());
    // [updates ..., operand ...]: what each update gives each element.
    const Dims& index_dims = op_.operand(1)->type().dims();
    Dims counts;
    Numbers places_of_counts;
    for (size_t d = 0; d < index_dims.size(); ++d) {
      if (static_cast<int64_t>(d) == n_->index_vector_dim) continue;
      places_of_counts.push_back(static_cast<int64_t>(counts.size()));
      counts.push_back(index_dims[d]);
    }
    Dims all = counts;
    all.insert(all.end(), operand().begin(), operand().end());
    const auto first = static_cast<int64_t>(counts.size());
    Value* is_hit = nullptr;
    for (size_t c = 0; c < n_->scatter_dims_to_operand_dims.size(); ++c) {
      Value* index = component(g, c, counts);
      Value* at = g.iota(index->type().dtype(), all, first + n_->scatter_dims_to_operand_dims[c]);
      Value* here = g.compare("EQ", g.broadcast(index, all, places_of_counts), at);
      is_hit = is_hit == nullptr ? here : g.bit_and(is_hit, here);
    }
    // The dimensions of the updates, in their order: those of the windows are the operand's.
    Numbers places(updates().size(), -1);
    size_t window = 0;
    for (size_t d = 0; d < operand().size(); ++d) {
      if (is_chosen(d)) continue;
      places[static_cast<size_t>(n_->update_window_dims[window++])] =
          first + static_cast<int64_t>(d);
    }
    int64_t next = 0;
    for (int64_t& place : places) {
      if (place < 0) place = next++;
    }
    Value* given = g.select(is_hit, broadcast(g, places, all), nothing(g, all));
    Value* sum = g.reduce({given}, {nothing(g, {})}, places_of_counts,
                          [](GraphBuilder& body, const GraphBuilder::Values& v) {
                            return GraphBuilder::Values{body.add(v[0], v[1])};
                          })[0];
    Value* result = g.add(op_.operand(0), sum);
    HEKLA_RETURN_IF_ERROR(g.status());
    op_.result()->replace_all_uses_with(result);
    op_.block()->erase(&op_);
    return ok_status();
  }

 private:
  const Dims& operand() const { return op_.operand(0)->type().dims(); }
  const Dims& updates() const { return op_.operand(2)->type().dims(); }
  DType dtype() const { return op_.operand(0)->type().dtype(); }
  bool is_chosen(size_t d) const {
    const Numbers& inserted = n_->inserted_window_dims;
    return std::find(inserted.begin(), inserted.end(), static_cast<int64_t>(d)) != inserted.end();
  }

  // What leaves every number as it is, -0 too.
  Value* nothing(GraphBuilder& g, const Dims& dims) const {
    return is_float(dtype()) ? g.constant(dtype(), dims, -0.0)
                             : g.integer_constant(dtype(), dims, 0);
  }

  // Component `c` of the index vectors.
  Value* component(GraphBuilder& g, size_t c, const Dims& counts) const {
    Value* indices = op_.operand(1);
    const Dims& dims = indices->type().dims();
    const auto at = static_cast<size_t>(n_->index_vector_dim);
    if (at >= dims.size()) return indices;
    Numbers begin(dims.size(), 0), end(dims.begin(), dims.end());
    begin[at] = static_cast<int64_t>(c);
    end[at] = begin[at] + 1;
    return g.reshape(dims[at] == 1 ? indices : g.slice(indices, begin, end), counts);
  }

  // The updates at `places`, which a broadcast wants in order.
  Value* broadcast(GraphBuilder& g, const Numbers& places, const Dims& all) const {
    Numbers order(places.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return places[static_cast<size_t>(a)] < places[static_cast<size_t>(b)];
    });
    Value* x = op_.operand(2);
    if (!std::is_sorted(order.begin(), order.end())) x = g.transpose(x, order);
    Numbers sorted = places;
    std::sort(sorted.begin(), sorted.end());
    return g.broadcast(x, all, sorted);
  }

  ir::Operation& op_;
  const SmallScatterLimits& limits_;
  const ir::ScatterDimensionNumbers* n_ = nullptr;
};

}  // namespace

Status reduce_small_scatters(ir::Module& module, const SmallScatterLimits& limits) {
  for (ir::Operation* op :
       operations_of(module, [](const ir::Operation& o) { return o.code() == OpCode::kScatter; })) {
    SmallScatter scatter(*op, limits);
    if (scatter.is_one()) HEKLA_RETURN_IF_ERROR(scatter.replace());
  }
  return ok_status();
}

}  // namespace hekla::passes
