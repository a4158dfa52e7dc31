// SPDX-License-Identifier: Apache-2.0
// The formulas are those of the StableHLO specification; sums are taken twice over the operand
// (the mean, then squares of what differs from it), which loses nothing where the mean is large.
#include "backends/compiler/passes/passes.h"
#include "backends/compiler/passes/plain_types.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;
using ir::Value;
using Values = ir::GraphBuilder::Values;

class BatchNorm {
 public:
  BatchNorm(ir::GraphBuilder& g, const ir::Operation& op)
      : g_(g),
        op_(op),
        dims_(op.operand(0)->type().dims()),
        feature_(ir::int_value(op, "feature_index")),
        narrow_(op.operand(0)->type().dtype()),
        dtype_(narrow_ == DType::kF64 ? DType::kF64 : DType::kF32) {
    for (int64_t d = 0; d < static_cast<int64_t>(dims_.size()); ++d) {
      if (d == feature_) continue;
      others_.push_back(d);
      count_ *= static_cast<double>(dims_[static_cast<size_t>(d)]);
    }
  }

  Values expand() {
    Values results;
    switch (op_.code()) {
      case OpCode::kBatchNormTraining:
        results = training(operand(0), operand(1), operand(2));
        break;
      case OpCode::kBatchNormInference:
        results = {
            normalized(centered(operand(0), operand(3)), operand(4), operand(1), operand(2))};
        break;
      default:
        results = gradients(operand(0), operand(1), operand(2), operand(3), operand(4));
        break;
    }
    for (Value*& result : results) result = g_.convert(result, narrow_);
    return results;
  }

 private:
  Value* operand(size_t i) { return g_.convert(op_.operand(i), dtype_); }
  // One number for each feature, at all elements.
  Value* everywhere(Value* per_feature) { return g_.broadcast(per_feature, dims_, {feature_}); }
  // Over the elements of each feature.
  Value* sum(Value* x) {
    return g_.reduce(
        {x}, {g_.constant(dtype_, {}, 0)}, others_,
        [](ir::GraphBuilder& b, const Values& two) { return Values{b.add(two[0], two[1])}; })[0];
  }
  Value* mean(Value* x) {
    Value* total = sum(x);
    return g_.divide(total, g_.constant(dtype_, total->type().dims(), count_));
  }
  Value* centered(Value* x, Value* mean_of_x) { return g_.subtract(x, everywhere(mean_of_x)); }
  // 1 / sqrt(variance + epsilon)
  Value* inverse_deviation(Value* variance) {
    const Dims& features = variance->type().dims();
    Value* epsilon = g_.constant(dtype_, features, ir::float_value(op_, "epsilon"));
    return g_.divide(g_.constant(dtype_, features, 1),
                     g_.make(OpCode::kSqrt, {g_.add(variance, epsilon)}));
  }
  Value* normalized(Value* centered_x, Value* variance, Value* scale, Value* offset) {
    Value* factor = g_.multiply(scale, inverse_deviation(variance));
    return g_.add(g_.multiply(centered_x, everywhere(factor)), everywhere(offset));
  }

  Values training(Value* x, Value* scale, Value* offset) {
    Value* mean_of_x = mean(x);
    Value* difference = centered(x, mean_of_x);
    Value* variance = mean(g_.multiply(difference, difference));
    return {normalized(difference, variance, scale, offset), mean_of_x, variance};
  }

  // d x = scale / deviation * (g - mean(g) - n * mean(g * n)), n the normalized operand.
  Values gradients(Value* x, Value* scale, Value* mean_of_x, Value* variance, Value* gradient) {
    Value* difference = centered(x, mean_of_x);
    Value* inverse = inverse_deviation(variance);
    Value* d_offset = sum(gradient);
    Value* d_scale = g_.multiply(sum(g_.multiply(gradient, difference)), inverse);
    Value* count = g_.constant(dtype_, d_offset->type().dims(), count_);
    Value* slope = g_.divide(g_.multiply(inverse, d_scale), count);
    Value* inner = g_.subtract(g_.subtract(gradient, everywhere(g_.divide(d_offset, count))),
                               g_.multiply(difference, everywhere(slope)));
    return {g_.multiply(inner, everywhere(g_.multiply(scale, inverse))), d_scale, d_offset};
  }

  ir::GraphBuilder& g_;
  const ir::Operation& op_;
  const Dims dims_;
  const int64_t feature_;
  const DType narrow_, dtype_;
  std::vector<int64_t> others_;
  double count_ = 1;  // elements of a feature
};

bool is_batch_norm(const ir::Operation& op) {
  if (op.code() != OpCode::kBatchNormTraining && op.code() != OpCode::kBatchNormInference &&
      op.code() != OpCode::kBatchNormGrad) {
    return false;
  }
  // Of no elements the evaluator knows the mean.
  return has_plain_types(op) && element_count(op.operand(0)->type().dims()) > 0;
}

Status expand_block(ir::Block& block) {
  std::vector<ir::Operation*> found;
  for (const auto& op : block.operations()) {
    for (size_t i = 0; i < op->region_count(); ++i) {
      for (const auto& inner : op->region(i).blocks()) {
        HEKLA_RETURN_IF_ERROR(expand_block(*inner));
      }
    }
    if (is_batch_norm(*op)) found.push_back(op.get());
  }
  for (ir::Operation* op : found) {
    ir::GraphBuilder g(block, op, op->location());
    const Values results = BatchNorm(g, *op).expand();
    HEKLA_RETURN_IF_ERROR(g.status());
    for (size_t i = 0; i < results.size(); ++i) op->result(i)->replace_all_uses_with(results[i]);
    block.erase(op);
  }
  return ok_status();
}

}  // namespace

Status expand_batch_norms(ir::Module& module) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) HEKLA_RETURN_IF_ERROR(expand_block(*block));
  }
  return ok_status();
}

}  // namespace hekla::passes
