// SPDX-License-Identifier: Apache-2.0
// print_module: a program as StableHLO text that reads back to the same module.
//
// For every module that a reader gave and the verifier takes: `first_difference(module,
// *read_text(print_module(module)))` is nullopt. Operations have StableHLO's pretty forms where
// these say all of it and the generic form elsewhere; StableHLO's own parser takes both. Locations
// are left out unless asked for, attributes that have their default value too. Pure; time and
// memory grow with the size of the module.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "runtime/program/ir/ir.h"

namespace hekla::stablehlo {

// For people: text that leaves something out does not read back.
struct PrintOptions {
  // Where each operation comes from, in a comment behind it.
  bool with_locations = false;
  // Of a constant or a list; the rest is given as a count.
  int64_t max_elements = std::numeric_limits<int64_t>::max();
};

std::string print_module(const ir::Module& module, const PrintOptions& options = {});
// One attribute: "3 : i64", "#stablehlo<precision HIGHEST>".
std::string print_attribute(const ir::Attribute& attribute, const PrintOptions& options = {});

}  // namespace hekla::stablehlo
