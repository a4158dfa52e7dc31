// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/process_state.h"

#include "runtime/base/protobuf_wire.h"

namespace hekla::reference {

// A state: 1 waits, 2 counts. A wait: 1 device, 2 where, 3 the others. A count: 1 process, 2 sent,
// 3 received.
std::string ProcessState::text() const {
  wire::Writer writer;
  for (const Waiting& one : waiting) {
    wire::Writer inner;
    inner.varint(1, static_cast<uint64_t>(one.device));
    inner.bytes(2, one.where);
    inner.packed(3, one.others);
    writer.message(1, inner);
  }
  for (const auto& [process, count] : counts) {
    wire::Writer inner;
    inner.varint(1, static_cast<uint64_t>(process));
    inner.varint(2, static_cast<uint64_t>(count.sent));
    inner.varint(3, static_cast<uint64_t>(count.received));
    writer.message(2, inner);
  }
  return writer.text();
}

Result<ProcessState> ProcessState::read(std::string_view text) {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> fields, wire::parse_fields(text));
  ProcessState state;
  for (const wire::Field& field : fields) {
    if (field.number != 1 && field.number != 2) continue;
    HEKLA_ASSIGN_OR_RETURN(const std::vector<wire::Field> inner, wire::parse_fields(field.bytes));
    Waiting waiting;
    Count count;
    int process = -1;
    for (const wire::Field& one : inner) {
      if (field.number == 1) {
        if (one.number == 1) waiting.device = static_cast<int64_t>(one.value);
        if (one.number == 2) waiting.where = one.bytes;
        if (one.number != 3) continue;
        HEKLA_ASSIGN_OR_RETURN(waiting.others, wire::parse_varints(one));
      } else {
        if (one.number == 1) process = static_cast<int>(one.value);
        if (one.number == 2) count.sent = static_cast<int64_t>(one.value);
        if (one.number == 3) count.received = static_cast<int64_t>(one.value);
      }
    }
    if (field.number == 1) {
      state.waiting.push_back(std::move(waiting));
    } else {
      state.counts[process] = count;
    }
  }
  return state;
}

std::optional<std::vector<ProcessState::Waiting>> StuckProcesses::endless(
    const std::vector<int>& processes) const {
  std::vector<ProcessState::Waiting> all;
  for (const int process : processes) {
    const auto own = states_.find(process);
    if (own == states_.end()) return std::nullopt;
    for (const int other : processes) {
      if (other == process) continue;
      const auto theirs = states_.find(other);
      if (theirs == states_.end()) return std::nullopt;
      const auto sent = own->second.counts.find(other);
      const auto received = theirs->second.counts.find(process);
      const int64_t sent_count = sent == own->second.counts.end() ? 0 : sent->second.sent;
      const int64_t received_count =
          received == theirs->second.counts.end() ? 0 : received->second.received;
      if (sent_count != received_count) return std::nullopt;
    }
    all.insert(all.end(), own->second.waiting.begin(), own->second.waiting.end());
  }
  return all.empty() ? std::nullopt : std::optional(std::move(all));
}

}  // namespace hekla::reference
