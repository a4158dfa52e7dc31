// SPDX-License-Identifier: Apache-2.0
// VHLO's enumerations: the words by their numbers in the file. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace hekla::stablehlo {

struct VhloEnum {
  uint64_t code;                        // of the attribute
  uint64_t native_code;                 // of StableHLO's own attribute; 0: none
  std::string_view name;                // "ComparisonTypeV1"
  std::string_view kind;                // of ir::EnumValue, "comparison_type"
  std::vector<std::string_view> words;  // by number; empty: the number is not used
};

// Null when there is none.
const VhloEnum* vhlo_enum_of_code(uint64_t code);
const VhloEnum* vhlo_enum_of_native_code(uint64_t native_code);
const VhloEnum* vhlo_enum_of_name(std::string_view name);
const VhloEnum* vhlo_enum_of_kind(std::string_view kind);

}  // namespace hekla::stablehlo
