// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/flight/flight_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

namespace hekla::process_group {
namespace {

constexpr int kMostRanks = 1 << 20;  // of what is a group

std::string flight_text(const char* text, size_t room) {
  return std::string(text, ::strnlen(text, room));
}

}  // namespace

uint64_t flight::pid_space() {
  struct stat found = {};
  return ::stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

std::string FlightRecord::Entry::to_string(const std::string& group) const {
  if (kind == flight::Kind::kCollective) {
    return fmt::format("call {} of group {}, {}", sequence, group, call.to_string());
  }
  if (kind == flight::Kind::kRefused) {
    return fmt::format("refusal of call {} of group {}", sequence, group);
  }
  const bool is_send = kind == flight::Kind::kSend;
  return fmt::format("{} of {}[{}] {} {} with tag {} of group {}", is_send ? "send" : "receive",
                     dtype_name(call.dtype), call.count, is_send ? "to" : "from",
                     call.root < 0 ? "any rank" : fmt::format("rank {}", call.root), sequence,
                     group);
}

Result<FlightRecord> FlightRecord::read(const std::string& path) {
  const auto content = [&] {
    std::ifstream stream(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(stream)), {});
  };
  const std::string bytes = content();
  if (bytes.size() != sizeof(flight::File)) {
    return data_loss("{} is no flight record of this version: {} bytes", path, bytes.size());
  }
  // Atomics are read from a copy that nobody writes.
  const auto file = std::make_unique<flight::File>();
  std::memcpy(static_cast<void*>(file.get()), bytes.data(), bytes.size());
  if (file->head.mark != flight::kMark) {
    return data_loss("{} is no flight record of this version", path);
  }
  FlightRecord record;
  record.path = path;
  record.pid = file->head.pid;
  record.rank = file->head.rank;
  record.size = file->head.size;
  record.host = flight_text(file->head.host, sizeof(file->head.host));
  record.boot = flight_text(file->head.boot, sizeof(file->head.boot));
  record.pid_space = file->head.pid_space;
  record.has_ended = file->head.stage == flight::Stage::kHasEnded;
  record.has_no_groups = file->head.stage == flight::Stage::kHasNoGroups;
  record.calls_made = file->head.calls;
  const uint32_t groups = std::min<uint32_t>(file->head.groups, flight::kGroups);
  for (uint32_t i = 0; i < groups; ++i) {
    const flight::Group& group = file->groups[i];
    if (group.size < 1 || group.size > kMostRanks) continue;
    if (group.rank < 0 || group.rank >= group.size) continue;
    record.groups.push_back(
        {group.id, group.rank, group.size, flight_text(group.name, sizeof(group.name))});
  }
  // Of a process that runs: what was overwritten while it was read has another number now.
  const std::string again = content();
  if (again.size() != bytes.size()) return data_loss("{} changes its size", path);
  const auto number_again = [&](const flight::Entry& raw) {
    uint64_t number = 0;
    const auto* const begin = reinterpret_cast<const char*>(file.get());
    std::memcpy(&number, again.data() + (reinterpret_cast<const char*>(&raw.number) - begin),
                sizeof(number));
    return number;
  };
  for (const flight::Entry& raw : file->calls) {
    if (number_again(raw) != raw.number) continue;
    const flight::State state = raw.state;
    const bool is_known = raw.number != 0 && raw.kind <= flight::Kind::kRefused &&
                          state <= flight::State::kFailed &&
                          static_cast<int>(raw.operation) < kOperationCount &&
                          static_cast<int>(raw.dtype) < kDTypeCount &&
                          static_cast<int>(raw.reduce) < kReduceOpCount && raw.count >= 0;
    if (!is_known) continue;
    Entry entry;
    entry.number = raw.number;
    entry.group = raw.group;
    entry.sequence = raw.sequence;
    entry.made_ms = raw.made_ms;
    entry.changed_ms = raw.changed_ms;
    entry.kind = raw.kind;
    entry.is_waited_for = raw.waiters != 0;
    entry.state = state;
    entry.call = {raw.operation, raw.dtype,  raw.reduce, raw.root,
                  raw.count,     raw.factor, raw.detail, 0};
    if (state == flight::State::kFailed) entry.error = flight_text(raw.text, sizeof(raw.text));
    record.calls.push_back(std::move(entry));
  }
  std::sort(record.calls.begin(), record.calls.end(),
            [](const Entry& a, const Entry& b) { return a.number < b.number; });
  return record;
}

}  // namespace hekla::process_group
