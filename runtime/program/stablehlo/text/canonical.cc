// SPDX-License-Identifier: Apache-2.0
// The spellings of attributes that text allows, turned into the one that the IR has.
#include "runtime/program/stablehlo/text/parser.h"

namespace hekla::stablehlo {
namespace {

using ir::OpCode;

constexpr std::string_view kApiVersions[] = {
    "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};

// A flag may be written as a unit attribute.
bool is_flag(std::string_view name) {
  return name == "use_global_device_ids" || name == "has_dynamic_root" ||
         name == "indices_are_sorted" || name == "unique_indices" || name == "is_stable" ||
         name == "is_host_transfer" || name == "has_side_effect";
}

}  // namespace

void Parser::canonicalize(OpState& op) {
  bool has_layouts = false;
  for (auto& [name, value] : op.attributes) {
    if (is_flag(name) && value.get<ir::UnitValue>() != nullptr) value = ir::BoolValue{true};
    if (op.code == OpCode::kCustomCall) {
      const auto* number = value.get<ir::IntegerValue>();
      if (name == "api_version" && number != nullptr &&
          number->type == ir::Type::scalar(DType::kI32) && number->value >= 0 &&
          number->value <= 4) {
        value = ir::enum_attribute("custom_call_api_version",
                                   kApiVersions[static_cast<size_t>(number->value)]);
      }
      const auto* layouts = value.get<ir::ArrayValue>();
      if ((name == "operand_layouts" || name == "result_layouts") && layouts != nullptr) {
        has_layouts = has_layouts || !layouts->elements.empty();
      }
    }
    // The portable form of collectives has a channel number only.
    const auto* channel = value.get<ir::ChannelHandle>();
    if (channel != nullptr && name == "channel_handle" && op.code != OpCode::kSend &&
        op.code != OpCode::kRecv) {
      value = ir::ChannelHandle{channel->handle, 0};
    }
    // Empty lists of pairs may have any rank.
    if (name == "source_target_pairs" || name == "replica_groups") {
      const auto* list = value.get<ir::IntArrayValue>();
      if (list != nullptr && list->values.empty() && name == "replica_groups") {
        value =
            ir::make_dense(ir::Type::tensor(DType::kI64, {0, 0}), HostArray(DType::kI64, {0, 0}));
      }
    }
  }
  if (op.code == OpCode::kCustomCall && !has_layouts) {
    std::erase_if(op.attributes, [](const ir::NamedAttribute& entry) {
      return entry.first == "operand_layouts" || entry.first == "result_layouts";
    });
  }
}

}  // namespace hekla::stablehlo
