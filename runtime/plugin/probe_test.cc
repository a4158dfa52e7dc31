// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/probe.h"

#include <gtest/gtest.h>

#include "runtime/plugin/testing/fake.h"

namespace hekla::runtime {
namespace {

using Outcome = ProbeResult::Outcome;

TEST(Probe, AWorkingPluginTellsItsDevices) {
  const ProbeResult result = probe_plugin(fake("works"));
  EXPECT_TRUE(result.works()) << result.to_string();
  EXPECT_EQ(result.platform, "fake");
  EXPECT_EQ(result.device_count, 1);
  EXPECT_EQ(result.device_kind, "fake device");
  EXPECT_EQ(result.api_minor, 114);
}

TEST(Probe, OptionsReachThePlugin) {
  const ProbeResult result = probe_plugin(fake("works"), {{"fail", true}});
  EXPECT_EQ(result.outcome, Outcome::kError);
  EXPECT_EQ(result.code, StatusCode::kInvalidArgument);
  EXPECT_NE(result.message.find("asked to fail"), std::string::npos) << result.message;
}

TEST(Probe, ErrorsKeepTheirCodeAndWords) {
  const ProbeResult failed = probe_plugin(fake("create_fails"));
  EXPECT_EQ(failed.outcome, Outcome::kError);
  EXPECT_EQ(failed.code, StatusCode::kFailedPrecondition);
  EXPECT_NE(failed.message.find("No visible fake devices."), std::string::npos);
  EXPECT_EQ(probe_plugin(fake("init_fails")).code, StatusCode::kUnavailable);
  EXPECT_EQ(probe_plugin(fake("no_device")).code, StatusCode::kNotFound);
  EXPECT_EQ(probe_plugin("/nonexistent.so").code, StatusCode::kNotFound);
}

TEST(Probe, AnAbortCostsTheChildAlone) {
  const ProbeResult result = probe_plugin(fake("init_aborts"));
  EXPECT_EQ(result.outcome, Outcome::kCrashed);
  EXPECT_NE(result.message.find("signal 6"), std::string::npos) << result.message;
  EXPECT_NE(result.message.find("Check failed: chips detected"), std::string::npos)
      << result.message;
}

TEST(Probe, AHangEndsAtTheLimit) {
  const ProbeResult result = probe_plugin(fake("init_hangs"), {}, std::chrono::milliseconds(300));
  EXPECT_EQ(result.outcome, Outcome::kTimedOut) << result.to_string();
  EXPECT_EQ(result.code, StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace hekla::runtime
