// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/stablehlo/bytecode/container.h"

#include <array>
#include <optional>

namespace hekla::stablehlo {
namespace {

constexpr std::string_view kMagic("ML\xef\x52", 4);
constexpr uint64_t kNewestContainer = 6;

enum Section : uint8_t {
  kStrings = 0,
  kDialects = 1,
  kAttributeData = 2,
  kAttributeOffsets = 3,
  kIr = 4,
  kResourceData = 5,
  kResourceOffsets = 6,
  kDialectVersion = 7,
  kProperties = 8,
};

AttributeTable::Dialect dialect_kind(std::string_view name) {
  using Dialect = AttributeTable::Dialect;
  if (name == "builtin") return Dialect::kBuiltin;
  if (name == "vhlo") return Dialect::kVhlo;
  if (name == "sdy") return Dialect::kSdy;
  if (name == "stablehlo") return Dialect::kStablehlo;
  return Dialect::kOther;
}

class ContainerReader {
 public:
  explicit ContainerReader(std::string_view file) : file_(file) {}

  Result<Container> run() {
    ByteReader reader(file_, 0, file_.size());
    if (reader.bytes(kMagic.size()) != kMagic) {
      return invalid_argument("this is no MLIR bytecode: the magic number is missing");
    }
    out_.version = reader.varint();
    if (reader.ok() && out_.version > kNewestContainer) {
      return invalid_argument("bytecode version {} is newer than {}, the newest that we read",
                              out_.version, kNewestContainer);
    }
    out_.producer = std::string(reader.terminated_string());
    while (reader.ok() && !reader.at_end()) {
      uint8_t id = 0;
      ByteReader payload = read_section(reader, id);
      if (id >= sections_.size()) {
        reader.fail(fmt::format("there is no section {}", id));
      } else if (sections_[id].has_value()) {
        reader.fail(fmt::format("section {} stands twice", id));
      } else {
        sections_[id] = payload;
      }
    }
    HEKLA_RETURN_IF_ERROR(reader.status());
    for (uint8_t id : {kStrings, kDialects, kAttributeData, kAttributeOffsets, kIr}) {
      if (!sections_[id].has_value()) {
        return invalid_argument("bytecode: section {} is missing", id);
      }
    }
    HEKLA_RETURN_IF_ERROR(read_strings());
    HEKLA_RETURN_IF_ERROR(read_dialects());
    HEKLA_RETURN_IF_ERROR(read_resources());
    HEKLA_RETURN_IF_ERROR(read_attributes());
    HEKLA_RETURN_IF_ERROR(read_properties());
    out_.ir = *sections_[kIr];
    return std::move(out_);
  }

 private:
  static ByteReader read_section(ByteReader& reader, uint8_t& id) {
    const uint8_t head = reader.byte();
    id = head & 0x7f;
    const uint64_t size = reader.varint();
    if ((head & 0x80) != 0) reader.align(reader.varint());
    return reader.sub(size);
  }

  std::string_view string(uint64_t index, ByteReader& reader) const {
    if (index < strings_.size()) return strings_[index];
    reader.fail(fmt::format("there is no string {}, the file has {}", index, strings_.size()));
    return {};
  }

  // Names are copied for every use, so long ones would multiply.
  std::string_view short_string(uint64_t index, ByteReader& reader) const {
    constexpr size_t kMaxNameBytes = 256;
    const std::string_view text = string(index, reader);
    if (text.size() <= kMaxNameBytes) return text;
    reader.fail(fmt::format("a name of {} bytes is too long", text.size()));
    return {};
  }

  Status read_strings() {
    ByteReader& reader = *sections_[kStrings];
    const size_t count = reader.count();
    std::vector<uint64_t> sizes(count);
    for (size_t i = count; i > 0; --i) sizes[i - 1] = reader.varint();
    strings_.reserve(count);
    for (uint64_t size : sizes) {
      const std::string_view text = reader.bytes(size);
      if (!reader.ok()) break;
      if (text.empty() || text.back() != '\0') {
        reader.fail("a string lacks its final NUL");
        break;
      }
      strings_.push_back(text.substr(0, text.size() - 1));
    }
    reader.expect_end("the strings");
    return reader.status();
  }

  Status read_dialects() {
    ByteReader& reader = *sections_[kDialects];
    const size_t count = reader.count();
    for (size_t i = 0; i < count && reader.ok(); ++i) {
      uint64_t name = reader.varint();
      if (out_.version >= 1) {
        const bool has_version = (name & 1) != 0;
        name >>= 1;
        if (has_version) {
          uint8_t id = 0;
          read_section(reader, id);  // the dialect's own version says nothing that op names do not
          if (id != kDialectVersion) reader.fail(fmt::format("section {} is no version", id));
        }
      }
      out_.dialects.emplace_back(short_string(name, reader));
    }
    if (out_.version >= 4) reader.varint();  // the number of op names, to reserve memory
    while (reader.ok() && !reader.at_end()) {
      const uint64_t dialect = reader.varint();
      if (dialect >= out_.dialects.size()) {
        reader.fail(fmt::format("there is no dialect {}", dialect));
        break;
      }
      const size_t names = reader.count();
      for (size_t i = 0; i < names && reader.ok(); ++i) {
        uint64_t name = reader.varint();
        bool is_registered = true;
        if (out_.version >= 5) {
          is_registered = (name & 1) != 0;
          name >>= 1;
        }
        out_.op_names.push_back(
            fmt::format("{}.{}", out_.dialects[dialect], short_string(name, reader)));
        out_.op_registered.push_back(is_registered);
      }
    }
    return reader.status();
  }

  Status read_resources() {
    if (sections_[kResourceData].has_value() != sections_[kResourceOffsets].has_value()) {
      return invalid_argument("bytecode: of the two resource sections one is missing");
    }
    if (!sections_[kResourceOffsets].has_value()) return ok_status();
    ByteReader& reader = *sections_[kResourceOffsets];
    ByteReader& data = *sections_[kResourceData];
    const auto read_entries = [&](bool of_dialect) {
      const size_t count = reader.count(3);
      for (size_t i = 0; i < count && reader.ok() && data.ok(); ++i) {
        AttributeTable::Resource resource;
        resource.key = string(reader.varint(), reader);
        const uint64_t size = reader.varint();
        resource.kind = reader.byte();
        ByteReader payload = data.sub(size);
        if (resource.kind == 0 && size > 0) {
          const uint64_t alignment = payload.varint();
          const uint64_t bytes = payload.varint();
          payload.align(alignment);
          resource.blob = payload.bytes(bytes);
          payload.expect_end("a resource");
          if (!payload.ok()) data.fail("a resource is malformed");
        }
        if (of_dialect) resources_.push_back(std::move(resource));
      }
    };
    const size_t external = reader.count();
    for (size_t i = 0; i < external && reader.ok(); ++i) {
      reader.varint();  // the group's key
      read_entries(false);
    }
    while (reader.ok() && !reader.at_end()) {
      reader.varint();  // the dialect
      read_entries(true);
    }
    HEKLA_RETURN_IF_ERROR(reader.status());
    data.expect_end("the resources");
    return data.status();
  }

  Status read_attributes() {
    ByteReader& reader = *sections_[kAttributeOffsets];
    ByteReader& data = *sections_[kAttributeData];
    const size_t attribute_count = reader.count();
    const size_t type_count = reader.count();
    std::vector<AttributeTable::Entry> attributes;
    std::vector<AttributeTable::Entry> types;
    const auto read_group = [&](std::vector<AttributeTable::Entry>& entries, size_t limit) {
      const uint64_t dialect = reader.varint();
      if (dialect >= out_.dialects.size()) {
        reader.fail(fmt::format("there is no dialect {}", dialect));
        return;
      }
      const size_t count = reader.count();
      if (count > limit - entries.size()) {
        reader.fail("a group has more entries than were announced");
        return;
      }
      for (size_t i = 0; i < count && reader.ok(); ++i) {
        const uint64_t flagged = reader.varint();
        AttributeTable::Entry entry;
        entry.dialect = dialect_kind(out_.dialects[dialect]);
        entry.has_custom_encoding = (flagged & 1) != 0;
        entry.offset = data.position();
        entry.size = flagged >> 1;
        data.bytes(entry.size);
        if (!data.ok()) reader.fail("an entry reaches beyond the attribute data");
        entries.push_back(entry);
      }
    };
    while (reader.ok() && attributes.size() < attribute_count) {
      read_group(attributes, attribute_count);
    }
    while (reader.ok() && types.size() < type_count) read_group(types, type_count);
    reader.expect_end("the attribute offsets");
    HEKLA_RETURN_IF_ERROR(reader.status());
    data.expect_end("the attribute data");
    HEKLA_RETURN_IF_ERROR(data.status());
    out_.table = std::make_unique<AttributeTable>(file_, std::move(strings_), std::move(attributes),
                                                  std::move(types), std::move(resources_));
    return ok_status();
  }

  Status read_properties() {
    if (!sections_[kProperties].has_value()) {
      if (out_.version < 5) return ok_status();
      return invalid_argument("bytecode: section {} is missing", int{kProperties});
    }
    ByteReader& reader = *sections_[kProperties];
    const size_t count = reader.count();
    out_.properties.reserve(count);
    for (size_t i = 0; i < count && reader.ok(); ++i) {
      out_.properties.push_back(reader.sub(reader.varint()));
    }
    reader.expect_end("the properties");
    return reader.status();
  }

  std::string_view file_;
  Container out_;
  std::array<std::optional<ByteReader>, 9> sections_;
  std::vector<std::string_view> strings_;
  std::vector<AttributeTable::Resource> resources_;
};

}  // namespace

Result<Container> read_container(std::string_view file) { return ContainerReader(file).run(); }

}  // namespace hekla::stablehlo
