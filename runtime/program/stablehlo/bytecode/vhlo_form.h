// SPDX-License-Identifier: Apache-2.0
// vhlo_form: an operation's name and declared attributes in VHLO, as vhlo_to_ir would read them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/program/ir/ir.h"
#include "runtime/program/stablehlo/bytecode/attribute_writer.h"

namespace hekla::stablehlo {

struct VhloForm {
  std::string name;                      // "vhlo.dot_general_v2"
  std::vector<PropertySpec> properties;  // all that the operation declares, in stored order
  // What the operation does not declare.
  std::vector<ir::NamedAttribute> discardable;
};

// Of an operation of StableHLO or `func`. What `op` leaves out gets the value that it means.
// Failures go to `writer`.
VhloForm vhlo_form(const ir::Operation& op, AttributeWriter& writer);

}  // namespace hekla::stablehlo
