// SPDX-License-Identifier: Apache-2.0
// Launches of gangs that are aborted while the device is at work.
#include <gtest/gtest.h>

#include <memory>

#include "backends/vulkan/launch/launch_end.h"
#include "backends/vulkan/launch/testing/launch_fixture.h"

namespace hekla::vulkan {
namespace {

using testing::input;
using testing::output;
using testing::ProgramBuilder;
using testing::ramp;

// The device does nothing that is submitted after this until it is released.
class HeldQueue {
 public:
  explicit HeldQueue(const std::shared_ptr<Device>& device) : device_(device) {
    VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
    info.pNext = &type;
    const DeviceFunctions& call = device_->call();
    EXPECT_EQ(call.CreateSemaphore(device_->handle(), &info, nullptr, &semaphore_), VK_SUCCESS);
    const uint64_t one = 1;
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    VkTimelineSemaphoreSubmitInfo timeline = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
    timeline.waitSemaphoreValueCount = 1;
    timeline.pWaitSemaphoreValues = &one;
    VkSubmitInfo submit = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
    submit.pNext = &timeline;
    submit.waitSemaphoreCount = 1;
    submit.pWaitSemaphores = &semaphore_;
    submit.pWaitDstStageMask = &stage;
    Queue& queue = device_->compute_queue();
    const std::lock_guard lock(queue.mutex);
    EXPECT_EQ(call.QueueSubmit(queue.handle, 1, &submit, VK_NULL_HANDLE), VK_SUCCESS);
  }
  HeldQueue(const HeldQueue&) = delete;
  HeldQueue& operator=(const HeldQueue&) = delete;
  ~HeldQueue() {
    release();
    device_->wait_idle();
    device_->call().DestroySemaphore(device_->handle(), semaphore_, nullptr);
  }
  void release() {
    if (is_released_) return;
    is_released_ = true;
    VkSemaphoreSignalInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO};
    info.semaphore = semaphore_;
    info.value = 1;
    EXPECT_EQ(device_->call().SignalSemaphore(device_->handle(), &info), VK_SUCCESS);
  }

 private:
  const std::shared_ptr<Device> device_;
  VkSemaphore semaphore_ = VK_NULL_HANDLE;
  bool is_released_ = false;
};

class LaunchGangTest : public testing::LaunchFixture {};

// Nothing here waits for a time: the device cannot have ended, and the error is there.
TEST_P(LaunchGangTest, AnAbortIsToldWhileTheDeviceIsAtWork) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 1000;
  ProgramBuilder p({kBytes}, {kBytes});
  p.plan.output_input = {0};
  p.plan.steps = {p.multiply_add(input(0, kBytes), input(0, kBytes), output(0, kBytes), 2)};
  const auto loaded = load(p);
  const AllocationRef kept = upload(ramp(1000));
  AllocationRef given = upload(ramp(1000));
  const int64_t before = device_->memory().statistics().bytes_in_use;
  const auto gang = std::make_shared<pjrt::Gang>();
  HeldQueue held(device_->device_ref());
  // One writes memory of its own, the other that of its input.
  Launched first = start(*loaded, {ready_input(kept)}, 0, gang);
  Launched second = start(*loaded, {ready_input(std::move(given), true)}, 1, gang);
  ASSERT_TRUE(first.status.ok() && second.status.ok());
  const std::weak_ptr<Allocation> written = first.outputs.memory[0];
  const std::weak_ptr<Allocation> taken = second.outputs.memory[0];
  EXPECT_TRUE(first.outputs.submitted->status().ok());
  EXPECT_FALSE(first.done->is_done() || second.done->is_done());

  gang->abort(data_loss("the other device's error"));
  for (Launched* launched : {&first, &second}) {
    EXPECT_TRUE(launched->done->is_done());
    EXPECT_EQ(launched->done->status().code(), StatusCode::kDataLoss);
  }
  // Nobody refers to the memory but the device, which is going to write it: nothing else gets it.
  first = {};
  second = {};
  EXPECT_FALSE(written.expired() || taken.expired());
  EXPECT_EQ(device_->memory().statistics().bytes_in_use, before + kBytes);
  {
    const AllocationRef other = *device_->memory().allocate(kBytes);
    EXPECT_NE(other->address(), written.lock()->address());
    EXPECT_NE(other->address(), taken.lock()->address());
  }
  EXPECT_EQ(kept->unordered_readers, 0);

  held.release();
  device_->close();
  EXPECT_TRUE(written.expired() && taken.expired());
  EXPECT_EQ(device_->memory().statistics().bytes_in_use, before - kBytes);
}

// A launch that waits for a slot, and one that reads what an aborted one was to write.
TEST_P(LaunchGangTest, WhatStandsBehindAnAbortedLaunchEndsWithIt) {
  open();
  if (!device_) return;
  constexpr int64_t kBytes = 4 * 100;
  ProgramBuilder p({kBytes}, {kBytes});
  p.plan.steps = {p.multiply_add(input(0, kBytes), input(0, kBytes), output(0, kBytes), 2),
                  ProgramBuilder::host("nothing", R"(
                      func.func @main(%x: tensor<100xui32>) -> tensor<100xui32> {
                        return %x : tensor<100xui32>
                      })",
                                       {output(0, kBytes)}, {output(0, kBytes)})};
  ProgramOptions options;
  options.max_slots = 1;
  const auto loaded = load(p, options);
  const AllocationRef memory = upload(ramp(100));
  const auto gang = std::make_shared<pjrt::Gang>();
  HeldQueue held(device_->device_ref());
  Launched first = start(*loaded, {ready_input(memory)}, 0, gang);
  Launched waiting = start(*loaded, {ready_input(memory)}, 1, gang);
  Launched reader =
      start(*loaded, {{first.outputs.memory[0], first.outputs.submitted, first.done, false}});
  Launched alone = start(*loaded, {ready_input(memory)});  // of no gang
  gang->abort(data_loss("the other device's error"));
  for (const Launched* launched : {&first, &waiting, &reader}) {
    EXPECT_TRUE(launched->done->is_done());
    EXPECT_EQ(launched->done->status().code(), StatusCode::kDataLoss);
  }
  EXPECT_FALSE(alone.done->is_done());
  held.release();
  ASSERT_TRUE(alone.done->await().ok()) << alone.done->status().to_string();
  EXPECT_EQ(download(alone.outputs.memory[0])[3], 9u);
  // Of the aborted ones the step of the host did not run.
  EXPECT_EQ(device_->counters().host_steps, 1);
}

TEST(LaunchEnd, AnAbortWaitsForFunctionsOfTheClient) {
  const CompletionRef submitted = Completion::make(), done = Completion::make();
  LaunchEnd end(submitted, done);
  ASSERT_TRUE(end.enter_client().ok());
  end.abort(data_loss("first"));
  end.abort(internal_error("second"));
  EXPECT_FALSE(submitted->is_done() || done->is_done());
  end.leave_client();
  EXPECT_EQ(done->status().message(), "first");
  EXPECT_EQ(submitted->status().message(), "first");
  EXPECT_EQ(end.enter_client().message(), "first");
}

INSTANTIATE_TEST_SUITE_P(, LaunchGangTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
