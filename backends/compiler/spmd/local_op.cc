// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/local_op.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "backends/compiler/passes/only_operation.h"
#include "backends/compiler/spmd/folds.h"
#include "backends/compiler/spmd/linear.h"
#include "backends/compiler/spmd/local_job.h"
#include "backends/compiler/spmd/local_window.h"
#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

namespace {

bool is_narrow_float(DType dtype) { return is_float(dtype) && dtype_bits(dtype) < 32; }

// Of gather and scatter: the operand's dimensions of which single elements are picked by index.
std::vector<int64_t> picked_dimensions(const ir::Operation& op) {
  std::vector<int64_t> found;
  if (op.code() == OpCode::kGather) {
    const auto* numbers = op.attribute("dimension_numbers").get<ir::GatherDimensionNumbers>();
    for (int64_t d : numbers->collapsed_slice_dims) {
      if (contains(numbers->start_index_map, d)) found.push_back(d);
    }
  } else if (op.code() == OpCode::kScatter) {
    const auto* numbers =
        op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
    for (int64_t d : numbers->inserted_window_dims) {
      if (contains(numbers->scatter_dims_to_operand_dims, d)) found.push_back(d);
    }
  }
  return found;
}

// Which dimension of an array a factor alone is; -1 where there is none.
int64_t dimension_of(const ShardingRule::Tensor& dimensions, int64_t factor) {
  for (size_t d = 0; d < dimensions.size(); ++d) {
    if (dimensions[d] == ShardingRule::Dimension{factor}) return static_cast<int64_t>(d);
  }
  return -1;
}

bool has_factor(const ShardingRule::Tensor& dimensions, int64_t factor) {
  return std::any_of(
      dimensions.begin(), dimensions.end(),
      [factor](const ShardingRule::Dimension& dimension) { return contains(dimension, factor); });
}

// Whether no array has the factor beside others in a dimension.
bool stands_alone(const ShardingRule& rule, int64_t factor) {
  const auto is_alone = [factor](const ShardingRule::Tensor& dimensions) {
    return std::all_of(dimensions.begin(), dimensions.end(),
                       [factor](const ShardingRule::Dimension& dimension) {
                         return dimension.size() == 1 || !contains(dimension, factor);
                       });
  };
  return std::all_of(rule.operands.begin(), rule.operands.end(), is_alone) &&
         std::all_of(rule.results.begin(), rule.results.end(), is_alone);
}

// Whether sums leave out what fills up uneven blocks.
bool may_fill(const ir::Operation& op) {
  return op.code() == OpCode::kDot || op.code() == OpCode::kDotGeneral ||
         op.code() == OpCode::kDynamicSlice ||
         (op.code() == OpCode::kReduce && op.result_count() == 1 &&
          passes::only_operation(op.region(0)));
}

// Whether parts of a reduction along the factor's dimension follow each other in the order of its
// elements: nothing is reduced in front of the dimension.
bool is_in_order(const ir::Operation& op, const ShardingRule& rule, int64_t factor) {
  const std::vector<int64_t> reduced = ir::int_list(op, "dimensions");
  const int64_t along = dimension_of(rule.operands[0], factor);
  return std::all_of(reduced.begin(), reduced.end(), [&](int64_t d) { return d >= along; });
}

bool may_reduce(const ir::Operation& op, const ShardingRule& rule, int64_t factor) {
  switch (op.code()) {
    case OpCode::kDot:
    case OpCode::kDotGeneral:
      return true;
    case OpCode::kConvolution:
      return may_read_windows(op, rule, factor);
    case OpCode::kReduce:
      // What is one operation commutes; of others it is not known.
      return (op.result_count() == 1 && passes::only_operation(op.region(0))) ||
             is_in_order(op, rule, factor);
    case OpCode::kDynamicSlice:
      return true;
    case OpCode::kGather: {
      const int64_t d = dimension_of(rule.operands[0], factor);
      return contains(picked_dimensions(op), d);
    }
    case OpCode::kScatter:
      return op.result_count() == 1 && passes::only_operation(op.region(0)).has_value();
    default:
      return false;
  }
}

// Whether one operation alone uses the value, once, behind which it can be summed as well.
bool waits_for_user(const ir::Value& value) {
  const std::vector<ir::Operation*>& users = value.users();
  return users.size() == 1 && may_sum_behind(*users.front()) && value.type().dtype() != DType::kI1;
}

}  // namespace

bool may_cut(const ir::Operation& op, const ShardingRule& rule, int64_t factor, bool is_even) {
  if (contains(rule.need_replication, factor)) return false;
  const bool is_reduction = contains(rule.reduction, factor);
  const bool is_permutation = contains(rule.permutation, factor);
  // Sums and what is put together of neighbours' blocks begin with a zero, which this type has not.
  if ((is_reduction || is_permutation) && op.result(0)->type().dtype() == DType::kF8E8M0FNU) {
    return false;
  }
  if (is_permutation) return may_read_windows(op, rule, factor);
  if (is_reduction && !may_reduce(op, rule, factor)) return false;
  // Results without it would be others on each partition. Dimensions of one element, which rules
  // let pass, are such factors.
  const auto lacks_it = [factor](const ShardingRule::Tensor& dimensions) {
    return !has_factor(dimensions, factor);
  };
  if (!is_reduction && std::any_of(rule.results.begin(), rule.results.end(), lacks_it)) {
    return false;
  }
  if (!is_even && (!stands_alone(rule, factor) || (is_reduction && !may_fill(op)))) return false;
  if (ir::is_elementwise(op.code())) return true;
  switch (op.code()) {
    case OpCode::kAllGather:
    case OpCode::kAllReduce:
    case OpCode::kAllToAll:
    case OpCode::kBroadcastInDim:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
    case OpCode::kConcatenate:
    case OpCode::kDot:
    case OpCode::kDotGeneral:
    case OpCode::kMap:
    case OpCode::kReduce:
    case OpCode::kReduceScatter:
    case OpCode::kTranspose:
      return true;
    case OpCode::kDynamicSlice:
      return is_even || is_reduction;
    case OpCode::kBitcastConvert:
    case OpCode::kCholesky:
    case OpCode::kConvolution:
    case OpCode::kFft:
    case OpCode::kGather:
    case OpCode::kPad:
    case OpCode::kReduceWindow:
    case OpCode::kReverse:
    case OpCode::kScatter:
    case OpCode::kSelectAndScatter:
    case OpCode::kSlice:
    case OpCode::kSort:
    case OpCode::kTriangularSolve:
      return is_even;
    case OpCode::kReshape:
      // What only one side has says nothing of the other's elements.
      return is_even && has_factor(rule.operands[0], factor);
    case OpCode::kCustomCall:
      return is_roll(op);
    case OpCode::kDynamicUpdateSlice:
      // An update that is smaller comes to each part whole.
      return is_even || !has_factor(rule.operands[1], factor);
    default:
      return false;
  }
}

Status LocalOps::compute(ir::Operation& op, const ShardingRule& rule, const OpCut& cut,
                         const std::vector<Tiling>& wanted, ir::Block& block,
                         const Addends& addends) {
  Job job{op,
          rule,
          cut,
          wanted,
          block,
          addends,
          ir::GraphBuilder(block, nullptr, op.location()),
          reduction_axes(cut, rule),
          {},
          {},
          op.attributes(),
          {},
          {}};
  versions_.set_location(op.location());
  HEKLA_RETURN_IF_ERROR(take_operands(job));
  for (size_t i = 0; i < op.result_count(); ++i) {
    job.result_tilings.push_back(*tiling_under(cut, rule, rule.results[i], mesh_));
    const ir::Type& type = op.result(i)->type();
    job.types.push_back(ir::Type::tensor(
        type.element(), local_shape(mesh_, job.result_tilings.back(), type.dims())));
  }
  adapt_attributes(job);
  begin_folds(job);
  slice_dynamically(job);
  if (!job.reads.empty()) {
    go_over_windows(job);
  } else if (is_roll(op)) {
    job.made = {rolled(job.g, job.operands[0], op)};
  }
  shift_indices(job);
  finish(job);
  return job.g.status();
}

Addends LocalOps::addends_of(const ir::Operation& op, const Axes& wanted,
                             const ir::Block& block) const {
  const auto has = [&](const ir::Value* value, const Axes& axes) {
    const std::vector<Tiling> tilings = versions_.tilings(value);
    return std::any_of(tilings.begin(), tilings.end(),
                       [&](const Tiling& tiling) { return tiling.partial == axes; });
  };
  // Sums of narrow floats are rounded once, unless their addends are asked for.
  const bool may_wait = may_sum_behind(op) && !is_narrow_float(op.result()->type().dtype());
  const auto waits = [&](const ir::Value* operand) {
    return waits_for_user(*operand) && !versions_.is_from_outside(operand, block) &&
           versions_.tilings(operand).size() == 1;
  };
  for (const ir::Value* operand : op.operands()) {
    for (const Tiling& tiling : versions_.tilings(operand)) {
      Addends found{tiling.partial, {}};
      if (found.axes.empty()) continue;
      bool all_wait = may_wait;
      for (const ir::Value* other : op.operands()) {
        found.operands.push_back(has(other, found.axes));
        all_wait = all_wait && (!found.operands.back() || waits(other));
      }
      found.is_wanted =
          std::includes(wanted.begin(), wanted.end(), found.axes.begin(), found.axes.end());
      if ((found.is_wanted || all_wait) && keeps_addends(op, found.operands)) return found;
    }
  }
  return {};
}

void LocalOps::adapt_attributes(Job& job) const {
  const ir::Operation& op = job.op;
  const auto set_sizes = [&](std::string_view name, const Dims& whole, const Dims& local) {
    std::vector<int64_t> sizes = ir::int_list(op, name);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (local[d] != whole[d] && sizes[d] == whole[d]) sizes[d] = local[d];
    }
    job.attributes.set(name, ir::IntArrayValue{DType::kI64, std::move(sizes)});
  };
  const auto divide = [&](std::string_view name, size_t operand, int64_t dimension) {
    const int64_t groups = ir::int_value(op, name, 1);
    if (groups == 1) return;
    // Groups are the major factor of the dimension.
    const int64_t group_factor = job.rule.operands[operand][static_cast<size_t>(dimension)].front();
    const int64_t parts = mesh_.parts(job.cut[static_cast<size_t>(group_factor)]);
    job.attributes.set(name, ir::IntegerValue{ir::Type::scalar(DType::kI64), groups / parts});
  };
  const auto& whole = op.operand_count() == 0 ? Dims() : versions_.type(op.operand(0)).dims();
  switch (op.code()) {
    case OpCode::kSlice:
      set_sizes("limit_indices", whole, job.operands[0]->type().dims());
      break;
    case OpCode::kDynamicSlice:
    case OpCode::kGather:
      set_sizes("slice_sizes", whole, job.operands[0]->type().dims());
      break;
    case OpCode::kConvolution: {
      const auto* numbers = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
      divide("feature_group_count", 0, numbers->input_feature_dimension);
      divide("batch_group_count", 0, numbers->input_batch_dimension);
      break;
    }
    default:
      break;
  }
}

// Indices into a dimension that is cut count from the partition's part on.
void LocalOps::shift_indices(Job& job) {
  const bool is_gather = job.op.code() == OpCode::kGather;
  const std::vector<int64_t> picked = picked_dimensions(job.op);
  const Tiling& tiling = job.operand_tilings.empty() ? Tiling() : job.operand_tilings[0];
  const bool is_cut = std::any_of(picked.begin(), picked.end(), [&](int64_t d) {
    return !tiling.dims[static_cast<size_t>(d)].empty();
  });
  if (!is_cut) return;
  ir::GraphBuilder& g = job.g;
  const size_t place = is_gather ? 1 : job.op.result_count();  // of the indices
  std::vector<int64_t> map;
  size_t vector_dim = 0;
  if (is_gather) {
    const auto* numbers = job.op.attribute("dimension_numbers").get<ir::GatherDimensionNumbers>();
    map = numbers->start_index_map;
    vector_dim = static_cast<size_t>(numbers->index_vector_dim);
  } else {
    const auto* numbers =
        job.op.attribute("scatter_dimension_numbers").get<ir::ScatterDimensionNumbers>();
    map = numbers->scatter_dims_to_operand_dims;
    vector_dim = static_cast<size_t>(numbers->index_vector_dim);
  }
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ir::Value* indices = job.operands[place];
  const Dims dims = indices->type().dims();
  // Numbers that the signed type has not lie behind the array, not in front of it.
  if (indices->type().dtype() == DType::kUI64) {
    indices = g.binary(OpCode::kMinimum, indices, g.integer_constant(DType::kUI64, dims, kMost));
  }
  indices = g.convert(indices, DType::kI64);
  const bool has_vectors = vector_dim < dims.size();
  // One number for each component of an index, along all indices.
  const auto along = [&](const std::vector<ir::Value*>& scalars) {
    if (!has_vectors) return g.broadcast(scalars[0], dims, {});
    std::vector<ir::Value*> rows;
    for (ir::Value* scalar : scalars) rows.push_back(g.reshape(scalar, {1}));
    return g.broadcast(g.concatenate(rows, 0), dims, {static_cast<int64_t>(vector_dim)});
  };
  const auto number = [&](int64_t value) { return g.integer_constant(DType::kI64, {}, value); };
  std::vector<ir::Value*> first, last, start, low, high;
  for (int64_t d : map) {
    const auto k = static_cast<size_t>(d);
    const int64_t n = versions_.type(job.op.operand(0)).dims()[k];
    const int64_t local = job.operands[0]->type().dims()[k];
    const bool is_here = contains(picked, d) && !tiling.dims[k].empty();
    first.push_back(number(is_here ? 0 : kLeast));
    last.push_back(number(is_here ? n - 1 : kMost));
    start.push_back(is_here ? resharder_.start_of_part(g, tiling.dims[k], local) : number(0));
    low.push_back(number(is_here ? 0 : kLeast));
    high.push_back(number(is_here ? local - 1 : kMost));
  }
  // A gather clamps what lies outside of the whole array; a scatter drops it, here as there.
  if (is_gather) indices = g.make(OpCode::kClamp, {along(first), indices, along(last)});
  indices = g.subtract(indices, along(start));
  job.operands[place] = indices;
  if (!is_gather) return;
  ir::Value* inside =
      g.bit_and(g.compare("GE", indices, along(low)), g.compare("LE", indices, along(high)));
  if (has_vectors) {
    ir::Value* yes = g.integer_constant(DType::kI1, {}, 1);
    inside = g.reduce({inside}, {yes}, {static_cast<int64_t>(vector_dim)},
                      [](ir::GraphBuilder& body, const ir::GraphBuilder::Values& x) {
                        return ir::GraphBuilder::Values{body.bit_and(x[0], x[1])};
                      })[0];
  }
  // The result's dimensions that are no offsets are those of the indices, in order.
  const auto* numbers = job.op.attribute("dimension_numbers").get<ir::GatherDimensionNumbers>();
  std::vector<int64_t> places;
  for (int64_t d = 0; d < static_cast<int64_t>(job.result_dims(0).size()); ++d) {
    if (!contains(numbers->offset_dims, d)) places.push_back(d);
  }
  job.is_inside = g.broadcast(inside, job.result_dims(0), std::move(places));
}

// What becomes of a result that partitions hold addends of: where it is wanted so, or is added to
// another sum behind, it stays that; else it is summed, in parts where these are wanted.
Tiling LocalOps::sum_kept(const Job& job, const Tiling& sum, bool is_widened) const {
  const ir::Operation& op = job.op;
  Tiling kept = sum;
  kept.partial.clear();
  // Added to another sum, both are summed at once.
  const bool is_addend = !is_widened && waits_for_user(*op.result());
  if (is_addend) kept.partial = sum.partial;
  if (is_addend) return kept;
  std::set_intersection(sum.partial.begin(), sum.partial.end(), job.wanted[0].partial.begin(),
                        job.wanted[0].partial.end(), std::back_inserter(kept.partial));
  // Parts of the sum where they are wanted and nothing else is lost by it.
  for (size_t d = 0; d < kept.dims.size(); ++d) {
    const Axes& goal = job.wanted[0].dims[d];
    const Axes& now = kept.dims[d];
    if (goal.size() <= now.size() || !std::equal(now.begin(), now.end(), goal.begin())) continue;
    const bool is_free =
        std::all_of(goal.begin() + static_cast<std::ptrdiff_t>(now.size()), goal.end(),
                    [&](int axis) { return contains(sum.partial, axis) && !kept.uses(axis); });
    const int64_t n = op.result()->type().dims()[d];
    if (is_free && n % mesh_.parts(goal) == 0) kept.dims[d] = goal;
  }
  return kept;
}

void LocalOps::finish(Job& job) {
  ir::Operation& op = job.op;
  ir::GraphBuilder& g = job.g;
  const bool is_reduced = !job.sums.empty();
  std::optional<OpCode> fold;
  if (is_reduced) {
    fold = OpCode::kAdd;
    if (op.code() == OpCode::kReduce || op.code() == OpCode::kScatter) {
      fold = op.result_count() == 1 ? passes::only_operation(op.region(0)) : std::nullopt;
    } else if (job.types[0].dtype() == DType::kI1) {
      fold = OpCode::kOr;
    }
  }
  // What the whole has once, each partition would add once more.
  ir::Value* once = nullptr;
  std::vector<ir::Value*> initial;
  // The zero that a sum of addends begins with may stay.
  if (is_reduced && op.code() == OpCode::kReduce && job.addends.axes.empty()) {
    const size_t count = op.result_count();
    initial.assign(job.operands.begin() + static_cast<std::ptrdiff_t>(count), job.operands.end());
    if (fold && !is_idempotent(*fold)) {
      once = initial[0];
      job.operands[1] = neutral(g, *fold, once->type().dtype(), {});
    }
  } else if (is_reduced && op.code() == OpCode::kScatter && !is_idempotent(*fold)) {
    once = job.operands[0];
    job.operands[0] = neutral(g, *fold, once->type().dtype(), once->type().dims());
  }
  // Sums are rounded once.
  const bool is_widened = is_reduced && fold == OpCode::kAdd && op.region_count() == 0 &&
                          op.code() != OpCode::kGather && op.code() != OpCode::kDynamicSlice &&
                          is_narrow_float(job.types[0].dtype());
  const ir::Type rounded = job.types[0];
  if (is_widened) job.types[0] = ir::Type::tensor(DType::kF32, rounded.dims());

  const auto unsummed = [&](Tiling tiling) {
    tiling.partial = all_axes(job.sums, job.addends.axes);
    return tiling;
  };
  const bool is_sum = (is_reduced && fold == OpCode::kAdd) || !job.addends.axes.empty();
  const Tiling kept =
      is_sum ? sum_kept(job, unsummed(job.result_tilings[0]), is_widened) : Tiling();
  if (is_sum && !job.ring) find_scatter_ring(job, unsummed(job.result_tilings[0]), kept);
  const bool is_scattered = job.ring && !job.ring->is_gather;

  ir::Operation* local = nullptr;
  std::vector<ir::Value*> values = std::move(job.made);
  if (job.ring) {
    ++rings_;
    values = {is_scattered ? scatter_around_ring(job) : gather_around_ring(job)};
  } else if (values.empty()) {
    auto made = std::make_unique<ir::Operation>(op.code(), job.operands, job.types,
                                                std::move(job.attributes), op.location());
    for (std::unique_ptr<ir::Region>& region : op.take_regions()) {
      made->adopt_region(std::move(region));
    }
    local = job.block.append(std::move(made));
    for (size_t i = 0; i < local->result_count(); ++i) values.push_back(local->result(i));
  }
  for (const RunningDimension& one : job.running) {
    values[0] = add_totals_before(job, one, values[0]);
  }
  if (job.is_inside != nullptr) {
    ir::Value* nothing = neutral(g, *fold, rounded.dtype(), rounded.dims());
    values[0] = g.select(job.is_inside, values[0], nothing);
  }
  if (is_sum) {
    const Tiling sum = unsummed(job.result_tilings[0]);
    job.result_tilings[0] = kept;
    if (!is_scattered) {
      values[0] = resharder_.reshard(g, values[0], sum, kept, op.result()->type().dims());
    }
  } else if (is_reduced && fold) {
    values[0] = resharder_.combine(g, values[0], job.sums, *fold);
  } else if (is_reduced) {
    // The folds of all partitions in the order of their parts, folded once more.
    Axes parts;
    for (int64_t factor : job.rule.reduction) {
      const Axes& own = job.cut[static_cast<size_t>(factor)];
      parts.insert(parts.end(), own.begin(), own.end());
    }
    std::vector<ir::Value*> stacked;
    for (size_t i = 0; i < values.size(); ++i) {
      const Dims& dims = values[i]->type().dims();
      Dims rows = dims;
      rows.insert(rows.begin(), 1);
      Tiling from = job.result_tilings[i];
      from.dims.insert(from.dims.begin(), parts);
      Tiling to = from;
      to.dims[0].clear();
      Dims all = op.result(i)->type().dims();
      all.insert(all.begin(), mesh_.parts(parts));
      stacked.push_back(resharder_.reshard(g, g.reshape(values[i], rows), from, to, all));
    }
    stacked.insert(stacked.end(), initial.begin(), initial.end());
    ir::ValueMap map;
    std::unique_ptr<ir::Operation> again = ir::clone_operation(*local, map);
    again->set_operands(stacked);
    again->attributes().set("dimensions", ir::IntArrayValue{DType::kI64, {0}});
    ir::Operation* folded = job.block.append(std::move(again));
    for (size_t i = 0; i < values.size(); ++i) values[i] = folded->result(i);
  }
  if (is_widened) values[0] = g.convert(values[0], rounded.dtype());
  if (once != nullptr) {
    const Dims& dims = values[0]->type().dims();
    // A scatter's operand may be in larger parts than the sum now is.
    if (op.code() == OpCode::kReduce) {
      Tiling all = job.result_tilings[0];
      all.partial.clear();
      once = resharder_.reshard(g, g.broadcast(once, dims, {}), all, job.result_tilings[0],
                                op.result()->type().dims());
    } else {
      once = resharder_.reshard(g, once, job.operand_tilings[0], job.result_tilings[0],
                                op.result()->type().dims());
    }
    values[0] = g.binary(*fold, once, values[0]);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    versions_.add(op.result(i), op.result(i)->type(),
                  {mesh_.cut_of(job.result_tilings[i]), job.result_tilings[i], values[i]});
  }
}

}  // namespace hekla::spmd
