// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/vhlo_form.h"

#include <algorithm>
#include <map>

#include "runtime/program/stablehlo/bytecode/op_properties.h"

namespace hekla::stablehlo {
namespace {

using ir::Attribute;
using ir::OpCode;

// Operations that got a second version, and VHLO 1.x that brought it.
struct SecondVersion {
  OpCode code;
  int minor;
};
constexpr SecondVersion kSecondVersions[] = {
    {OpCode::kAllGather, 5},
    {OpCode::kAllReduce, 5},
    {OpCode::kAllToAll, 5},
    {OpCode::kCbrt, 10},
    {OpCode::kCollectiveBroadcast, 20},
    {OpCode::kComposite, 14},
    {OpCode::kCosine, 10},
    {OpCode::kCustomCall, 18},
    {OpCode::kDotGeneral, 6},
    {OpCode::kDynamicConv, 0},
    {OpCode::kDynamicGather, 1},
    {OpCode::kExponential, 9},
    {OpCode::kExponentialMinusOne, 10},
    {OpCode::kGather, 1},
    {OpCode::kLog, 10},
    {OpCode::kLogPlusOne, 10},
    {OpCode::kLogistic, 10},
    {OpCode::kRecv, 12},
    {OpCode::kRsqrt, 10},
    {OpCode::kScatter, 1},
    {OpCode::kSend, 12},
    {OpCode::kSine, 10},
    {OpCode::kSqrt, 10},
    {OpCode::kTan, 10},
    {OpCode::kTanh, 10},
};

// VHLO 1.x that brought the operation itself, for those that 1.0 has not.
int first_minor(OpCode code) {
  switch (code) {
    case OpCode::kTan:
      return 4;
    case OpCode::kAsyncStart:
    case OpCode::kAsyncDone:
      return 15;
    case OpCode::kCollectiveReduce:
      return 19;
    default:
      return 0;
  }
}

using Lists = std::map<std::string, Attribute, std::less<>>;

// Parts of dimension numbers, channels and algorithms under VHLO's names.
class Parts {
 public:
  explicit Parts(const ir::Operation& op) {
    for (const auto& [name, value] : op.attributes()) add(op, name, value);
  }
  Lists take() { return std::move(parts_); }

 private:
  void list(const char* name, const std::vector<int64_t>& values) {
    parts_[name] = ir::i64_array(values);
  }
  void number(const char* name, int64_t value) { parts_[name] = ir::i64_attribute(value); }

  void add(const ir::Operation& op, const std::string& name, const Attribute& value) {
    if (const auto* n = value.get<ir::ConvDimensionNumbers>()) {
      number("input_batch_dimension", n->input_batch_dimension);
      number("input_feature_dimension", n->input_feature_dimension);
      list("input_spatial_dimensions", n->input_spatial_dimensions);
      number("kernel_input_feature_dimension", n->kernel_input_feature_dimension);
      number("kernel_output_feature_dimension", n->kernel_output_feature_dimension);
      list("kernel_spatial_dimensions", n->kernel_spatial_dimensions);
      number("output_batch_dimension", n->output_batch_dimension);
      number("output_feature_dimension", n->output_feature_dimension);
      list("output_spatial_dimensions", n->output_spatial_dimensions);
    } else if (const auto* n = value.get<ir::DotDimensionNumbers>()) {
      list("lhs_batching_dimensions", n->lhs_batching_dimensions);
      list("rhs_batching_dimensions", n->rhs_batching_dimensions);
      list("lhs_contracting_dimensions", n->lhs_contracting_dimensions);
      list("rhs_contracting_dimensions", n->rhs_contracting_dimensions);
    } else if (const auto* n = value.get<ir::DotAlgorithm>()) {
      parts_["lhs_precision_type"] = ir::TypeValue{n->lhs_precision_type};
      parts_["rhs_precision_type"] = ir::TypeValue{n->rhs_precision_type};
      parts_["accumulation_type"] = ir::TypeValue{n->accumulation_type};
      number("lhs_component_count", n->lhs_component_count);
      number("rhs_component_count", n->rhs_component_count);
      number("num_primitive_operations", n->num_primitive_operations);
      parts_["allow_imprecise_accumulation"] = ir::BoolValue{n->allow_imprecise_accumulation};
    } else if (const auto* n = value.get<ir::GatherDimensionNumbers>()) {
      list("offset_dims", n->offset_dims);
      list("collapsed_slice_dims", n->collapsed_slice_dims);
      list("operand_batching_dims", n->operand_batching_dims);
      list("start_indices_batching_dims", n->start_indices_batching_dims);
      list("start_index_map", n->start_index_map);
      number("index_vector_dim", n->index_vector_dim);
    } else if (const auto* n = value.get<ir::ScatterDimensionNumbers>()) {
      list("update_window_dims", n->update_window_dims);
      list("inserted_window_dims", n->inserted_window_dims);
      list("input_batching_dims", n->input_batching_dims);
      list("scatter_indices_batching_dims", n->scatter_indices_batching_dims);
      list("scatter_dims_to_operand_dims", n->scatter_dims_to_operand_dims);
      number("index_vector_dim", n->index_vector_dim);
    } else if (const auto* channel = value.get<ir::ChannelHandle>()) {
      number("channel_id", channel->handle);
      if (op.code() == OpCode::kSend || op.code() == OpCode::kRecv) {
        number("channel_type", channel->type);
      }
    } else {
      parts_[name] = value;
    }
  }

  Lists parts_;
};

size_t window_rank(const ir::Operation& op) {
  const size_t rank = static_cast<size_t>(op.operand(0)->type().rank());
  const bool is_convolution =
      op.code() == OpCode::kConvolution || op.code() == OpCode::kDynamicConv;
  return is_convolution ? rank - std::min<size_t>(rank, 2) : rank;
}

bool is_typed_ffi(const ir::Operation& op) {
  const auto* version = op.attribute("api_version").get<ir::EnumValue>();
  return version != nullptr && version->value == "API_VERSION_TYPED_FFI";
}

// What the operation means where it does not say it; absent where it must.
Attribute default_value(const ir::Operation& op, std::string_view name) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto no_pairs = [](int64_t rows) {
    return ir::make_dense(ir::Type::tensor(DType::kI64, {rows, 2}),
                          HostArray(DType::kI64, {rows, 2}));
  };
  if (is_one_of({"window_strides", "window_dilations", "base_dilations", "lhs_dilation",
                 "rhs_dilation", "window_dimensions"})) {
    return ir::i64_array(std::vector<int64_t>(window_rank(op), 1));
  }
  if (name == "padding") return no_pairs(static_cast<int64_t>(window_rank(op)));
  if (name == "window_reversal") return ir::bool_array(std::vector<bool>(window_rank(op), false));
  if (is_one_of({"indices_are_sorted", "unique_indices", "use_global_device_ids",
                 "has_dynamic_root", "has_side_effect", "is_host_transfer", "is_stable",
                 "lower"})) {
    return ir::BoolValue{false};
  }
  if (name == "channel_id") return ir::i64_attribute(0);
  if (name == "source_target_pairs" && op.code() != OpCode::kCollectivePermute) return no_pairs(0);
  if (name == "compare_type") return ir::enum_attribute("comparison_type", "NOTYPE");
  if (name == "api_version") {
    return ir::enum_attribute("custom_call_api_version", "API_VERSION_ORIGINAL");
  }
  if (name == "backend_config" && is_typed_ffi(op)) return ir::DictionaryValue{};
  if (is_one_of({"backend_config", "infeed_config", "outfeed_config"})) return ir::StringValue{};
  if (is_one_of({"called_computations", "output_operand_aliases", "operand_layouts",
                 "result_layouts", "result_tilings", "layout", "precision_config"})) {
    return ir::ArrayValue{};
  }
  if (is_one_of({"known_expanding_dimensions", "known_nonexpanding_dimensions"})) {
    return ir::i64_array({});
  }
  if (name == "dimension" && op.code() == OpCode::kSort) return ir::i64_attribute(-1);
  if (name == "version") return ir::IntegerValue{ir::Type::scalar(DType::kI32), 0};
  if (name == "composite_attributes") return ir::DictionaryValue{};
  if (name == "result_accuracy") return ir::ResultAccuracy{};
  // Of a dot_general without an algorithm.
  if (is_one_of({"lhs_precision_type", "rhs_precision_type", "accumulation_type",
                 "lhs_component_count", "rhs_component_count", "num_primitive_operations",
                 "allow_imprecise_accumulation"})) {
    return ir::TypeValue{};
  }
  return {};
}

std::string base_name(OpCode code) {
  if (code == OpCode::kFuncReturn) return "return";
  if (code == OpCode::kFuncCall) return "call";
  const std::string_view name = ir::op_name(code);
  return name.starts_with("stablehlo.") ? std::string(name.substr(10)) : std::string();
}

bool declares(const std::string& name, std::string_view attribute) {
  for (const DeclaredAttributes& list : op_properties(name)) {
    for (const DeclaredAttribute& declared : list) {
      if (declared.name == attribute) return true;
    }
  }
  return false;
}

// Lists that an older version does not have, where they say nothing.
bool is_empty_list(const Attribute& value) {
  const auto* list = value.get<ir::IntArrayValue>();
  return list != nullptr && list->values.empty();
}

}  // namespace

VhloForm vhlo_form(const ir::Operation& op, AttributeWriter& writer) {
  VhloForm form;
  const std::string base = base_name(op.code());
  if (base.empty()) {
    writer.fail(unimplemented("bytecode: {} has no form in VHLO", op.name()));
    return form;
  }
  writer.need(first_minor(op.code()), op.name());
  const auto* second = std::find_if(std::begin(kSecondVersions), std::end(kSecondVersions),
                                    [&](const SecondVersion& v) { return v.code == op.code(); });
  const bool has_second = second != std::end(kSecondVersions);
  const bool is_second =
      has_second && (writer.target().major > 1 || writer.target().minor >= second->minor);
  const std::string newest = "vhlo." + base + (has_second ? "_v2" : "_v1");
  form.name = is_second ? newest : "vhlo." + base + "_v1";
  if (has_second && !is_second) {
    // What the older version cannot say with the attributes that it has.
    const bool is_collective = op.code() == OpCode::kAllGather || op.code() == OpCode::kAllReduce ||
                               op.code() == OpCode::kAllToAll ||
                               op.code() == OpCode::kCollectiveBroadcast;
    if (is_collective && op.operand_count() != 1) {
      writer.need(second->minor, fmt::format("{} of {} operands", op.name(), op.operand_count()));
    }
    if (op.code() == OpCode::kComposite && op.region_count() != 0) {
      writer.need(second->minor, "a composite with regions");
    }
  }

  Lists values = Parts(op).take();
  const std::vector<DeclaredAttributes> alternatives = op_properties(form.name);
  for (const DeclaredAttribute& declared : alternatives.front()) {
    const auto it = values.find(declared.name);
    const Attribute value = it != values.end() ? it->second : default_value(op, declared.name);
    if (it != values.end()) values.erase(it);
    if (value.is_absent()) {
      writer.fail(invalid_argument("bytecode: {} has no {}", op.name(), declared.name));
      return form;
    }
    if (declared.name == "backend_config" && value.get<ir::DictionaryValue>() != nullptr) {
      writer.need(3, "a dictionary as backend_config");
    }
    if (value.get<ir::ShardingValue>() != nullptr) {
      writer.fail(
          invalid_argument("bytecode: {} has a sharding as its {}", op.name(), declared.name));
      return form;
    }
    if (value.get<ir::OpaqueValue>() != nullptr) {
      writer.fail(unimplemented("bytecode: {} with {} = {} is not written yet", op.name(),
                                declared.name, value.get<ir::OpaqueValue>()->text));
      return form;
    }
    form.properties.push_back({std::string(declared.name), writer.vhlo(value)});
  }
  for (auto& [name, value] : values) {
    if (has_second && !is_second && declares(newest, name)) {
      if (!is_empty_list(value)) {
        writer.need(second->minor, fmt::format("{} with {}", op.name(), name));
      }
      continue;
    }
    form.discardable.emplace_back(name, std::move(value));
  }
  return form;
}

}  // namespace hekla::stablehlo
