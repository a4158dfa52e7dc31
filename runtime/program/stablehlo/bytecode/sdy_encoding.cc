// SPDX-License-Identifier: Apache-2.0
// Shardy's attributes as entries of a bytecode file, by the codes that sdy_decoding.cc reads.
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/bytecode/attribute_writer.h"

namespace hekla::stablehlo {
namespace {

class SdyEncoder {
 public:
  SdyEncoder(AttributeWriter& writer, BytecodeBuilder& file) : writer_(writer), file_(file) {}

  uint32_t operator()(const sharding::Mesh& mesh) {
    std::vector<uint32_t> axes;
    for (const sharding::Axis& axis : mesh.axes) {
      axes.push_back((*this)(axis));
    }
    return entry(varint(2) + refs(axes) + svarints(mesh.device_ids));
  }

  uint32_t operator()(const sharding::Axis& axis) {
    return entry(varint(1) + varint(file_.string(axis.name)) + svarint(axis.size));
  }

  uint32_t operator()(const sharding::SubAxis& sub) {
    return entry(varint(3) + svarint(sub.pre_size) + svarint(sub.size));
  }

  uint32_t operator()(const sharding::AxisRef& ref) {
    const uint64_t sub = ref.sub ? uint64_t{(*this)(*ref.sub)} << 1 | 1 : 0;
    return entry(varint(4) + varint(file_.string(ref.name)) + varint(sub));
  }

  uint32_t operator()(const sharding::DimensionSharding& dimension) {
    if (dimension.priority && *dimension.priority < 0) {
      writer_.fail(invalid_argument("bytecode: dimension sharding {} has a priority below 0",
                                    sharding::to_text(dimension)));
      return 0;
    }
    const uint64_t priority =
        dimension.priority ? static_cast<uint64_t>(*dimension.priority) << 1 | 1 : 0;
    return entry(varint(5) + axis_refs(dimension.axes) + (dimension.is_open ? '\0' : '\1') +
                 varint(priority));
  }

  uint32_t operator()(const sharding::ShardingRule::Dimension& dimension) {
    return entry(varint(8) + svarints(dimension));
  }

  uint32_t operator()(const sharding::ShardingRule::Tensor& tensor) {
    std::vector<uint32_t> dimensions;
    for (const auto& dimension : tensor) dimensions.push_back((*this)(dimension));
    return entry(varint(9) + refs(dimensions));
  }

  uint32_t operator()(const sharding::TensorSharding& value) {
    return tensor(value, !value.unreduced.empty());
  }

  // All elements have the newer form where one needs it.
  uint32_t operator()(const sharding::ShardingList& list) {
    bool is_unreduced = false;
    for (const auto& value : list.values) {
      is_unreduced |= !value.unreduced.empty() || value.reduction_kind.has_value();
    }
    std::vector<uint32_t> values;
    for (const auto& value : list.values) values.push_back(tensor(value, is_unreduced));
    return entry(varint(is_unreduced ? 16 : 7) + refs(values));
  }

  uint32_t operator()(const sharding::ManualAxes& axes) {
    std::vector<uint32_t> names;
    for (const std::string& name : axes.names) names.push_back(file_.builtin_string(name));
    return entry(varint(0) + refs(names));
  }

  uint32_t operator()(const sharding::ShardingRule& rule) {
    return entry(varint(10) + svarints(rule.factor_sizes) + tensors(rule.operands) +
                 tensors(rule.results) + svarints(rule.reduction) +
                 svarints(rule.need_replication) + svarints(rule.permutation) +
                 svarints(rule.blocked_propagation) + (rule.is_custom ? '\1' : '\0'));
  }

  uint32_t operator()(const sharding::AxisRefList& list) {
    return entry(varint(11) + axis_refs(list.axes));
  }

  uint32_t operator()(const sharding::AxisRefLists& lists) {
    std::vector<uint32_t> numbers;
    for (const sharding::AxisRefList& list : lists.lists) numbers.push_back((*this)(list));
    return entry(varint(12) + refs(numbers));
  }

  uint32_t operator()(const sharding::AllToAll& value) {
    return entry(varint(13) + axis_refs(value.axes) + svarint(value.source_dimension) +
                 svarint(value.target_dimension));
  }

  uint32_t operator()(const sharding::AllToAllList& list) {
    std::vector<uint32_t> numbers;
    for (const sharding::AllToAll& value : list.values) numbers.push_back((*this)(value));
    return entry(varint(14) + refs(numbers));
  }

 private:
  uint32_t entry(std::string payload) { return file_.shared_attribute("sdy", std::move(payload)); }

  std::string axis_refs(const std::vector<sharding::AxisRef>& axes) {
    std::vector<uint32_t> numbers;
    for (const sharding::AxisRef& ref : axes) numbers.push_back((*this)(ref));
    return refs(numbers);
  }

  uint32_t tensor(const sharding::TensorSharding& value, bool is_unreduced) {
    uint32_t mesh = 0;
    if (const std::string* name = value.mesh_name()) {
      mesh = writer_.builtin(ir::SymbolValue{*name, {}});
    } else {
      mesh = (*this)(*value.inline_mesh());
    }
    std::vector<uint32_t> dimensions;
    for (const auto& dimension : value.dimensions) dimensions.push_back((*this)(dimension));
    const std::string common = varint(mesh) + refs(dimensions) + axis_refs(value.replicated);
    if (value.reduction_kind) {
      return entry(varint(17) + common + axis_refs(value.unreduced) +
                   svarint(*value.reduction_kind));
    }
    return entry(is_unreduced ? varint(15) + common + axis_refs(value.unreduced)
                              : varint(6) + common);
  }

  std::string tensors(const std::vector<sharding::ShardingRule::Tensor>& tensors) {
    std::vector<uint32_t> numbers;
    for (const auto& tensor : tensors) numbers.push_back((*this)(tensor));
    return refs(numbers);
  }

  AttributeWriter& writer_;
  BytecodeBuilder& file_;
};

}  // namespace

uint32_t AttributeWriter::sdy(const sharding::Attribute& attribute) {
  need(11, "an attribute of Shardy");
  return std::visit(SdyEncoder(*this, file_), attribute);
}

}  // namespace hekla::stablehlo
