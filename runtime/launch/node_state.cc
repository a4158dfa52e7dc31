// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/node_state.h"

#include <algorithm>
#include <bit>

#include "runtime/base/protobuf_wire.h"

namespace hekla::launch {
namespace {

// No number of ranks, port or code is above it.
constexpr uint64_t kMostRanks = 1 << 20;

Result<int> small(const wire::Field& field) {
  if (field.value <= kMostRanks) return static_cast<int>(field.value);
  return data_loss("a launcher wrote {} where a small number stands", field.value);
}

std::string failure_text(const Failure& failure) {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(failure.rank));
  writer.varint(2, static_cast<uint64_t>(failure.end.exit_code));
  writer.varint(3, static_cast<uint64_t>(failure.end.signal));
  writer.fixed64(4, std::bit_cast<uint64_t>(failure.seconds));
  writer.bytes(5, failure.words);
  return writer.text();
}

Result<Failure> read_failure(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const auto fields, wire::parse_fields(text));
  Failure failure;
  for (const wire::Field& field : fields) {
    if (field.number == 1) {
      HEKLA_ASSIGN_OR_RETURN(failure.rank, small(field));
    }
    if (field.number == 2) {
      HEKLA_ASSIGN_OR_RETURN(failure.end.exit_code, small(field));
    }
    if (field.number == 3) {
      HEKLA_ASSIGN_OR_RETURN(failure.end.signal, small(field));
    }
    if (field.number == 4) failure.seconds = std::bit_cast<double>(field.value);
    if (field.number == 5) failure.words = field.bytes;
  }
  return failure;
}

Result<Plan::Seat> read_seat(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const auto fields, wire::parse_fields(text));
  Plan::Seat seat;
  for (const wire::Field& field : fields) {
    if (field.number == 1) seat.node = field.bytes;
    if (field.number == 2) seat.host = field.bytes;
    if (field.number == 3) {
      HEKLA_ASSIGN_OR_RETURN(seat.first_rank, small(field));
    }
    if (field.number == 4) {
      HEKLA_ASSIGN_OR_RETURN(seat.ranks, small(field));
    }
  }
  return seat;
}

}  // namespace

std::string NodeCard::text() const {
  wire::Writer writer;
  writer.bytes(1, host);
  writer.varint(2, static_cast<uint64_t>(nproc));
  writer.varint(3, static_cast<uint64_t>(number));
  return writer.text();
}

Result<NodeCard> NodeCard::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const auto fields, wire::parse_fields(text));
  NodeCard card;
  card.nproc = 0;
  for (const wire::Field& field : fields) {
    if (field.number == 1) card.host = field.bytes;
    if (field.number == 2) {
      HEKLA_ASSIGN_OR_RETURN(card.nproc, small(field));
    }
    if (field.number == 3) card.number = static_cast<int64_t>(field.value);
  }
  if (card.nproc < 1) return data_loss("a launcher with {} ranks", card.nproc);
  return card;
}

std::string NodeReport::text() const {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(attempt));
  writer.boolean(2, has_ended);
  writer.boolean(3, is_leaving);
  writer.boolean(4, all_saved);
  if (failure) writer.bytes(5, failure_text(*failure));
  return writer.text();
}

Result<NodeReport> NodeReport::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const auto fields, wire::parse_fields(text));
  NodeReport report;
  for (const wire::Field& field : fields) {
    if (field.number == 1) report.attempt = static_cast<int64_t>(field.value);
    if (field.number == 2) report.has_ended = field.value != 0;
    if (field.number == 3) report.is_leaving = field.value != 0;
    if (field.number == 4) report.all_saved = field.value != 0;
    if (field.number == 5) {
      HEKLA_ASSIGN_OR_RETURN(report.failure, read_failure(field.bytes));
    }
  }
  return report;
}

int Plan::seat_of(std::string_view node) const {
  const auto found =
      std::find_if(seats.begin(), seats.end(), [&](const Seat& seat) { return seat.node == node; });
  return found == seats.end() ? -1 : static_cast<int>(found - seats.begin());
}

std::string Plan::text() const {
  wire::Writer writer;
  writer.varint(1, static_cast<uint64_t>(version));
  writer.varint(2, static_cast<uint64_t>(kind));
  writer.varint(3, static_cast<uint64_t>(attempt));
  writer.varint(4, static_cast<uint64_t>(exit_code));
  for (const Seat& seat : seats) {
    wire::Writer one;
    one.bytes(1, seat.node);
    one.bytes(2, seat.host);
    one.varint(3, static_cast<uint64_t>(seat.first_rank));
    one.varint(4, static_cast<uint64_t>(seat.ranks));
    writer.message(5, one);
  }
  writer.bytes(6, store);
  writer.bytes(7, address);
  writer.varint(8, static_cast<uint64_t>(port));
  for (const auto& [when, what] : news) {
    wire::Writer one;
    one.varint(1, static_cast<uint64_t>(when));
    one.bytes(2, what);
    writer.message(9, one);
  }
  return writer.text();
}

Result<Plan> Plan::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const auto fields, wire::parse_fields(text));
  Plan plan;
  for (const wire::Field& field : fields) {
    if (field.number == 1) plan.version = static_cast<int64_t>(field.value);
    if (field.number == 2) {
      if (field.value > static_cast<uint64_t>(Kind::kEnd)) {
        return data_loss("a plan of the launchers of kind {}", field.value);
      }
      plan.kind = static_cast<Kind>(field.value);
    }
    if (field.number == 3) plan.attempt = static_cast<int64_t>(field.value);
    if (field.number == 4) {
      HEKLA_ASSIGN_OR_RETURN(plan.exit_code, small(field));
    }
    if (field.number == 5) {
      HEKLA_ASSIGN_OR_RETURN(const Seat seat, read_seat(field.bytes));
      if (seat.first_rank != plan.size() || seat.ranks < 1) {
        return data_loss("a plan of the launchers with {} ranks from rank {} on, behind {}",
                         seat.ranks, seat.first_rank, plan.size());
      }
      plan.seats.push_back(seat);
    }
    if (field.number == 6) plan.store = field.bytes;
    if (field.number == 7) plan.address = field.bytes;
    if (field.number == 8) {
      HEKLA_ASSIGN_OR_RETURN(plan.port, small(field));
    }
    if (field.number != 9) continue;
    HEKLA_ASSIGN_OR_RETURN(const auto parts, wire::parse_fields(field.bytes));
    auto& [when, what] = plan.news.emplace_back();
    for (const wire::Field& part : parts) {
      if (part.number == 1) when = static_cast<int64_t>(part.value);
      if (part.number == 2) what = part.bytes;
    }
  }
  return plan;
}

}  // namespace hekla::launch
