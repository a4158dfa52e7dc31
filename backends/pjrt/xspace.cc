// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/xspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "runtime/base/hash.h"
#include "runtime/base/protobuf_wire.h"

namespace hekla::pjrt {
namespace {

using Spans = std::vector<const TraceSpan*>;

constexpr int64_t kPsPerNs = 1000;

const char* line_name(TraceLine line) {
  constexpr const char* kNames[kTraceLineCount] = {"Host", "Launches", "Steps", "Collectives",
                                                   "Transfers"};
  return kNames[static_cast<size_t>(line)];
}

// One plane: its lines, and the tables of names that their events refer to.
class Plane {
 public:
  Plane(int64_t number, const std::string& name, int64_t epoch_offset_ns)
      : epoch_offset_ns_(epoch_offset_ns) {
    message_.varint(1, static_cast<uint64_t>(number));
    message_.bytes(2, name);
  }

  void add_line(int64_t number, const std::string& name, Spans spans) {
    // Outer spans in front of those within them.
    std::ranges::stable_sort(spans, [](const TraceSpan* a, const TraceSpan* b) {
      return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
    });
    const int64_t first = spans.front()->begin_ns;
    wire::Writer line;
    line.varint(1, static_cast<uint64_t>(number));
    line.bytes(2, name);
    line.varint(3, static_cast<uint64_t>(first + epoch_offset_ns_));
    for (const TraceSpan* span : spans) {
      wire::Writer event;
      event.varint(1, event_id(span->what));
      event.varint(2, static_cast<uint64_t>((span->begin_ns - first) * kPsPerNs));
      event.varint(3, static_cast<uint64_t>((span->end_ns - span->begin_ns) * kPsPerNs));
      for (const TraceStat& stat : span->stats) event.message(4, stat_message(stat));
      line.message(4, event);
    }
    message_.message(3, line);
  }

  wire::Writer take() {
    for (const auto& [detail, id] : events_) {
      wire::Writer metadata;
      metadata.varint(1, id);
      metadata.bytes(2, detail->name);
      for (const TraceStat& stat : detail->stats) metadata.message(5, stat_message(stat));
      add_entry(4, id, metadata);
    }
    for (const auto& [name, id] : stats_) {
      wire::Writer metadata;
      metadata.varint(1, id);
      metadata.bytes(2, name);
      add_entry(5, id, metadata);
    }
    return std::move(message_);
  }

 private:
  uint64_t event_id(const TraceDetailRef& what) {
    return events_.try_emplace(what.get(), events_.size() + 1).first->second;
  }

  wire::Writer stat_message(const TraceStat& stat) {
    wire::Writer message;
    message.varint(1, stats_.try_emplace(stat.name, stats_.size() + 1).first->second);
    if (stat.is_text) {
      message.bytes(5, stat.text);
    } else {
      message.varint(4, static_cast<uint64_t>(stat.number));
    }
    return message;
  }

  // Of a map from numbers to messages.
  void add_entry(uint32_t field, uint64_t key, const wire::Writer& value) {
    wire::Writer entry;
    entry.varint(1, key);
    entry.message(2, value);
    message_.message(field, entry);
  }

  const int64_t epoch_offset_ns_;
  wire::Writer message_;
  std::unordered_map<const TraceDetail*, uint64_t> events_;
  std::map<std::string_view, uint64_t> stats_;
};

}  // namespace

std::string xspace(const TraceRecording& recording, int64_t first_number,
                   const std::function<std::string(int64_t device)>& device_name) {
  std::map<int64_t, Spans> threads;
  std::map<int64_t, std::map<TraceLine, Spans>> devices;
  for (const TraceSpan& span : recording.spans()) {
    if (span.line == TraceLine::kHost) {
      threads[span.index].push_back(&span);
    } else {
      devices[span.index][span.line].push_back(&span);
    }
  }
  wire::Writer space;
  int64_t number = first_number;
  const int64_t offset = recording.epoch_offset_ns();
  for (const auto& [index, lines] : devices) {
    Plane plane(number++, "/device:CUSTOM:" + device_name(index), offset);
    for (const auto& [line, spans] : lines) {
      plane.add_line(static_cast<int64_t>(line), line_name(line), spans);
    }
    space.message(1, plane.take());
  }
  if (!threads.empty()) {
    Plane plane(number++, "/device:CUSTOM:hekla host", offset);
    for (const auto& [thread, spans] : threads) {
      plane.add_line(thread, fmt::format("thread {}", thread), spans);
    }
    space.message(1, plane.take());
  }
  if (recording.dropped() > 0) {
    space.bytes(3, fmt::format("{} spans came after the first {}, which are all that is kept",
                               recording.dropped(), Trace::kMostSpans));
  }
  return space.text();
}

int64_t first_plane_number(std::string_view platform) {
  constexpr uint64_t kPlatforms = 7;  // times kPlanes: below the viewers' 200
  constexpr int64_t kPlanes = 28;
  return static_cast<int64_t>(fnv1a(platform) % kPlatforms) * kPlanes;
}

}  // namespace hekla::pjrt
