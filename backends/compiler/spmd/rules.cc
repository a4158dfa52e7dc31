// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/rules.h"

#include <algorithm>
#include <numeric>

#include "backends/compiler/spmd/marks.h"
#include "backends/compiler/spmd/rule_builder.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::ShardingRule;

namespace {

Dims dims_of(const ir::Value& value) {
  return value.type().is_static_tensor() ? value.type().dims() : Dims();
}

std::vector<int64_t> list_or(const ir::Operation& op, std::string_view name, size_t rank,
                             int64_t fallback) {
  std::vector<int64_t> list = ir::int_list(op, name);
  if (list.empty()) list.assign(rank, fallback);
  return list;
}

// All arrays of the result's rank correspond dimension by dimension; scalars beside them take no
// part.
ShardingRule elementwise(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims dims = dims_of(*op.result());
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t factor = b.factor(dims[d]);
    for (size_t i = 0; i < op.operand_count(); ++i) {
      if (dims_of(*op.operand(i)) == dims) b.operand(i, d, {factor});
    }
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (dims_of(*op.result(i)) == dims) b.result(i, d, {factor});
    }
  }
  return b.rule();
}

// Dimension i of the operand is dimension places[i] of the result, where the sizes are equal.
ShardingRule moved(const ir::Operation& op, const std::vector<int64_t>& places) {
  RuleBuilder b(op);
  const Dims from = dims_of(*op.operand(0));
  const Dims to = dims_of(*op.result());
  for (size_t d = 0; d < to.size(); ++d) b.result(0, d, {b.factor(to[d])});
  for (size_t d = 0; d < from.size() && d < places.size(); ++d) {
    const auto place = static_cast<size_t>(places[d]);
    if (from[d] == to[place]) b.operand(0, d, b.result(0, place));
  }
  return b.rule();
}

// Section by section between the places where both shapes have the same number of elements in
// front: within one, common factors from the major end on.
ShardingRule reshaped(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims from = dims_of(*op.operand(0));
  const Dims to = dims_of(*op.result());
  const auto has_none = [](const Dims& dims) {
    return std::find(dims.begin(), dims.end(), 0) != dims.end();
  };
  if (has_none(from)) return b.rule();
  std::vector<ShardingRule::Dimension> in(from.size()), out(to.size());
  size_t i = 0, k = 0;
  int64_t rest_in = 1, rest_out = 1;  // of dimensions i - 1 and k - 1
  int64_t done_in = 1, done_out = 1;  // elements in front
  for (;;) {
    while (rest_in == 1 && i < from.size()) {
      rest_in = from[i++];
      if (rest_in == 1) in[i - 1] = {b.factor(1)};
    }
    while (rest_out == 1 && k < to.size()) {
      rest_out = to[k++];
      if (rest_out == 1) out[k - 1] = {b.factor(1)};
    }
    if (rest_in == 1 && rest_out == 1) break;
    const auto own = [&](bool is_in, int64_t size) {
      (is_in ? in[i - 1] : out[k - 1]).push_back(b.factor(size, FactorKind::kReplication));
      (is_in ? rest_in : rest_out) /= size;
      (is_in ? done_in : done_out) *= size;
    };
    const auto shared = [&](int64_t size) {
      const int64_t factor = b.factor(size);
      in[i - 1].push_back(factor);
      out[k - 1].push_back(factor);
      rest_in /= size;
      rest_out /= size;
      done_in *= size;
      done_out *= size;
    };
    if (done_in == done_out && rest_in > 1 && rest_out > 1) {
      const int64_t common = std::gcd(rest_in, rest_out);
      if (common > 1) {
        shared(common);
      } else {
        own(true, rest_in);
      }
      continue;
    }
    // One side is behind: it catches up if a factor of its dimension does, else it goes on.
    const bool is_in = done_in < done_out || rest_out == 1;
    const int64_t rest = is_in ? rest_in : rest_out;
    const int64_t done = is_in ? done_in : done_out;
    const int64_t goal = is_in ? done_out : done_in;
    const int64_t step = goal % done == 0 ? goal / done : 0;
    own(is_in, step > 1 && rest % step == 0 ? step : rest);
  }
  for (size_t d = 0; d < from.size(); ++d) b.operand(0, d, in[d]);
  for (size_t d = 0; d < to.size(); ++d) b.result(0, d, out[d]);
  return b.rule();
}

ShardingRule reduced(const ir::Operation& op) {
  RuleBuilder b(op);
  const std::vector<int64_t> dimensions = ir::int_list(op, "dimensions");
  const Dims dims = dims_of(*op.operand(0));
  size_t kept = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool is_reduced = std::find(dimensions.begin(), dimensions.end(),
                                      static_cast<int64_t>(d)) != dimensions.end();
    const int64_t factor =
        b.factor(dims[d], is_reduced ? FactorKind::kReduction : FactorKind::kPass);
    for (size_t i = 0; i < op.result_count(); ++i) {
      b.operand(i, d, {factor});
      if (!is_reduced) b.result(i, kept, {factor});
    }
    if (!is_reduced) ++kept;
  }
  return b.rule();
}

ShardingRule contracted(const ir::Operation& op, const ir::DotDimensionNumbers& numbers) {
  RuleBuilder b(op);
  const Dims left = dims_of(*op.operand(0));
  const Dims right = dims_of(*op.operand(1));
  size_t next = 0;  // of the result
  const auto at = [](int64_t d) { return static_cast<size_t>(d); };
  for (size_t i = 0; i < numbers.lhs_batching_dimensions.size(); ++i) {
    const size_t d = at(numbers.lhs_batching_dimensions[i]);
    const int64_t factor = b.factor(left[d]);
    b.operand(0, d, {factor});
    b.operand(1, at(numbers.rhs_batching_dimensions[i]), {factor});
    b.result(0, next++, {factor});
  }
  for (size_t i = 0; i < numbers.lhs_contracting_dimensions.size(); ++i) {
    const size_t d = at(numbers.lhs_contracting_dimensions[i]);
    const int64_t factor = b.factor(left[d], FactorKind::kReduction);
    b.operand(0, d, {factor});
    b.operand(1, at(numbers.rhs_contracting_dimensions[i]), {factor});
  }
  for (size_t operand = 0; operand < 2; ++operand) {
    const Dims& dims = operand == 0 ? left : right;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!b.operand(operand, d).empty()) continue;
      const int64_t factor = b.factor(dims[d]);
      b.operand(operand, d, {factor});
      b.result(0, next++, {factor});
    }
  }
  return b.rule();
}

ShardingRule convolved(const ir::Operation& op, const ir::ConvDimensionNumbers& n) {
  RuleBuilder b(op);
  const Dims image = dims_of(*op.operand(0));
  const Dims kernel = dims_of(*op.operand(1));
  const Dims result = dims_of(*op.result());
  const auto at = [](int64_t d) { return static_cast<size_t>(d); };
  const int64_t groups = std::max<int64_t>(1, ir::int_value(op, "feature_group_count", 1));
  const int64_t batches = std::max<int64_t>(1, ir::int_value(op, "batch_group_count", 1));
  const int64_t in_features = kernel[at(n.kernel_input_feature_dimension)];
  const int64_t out_features = kernel[at(n.kernel_output_feature_dimension)];
  const int64_t sum = b.factor(in_features, FactorKind::kReduction);
  ShardingRule::Dimension image_batch, image_feature = {sum}, kernel_out, result_feature;
  if (groups > 1) {
    const int64_t group = b.factor(groups);
    const int64_t own = b.factor(out_features / groups);
    image_feature = {group, sum};
    kernel_out = result_feature = {group, own};
  } else if (batches > 1) {
    const int64_t group = b.factor(batches);
    const int64_t own = b.factor(out_features / batches);
    image_batch = {group};
    kernel_out = result_feature = {group, own};
  } else {
    kernel_out = result_feature = {b.factor(out_features)};
  }
  const int64_t batch = b.factor(result[at(n.output_batch_dimension)]);
  image_batch.push_back(batch);
  b.operand(0, at(n.input_batch_dimension), image_batch);
  b.operand(0, at(n.input_feature_dimension), image_feature);
  b.operand(1, at(n.kernel_input_feature_dimension), {sum});
  b.operand(1, at(n.kernel_output_feature_dimension), kernel_out);
  b.result(0, at(n.output_batch_dimension), {batch});
  b.result(0, at(n.output_feature_dimension), result_feature);
  for (size_t i = 0; i < n.input_spatial_dimensions.size(); ++i) {
    const size_t in = at(n.input_spatial_dimensions[i]);
    const size_t window = at(n.kernel_spatial_dimensions[i]);
    const size_t out = at(n.output_spatial_dimensions[i]);
    // Where the window is larger than what it makes, as in gradients of kernels, cutting means
    // summing; else neighbours exchange borders.
    if (result[out] >= kernel[window]) {
      const int64_t factor = b.factor(image[in], FactorKind::kPermutation);
      b.operand(0, in, {factor});
      b.result(0, out, {factor});
    } else {
      const int64_t factor = b.factor(kernel[window], FactorKind::kReduction);
      b.operand(0, in, {factor});
      b.operand(1, window, {factor});
    }
  }
  return b.rule();
}

// Of pad, slice, reduce_window: dimensions that stay as they are, and such that neighbours have
// parts of.
template <typename IsPlain>
ShardingRule windowed(const ir::Operation& op, IsPlain is_plain) {
  RuleBuilder b(op);
  const size_t arrays = op.code() == OpCode::kReduceWindow ? op.result_count() : 1;
  const Dims dims = dims_of(*op.operand(0));
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t factor =
        b.factor(dims[d], is_plain(d) ? FactorKind::kPass : FactorKind::kPermutation);
    for (size_t i = 0; i < arrays; ++i) {
      b.operand(i, d, {factor});
      b.result(i, d, {factor});
    }
  }
  return b.rule();
}

ShardingRule sliced(const ir::Operation& op) {
  const Dims dims = dims_of(*op.operand(0));
  const Dims to = dims_of(*op.result());
  return windowed(op, [&](size_t d) { return dims[d] == to[d]; });
}

ShardingRule padded(const ir::Operation& op) {
  const size_t rank = dims_of(*op.operand(0)).size();
  const std::vector<int64_t> low = list_or(op, "edge_padding_low", rank, 0);
  const std::vector<int64_t> high = list_or(op, "edge_padding_high", rank, 0);
  const std::vector<int64_t> between = list_or(op, "interior_padding", rank, 0);
  return windowed(op, [&](size_t d) { return low[d] == 0 && high[d] == 0 && between[d] == 0; });
}

// Whether the window of dimension d is one element, which stays where it is.
bool is_single_window(const ir::Operation& op, size_t rank, size_t d) {
  const auto padding = ir::padding_of(op);
  return list_or(op, "window_dimensions", rank, 1)[d] == 1 &&
         list_or(op, "window_strides", rank, 1)[d] == 1 &&
         list_or(op, "base_dilations", rank, 1)[d] == 1 &&
         (padding.empty() || (padding[d][0] == 0 && padding[d][1] == 0));
}

ShardingRule selected_and_scattered(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims dims = dims_of(*op.operand(0));
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool is_plain = is_single_window(op, dims.size(), d);
    const int64_t factor =
        b.factor(dims[d], is_plain ? FactorKind::kPass : FactorKind::kPermutation);
    b.operand(0, d, {factor});
    b.result(0, d, {factor});
    b.operand(1, d, {factor});
  }
  return b.rule();
}

// All arrays alike but for some dimensions, which must be whole.
template <typename IsFree>
ShardingRule alike(const ir::Operation& op, FactorKind other, IsFree is_free) {
  RuleBuilder b(op);
  const Dims dims = dims_of(*op.result());
  for (size_t d = 0; d < dims.size(); ++d) {
    const bool is_passing = is_free(d);
    if (!is_passing && other == FactorKind::kReplication) continue;
    const int64_t factor = b.factor(dims[d], is_passing ? FactorKind::kPass : other);
    const auto fits = [&](const ir::Value& value) {
      return dims_of(value).size() == dims.size() && dims_of(value)[d] == dims[d];
    };
    for (size_t i = 0; i < op.operand_count(); ++i) {
      if (fits(*op.operand(i))) b.operand(i, d, {factor});
    }
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (fits(*op.result(i))) b.result(i, d, {factor});
    }
  }
  return b.rule();
}

ShardingRule joined(const ir::Operation& op) {
  RuleBuilder b(op);
  const auto along = static_cast<size_t>(ir::int_value(op, "dimension"));
  const Dims dims = dims_of(*op.result());
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t factor =
        b.factor(dims[d], d == along ? FactorKind::kPermutation : FactorKind::kPass);
    for (size_t i = 0; i < op.operand_count(); ++i) b.operand(i, d, {factor});
    b.result(0, d, {factor});
  }
  return b.rule();
}

ShardingRule solved(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims dims = dims_of(*op.operand(1));
  const size_t rank = dims.size();
  const size_t columns = ir::bool_value(op, "left_side") ? rank - 1 : rank - 2;
  for (size_t d = 0; d < rank; ++d) {
    const bool is_batch = d + 2 < rank;
    if (!is_batch && d != columns) continue;
    const int64_t factor = b.factor(dims[d]);
    if (is_batch) b.operand(0, d, {factor});
    b.operand(1, d, {factor});
    b.result(0, d, {factor});
  }
  return b.rule();
}

ShardingRule normalized(const ir::Operation& op) {
  RuleBuilder b(op);
  const auto feature = static_cast<size_t>(ir::int_value(op, "feature_index"));
  const Dims dims = dims_of(*op.operand(0));
  for (size_t d = 0; d < dims.size(); ++d) {
    // Statistics of training are over all dimensions but the features.
    if (d != feature && op.code() != OpCode::kBatchNormInference) continue;
    const int64_t factor = b.factor(dims[d]);
    const auto set = [&](const ir::Value& value, auto&& write) {
      const Dims own = dims_of(value);
      if (own == dims) {
        write(d, ShardingRule::Dimension{factor});
      } else if (own.size() == 1 && d == feature) {
        write(size_t{0}, ShardingRule::Dimension{factor});
      }
    };
    for (size_t i = 0; i < op.operand_count(); ++i) {
      set(*op.operand(i), [&](size_t k, auto list) { b.operand(i, k, list); });
    }
    for (size_t i = 0; i < op.result_count(); ++i) {
      set(*op.result(i), [&](size_t k, auto list) { b.result(i, k, list); });
    }
  }
  return b.rule();
}

// Results that are made of nothing, in any cut.
ShardingRule made(const ir::Operation& op) {
  RuleBuilder b(op);
  const ir::Value& result = *op.result(op.result_count() - 1);
  const Dims dims = dims_of(result);
  for (size_t d = 0; d < dims.size(); ++d) b.result(op.result_count() - 1, d, {b.factor(dims[d])});
  return b.rule();
}

ShardingRule bits(const ir::Operation& op) {
  RuleBuilder b(op);
  const Dims from = dims_of(*op.operand(0));
  const Dims to = dims_of(*op.result());
  for (size_t d = 0; d < std::min(from.size(), to.size()); ++d) {
    const int64_t factor = b.factor(from[d]);
    b.operand(0, d, {factor});
    b.result(0, d, {factor});
  }
  return b.rule();
}

// Whether a rule that came with the program speaks of the operation's arrays.
bool fits(const ShardingRule& rule, const ir::Operation& op) {
  if (rule.operands.size() != op.operand_count() || rule.results.size() != op.result_count()) {
    return false;
  }
  const auto factors = static_cast<int64_t>(rule.factor_sizes.size());
  const auto is_known = [&](int64_t factor) { return factor >= 0 && factor < factors; };
  const auto fits_one = [&](const ShardingRule::Tensor& dimensions, const Dims& dims) {
    if (dimensions.size() != dims.size()) return false;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dimensions[d].empty()) return false;
      int64_t size = 1;
      for (int64_t factor : dimensions[d]) {
        if (!is_known(factor)) return false;
        const int64_t one = rule.factor_sizes[static_cast<size_t>(factor)];
        if (one < 1 || one > std::max<int64_t>(dims[d], 1) / size) return false;
        size *= one;
      }
    }
    return true;
  };
  for (size_t i = 0; i < op.operand_count(); ++i) {
    if (!fits_one(rule.operands[i], op.operand(i)->type().dims())) return false;
  }
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (!fits_one(rule.results[i], op.result(i)->type().dims())) return false;
  }
  return std::all_of(rule.reduction.begin(), rule.reduction.end(), is_known) &&
         std::all_of(rule.need_replication.begin(), rule.need_replication.end(), is_known) &&
         std::all_of(rule.permutation.begin(), rule.permutation.end(), is_known) &&
         std::all_of(rule.blocked_propagation.begin(), rule.blocked_propagation.end(), is_known);
}

// Each result is made of its operand element by element, but along some dimensions.
ShardingRule communicated(const ir::Operation& op, const std::vector<std::string_view>& along) {
  RuleBuilder b(op);
  std::vector<int64_t> whole;
  for (std::string_view name : along) whole.push_back(ir::int_value(op, name));
  for (size_t i = 0; i < op.operand_count(); ++i) {
    const Dims dims = dims_of(*op.operand(i));
    for (size_t d = 0; d < dims.size(); ++d) {
      if (std::find(whole.begin(), whole.end(), static_cast<int64_t>(d)) != whole.end()) continue;
      const int64_t factor = b.factor(dims[d]);
      b.operand(i, d, {factor});
      b.result(i, d, {factor});
    }
  }
  return b.rule();
}

std::optional<ShardingRule> called(const ir::Operation& op) {
  for (const std::string_view name : {kRule, std::string_view("sdy.sharding_rule")}) {
    const auto* value = op.attribute(name).get<ir::ShardingValue>();
    if (value == nullptr) continue;
    const auto* rule = std::get_if<ShardingRule>(&value->value);
    return rule == nullptr || !fits(*rule, op) ? std::nullopt : std::optional(*rule);
  }
  const std::string target = ir::text_value(op, "call_target_name");
  if (target == kConstraint) return elementwise(op);
  if (is_roll(op)) {
    const int64_t rolled = ir::int_value(op, kRollDimension);
    return alike(op, FactorKind::kPermutation,
                 [rolled](size_t d) { return static_cast<int64_t>(d) != rolled; });
  }
  return std::nullopt;
}

}  // namespace

std::optional<ShardingRule> rule_of(const ir::Operation& op) {
  const auto is_array = [](const ir::Value& value) { return value.type().is_static_tensor(); };
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (!is_array(*op.result(i))) return std::nullopt;
  }
  for (const ir::Value* operand : op.operands()) {
    if (!is_array(*operand)) return std::nullopt;
  }
  if (op.result_count() == 0) return std::nullopt;
  if (ir::is_elementwise(op.code())) return elementwise(op);
  const Dims dims = dims_of(*op.result());
  const size_t rank = dims.size();
  switch (op.code()) {
    case OpCode::kBroadcast: {
      const Dims from = dims_of(*op.operand(0));
      std::vector<int64_t> places(from.size());
      std::iota(places.begin(), places.end(), static_cast<int64_t>(rank - from.size()));
      return moved(op, places);
    }
    case OpCode::kBroadcastInDim:
      return moved(op, ir::int_list(op, "broadcast_dimensions"));
    case OpCode::kTranspose: {
      const std::vector<int64_t> permutation = ir::int_list(op, "permutation");
      std::vector<int64_t> places(permutation.size());
      for (size_t d = 0; d < permutation.size(); ++d) {
        places[static_cast<size_t>(permutation[d])] = static_cast<int64_t>(d);
      }
      return moved(op, places);
    }
    case OpCode::kMap:
      return elementwise(op);
    case OpCode::kReshape:
      return reshaped(op);
    case OpCode::kAllReduce:
    case OpCode::kCollectiveBroadcast:
    case OpCode::kCollectivePermute:
      return communicated(op, {});
    case OpCode::kAllGather:
      return communicated(op, {"all_gather_dim"});
    case OpCode::kReduceScatter:
      return communicated(op, {"scatter_dimension"});
    case OpCode::kAllToAll:
      return communicated(op, {"split_dimension", "concat_dimension"});
    case OpCode::kReduce:
      return reduced(op);
    case OpCode::kDotGeneral:
      return contracted(op, *op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>());
    case OpCode::kDot: {
      const auto last = static_cast<int64_t>(dims_of(*op.operand(0)).size()) - 1;
      return contracted(op, {{}, {}, {last}, {0}});
    }
    case OpCode::kConvolution:
      return convolved(op, *op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>());
    case OpCode::kSlice:
      return sliced(op);
    case OpCode::kPad:
      return padded(op);
    case OpCode::kReduceWindow: {
      const size_t operand_rank = dims_of(*op.operand(0)).size();
      return windowed(op, [&](size_t d) { return is_single_window(op, operand_rank, d); });
    }
    case OpCode::kSelectAndScatter:
      return selected_and_scattered(op);
    case OpCode::kConcatenate:
      return joined(op);
    case OpCode::kSort: {
      const auto sorted = static_cast<size_t>(ir::int_value(op, "dimension"));
      return alike(op, FactorKind::kReplication, [sorted](size_t d) { return d != sorted; });
    }
    case OpCode::kReverse: {
      const std::vector<int64_t> reversed = ir::int_list(op, "dimensions");
      return alike(op, FactorKind::kPermutation, [&](size_t d) {
        return std::find(reversed.begin(), reversed.end(), static_cast<int64_t>(d)) ==
               reversed.end();
      });
    }
    case OpCode::kFft: {
      const size_t transformed = ir::int_list(op, "fft_length").size();
      return alike(op, FactorKind::kReplication, [=](size_t d) { return d + transformed < rank; });
    }
    case OpCode::kCholesky:
      return alike(op, FactorKind::kReplication, [=](size_t d) { return d + 2 < rank; });
    case OpCode::kTriangularSolve:
      return solved(op);
    case OpCode::kBatchNormGrad:
    case OpCode::kBatchNormInference:
    case OpCode::kBatchNormTraining:
      return normalized(op);
    case OpCode::kConstant:
    case OpCode::kIota:
    case OpCode::kRngBitGenerator:
      return made(op);
    case OpCode::kBitcastConvert:
      return bits(op);
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
    case OpCode::kGather:
    case OpCode::kScatter:
      return rule_of_indexing(op);
    case OpCode::kCustomCall:
      return called(op);
    default:
      return std::nullopt;
  }
}

}  // namespace hekla::spmd
