// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/attribute_conversion.h"

#include <cstring>

#include "runtime/program/stablehlo/bytecode/tensor_data.h"
#include "runtime/program/stablehlo/bytecode/vhlo_words.h"

namespace hekla::stablehlo {
namespace {

using Kind = RawAttribute::Kind;

int64_t extended(const ir::Type& type, uint64_t bits) {
  if (is_unsigned_integer(type.dtype()) || type.is_index()) return static_cast<int64_t>(bits);
  const int shift = 64 - dtype_bits(type.dtype());
  return static_cast<int64_t>(bits << shift) >> shift;
}

// A rank 1 tensor of i64 or i1 as a list; absent for other tensors.
Result<ir::Attribute> as_list(const ir::DenseValue& dense, const AttributeTable& table) {
  const ir::Type& type = dense.type;
  const bool is_list = type.rank() == 1 && !type.is_index() && type.quantization() == nullptr &&
                       (type.dtype() == DType::kI64 || type.dtype() == DType::kI1);
  // A list that is longer than any rank is data.
  constexpr int64_t kMaxListLength = 1 << 16;
  if (!is_list || type.dims()[0] > kMaxListLength) return ir::Attribute();
  // A splat is longer than what stands in the file.
  if (!table.spend(static_cast<uint64_t>(type.dims()[0]) * sizeof(int64_t))) {
    return invalid_argument("bytecode: the lists of the attributes take too much room");
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray values, dense.expand());
  ir::IntArrayValue list{type.dtype(), {}};
  for (int64_t i = 0; i < values.size(); ++i) {
    list.values.push_back(type.dtype() == DType::kI64
                              ? values.as<int64_t>()[i]
                              : static_cast<int64_t>(values.as<uint8_t>()[i]));
  }
  return ir::Attribute(std::move(list));
}

Result<ir::Attribute> dense_of(const RawAttribute& raw, std::shared_ptr<const void> owner) {
  HEKLA_ASSIGN_OR_RETURN(HostArray values, tensor_elements(raw.type, raw.blob, std::move(owner)));
  return ir::make_dense(raw.type, std::move(values));
}

Result<ir::Attribute> dense_array(const RawAttribute& raw) {
  const DType dtype = raw.type.dtype();
  if (is_float(dtype)) {
    // Nothing in StableHLO is an array of floats; kept as text, floats as bit patterns.
    std::string text = fmt::format("array<{}", raw.type.to_string());
    const size_t width = static_cast<size_t>(dtype_bytes(dtype));
    for (int64_t i = 0; i < raw.number; ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, raw.blob.data() + static_cast<size_t>(i) * width, width);
      text += fmt::format("{}0x{:0{}X}", i == 0 ? ": " : ", ", bits, width * 2);
    }
    return ir::Attribute(ir::OpaqueValue{text + ">"});
  }
  ir::IntArrayValue list{dtype, {}};
  const size_t width = static_cast<size_t>(dtype_bytes(dtype));
  for (int64_t i = 0; i < raw.number; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, raw.blob.data() + static_cast<size_t>(i) * width,
                std::min<size_t>(width, 8));
    list.values.push_back(dtype == DType::kI1 ? bits != 0 : extended(raw.type, bits));
  }
  return ir::Attribute(std::move(list));
}

ir::Attribute conv_numbers(const std::vector<std::vector<int64_t>>& l) {
  return ir::ConvDimensionNumbers{l[0][0], l[1][0], l[2],    l[3][0], l[4][0],
                                  l[5],    l[6][0], l[7][0], l[8]};
}

}  // namespace

Result<ir::Attribute> AttributeConverter::convert(uint32_t index) {
  return convert_at_depth(index, 0);
}

Result<ir::Attribute> AttributeConverter::convert(std::string_view name, uint32_t index) {
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, convert(index));
  return typed_.typed(name, attribute);
}

Result<ir::Attribute> AttributeConverter::convert_dense(uint32_t index) {
  if (auto it = dense_.find(index); it != dense_.end()) return it->second;
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, make_dense(index));
  dense_.emplace(index, attribute);
  return attribute;
}

Result<ir::Attribute> AttributeConverter::make_dense(uint32_t index) {
  HEKLA_ASSIGN_OR_RETURN(const RawAttribute* raw, table_.attribute(index));
  if (raw->kind == Kind::kTensor || raw->kind == Kind::kResource) return dense_of(*raw, owner_);
  if (raw->kind == Kind::kDenseArray) {
    // Same bytes, one type more.
    RawAttribute tensor = *raw;
    tensor.type = ir::Type::tensor(raw->type, {raw->number});
    return dense_of(tensor, owner_);
  }
  return invalid_argument("bytecode: attribute {} must be a tensor", index);
}

Result<ir::Attribute> AttributeConverter::convert_at_depth(uint32_t index, int depth) {
  if (auto it = converted_.find(index); it != converted_.end()) return it->second.attribute;
  if (depth > kMaxAttributeDepth) {
    return invalid_argument("bytecode: attribute {} is nested deeper than {}", index,
                            kMaxAttributeDepth);
  }
  HEKLA_ASSIGN_OR_RETURN(const RawAttribute* raw, table_.attribute(index));
  int64_t nodes = 1;
  HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, make(*raw, depth, nodes));
  if (nodes > table_.max_parts()) {
    return invalid_argument("bytecode: attribute {} has more than {} parts", index,
                            table_.max_parts());
  }
  converted_[index] = {attribute, nodes};
  return attribute;
}

Result<ir::Attribute> AttributeConverter::make(const RawAttribute& raw, int depth, int64_t& nodes) {
  const auto part = [&](uint32_t index) -> Result<ir::Attribute> {
    HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, convert_at_depth(index, depth + 1));
    nodes += converted_[index].nodes;
    return attribute;
  };
  switch (raw.kind) {
    case Kind::kString:
      return ir::Attribute(ir::StringValue{raw.text});
    case Kind::kBool:
      return ir::Attribute(ir::BoolValue{(raw.bits & 1) != 0});
    case Kind::kInteger:
      return ir::Attribute(ir::IntegerValue{raw.type, extended(raw.type, raw.bits)});
    case Kind::kFloat:
      return ir::Attribute(ir::FloatValue{raw.type, raw.bits});
    case Kind::kEnum:
      return ir::enum_attribute(vhlo_enum_of_name(raw.enum_kind)->kind, raw.text);
    case Kind::kArray: {
      ir::ArrayValue array;
      for (uint32_t element : raw.elements) {
        HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, part(element));
        array.elements.push_back(std::move(attribute));
      }
      return ir::Attribute(std::move(array));
    }
    case Kind::kDictionary: {
      std::vector<ir::NamedAttribute> entries;
      for (const auto& [name, element] : raw.entries) {
        HEKLA_ASSIGN_OR_RETURN(ir::Attribute attribute, part(element));
        entries.emplace_back(name, typed_.typed(name, attribute));
      }
      return ir::make_dictionary(std::move(entries));
    }
    case Kind::kTensor: {
      HEKLA_ASSIGN_OR_RETURN(ir::Attribute dense, dense_of(raw, owner_));
      HEKLA_ASSIGN_OR_RETURN(ir::Attribute list, as_list(*dense.get<ir::DenseValue>(), table_));
      return list.is_absent() ? dense : list;
    }
    case Kind::kResource:
      return dense_of(raw, owner_);
    case Kind::kDenseArray:
      return dense_array(raw);
    case Kind::kType:
      return ir::Attribute(ir::TypeValue{raw.type});
    case Kind::kAlias:
      return ir::Attribute(ir::OutputOperandAlias{raw.lists[0], raw.number, raw.lists[1]});
    case Kind::kAccuracy:
      return ir::Attribute(ir::ResultAccuracy{float_from_bits(DType::kF64, raw.bits),
                                              float_from_bits(DType::kF64, raw.bits2), raw.number,
                                              raw.text});
    case Kind::kSymbol:
      // VHLO writes a plain symbol as a string; vhlo_to_ir knows where a symbol is meant.
      if (raw.symbols.empty()) return ir::Attribute(ir::StringValue{raw.text});
      return ir::Attribute(ir::SymbolValue{raw.text, raw.symbols});
    case Kind::kUnit:
      return ir::Attribute(ir::UnitValue{});
    case Kind::kBounds:
      return ir::i64_array(raw.lists[0]);
    case Kind::kConv:
      return conv_numbers(raw.lists);
    case Kind::kDot:
      return ir::Attribute(
          ir::DotDimensionNumbers{raw.lists[0], raw.lists[1], raw.lists[2], raw.lists[3]});
    case Kind::kGather:
      return ir::Attribute(ir::GatherDimensionNumbers{raw.lists[0], raw.lists[1], raw.lists[2],
                                                      raw.lists[3], raw.lists[4], raw.number});
    case Kind::kScatter:
      return ir::Attribute(ir::ScatterDimensionNumbers{raw.lists[0], raw.lists[1], raw.lists[2],
                                                       raw.lists[3], raw.lists[4], raw.number});
    case Kind::kAlgorithm:
      return ir::Attribute(ir::DotAlgorithm{raw.types[0], raw.types[1], raw.types[2],
                                            raw.lists[0][0], raw.lists[0][1], raw.lists[0][2],
                                            raw.lists[0][3] != 0});
    case Kind::kChannel:
      return ir::Attribute(ir::ChannelHandle{raw.number, raw.number2});
    case Kind::kSharding:
      return ir::Attribute(ir::ShardingValue{*raw.sharding});
    case Kind::kMeshAxes: {
      HEKLA_ASSIGN_OR_RETURN(sharding::MeshAxes axes, sharding::parse_mesh_axes(raw.text));
      return ir::Attribute(ir::MeshAxesValue{std::move(axes)});
    }
    case Kind::kText:
      return ir::Attribute(ir::OpaqueValue{raw.text});
    case Kind::kLocation:
      return ir::Attribute(ir::OpaqueValue{"loc(unknown)"});
  }
  return internal_error("bytecode: an attribute of no kind");
}

}  // namespace hekla::stablehlo
