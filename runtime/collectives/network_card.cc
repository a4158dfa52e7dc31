// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/network_card.h"

#include <climits>
#include <vector>

#include "runtime/base/protobuf_wire.h"

namespace hekla::collectives {

std::string NetworkCard::text() const {
  wire::Writer writer;
  writer.bytes(1, engine);
  writer.bytes(2, host);
  writer.bytes(3, address);
  writer.bytes(4, token);
  writer.varint(5, static_cast<uint64_t>(pid));
  writer.varint(6, static_cast<uint64_t>(rank));
  writer.varint(7, static_cast<uint64_t>(size));
  for (const auto& [process, name] : names) {
    wire::Writer end;
    end.varint(1, static_cast<uint64_t>(process));
    end.bytes(2, name);
    writer.message(8, end);
  }
  return writer.text();
}

Result<NetworkCard> NetworkCard::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  NetworkCard card;
  for (const wire::Field& field : fields) {
    if (field.number == 1) card.engine = field.bytes;
    if (field.number == 2) card.host = field.bytes;
    if (field.number == 3) card.address = field.bytes;
    if (field.number == 4) card.token = field.bytes;
    if (field.number == 5) card.pid = static_cast<int64_t>(field.value);
    if (field.number == 6) card.rank = static_cast<int64_t>(field.value);
    if (field.number == 7) card.size = static_cast<int64_t>(field.value);
    if (field.number != 8) continue;
    HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> parts, wire::parse_fields(field.bytes));
    int64_t process = -1;
    std::string name;
    for (const wire::Field& part : parts) {
      if (part.number == 1) process = static_cast<int64_t>(part.value);
      if (part.number == 2) name = part.bytes;
    }
    if (process < 0 || process > INT_MAX || name.empty()) {
      return invalid_argument("a malformed description of a process on the network");
    }
    card.names[static_cast<int>(process)] = std::move(name);
  }
  if (card.engine.empty() || card.token.size() != kTokenBytes || card.pid <= 0 || card.rank < 0 ||
      card.size <= 0) {
    return invalid_argument("a malformed description of a process on the network");
  }
  return card;
}

}  // namespace hekla::collectives
