// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

// Features of a pixel up to which whole rows of a window are worth a padded copy.
constexpr int64_t kFewFeatures = 4;

// The padding of each input dimension by name; empty when the operation keeps its own.
std::vector<std::array<int64_t, 2>> padding_to_move(const ir::Operation& op) {
  if (op.code() != OpCode::kConvolution) return {};
  const ir::Type& type = op.operand(0)->type();
  const auto* n = op.attribute("dimension_numbers").get<ir::ConvDimensionNumbers>();
  const std::vector<std::array<int64_t, 2>> padding = ir::padding_of(op);
  if (n == nullptr || !type.is_static_tensor() || type.quantization() != nullptr ||
      padding.size() != n->input_spatial_dimensions.size() || element_count(type.dims()) == 0 ||
      (type.dtype() != DType::kF32 && type.dtype() != DType::kBF16 &&
       type.dtype() != DType::kF16) ||
      type.dims()[static_cast<size_t>(n->input_feature_dimension)] > kFewFeatures) {
    return {};
  }
  for (int64_t dilation : ir::int_list(op, "lhs_dilation")) {
    if (dilation != 1) return {};
  }
  std::vector<std::array<int64_t, 2>> moved(type.dims().size(), {0, 0});
  bool any = false;
  for (size_t s = 0; s < padding.size(); ++s) {
    if (padding[s][0] < 0 || padding[s][1] < 0) return {};
    any |= padding[s][0] + padding[s][1] > 0;
    moved[static_cast<size_t>(n->input_spatial_dimensions[s])] = padding[s];
  }
  return any ? moved : std::vector<std::array<int64_t, 2>>();
}

void pad(ir::Block& block, ir::Operation& op, const std::vector<std::array<int64_t, 2>>& padding) {
  const ir::Type& type = op.operand(0)->type();
  Result<HostArray> zero = HostArray::allocate(type.dtype(), {});
  if (!zero.ok()) return;
  const ir::Type scalar = ir::Type::tensor(type.dtype(), {});
  ir::AttributeMap value;
  value.set("value", ir::make_dense(scalar, std::move(*zero)));
  ir::Operation* constant =
      block.insert_before(&op, std::make_unique<ir::Operation>(
                                   OpCode::kConstant, std::vector<ir::Value*>{},
                                   std::vector<ir::Type>{scalar}, std::move(value), op.location()));
  Dims dims = type.dims();
  ir::IntArrayValue low, high, interior;
  for (size_t d = 0; d < dims.size(); ++d) {
    low.values.push_back(padding[d][0]);
    high.values.push_back(padding[d][1]);
    interior.values.push_back(0);
    dims[d] += padding[d][0] + padding[d][1];
  }
  ir::AttributeMap attributes;
  attributes.set("edge_padding_low", ir::Attribute(std::move(low)));
  attributes.set("edge_padding_high", ir::Attribute(std::move(high)));
  attributes.set("interior_padding", ir::Attribute(std::move(interior)));
  ir::Operation* padded = block.insert_before(
      &op, std::make_unique<ir::Operation>(
               OpCode::kPad, std::vector<ir::Value*>{op.operand(0), constant->result()},
               std::vector<ir::Type>{ir::Type::tensor(type.dtype(), dims)}, std::move(attributes),
               op.location()));
  op.set_operand(0, padded->result());
  op.attributes().erase("padding");
}

void pad_block(ir::Block& block) {
  std::vector<ir::Operation*> convolutions;
  for (const auto& op : block.operations()) {
    for (size_t i = 0; i < op->region_count(); ++i) {
      for (const auto& inner : op->region(i).blocks()) pad_block(*inner);
    }
    if (op->code() == OpCode::kConvolution) convolutions.push_back(op.get());
  }
  for (ir::Operation* op : convolutions) {
    if (const auto padding = padding_to_move(*op); !padding.empty()) pad(block, *op, padding);
  }
}

}  // namespace

void pad_convolutions(ir::Module& module) {
  for (const auto& function : module.functions) {
    for (const auto& block : function->body().blocks()) pad_block(*block);
  }
}

}  // namespace hekla::passes
