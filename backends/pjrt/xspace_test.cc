// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/xspace.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <set>
#include <thread>

#include "backends/pjrt/abi.h"
#include "backends/pjrt/plugin.h"
#include "runtime/base/protobuf_wire.h"

namespace hekla::pjrt {
namespace {

using Fields = std::vector<wire::Field>;

Fields fields_of(std::string_view message) {
  const Result<Fields> fields = wire::parse_fields(message);
  EXPECT_TRUE(fields.ok()) << fields.status().to_string();
  return fields.ok() ? *fields : Fields();
}

std::vector<std::string_view> all(std::string_view message, uint32_t number) {
  std::vector<std::string_view> found;
  for (const wire::Field& field : fields_of(message)) {
    if (field.number == number) found.push_back(field.bytes);
  }
  return found;
}

std::string_view text(std::string_view message, uint32_t number) {
  const auto found = all(message, number);
  return found.empty() ? std::string_view() : found.front();
}

uint64_t number(std::string_view message, uint32_t number) {
  for (const wire::Field& field : fields_of(message)) {
    if (field.number == number) return field.value;
  }
  return 0;
}

// Names of a plane's tables: 4 of events, 5 of stats.
std::map<uint64_t, std::string> names(std::string_view plane, uint32_t table) {
  std::map<uint64_t, std::string> found;
  for (const std::string_view entry : all(plane, table)) {
    const std::string_view metadata = text(entry, 2);
    EXPECT_EQ(number(entry, 1), number(metadata, 1));
    found[number(entry, 1)] = text(metadata, 2);
  }
  return found;
}

TEST(Xspace, HasAPlaneForEachDeviceAndOneForTheHost) {
  const auto kernel = std::make_shared<const TraceDetail>(
      TraceDetail{"add", {{"source", std::string("m.py:3")}, {"flops", int64_t{25}}}});
  const auto launch = std::make_shared<const TraceDetail>(TraceDetail{"jit_f", {}});
  TraceRecording recording;
  recording.start();
  Trace::add({TraceLine::kSteps, 1, kernel, 1500, 1600});
  Trace::add({TraceLine::kSteps, 1, launch, 1000, 1700, {{"run_id", int64_t{7}}}});
  Trace::add({TraceLine::kSteps, 1, kernel, 1000, 1200});
  Trace::add({TraceLine::kLaunches, 0, launch, 1000, 1700});
  HostSpan().end(launch);
  recording.stop();
  const std::string space =
      xspace(recording, 5, [](int64_t device) { return "fake:" + std::to_string(device + 4); });

  const auto planes = all(space, 1);
  ASSERT_EQ(planes.size(), 3U);
  EXPECT_EQ(text(planes[0], 2), "/device:CUSTOM:fake:4");
  EXPECT_EQ(text(planes[1], 2), "/device:CUSTOM:fake:5");
  EXPECT_EQ(text(planes[2], 2), "/device:CUSTOM:hekla host");
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(number(planes[i], 1), 5 + i);
  const auto lines = all(planes[1], 3);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(text(lines[0], 2), "Steps");
  EXPECT_EQ(static_cast<int64_t>(number(lines[0], 3)), 1000 + recording.epoch_offset_ns());
  const auto events = all(lines[0], 4);
  ASSERT_EQ(events.size(), 3U);
  auto event_names = names(planes[1], 4);
  auto stat_names = names(planes[1], 5);
  const auto name = [&](size_t i) { return event_names[number(events[i], 1)]; };
  // In the order of time, the outer one first; picoseconds from the line's beginning.
  EXPECT_EQ(name(0), "jit_f");
  EXPECT_EQ(name(1), "add");
  EXPECT_EQ(name(2), "add");
  EXPECT_EQ(number(events[0], 1) == number(events[1], 1), false);
  EXPECT_EQ(number(events[1], 1), number(events[2], 1));
  EXPECT_EQ(number(events[0], 2), 0U);
  EXPECT_EQ(number(events[0], 3), 700'000U);
  EXPECT_EQ(number(events[2], 2), 500'000U);
  EXPECT_EQ(number(events[2], 3), 100'000U);
  const std::string_view run_id = text(events[0], 4);
  EXPECT_EQ(stat_names[number(run_id, 1)], "run_id");
  EXPECT_EQ(number(run_id, 4), 7U);
  // What all spans of a kind have in common stands once.
  for (const std::string_view entry : all(planes[1], 4)) {
    const std::string_view metadata = text(entry, 2);
    if (text(metadata, 2) != "add") continue;
    const auto stats = all(metadata, 5);
    ASSERT_EQ(stats.size(), 2U);
    EXPECT_EQ(stat_names[number(stats[0], 1)], "source");
    EXPECT_EQ(text(stats[0], 5), "m.py:3");
    EXPECT_EQ(stat_names[number(stats[1], 1)], "flops");
  }
  EXPECT_TRUE(all(space, 3).empty());
}

TEST(Xspace, OfNothingIsEmpty) {
  EXPECT_EQ(xspace(TraceRecording(), 0, [](int64_t) { return std::string(); }), "");
}

TEST(Xspace, PlatformsOfAProcessHaveNumbersOfTheirOwn) {
  std::set<int64_t> firsts;
  for (const char* platform : {"vulkan", "tbb", "reference"}) {
    firsts.insert(first_plane_number(platform));
    EXPECT_GE(first_plane_number(platform), 0);
    EXPECT_LE(first_plane_number(platform) + 28, 200);
  }
  EXPECT_EQ(firsts.size(), 3U);
}

// Who waits for a transfer may stop the recording while the thread that ended it is elsewhere.
TEST(Profiler, ATransferThatIsDoneIsInTheTrace) {
  static const BackendFactory factory{"test", {}};
  plugin_table(factory);
  const PLUGIN_Profiler_Api& api =
      *reinterpret_cast<PJRT_Profiler_Extension*>(profiler_extension())->profiler_api;
  PLUGIN_Profiler_Create_Args made = {};
  ASSERT_EQ(api.create(&made), nullptr);
  PLUGIN_Profiler_Start_Args started = {};
  started.profiler = made.profiler;
  ASSERT_EQ(api.start(&started), nullptr);

  PJRT_Device device;
  device.local_index = 0;
  set_traced_name(0, "test:0");
  const CompletionRef done = Completion::make(), never = Completion::make();
  std::promise<void> collected;
  done->on_done([&](const Status&) { collected.get_future().wait(); });
  show_transfer(device, "device to host", 4096, done);
  show_transfer(device, "not yet", 1, never);
  std::thread ends([&] { done->complete(ok_status()); });
  EXPECT_TRUE(done->await().ok());
  PLUGIN_Profiler_CollectData_Args data = {};
  data.profiler = made.profiler;
  ASSERT_EQ(api.collect_data(&data), nullptr);
  const std::string trace(reinterpret_cast<const char*>(data.buffer), data.buffer_size_in_bytes);
  EXPECT_NE(trace.find("device to host"), std::string::npos);
  EXPECT_EQ(trace.find("not yet"), std::string::npos);
  collected.set_value();
  ends.join();
  never->complete(ok_status());
  PLUGIN_Profiler_Destroy_Args gone = {};
  gone.profiler = made.profiler;
  EXPECT_EQ(api.destroy(&gone), nullptr);
}

}  // namespace
}  // namespace hekla::pjrt
