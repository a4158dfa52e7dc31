// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/protobuf_wire.h"

#include <cstring>

namespace hekla::wire {
namespace {

enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint64_t kMaxNumber = (uint64_t{1} << 29) - 1;

Status malformed() { return invalid_argument("malformed protobuf message"); }

bool read_varint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void append_key(std::string& out, uint32_t number, WireType type) {
  append_varint(out, uint64_t{number} << 3 | type);
}

}  // namespace

Result<std::vector<Field>> parse_fields(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    uint64_t key = 0;
    if (!read_varint(message, key)) return malformed();
    const uint64_t number = key >> 3;
    if (number == 0 || number > kMaxNumber) return malformed();
    Field field;
    field.number = static_cast<uint32_t>(number);
    switch (key & 7) {
      case kVarint:
        if (!read_varint(message, field.value)) return malformed();
        break;
      case kFixed64:
      case kFixed32: {
        const size_t width = (key & 7) == kFixed64 ? 8 : 4;
        if (message.size() < width) return malformed();
        std::memcpy(&field.value, message.data(), width);
        message.remove_prefix(width);
        break;
      }
      case kBytes: {
        uint64_t size = 0;
        if (!read_varint(message, size) || size > message.size()) return malformed();
        field.bytes = message.substr(0, size);
        field.is_bytes = true;
        message.remove_prefix(size);
        break;
      }
      default:
        return malformed();
    }
    fields.push_back(field);
  }
  return fields;
}

Result<std::vector<int64_t>> parse_varints(const Field& field) {
  std::vector<int64_t> values;
  if (!field.is_bytes) {
    values.push_back(static_cast<int64_t>(field.value));
    return values;
  }
  std::string_view bytes = field.bytes;
  while (!bytes.empty()) {
    uint64_t value = 0;
    if (!read_varint(bytes, value)) return malformed();
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

void Writer::varint(uint32_t number, uint64_t value) {
  append_key(text_, number, kVarint);
  append_varint(text_, value);
}

void Writer::fixed64(uint32_t number, uint64_t bits) {
  append_key(text_, number, kFixed64);
  for (int i = 0; i < 8; ++i) text_ += static_cast<char>(bits >> (8 * i));
}

void Writer::bytes(uint32_t number, std::string_view value) {
  append_key(text_, number, kBytes);
  append_varint(text_, value.size());
  text_ += value;
}

void Writer::packed(uint32_t number, std::span<const int64_t> values) {
  std::string list;
  for (int64_t value : values) append_varint(list, static_cast<uint64_t>(value));
  bytes(number, list);
}

}  // namespace hekla::wire
