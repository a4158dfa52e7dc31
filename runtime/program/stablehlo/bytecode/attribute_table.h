// SPDX-License-Identifier: Apache-2.0
// AttributeTable: the attribute and type entries of a bytecode file, decoded on demand.
#pragma once

#include <unordered_map>
#include <vector>

#include "runtime/program/stablehlo/bytecode/raw_module.h"

namespace hekla::stablehlo {

// Deepest nesting of types and attributes within each other.
inline constexpr int kMaxAttributeDepth = 100;
// See AttributeTable::spend.
inline constexpr uint64_t kExpansion = 256;

class AttributeTable {
 public:
  enum class Dialect : uint8_t { kBuiltin, kVhlo, kSdy, kStablehlo, kOther };

  struct Entry {
    Dialect dialect = Dialect::kOther;
    bool has_custom_encoding = false;
    size_t offset = 0;
    size_t size = 0;
  };
  struct Resource {
    std::string_view key;
    uint8_t kind = 0;  // 0 blob, 1 bool, 2 string
    std::string_view blob;
  };

  AttributeTable(std::string_view file, std::vector<std::string_view> strings,
                 std::vector<Entry> attributes, std::vector<Entry> types,
                 std::vector<Resource> resources);

  size_t attribute_count() const { return attribute_entries_.size(); }
  size_t type_count() const { return type_entries_.size(); }
  std::string_view string(uint64_t index, ByteReader& reader) const;

  // Entries may share strings and parts, so copies of them could grow far beyond the file. Every
  // copy is paid for from a budget of kExpansion bytes for each byte of the file; false when it is
  // spent.
  bool spend(uint64_t bytes) const;
  // How many parts one type or attribute may have, shared ones counted each time: printing and
  // comparing walk them all.
  int64_t max_parts() const;

  // INVALID_ARGUMENT: no such entry, malformed bytes, nesting too deep, a cycle, the budget is
  // spent. The reference stays valid as long as the table.
  Result<const RawAttribute*> attribute(uint64_t index) const;
  Result<ir::Type> type(uint64_t index) const;
  // Unknown (null) for anything that is no location, and below a depth of a few hundred.
  ir::LocationRef location(uint64_t index) const;

 private:
  Result<ir::Type> decode_type(const Entry& entry, int depth) const;
  Result<ir::Type> type_at_depth(uint64_t index, int depth) const;
  Result<ir::Type> decode_vhlo_type(ByteReader& reader, int depth) const;
  Result<ir::Type> decode_builtin_type(ByteReader& reader, int depth) const;
  Result<std::vector<ir::Type>> type_list(ByteReader& reader, int depth) const;
  Result<Dims> shape(ByteReader& reader) const;

  Status decode_attribute(const Entry& entry, RawAttribute& out) const;
  Status decode_builtin(ByteReader& reader, RawAttribute& out) const;
  Status decode_vhlo(ByteReader& reader, RawAttribute& out) const;
  Status decode_stablehlo(ByteReader& reader, RawAttribute& out) const;
  Status decode_mesh_part(uint64_t code, bool is_vhlo, ByteReader& reader, RawAttribute& out) const;
  Status decode_sdy(ByteReader& reader, RawAttribute& out) const;
  // Of an entry in assembly syntax, which stands in out.text.
  Status decode_sdy_text(ByteReader& reader, RawAttribute& out) const;
  Result<std::string> builtin_string(uint64_t index) const;
  // A copy of a string; fails the reader when there is none, or the budget is spent.
  std::string copy_of_string(uint64_t index, ByteReader& reader) const;
  ir::LocationRef location_at_depth(uint64_t index, int depth) const;

  std::string_view file_;
  std::vector<std::string_view> strings_;
  std::vector<Entry> attribute_entries_;
  std::vector<Entry> type_entries_;
  std::vector<Resource> resources_;
  // Filled as entries are asked for. Not for several threads at once.
  mutable std::unordered_map<uint64_t, std::unique_ptr<RawAttribute>> attributes_;
  mutable std::unordered_map<uint64_t, ir::Type> types_;
  mutable std::unordered_map<uint64_t, int64_t> type_sizes_;
  mutable std::unordered_map<uint64_t, ir::LocationRef> locations_;
  mutable uint64_t budget_;
  mutable int attribute_depth_ = 0;        // of attribute() calls within each other
  mutable int64_t pending_type_size_ = 0;  // nodes of the types that the one being decoded has
};

}  // namespace hekla::stablehlo
