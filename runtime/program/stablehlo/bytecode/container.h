// SPDX-License-Identifier: Apache-2.0
// The outer parts of a bytecode file: sections, strings, operation names, properties.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/stablehlo/bytecode/attribute_table.h"

namespace hekla::stablehlo {

struct Container {
  uint64_t version = 0;
  std::string producer;
  std::vector<std::string> dialects;
  std::vector<std::string> op_names;  // with their dialect: "vhlo.add_v1"
  std::vector<bool> op_registered;
  std::vector<ByteReader> properties;  // one reader per entry
  ByteReader ir;                       // the payload of the IR section
  std::unique_ptr<AttributeTable> table;
};

Result<Container> read_container(std::string_view file);

}  // namespace hekla::stablehlo
