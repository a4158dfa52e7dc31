// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/exchange_message.h"

#include <utility>

#include "runtime/base/protobuf_wire.h"

namespace hekla::reference {
namespace {

constexpr size_t kMaxRank = 1024;

// An array: 1 dtype, 2 dimensions. A part: 1 device, 2 arrays.
wire::Writer write_part(const ExchangeMessage::Part& part) {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(part.device));
  for (const HostArray& array : part.arrays) {
    wire::Writer shape;
    shape.varint(1, static_cast<uint64_t>(array.dtype()));
    shape.packed(2, array.dims());
    writer.message(2, shape);
  }
  return writer;
}

Result<HostArray> read_array(std::string_view bytes, HostArray block) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(bytes));
  uint64_t dtype = 0;
  Dims dims;
  for (const wire::Field& field : fields) {
    if (field.number == 1) dtype = field.value;
    if (field.number != 2) continue;
    HEKLA_ASSIGN_OR_RETURN(dims, wire::parse_varints(field));
  }
  if (dtype >= static_cast<uint64_t>(kDTypeCount) || dims.size() > kMaxRank) {
    return invalid_argument("an array of dtype {} and rank {}", dtype, dims.size());
  }
  if (dtype == 0) return HostArray();  // nothing
  const auto type = static_cast<DType>(dtype);
  HEKLA_ASSIGN_OR_RETURN(const int64_t size, checked_bytes(type, dims));
  if (size != block.size_bytes()) {
    return invalid_argument("{} with {} bytes", shape_string(type, dims), block.size_bytes());
  }
  return block.with_shape(type, std::move(dims));
}

}  // namespace

std::string ExchangeMessage::head() const {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(kind));
  writer.fixed64(2, site);
  writer.bytes(3, where);
  writer.packed(4, members);
  writer.varint(5, static_cast<uint64_t>(round));
  writer.varint(6, static_cast<uint64_t>(channel));
  writer.varint(7, static_cast<uint64_t>(target));
  for (const Part& part : parts) writer.message(8, write_part(part));
  return writer.text();
}

std::vector<HostArray> ExchangeMessage::blocks() const {
  std::vector<HostArray> blocks;
  for (const Part& part : parts) {
    blocks.insert(blocks.end(), part.arrays.begin(), part.arrays.end());
  }
  return blocks;
}

Result<ExchangeMessage> ExchangeMessage::read(std::string_view head,
                                              std::vector<HostArray> blocks) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(head));
  ExchangeMessage message;
  size_t next = 0;
  for (const wire::Field& field : fields) {
    if (field.number == 1) {
      if (field.value > static_cast<uint64_t>(Kind::kState)) {
        return invalid_argument("a message of kind {}", field.value);
      }
      message.kind = static_cast<Kind>(field.value);
    }
    if (field.number == 2) message.site = field.value;
    if (field.number == 3) message.where = field.bytes;
    if (field.number == 4) {
      HEKLA_ASSIGN_OR_RETURN(message.members, wire::parse_varints(field));
    }
    if (field.number == 5) message.round = static_cast<int64_t>(field.value);
    if (field.number == 6) message.channel = static_cast<int64_t>(field.value);
    if (field.number == 7) message.target = static_cast<int64_t>(field.value);
    if (field.number != 8) continue;
    Part part;
    HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields_of_part,
                           wire::parse_fields(field.bytes));
    for (const wire::Field& inner : fields_of_part) {
      if (inner.number == 1) part.device = static_cast<int64_t>(inner.value);
      if (inner.number != 2) continue;
      if (next == blocks.size()) return invalid_argument("an array without bytes");
      HEKLA_ASSIGN_OR_RETURN(HostArray array, read_array(inner.bytes, std::move(blocks[next++])));
      part.arrays.push_back(std::move(array));
    }
    message.parts.push_back(std::move(part));
  }
  if (next != blocks.size()) return invalid_argument("bytes of no array");
  return message;
}

}  // namespace hekla::reference
