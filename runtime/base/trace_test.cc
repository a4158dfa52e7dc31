// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/trace.h"

#include <gtest/gtest.h>

#include <thread>

namespace hekla {
namespace {

TraceDetailRef named(std::string name) {
  return std::make_shared<TraceDetail>(TraceDetail{std::move(name), {}});
}

TraceSpan span(std::string name) { return {TraceLine::kSteps, 3, named(std::move(name)), 10, 20}; }

std::vector<std::string> names(const TraceRecording& recording) {
  std::vector<std::string> all;
  for (const TraceSpan& each : recording.spans()) all.push_back(each.what->name);
  return all;
}

TEST(Trace, KeepsWhatHappensWhileItIsOn) {
  Trace::add(span("before"));
  TraceRecording recording;
  EXPECT_FALSE(Trace::is_on());
  recording.start();
  recording.start();
  EXPECT_TRUE(Trace::is_on());
  Trace::add(span("a"));
  std::thread([] { HostSpan().end(named("b"), {{"bytes", int64_t{5}}}); }).join();
  recording.stop();
  recording.stop();
  Trace::add(span("after"));
  EXPECT_FALSE(HostSpan().is_on());
  EXPECT_FALSE(Trace::is_on());
  EXPECT_EQ(names(recording), (std::vector<std::string>{"a", "b"}));
  const TraceSpan& b = recording.spans()[1];
  EXPECT_EQ(b.line, TraceLine::kHost);
  EXPECT_LE(b.begin_ns, b.end_ns);
  EXPECT_EQ(b.stats[0].number, 5);
  EXPECT_EQ(recording.dropped(), 0);
}

TEST(Trace, RecordingsOverlap) {
  TraceRecording outer, inner, later;
  outer.start();
  Trace::add(span("a"));
  inner.start();
  Trace::add(span("b"));
  outer.stop();
  EXPECT_TRUE(Trace::is_on());
  Trace::add(span("c"));
  inner.stop();
  EXPECT_EQ(names(outer), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names(inner), (std::vector<std::string>{"b", "c"}));
  later.start();
  later.stop();
  EXPECT_TRUE(later.spans().empty());
}

TEST(Trace, IsBounded) {
  TraceRecording recording;
  recording.start();
  const TraceSpan one = span("a");
  for (size_t i = 0; i < Trace::kMostSpans + 7; ++i) Trace::add(one);
  recording.stop();
  EXPECT_EQ(recording.spans().size(), Trace::kMostSpans);
  EXPECT_EQ(recording.dropped(), 7);
}

}  // namespace
}  // namespace hekla
