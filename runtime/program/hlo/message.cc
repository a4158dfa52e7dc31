// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/hlo/message.h"

#include <bit>
#include <utility>

namespace hekla::hlo {

Result<Message> Message::parse(std::string_view bytes, std::string_view what) {
  Result<std::vector<wire::Field>> fields = wire::parse_fields(bytes);
  if (!fields.ok()) return fields.status().with_context(what);
  Message message;
  message.fields_ = *std::move(fields);
  return message;
}

const wire::Field* Message::find(uint32_t number, bool is_bytes) const {
  for (auto field = fields_.rbegin(); field != fields_.rend(); ++field) {
    if (field->number == number && field->is_bytes == is_bytes) return &*field;
  }
  return nullptr;
}

bool Message::has(uint32_t number) const {
  return find(number, true) != nullptr || find(number, false) != nullptr;
}

int64_t Message::integer(uint32_t number, int64_t fallback) const {
  const wire::Field* field = find(number, false);
  return field == nullptr ? fallback : static_cast<int64_t>(field->value);
}

double Message::number(uint32_t number) const { return std::bit_cast<double>(integer(number)); }

std::string_view Message::bytes(uint32_t number) const {
  const wire::Field* field = find(number, true);
  return field == nullptr ? std::string_view() : field->bytes;
}

Result<Message> Message::message(uint32_t number, std::string_view what) const {
  return parse(bytes(number), what);
}

std::vector<std::string_view> Message::list(uint32_t number) const {
  std::vector<std::string_view> found;
  for (const wire::Field& field : fields_) {
    if (field.number == number && field.is_bytes) found.push_back(field.bytes);
  }
  return found;
}

Result<std::vector<Message>> Message::messages(uint32_t number, std::string_view what) const {
  std::vector<Message> found;
  for (std::string_view bytes : list(number)) {
    HEKLA_ASSIGN_OR_RETURN(Message one, parse(bytes, what));
    found.push_back(std::move(one));
  }
  return found;
}

Result<std::vector<int64_t>> Message::integers(uint32_t number) const {
  std::vector<int64_t> found;
  for (const wire::Field& field : fields_) {
    if (field.number != number) continue;
    HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> values, wire::parse_varints(field));
    found.insert(found.end(), values.begin(), values.end());
  }
  return found;
}

Result<std::string> Message::fixed(uint32_t number, size_t width) const {
  std::string found;
  for (const wire::Field& field : fields_) {
    if (field.number != number) continue;
    if (!field.is_bytes) {
      for (size_t i = 0; i < width; ++i) found += static_cast<char>(field.value >> (8 * i));
    } else if (field.bytes.size() % width == 0) {
      found += field.bytes;
    } else {
      return invalid_argument("a list of numbers of {} bytes has {} bytes", width,
                              field.bytes.size());
    }
  }
  return found;
}

}  // namespace hekla::hlo
