// SPDX-License-Identifier: Apache-2.0
// Protobuf's wire format, read and written: fields by number, meaning left to the caller.
//
// Enough for the messages that cross the C API and for programs as HLO; docs/decisions.md says why
// no protobuf library is linked. Pure; a reader borrows the message's bytes. Malformed bytes give
// INVALID_ARGUMENT, in time and memory bounded by the message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::wire {

// One field of a message.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // varints, and the bits of numbers of 32 and 64 bits
  std::string_view bytes;  // length-delimited: texts, messages, packed lists
  bool is_bytes = false;
};

// In the order of the message. Groups, which are deprecated, are malformed.
Result<std::vector<Field>> parse_fields(std::string_view message);
// What a field of a repeated integer adds to its list: one number, or a packed list.
Result<std::vector<int64_t>> parse_varints(const Field& field);

// Appends fields to a message.
class Writer {
 public:
  // Negative integers are written as 64 bits of two's complement.
  void varint(uint32_t number, uint64_t value);
  void boolean(uint32_t number, bool value) { varint(number, value ? 1 : 0); }
  void fixed64(uint32_t number, uint64_t bits);
  void bytes(uint32_t number, std::string_view value);
  void message(uint32_t number, const Writer& value) { bytes(number, value.text()); }
  void packed(uint32_t number, std::span<const int64_t> values);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace hekla::wire
