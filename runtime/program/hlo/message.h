// SPDX-License-Identifier: Apache-2.0
// Message: one protobuf message by its field numbers.
//
// Borrows the bytes, which outlive it. A field of another wire type than was asked for counts as
// absent, as protobuf has it; of a single field that comes twice the last one counts. Pure; the
// time is linear in the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/protobuf_wire.h"
#include "runtime/base/status.h"

namespace hekla::hlo {

class Message {
 public:
  Message() = default;  // without fields
  // `what` names the message in errors: "a shape".
  static Result<Message> parse(std::string_view bytes, std::string_view what);

  bool has(uint32_t number) const;
  int64_t integer(uint32_t number, int64_t fallback = 0) const;
  bool flag(uint32_t number) const { return integer(number) != 0; }
  // A field of 64 bits; 0 when absent.
  double number(uint32_t number) const;
  // The bits of a field of 32 bits; 0 when absent.
  uint32_t bits(uint32_t number) const { return static_cast<uint32_t>(integer(number)); }
  std::string_view bytes(uint32_t number) const;
  std::string text(uint32_t number) const { return std::string(bytes(number)); }
  // Absent messages have no fields.
  Result<Message> message(uint32_t number, std::string_view what) const;
  // Every field of that number.
  std::vector<std::string_view> list(uint32_t number) const;
  Result<std::vector<Message>> messages(uint32_t number, std::string_view what) const;
  // A repeated integer, packed or not.
  Result<std::vector<int64_t>> integers(uint32_t number) const;
  // All occurrences of a repeated number of `width` bytes, packed or not, as bytes.
  Result<std::string> fixed(uint32_t number, size_t width) const;

 private:
  const wire::Field* find(uint32_t number, bool is_bytes) const;
  std::vector<wire::Field> fields_;
};

}  // namespace hekla::hlo
