// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/gang_inputs.h"

#include <gtest/gtest.h>

namespace hekla::pjrt {
namespace {

using Clock = GangInputWait::Clock;
using std::chrono::seconds;

GangRef make_gang(const GangOptions& options) {
  return std::make_shared<Gang>(
      options, std::make_shared<const GangNames>(GangNames{"work", {"gpu:0", "gpu:1"}}));
}

TEST(GangInputs, TheDeadlineCountsFromTheFirstDeviceThatHasItsInputs) {
  const GangRef gang = make_gang({0, 10});
  const CompletionRef first = Completion::make(), second = Completion::make();
  GangInputWait wait(gang, {{"gpu:0", {{"argument 0, f32[4]", first}}},
                            {"gpu:1", {{"argument 1, f32[8]", second}}}});
  const Clock::time_point start = Clock::now();
  EXPECT_TRUE(wait.look(start));
  EXPECT_TRUE(wait.look(start + seconds(1000)));  // nobody waits for a peer
  first->complete(ok_status());
  EXPECT_TRUE(wait.look(start + seconds(1000)));
  EXPECT_TRUE(wait.look(start + seconds(1009)));
  EXPECT_FALSE(gang->is_aborted());
  EXPECT_FALSE(wait.look(start + seconds(1010)));
  EXPECT_EQ(gang->status().code(), StatusCode::kDeadlineExceeded);
  const std::string message = gang->status().message();
  EXPECT_NE(message.find("work on 2 devices has not begun"), std::string::npos) << message;
  EXPECT_NE(message.find("gpu:1 lacks argument 1, f32[8]"), std::string::npos) << message;
  EXPECT_EQ(message.find("gpu:0"), std::string::npos) << message;
}

TEST(GangInputs, EndsWithTheInputsOrTheLaunch) {
  GangRef gang = make_gang({1, 1});
  const CompletionRef late = Completion::make();
  const std::vector<GangInputWait::Device> devices = {{"gpu:0", {}}, {"gpu:1", {{"a", late}}}};
  GangInputWait aborted(gang, devices), gone(gang, devices), ready(gang, devices);
  const Clock::time_point start = Clock::now();
  late->complete(data_loss("lost"));
  EXPECT_FALSE(ready.look(start));
  gang->abort(internal_error("off"));
  EXPECT_FALSE(aborted.look(start));
  gang = nullptr;
  EXPECT_FALSE(gone.look(start));
}

TEST(GangInputs, TheLogHearsOfItOnce) {
  const GangRef gang = make_gang({5, 0});
  GangInputWait wait(gang, {{"gpu:0", {}}, {"gpu:1", {{"argument 3, i32[]", Completion::make()}}}});
  const Clock::time_point start = Clock::now();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(wait.look(start + seconds(i)));
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t first = log.find("gpu:1 lacks argument 3, i32[]");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("lacks", first + 10), std::string::npos) << log;
  EXPECT_FALSE(gang->is_aborted());
}

TEST(GangInputs, AThreadEndsTheGangAndMayEndItsClient) {
  auto inputs = std::make_unique<GangInputs>();
  const CompletionRef ended = Completion::make();
  const GangRef gang = make_gang({0, 1});
  GangInputs& same = *inputs;
  gang->on_abort([&](const Status& status) {
    inputs = nullptr;
    ended->complete(status);
  });
  same.watch(gang, {{"gpu:0", {}}, {"gpu:1", {{"a", Completion::make()}}}});
  EXPECT_EQ(ended->await().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(inputs, nullptr);
}

}  // namespace
}  // namespace hekla::pjrt
