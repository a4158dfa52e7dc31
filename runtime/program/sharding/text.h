// SPDX-License-Identifier: Apache-2.0
// Shardy's text of shardings, meshes and rules, read and written.
//
//   #sdy.sharding<@mesh, [{"x", "y":(1)2}, {?}p1], replicated={"z"}, unreduced={"w"}>
//   #sdy.sharding_per_value<[<@mesh, [{}]>, <mesh<["a"=2], device_ids=[1, 0]>, [{"a"}]>]>
//   #sdy.mesh<["x"=2, "y"=4]>   #sdy<manual_axes{"x"}>   #sdy.op_sharding_rule<([i])->([i]) {i=8}>
//
// Pretty forms of operations leave the prefix out: `to_text` and the parse functions by type have
// what is in the brackets and the brackets. Any bytes may be read: errors are INVALID_ARGUMENT
// "sharding text at 14: ...", by byte; time is linear and nothing recurses. Meaning is not checked
// (sharding.h does); what is printed reads back to an equal value. Pure.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::sharding {

std::string to_text(const Mesh& mesh);                // <["x"=2], device_ids=[1, 0]>
std::string to_text(const TensorSharding& sharding);  // <@mesh, [{"x"}]>
std::string to_text(const ShardingList& shardings);   // [<@mesh, [{"x"}]>]
std::string to_text(const ManualAxes& axes);          // {"x"}
std::string to_text(const AxisRef& ref);              // "x":(1)2
std::string to_text(const DimensionSharding& dimension);
// The whole attribute, prefix included.
std::string attribute_text(const Attribute& attribute);

// Where and why a text was not read, for readers of the text around it.
struct TextError {
  size_t position = 0;
  std::string reason;
};
// Each fills `error`, if given, when it fails.
Result<Mesh> parse_mesh(std::string_view text, TextError* error = nullptr);
Result<TensorSharding> parse_sharding(std::string_view text, TextError* error = nullptr);
Result<ShardingList> parse_sharding_list(std::string_view text, TextError* error = nullptr);
Result<ManualAxes> parse_manual_axes(std::string_view text, TextError* error = nullptr);
Result<Attribute> parse_attribute(std::string_view text, TextError* error = nullptr);

// In double quotes, as MLIR writes strings.
std::string quoted(std::string_view text);
// Whether MLIR writes a symbol or a key of this name without quotes.
bool is_bare_symbol(std::string_view name);

}  // namespace hekla::sharding
