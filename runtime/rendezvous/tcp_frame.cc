// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/tcp_frame.h"

#include "runtime/base/protobuf_wire.h"

namespace hekla::rendezvous {

std::string TcpRequest::text() const {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(what));
  writer.bytes(2, key);
  writer.bytes(3, value);
  writer.varint(4, static_cast<uint64_t>(number));
  if (expected) writer.bytes(5, *expected);
  return writer.text();
}

Result<TcpRequest> TcpRequest::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  TcpRequest request;
  for (const wire::Field& field : fields) {
    if (field.number == 1) {
      if (field.value >= kCount) return data_loss("a request {} to the store", field.value);
      request.what = static_cast<What>(field.value);
    }
    if (field.number == 2) request.key = field.bytes;
    if (field.number == 3) request.value = field.bytes;
    if (field.number == 4) request.number = static_cast<int64_t>(field.value);
    if (field.number == 5) request.expected = std::string(field.bytes);
  }
  return request;
}

std::string TcpAnswer::text() const {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(status.code()));
  if (!status.ok()) writer.bytes(2, status.message());
  if (value) writer.bytes(3, *value);
  writer.varint(4, static_cast<uint64_t>(number));
  for (const auto& [key, one] : values) {
    wire::Writer pair;
    pair.bytes(1, key);
    pair.bytes(2, one);
    writer.message(5, pair);
  }
  return writer.text();
}

Result<TcpAnswer> TcpAnswer::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  TcpAnswer answer;
  uint64_t code = 0;
  std::string message;
  for (const wire::Field& field : fields) {
    if (field.number == 1) code = field.value;
    if (field.number == 2) message = field.bytes;
    if (field.number == 3) answer.value = std::string(field.bytes);
    if (field.number == 4) answer.number = static_cast<int64_t>(field.value);
    if (field.number != 5) continue;
    HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> pair, wire::parse_fields(field.bytes));
    std::string key, value;
    for (const wire::Field& part : pair) {
      if (part.number == 1) key = part.bytes;
      if (part.number == 2) value = part.bytes;
    }
    answer.values[key] = value;
  }
  if (code > static_cast<uint64_t>(StatusCode::kUnauthenticated)) {
    return data_loss("an answer {} of the store", code);
  }
  if (code != 0) answer.status = Status(static_cast<StatusCode>(code), message);
  return answer;
}

std::string tcp_frame(std::string_view text) {
  std::string frame;
  for (int i = 0; i < 4; ++i) frame += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return frame.append(text);
}

Result<std::optional<std::string>> take_tcp_frame(std::string& bytes, size_t limit) {
  if (bytes.size() < 4) return std::optional<std::string>();
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i) {
    size |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  if (size > limit) return data_loss("a frame of {} bytes; {} are allowed", size, limit);
  if (bytes.size() < 4 + size) return std::optional<std::string>();
  std::string text = bytes.substr(4, size);
  bytes.erase(0, 4 + size);
  return std::optional<std::string>(std::move(text));
}

}  // namespace hekla::rendezvous
