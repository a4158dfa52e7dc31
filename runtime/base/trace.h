// SPDX-License-Identifier: Apache-2.0
// Trace: what this process's devices do when, for profilers.
//
// Whoever works adds spans; whoever wants them makes a recording. While there is none, is_on() is
// false and costs one relaxed load, and nothing else is to be paid: callers ask it before they look
// at a clock. Spans are kept until no recording needs them, at most kMostSpans; what comes after is
// counted and dropped. Times are nanoseconds of now(). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hekla {

// One thing that is known of a span: a number or a text. The name is a literal.
struct TraceStat {
  TraceStat(const char* stat_name, int64_t value) : name(stat_name), number(value) {}
  TraceStat(const char* stat_name, std::string value)
      : name(stat_name), text(std::move(value)), is_text(true) {}

  const char* name;
  int64_t number = 0;
  std::string text;
  bool is_text = false;
};

// What spans of one kind have in common: made once, shared.
struct TraceDetail {
  std::string name;
  std::vector<TraceStat> stats;
};
using TraceDetailRef = std::shared_ptr<const TraceDetail>;

// Spans of a line of a device follow each other or lie within each other, but for transfers.
enum class TraceLine : uint8_t { kHost, kLaunches, kSteps, kCollectives, kTransfers };
inline constexpr int kTraceLineCount = 5;

struct TraceSpan {
  TraceLine line = TraceLine::kHost;
  int64_t index = 0;  // kHost: a thread, by the system's number; else a device of this process
  TraceDetailRef what;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::vector<TraceStat> stats = {};  // of this span alone
};

class Trace {
 public:
  static constexpr size_t kMostSpans = 1'000'000;

  static bool is_on() { return recordings_.load(std::memory_order_relaxed) > 0; }
  static int64_t now();
  // Nothing happens where no recording is under way.
  static void add(TraceSpan span);

 private:
  friend class TraceRecording;
  static std::atomic<int> recordings_;
};

// A span of the calling thread's own line, from here to end().
class HostSpan {
 public:
  HostSpan() {
    if (Trace::is_on()) begin_ns_ = Trace::now();
  }
  // Whether the rest is of use.
  bool is_on() const { return begin_ns_ >= 0; }
  void end(TraceDetailRef what, std::vector<TraceStat> stats = {}) const;

 private:
  int64_t begin_ns_ = -1;
};

// What happens between start() and stop(). One thread.
class TraceRecording {
 public:
  TraceRecording() = default;
  TraceRecording(const TraceRecording&) = delete;
  TraceRecording& operator=(const TraceRecording&) = delete;
  ~TraceRecording() { stop(); }

  // Neither does anything a second time.
  void start();
  void stop();

  // After stop().
  const std::vector<TraceSpan>& spans() const { return spans_; }
  int64_t dropped() const { return dropped_; }
  // From now() to nanoseconds since 1970, as it was at the start.
  int64_t epoch_offset_ns() const { return epoch_offset_ns_; }

 private:
  bool is_running_ = false;
  size_t first_ = 0;
  int64_t dropped_ = 0;
  int64_t epoch_offset_ns_ = 0;
  std::vector<TraceSpan> spans_;
};

}  // namespace hekla
