// SPDX-License-Identifier: Apache-2.0
// Launches of gangs that are aborted while the device is at work.
#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "backends/vulkan/launch/launch_end.h"
#include "backends/vulkan/launch/testing/launch_fixture.h"

namespace hekla::vulkan {
namespace {

using testing::input;
using testing::output;
using testing::ProgramBuilder;
using testing::ramp;

// What is submitted to the compute queue reaches the driver when this is released. (A semaphore
// that the host signals would hold the queue too, but the validation layer of Debian 12 at times
// loses such a signal and waits for it in vain.)
class HeldQueue {
 public:
  explicit HeldQueue(const std::shared_ptr<Device>& device)
      : device_(device), submit_(device->call().QueueSubmit) {
    current = this;
    device_->mutable_functions().QueueSubmit = [](VkQueue queue, uint32_t count,
                                                  const VkSubmitInfo* infos, VkFence fence) {
      return current->take(queue, {infos, count}, fence);
    };
  }
  HeldQueue(const HeldQueue&) = delete;
  HeldQueue& operator=(const HeldQueue&) = delete;
  ~HeldQueue() {
    release();
    device_->wait_idle();
    device_->mutable_functions().QueueSubmit = submit_;
    current = nullptr;
  }
  void release() {
    const std::lock_guard lock(device_->compute_queue().mutex);
    is_released_ = true;
    for (const Submission& held : held_) {
      const VkSubmitInfo info = held.info();
      EXPECT_EQ(submit_(device_->compute_queue().handle, 1, &info, VK_NULL_HANDLE), VK_SUCCESS);
    }
    held_.clear();
  }

 private:
  // A VkSubmitInfo that owns what it points to.
  class Submission {
   public:
    explicit Submission(const VkSubmitInfo& from)
        : commands_(from.pCommandBuffers, from.pCommandBuffers + from.commandBufferCount),
          waits_(from.pWaitSemaphores, from.pWaitSemaphores + from.waitSemaphoreCount),
          stages_(from.pWaitDstStageMask, from.pWaitDstStageMask + from.waitSemaphoreCount),
          signals_(from.pSignalSemaphores, from.pSignalSemaphores + from.signalSemaphoreCount) {
      const auto& timeline = *static_cast<const VkTimelineSemaphoreSubmitInfo*>(from.pNext);
      EXPECT_EQ(timeline.sType, VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
      EXPECT_EQ(timeline.pNext, nullptr);
      wait_values_.assign(timeline.pWaitSemaphoreValues,
                          timeline.pWaitSemaphoreValues + timeline.waitSemaphoreValueCount);
      signal_values_.assign(timeline.pSignalSemaphoreValues,
                            timeline.pSignalSemaphoreValues + timeline.signalSemaphoreValueCount);
      timeline_.waitSemaphoreValueCount = timeline.waitSemaphoreValueCount;
      timeline_.signalSemaphoreValueCount = timeline.signalSemaphoreValueCount;
      timeline_.pWaitSemaphoreValues = wait_values_.data();
      timeline_.pSignalSemaphoreValues = signal_values_.data();
    }
    // Points into this.
    VkSubmitInfo info() const {
      VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
      info.pNext = &timeline_;
      info.waitSemaphoreCount = static_cast<uint32_t>(waits_.size());
      info.pWaitSemaphores = waits_.data();
      info.pWaitDstStageMask = stages_.data();
      info.commandBufferCount = static_cast<uint32_t>(commands_.size());
      info.pCommandBuffers = commands_.data();
      info.signalSemaphoreCount = static_cast<uint32_t>(signals_.size());
      info.pSignalSemaphores = signals_.data();
      return info;
    }

   private:
    std::vector<VkCommandBuffer> commands_;
    std::vector<VkSemaphore> waits_;
    std::vector<VkPipelineStageFlags> stages_;
    std::vector<VkSemaphore> signals_;
    std::vector<uint64_t> wait_values_, signal_values_;
    VkTimelineSemaphoreSubmitInfo timeline_ = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
  };

  // The caller holds the mutex of its queue.
  VkResult take(VkQueue queue, std::span<const VkSubmitInfo> infos, VkFence fence) {
    if (queue != device_->compute_queue().handle || is_released_) {
      return submit_(queue, static_cast<uint32_t>(infos.size()), infos.data(), fence);
    }
    EXPECT_EQ(fence, VkFence{VK_NULL_HANDLE});
    for (const VkSubmitInfo& info : infos) held_.emplace_back(info);
    return VK_SUCCESS;
  }

  static inline HeldQueue* current = nullptr;
  const std::shared_ptr<Device> device_;
  const PFN_vkQueueSubmit submit_;
  bool is_released_ = false;    // guarded by the queue's mutex
  std::list<Submission> held_;  // the same
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
