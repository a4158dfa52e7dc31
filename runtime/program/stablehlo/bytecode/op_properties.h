// SPDX-License-Identifier: Apache-2.0
// op_properties: the declared attributes of the operations that occur in bytecode files: VHLO's,
// native StableHLO's, and those of the dialects that stand among them. Pure.
#pragma once

#include <string_view>
#include <vector>

namespace hekla::stablehlo {

struct DeclaredAttribute {
  std::string_view name;
  bool is_optional = false;  // stored as an optional reference
};
using DeclaredAttributes = std::vector<DeclaredAttribute>;

// The declared attributes of "vhlo.add_v1" and so on, in the order in which their references are
// stored. Several lists where the op gained attributes over the years without a new name, the
// newest first: the one that fills the stored entry is meant. Empty for an operation that we do not
// know.
std::vector<DeclaredAttributes> op_properties(std::string_view name);

}  // namespace hekla::stablehlo
