// SPDX-License-Identifier: Apache-2.0
// AttributeConverter: raw attribute entries as IR attributes, each converted once.
#pragma once

#include <memory>
#include <unordered_map>

#include "runtime/program/ir/attribute.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/stablehlo/bytecode/attribute_table.h"

namespace hekla::stablehlo {

class AttributeConverter {
 public:
  AttributeConverter(const AttributeTable& table, std::shared_ptr<const void> owner)
      : table_(table), owner_(std::move(owner)) {}

  // Lists of i64 and i1 become IntArrayValue, symbols without nesting StringValue.
  // INVALID_ARGUMENT: malformed, too deep or too large.
  Result<ir::Attribute> convert(uint32_t index);
  // The same for an attribute of that name, which may say what a string means.
  Result<ir::Attribute> convert(std::string_view name, uint32_t index);
  // The same, but tensors stay DenseValue whatever their type: `value` of constant.
  Result<ir::Attribute> convert_dense(uint32_t index);

 private:
  Result<ir::Attribute> convert_at_depth(uint32_t index, int depth);
  Result<ir::Attribute> make_dense(uint32_t index);
  Result<ir::Attribute> make(const RawAttribute& raw, int depth, int64_t& nodes);

  const AttributeTable& table_;
  std::shared_ptr<const void> owner_;
  struct Converted {
    ir::Attribute attribute;
    int64_t nodes = 1;  // shared parts counted each time
  };
  std::unordered_map<uint32_t, Converted> converted_;
  std::unordered_map<uint32_t, ir::Attribute> dense_;  // of convert_dense
  ir::TypedAttributes typed_;
};

}  // namespace hekla::stablehlo
