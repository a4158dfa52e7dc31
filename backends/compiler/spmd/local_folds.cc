// SPDX-License-Identifier: Apache-2.0
// Folds along dimensions that are cut: what fills up uneven blocks is left out, and folds that run
// along a dimension go on where the part in front ends.
#include <algorithm>
#include <utility>

#include "backends/compiler/passes/only_operation.h"
#include "backends/compiler/spmd/local_job.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

namespace {

// What each part has: its block.
HaloRead own_block(size_t dimension, const Axes& axes, int64_t size, int64_t parts) {
  HaloRead read{dimension, axes, size, {}, sharding::block_of(size, parts, 0).size};
  for (int64_t part = 0; part < parts; ++part) read.starts.push_back(part * read.length);
  return read;
}

}  // namespace

std::vector<RunningDimension> running_dimensions(const ir::Operation& op, const ShardingRule& rule,
                                                 const OpCut& cut, const Dims& dims) {
  std::vector<RunningDimension> found;
  if (op.code() != OpCode::kReduceWindow) return found;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (rule.operands[0][d].size() != 1) continue;
    const int64_t factor = rule.operands[0][d].front();
    const Axes& axes = cut[static_cast<size_t>(factor)];
    if (axes.empty() || !contains(rule.permutation, factor)) continue;
    if (const auto fold = running_fold(op, d, dims[d])) {
      found.push_back({*fold, d, axes, dims[d]});
    }
  }
  return found;
}

void LocalOps::fill_blocks(Job& job) {
  const ir::Operation& op = job.op;
  const bool is_reduce = op.code() == OpCode::kReduce;
  if (!is_reduce && op.code() != OpCode::kDot && op.code() != OpCode::kDotGeneral) return;
  ir::GraphBuilder& g = job.g;
  for (int64_t factor : job.rule.reduction) {
    const Axes& axes = job.cut[static_cast<size_t>(factor)];
    const int64_t parts = mesh_.parts(axes);
    for (size_t i = 0; parts > 1 && i < (is_reduce ? 1 : 2); ++i) {
      const ShardingRule::Tensor& dimensions = job.rule.operands[i];
      for (size_t d = 0; d < dimensions.size(); ++d) {
        if (dimensions[d] != ShardingRule::Dimension{factor}) continue;
        const int64_t n = versions_.type(op.operand(i)).dims()[d];
        if (n % parts == 0) continue;
        const DType dtype = job.operands[i]->type().dtype();
        ir::Value* fill = nullptr;
        if (!is_reduce) {
          fill = g.constant(dtype, {}, 0);
        } else {
          const OpCode fold = *passes::only_operation(op.region(0));
          fill = is_idempotent(fold) ? job.operands[1] : neutral(g, fold, dtype, {});
        }
        job.operands[i] =
            resharder_.fill_outside(g, job.operands[i], own_block(d, axes, n, parts), fill);
      }
    }
  }
}

// Within the part.
void LocalOps::begin_folds(Job& job) {
  job.running =
      running_dimensions(job.op, job.rule, job.cut, versions_.type(job.op.operand(0)).dims());
  for (const RunningDimension& one : job.running) {
    const int64_t block = job.result_dims(0)[one.dimension];
    std::vector<int64_t> window = ir::int_list(job.op, "window_dimensions");
    window[one.dimension] = block;
    if (const auto* now = job.attributes.get("window_dimensions").get<ir::IntArrayValue>()) {
      window = now->values;
      window[one.dimension] = block;
    }
    job.attributes.set("window_dimensions", ir::IntArrayValue{DType::kI64, std::move(window)});
    set_padding(job.op, job.attributes, job.result_dims(0).size(), one.dimension,
                one.fold.is_reversed ? 0 : block - 1, one.fold.is_reversed ? block - 1 : 0);
    // What is behind the end comes first in a fold from there.
    if (one.fold.is_reversed) {
      job.operands[0] = resharder_.fill_outside(
          job.g, job.operands[0],
          own_block(one.dimension, one.axes, one.size, mesh_.parts(one.axes)), job.operands[1]);
    }
  }
}

// A part's last value, or first one, is its total: those of the parts in front are folded into
// each of its values.
ir::Value* LocalOps::add_totals_before(Job& job, const RunningDimension& along, ir::Value* value) {
  ir::GraphBuilder& g = job.g;
  const size_t d = along.dimension;
  const Dims dims = value->type().dims();
  const int64_t parts = mesh_.parts(along.axes);
  Dims low(dims.size(), 0);
  Dims high = dims;
  low[d] = along.fold.is_reversed ? 0 : dims[d] - 1;
  high[d] = low[d] + 1;
  Tiling from = Tiling::replicated(dims.size());
  from.dims[d] = along.axes;
  Dims all = dims;
  all[d] = parts;
  ir::Value* totals =
      resharder_.reshard(g, g.slice(value, low, high), from, Tiling::replicated(dims.size()), all);
  ir::Value* own = resharder_.start_of_part(g, along.axes, 1);
  ir::Value* is_in_front =
      g.compare(along.fold.is_reversed ? "GT" : "LT", g.iota(DType::kI64, {parts}, 0),
                g.broadcast(own, {parts}, {}));
  is_in_front = g.broadcast(is_in_front, all, {static_cast<int64_t>(d)});
  ir::Value* initial = job.operands[1];
  totals = g.select(is_in_front, totals, g.broadcast(initial, all, {}));
  const OpCode code = along.fold.code;
  ir::Value* before = g.reduce({totals}, {initial}, {static_cast<int64_t>(d)},
                               [code](ir::GraphBuilder& body, const ir::GraphBuilder::Values& x) {
                                 return ir::GraphBuilder::Values{body.binary(code, x[0], x[1])};
                               })[0];
  std::vector<int64_t> places;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != d) places.push_back(static_cast<int64_t>(i));
  }
  return g.binary(code, g.broadcast(before, dims, places), value);
}

}  // namespace hekla::spmd
