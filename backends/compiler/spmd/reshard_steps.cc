// SPDX-License-Identifier: Apache-2.0
// The operations of a reshard's plan.
#include <algorithm>
#include <numeric>

#include "backends/compiler/spmd/reshard.h"

namespace hekla::spmd {

using ir::GraphBuilder;
using ir::OpCode;
using StepKind = ReshardStep::Kind;

namespace {

// The axes that `longer` has behind those of `shorter`.
Axes tail(const Axes& longer, const Axes& shorter) {
  if (longer.size() <= shorter.size()) return {};
  return {longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end()};
}

ir::Value* transposed(GraphBuilder& g, ir::Value* value, const std::vector<int64_t>& order) {
  return std::is_sorted(order.begin(), order.end()) ? value : g.transpose(value, order);
}

// A value whose first dimension counts the devices of groups by `axes`: these as dimensions of
// their own, then moved in front of the dimensions that they are a part of. `of` says which axes
// belong to a dimension, in order; `axes` are all of them.
ir::Value* spread(GraphBuilder& g, ir::Value* value, const PrimeMesh& mesh, const Axes& axes,
                  const std::vector<Axes>& of) {
  const Dims rows = value->type().dims();
  Dims split;
  for (int axis : axes) split.push_back(mesh.size(axis));
  split.insert(split.end(), rows.begin() + 1, rows.end());
  std::vector<int64_t> order;
  Dims joined;
  for (size_t d = 0; d < of.size(); ++d) {
    for (int axis : of[d]) {
      order.push_back(std::find(axes.begin(), axes.end(), axis) - axes.begin());
    }
    order.push_back(static_cast<int64_t>(axes.size() + d));
    joined.push_back(rows[d + 1] * mesh.parts(of[d]));
  }
  return g.reshape(transposed(g, g.reshape(value, split), order), joined);
}

// The opposite: dimensions taken apart by the axes `of` them, whose parts become the rows of a new
// first dimension, in the order of `axes`.
ir::Value* collect(GraphBuilder& g, ir::Value* value, const PrimeMesh& mesh, const Axes& axes,
                   const std::vector<Axes>& of) {
  Dims split, rows = {mesh.parts(axes)};
  std::vector<int64_t> places(axes.size()), kept;
  for (size_t d = 0; d < of.size(); ++d) {
    for (int axis : of[d]) {
      places[static_cast<size_t>(std::find(axes.begin(), axes.end(), axis) - axes.begin())] =
          static_cast<int64_t>(split.size());
      split.push_back(mesh.size(axis));
    }
    kept.push_back(static_cast<int64_t>(split.size()));
    rows.push_back(value->type().dims()[d] / mesh.parts(of[d]));
    split.push_back(rows.back());
  }
  std::vector<int64_t> order = places;
  order.insert(order.end(), kept.begin(), kept.end());
  return g.reshape(transposed(g, g.reshape(value, split), order), rows);
}

}  // namespace

ir::Value* Resharder::reshard(GraphBuilder& g, ir::Value* part, const Tiling& from,
                              const Tiling& to, const Dims& whole) {
  const Tiling* now = &from;
  for (const ReshardStep& step : planner_.plan(from, to, whole).steps) {
    switch (step.kind) {
      case StepKind::kSlice:
        part = slice(g, part, *now, step.to, whole);
        break;
      case StepKind::kPermute:
        part = permute(g, part, *now, step.to);
        break;
      case StepKind::kExchange:
        part = exchange(g, part, *now, step.to, whole);
        break;
      case StepKind::kGather:
        part = gather_axes(g, part, *now, step.to, whole);
        break;
      case StepKind::kReduceScatter:
        part = reduce_scatter(g, part, *now, step.to, whole);
        break;
      case StepKind::kAllReduce: {
        Axes summed;
        std::set_difference(now->partial.begin(), now->partial.end(), step.to.partial.begin(),
                            step.to.partial.end(), std::back_inserter(summed));
        part = sum_over(g, part, summed);
        break;
      }
      case StepKind::kPlace:
        part = place(g, part, *now, step.to, whole);
        break;
      case StepKind::kKeepFirst:
        part = keep_first(g, part, *now, step.to);
        break;
    }
    now = &step.to;
  }
  return part;
}

double Resharder::reshard_bytes(const Tiling& from, const Tiling& to, const Dims& whole,
                                DType dtype) {
  return planner_.plan(from, to, whole).elements * static_cast<double>(dtype_bytes(dtype));
}

ir::Value* Resharder::slice(GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                            const Dims& whole) {
  const Dims local = local_shape(*mesh_, to, whole);
  Dims padded = local;
  GraphBuilder::Values starts;
  for (size_t d = 0; d < whole.size(); ++d) {
    const Axes more = tail(to.dims[d], from.dims[d]);
    if (more.empty()) {
      starts.push_back(g.integer_constant(DType::kI64, {}, 0));
      continue;
    }
    padded[d] *= mesh_->parts(more);
    starts.push_back(start_of_part(g, more, local[d]));
  }
  return g.dynamic_slice(pad_to(g, part, padded), starts, local);
}

ir::Value* Resharder::of_next_part(GraphBuilder& g, ir::Value* value, const Axes& axes) {
  Groups pairs;
  for (const std::vector<int64_t>& row : mesh_->groups(axes)) {
    for (size_t i = 0; i < row.size(); ++i) pairs.push_back({row[(i + 1) % row.size()], row[i]});
  }
  return collective(g, OpCode::kCollectivePermute, value, pairs, value->type(), {})->result();
}

ir::Value* Resharder::permute(GraphBuilder& g, ir::Value* part, const Tiling& from,
                              const Tiling& to) {
  const std::vector<int64_t> sources = permutation_sources(*mesh_, from, to);
  Groups pairs;
  for (size_t partition = 0; partition < sources.size(); ++partition) {
    pairs.push_back({sources[partition], static_cast<int64_t>(partition)});
  }
  return collective(g, OpCode::kCollectivePermute, part, pairs, part->type(), {})->result();
}

ir::Value* Resharder::exchange(GraphBuilder& g, ir::Value* part, const Tiling& from,
                               const Tiling& to, const Dims& whole) {
  const size_t rank = whole.size();
  std::vector<Axes> lost(rank), won(rank);
  std::vector<size_t> givers, takers;
  Axes moved;
  Dims padded = part->type().dims();
  const Dims local = local_shape(*mesh_, to, whole);
  for (size_t d = 0; d < rank; ++d) {
    lost[d] = tail(from.dims[d], to.dims[d]);
    won[d] = tail(to.dims[d], from.dims[d]);
    moved.insert(moved.end(), lost[d].begin(), lost[d].end());
    if (!lost[d].empty()) givers.push_back(d);
    if (!won[d].empty()) {
      takers.push_back(d);
      padded[d] = local[d] * mesh_->parts(won[d]);
    }
  }
  part = pad_to(g, part, padded);
  const Groups groups = mesh_->groups(moved);
  if (givers.size() == 1 && takers.size() == 1 && won[takers[0]] == moved) {
    part = all_to_all(g, part, groups, takers[0], givers[0]);
  } else {
    part = all_to_all(g, collect(g, part, *mesh_, moved, won), groups, 0, 0);
    part = spread(g, part, *mesh_, moved, lost);
  }
  return cut_to(g, part, local);
}

ir::Value* Resharder::gather_axes(GraphBuilder& g, ir::Value* part, const Tiling& from,
                                  const Tiling& to, const Dims& whole) {
  std::vector<Axes> lost(whole.size());
  std::vector<size_t> givers;
  Axes gone;
  for (size_t d = 0; d < whole.size(); ++d) {
    lost[d] = tail(from.dims[d], to.dims[d]);
    gone.insert(gone.end(), lost[d].begin(), lost[d].end());
    if (!lost[d].empty()) givers.push_back(d);
  }
  const Groups groups = mesh_->groups(gone);
  if (givers.size() == 1) {
    part = all_gather(g, part, groups, givers[0]);
  } else {
    Dims row = part->type().dims();
    row.insert(row.begin(), 1);
    part = spread(g, all_gather(g, g.reshape(part, row), groups, 0), *mesh_, gone, lost);
  }
  return cut_to(g, part, local_shape(*mesh_, to, whole));
}

ir::Value* Resharder::reduce_scatter(GraphBuilder& g, ir::Value* part, const Tiling& from,
                                     const Tiling& to, const Dims& whole) {
  const Dims local = local_shape(*mesh_, to, whole);
  for (size_t d = 0; d < whole.size(); ++d) {
    const Axes more = tail(to.dims[d], from.dims[d]);
    if (more.empty()) continue;
    Dims padded = local;
    padded[d] *= mesh_->parts(more);
    ir::AttributeMap attributes;
    attributes.set("scatter_dimension", ir::i64_attribute(static_cast<int64_t>(d)));
    part = collective(g, OpCode::kReduceScatter, pad_to(g, part, padded), mesh_->groups(more),
                      ir::Type::tensor(part->type().element(), local), std::move(attributes),
                      [](GraphBuilder& body, const GraphBuilder::Values& x) {
                        return GraphBuilder::Values{body.add(x[0], x[1])};
                      })
               ->result();
  }
  return part;
}

ir::Value* Resharder::place(GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                            const Dims& whole) {
  const Dims local = part->type().dims();
  Dims around = local;
  GraphBuilder::Values starts;
  for (size_t d = 0; d < whole.size(); ++d) {
    const Axes given = tail(from.dims[d], to.dims[d]);
    around[d] *= mesh_->parts(given);
    starts.push_back(given.empty() ? g.integer_constant(DType::kI64, {}, 0)
                                   : start_of_part(g, given, local[d]));
  }
  ir::Value* zeros = g.constant(part->type().dtype(), around, 0);
  return cut_to(g, g.dynamic_update_slice(zeros, part, starts), local_shape(*mesh_, to, whole));
}

ir::Value* Resharder::keep_first(GraphBuilder& g, ir::Value* part, const Tiling& from,
                                 const Tiling& to) {
  Axes axes;
  std::set_difference(to.partial.begin(), to.partial.end(), from.partial.begin(),
                      from.partial.end(), std::back_inserter(axes));
  ir::Value* is_first =
      g.compare("EQ", start_of_part(g, axes, 1), g.integer_constant(DType::kI64, {}, 0));
  return g.select(is_first, part, g.constant(part->type().dtype(), part->type().dims(), 0));
}

}  // namespace hekla::spmd
