// SPDX-License-Identifier: Apache-2.0
// BytecodeBuilder: assembles MLIR bytecode files, in any container version.
//
// Entries are given as raw payloads made with the helpers below, so a test can write what no
// serializer writes: other encodings of the same thing, mixed dialects, broken entries. Nothing is
// checked. Strings, attributes, types and op names get their numbers in order of addition; operand
// numbers are those of the file format (per isolated scope) and are the caller's business. One
// thread. Programs are written by write_bytecode.h, which stands on it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hekla::stablehlo {

// The format's numbers as bytes.
std::string varint(uint64_t value);
std::string svarint(int64_t value);
// A count and the numbers.
std::string refs(const std::vector<uint32_t>& numbers);
std::string svarints(const std::vector<int64_t>& numbers);
// A byte count and the bytes.
std::string blob(std::string_view bytes);

struct OpSpec;

struct BlockSpec {
  std::vector<uint32_t> arguments;  // types
  std::vector<OpSpec> ops;
};

struct PropertySpec {
  std::string name;
  uint32_t attribute = 0;
  bool is_optional = false;  // stored as an optional reference
  bool is_absent = false;    // of an optional one
};

struct OpSpec {
  std::string name;  // "vhlo.add_v1"
  std::vector<uint32_t> operands;
  std::vector<uint32_t> results;         // types
  std::vector<PropertySpec> properties;  // in stored order
  std::vector<std::pair<std::string, uint32_t>> attributes;
  std::vector<std::vector<BlockSpec>> regions;
  bool is_isolated = true;
  std::optional<uint32_t> location;  // unset: unknown
};

class BytecodeBuilder {
 public:
  explicit BytecodeBuilder(uint64_t version = 6, std::string producer = "Hekla")
      : version_(version), producer_(std::move(producer)) {}

  uint32_t string(std::string_view text);
  // `payload` starts with the dialect's code.
  uint32_t attribute(std::string_view dialect, std::string payload);
  uint32_t type(std::string_view dialect, std::string payload);
  // An entry in assembly syntax.
  uint32_t attribute_text(std::string_view dialect, std::string_view text);

  uint32_t type_text(std::string_view dialect, std::string_view text);

  // As above, but equal entries are one.
  uint32_t shared_attribute(std::string_view dialect, std::string payload);
  uint32_t shared_type(std::string_view dialect, std::string payload);

  // Common entries; equal ones are shared.
  uint32_t builtin_string(std::string_view text);
  uint32_t vhlo_string(std::string_view text);
  uint32_t vhlo_f32();
  uint32_t vhlo_tensor(const std::vector<int64_t>& dims, uint32_t element);
  uint32_t unknown_location();

  // A module of one function `main` with that body; the block's arguments are the inputs and
  // `results` the result types.
  OpSpec module_with_main(BlockSpec body, const std::vector<uint32_t>& results);
  OpSpec module(std::vector<OpSpec> ops);

  // A blob resource of the builtin dialect; returns its handle.
  uint32_t resource(std::string_view key, std::string bytes);

  // The file whose IR is `module`.
  std::string finish(const OpSpec& module);

 private:
  struct Entry {
    uint32_t dialect;
    std::string payload;
    bool has_custom_encoding;
  };
  uint32_t dialect(std::string_view name);
  uint32_t op_name(std::string_view name);
  std::string op_bytes(const OpSpec& op);
  std::string block_bytes(const BlockSpec& block);
  std::string dictionary_payload(const std::vector<std::pair<std::string, uint32_t>>& entries);

  uint64_t version_;
  std::string producer_;
  std::vector<std::string> strings_;
  std::map<std::string, uint32_t> string_numbers_;
  std::map<std::pair<uint32_t, std::string>, uint32_t> shared_attributes_;
  std::map<std::pair<uint32_t, std::string>, uint32_t> shared_types_;
  std::vector<std::string> dialects_;
  std::map<std::string, uint32_t, std::less<>> op_numbers_;
  std::vector<std::pair<uint32_t, uint32_t>> op_names_;  // dialect, string
  std::vector<Entry> attributes_;
  std::vector<Entry> types_;
  std::map<std::string, uint32_t> property_numbers_;
  std::vector<std::string> properties_;
  std::vector<std::pair<uint32_t, std::string>> resources_;  // key, bytes
};

}  // namespace hekla::stablehlo
