// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "backends/compiler/passes/sum_parts.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/accumulator.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::GraphBuilder;
using ir::OpCode;
using ir::Value;
using Numbers = std::vector<int64_t>;

// An operand of a product: the value and its dimensions, each in the order of the product's.
struct Side {
  Value* value = nullptr;
  Numbers batch, contracting, free;

  int64_t size(const Numbers& dimensions) const {
    int64_t product = 1;
    for (const int64_t d : dimensions) product *= value->type().dims()[static_cast<size_t>(d)];
    return product;
  }
  // The same of the value that this one is a transposition of.
  void look_through_transposes() {
    const ir::Operation* op = value->defining_op();
    while (op != nullptr && op->code() == OpCode::kTranspose) {
      const Numbers permutation = ir::int_list(*op, "permutation");
      for (Numbers* dimensions : {&batch, &contracting, &free}) {
        for (int64_t& d : *dimensions) d = permutation[static_cast<size_t>(d)];
      }
      value = op->operand(0);
      op = value->defining_op();
    }
  }
};

Side side_of(Value* value, const Numbers& batch, const Numbers& contracting) {
  Side side{value, batch, contracting, {}};
  const auto has = [](const Numbers& numbers, int64_t d) {
    return std::find(numbers.begin(), numbers.end(), d) != numbers.end();
  };
  for (int64_t d = 0; d < static_cast<int64_t>(value->type().rank()); ++d) {
    if (!has(batch, d) && !has(contracting, d)) side.free.push_back(d);
  }
  return side;
}

bool is_real_float(DType d) {
  return d == DType::kF64 || d == DType::kF32 || d == DType::kBF16 || d == DType::kF16;
}

class ThinProduct {
 public:
  ThinProduct(ir::Operation& op, const ThinProductLimits& limits) : op_(op), limits_(limits) {}

  bool is_one() {
    if (op_.code() != OpCode::kDotGeneral || op_.attribute("algorithm")) return false;
    for (const ir::Value* v : {op_.operand(0), op_.operand(1), op_.result()}) {
      if (!v->type().is_static_tensor() || v->type().quantization() != nullptr ||
          !is_real_float(v->type().dtype()) || element_count(v->type().dims()) == 0) {
        return false;
      }
    }
    const auto* n = op_.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
    wide_ = side_of(op_.operand(0), n->lhs_batching_dimensions, n->lhs_contracting_dimensions);
    thin_ = side_of(op_.operand(1), n->rhs_batching_dimensions, n->rhs_contracting_dimensions);
    if (wide_.size(wide_.free) < thin_.size(thin_.free)) {
      std::swap(wide_, thin_);
      is_swapped_ = true;
    }
    const int64_t columns = thin_.size(thin_.free);
    const int64_t elements = element_count(wide_.value->type().dims());
    return columns <= limits_.most_columns && wide_.size(wide_.contracting) >= limits_.least_line &&
           elements >= (columns == 1 ? limits_.least_elements : limits_.least_elements_of_several);
  }

  Status replace() {
    wide_.look_through_transposes();
    const ir::Type type = op_.result()->type();
    sum_dtype_ = ir::accumulator_dtype(type.dtype());
    GraphBuilder g(*op_.block(), &op_, op_.location());
    const Value* wide = wide_.value;
    Value* converted = as_sum(g, wide_.value);
    thin_.value = as_sum(g, thin_.value);
    const auto [cut, count] = parts();
    // The order of what is left of the wide operand, and the product's; parts are the first.
    const auto behind = [at = cut, is_cut = count > 1](const Numbers& dimensions) {
      return is_cut ? behind_cut(dimensions, at) : dimensions;
    };
    Numbers kept;
    if (count > 1) kept.push_back(cut);
    Dims kept_dims;
    for (const Numbers* dimensions : {&wide_.batch, &wide_.free}) {
      for (const int64_t d : *dimensions) {
        kept_dims.push_back(wide->type().dims()[static_cast<size_t>(d)]);
      }
      const Numbers now = behind(*dimensions);
      kept.insert(kept.end(), now.begin(), now.end());
    }
    Numbers in_order = kept;
    std::sort(in_order.begin(), in_order.end());
    Numbers permutation;
    for (const int64_t d : kept) {
      permutation.push_back(std::find(in_order.begin(), in_order.end(), d) - in_order.begin());
    }
    const int64_t columns = thin_.size(thin_.free);
    // All in a row: those that read the wide operand together become one kernel.
    GraphBuilder::Values sums;
    for (int64_t c = 0; c < columns; ++c) {
      Value* product = g.multiply(converted, column(g, c));
      if (count > 1) product = cut_dimension(g, product, static_cast<size_t>(cut), count);
      sums.push_back(g.reduce({product}, {g.constant(sum_dtype_, {}, 0)}, behind(wide_.contracting),
                              [](GraphBuilder& body, const GraphBuilder::Values& x) {
                                return GraphBuilder::Values{body.add(x[0], x[1])};
                              })[0]);
    }
    GraphBuilder::Values parts;
    for (Value* sum : sums) {
      if (!std::is_sorted(permutation.begin(), permutation.end())) {
        sum = g.transpose(sum, permutation);
      }
      if (count > 1) sum = add_up(g, sum, 0);
      Dims with_column = kept_dims;
      with_column.push_back(1);
      parts.push_back(columns == 1 ? sum : g.reshape(sum, with_column));
    }
    Value* all = parts[0];
    if (columns > 1) {
      const auto rank = static_cast<int64_t>(kept_dims.size());
      all = g.concatenate(parts, rank);
      if (is_swapped_ && !wide_.free.empty()) {
        const auto batch = static_cast<int64_t>(wide_.batch.size());
        Numbers order;
        for (int64_t d = 0; d < batch; ++d) order.push_back(d);
        order.push_back(rank);
        for (int64_t d = batch; d < rank; ++d) order.push_back(d);
        all = g.transpose(all, order);
      }
    }
    if (all->type().dims() != type.dims()) all = g.reshape(all, type.dims());
    if (type.dtype() != sum_dtype_) all = g.convert(all, type.dtype());
    HEKLA_RETURN_IF_ERROR(g.status());
    op_.result()->replace_all_uses_with(all);
    op_.block()->erase(&op_);
    return ok_status();
  }

 private:
  Value* as_sum(GraphBuilder& g, Value* x) const {
    return x->type().dtype() == sum_dtype_ ? x : g.convert(x, sum_dtype_);
  }

  // A contracting dimension of the wide operand and how many parts its sums are taken in, 1 where
  // the terms of a sum are neighbours in memory.
  std::pair<int64_t, int64_t> parts() const {
    const Dims& dims = wide_.value->type().dims();
    auto last = static_cast<int64_t>(dims.size()) - 1;
    while (last > 0 && dims[static_cast<size_t>(last)] == 1) --last;
    const Numbers& terms = wide_.contracting;
    std::pair<int64_t, int64_t> best(terms.front(), 1);
    if (std::find(terms.begin(), terms.end(), last) != terms.end()) return best;
    const int64_t length = wide_.size(terms);
    const int64_t most = std::min({limits_.most_parts, length / limits_.least_part,
                                   limits_.most_sums * length / element_count(dims)});
    for (const int64_t d : terms) {
      const int64_t here = equal_parts(dims[static_cast<size_t>(d)], most);
      if (here > best.second) best = {d, here};
    }
    return best;
  }

  // Column `c` of the thin operand, for each element of the wide one.
  Value* column(GraphBuilder& g, int64_t c) const {
    const Dims& dims = thin_.value->type().dims();
    Numbers begin(dims.size(), 0), end(dims.begin(), dims.end());
    for (size_t i = thin_.free.size(); i-- > 0;) {
      const auto d = static_cast<size_t>(thin_.free[i]);
      begin[d] = c % dims[d];
      end[d] = begin[d] + 1;
      c /= dims[d];
    }
    Value* one = thin_.value;
    if (thin_.size(thin_.free) > 1) one = g.slice(one, begin, end);
    Dims rest;
    Numbers places;
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      const auto place_in = [d](const Numbers& mine, const Numbers& theirs) {
        const auto it = std::find(mine.begin(), mine.end(), d);
        return it == mine.end() ? int64_t{-1} : theirs[static_cast<size_t>(it - mine.begin())];
      };
      const int64_t place = std::max(place_in(thin_.batch, wide_.batch),
                                     place_in(thin_.contracting, wide_.contracting));
      if (place < 0) continue;
      rest.push_back(dims[static_cast<size_t>(d)]);
      places.push_back(place);
    }
    if (rest != one->type().dims()) one = g.reshape(one, rest);
    return g.broadcast(one, wide_.value->type().dims(), places);
  }

  ir::Operation& op_;
  const ThinProductLimits& limits_;
  Side wide_, thin_;
  bool is_swapped_ = false;  // the wide operand is the right one
  DType sum_dtype_ = DType::kF32;
};

}  // namespace

Status sum_thin_products(ir::Module& module, const ThinProductLimits& limits,
                         const std::function<bool(const ir::Operation&)>& is_kept) {
  for (ir::Operation* op : operations_of(
           module, [](const ir::Operation& o) { return o.code() == OpCode::kDotGeneral; })) {
    if (is_kept && is_kept(*op)) continue;
    ThinProduct product(*op, limits);
    if (product.is_one()) HEKLA_RETURN_IF_ERROR(product.replace());
  }
  return ok_status();
}

}  // namespace hekla::passes
