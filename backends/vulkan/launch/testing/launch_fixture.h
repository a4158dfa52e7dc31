// SPDX-License-Identifier: Apache-2.0
// LaunchFixture: one logical device of the test device, programs on it, and launches of them.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/launch/device_program.h"
#include "backends/vulkan/launch/testing/program_builder.h"

namespace hekla::vulkan::testing {

using Words = std::vector<uint32_t>;

// Both ways of memory: zero-copy and staged.
class LaunchFixture : public ::testing::TestWithParam<bool> {
 protected:
  void open(LogicalDeviceOptions options = {}, DeviceOptions device_options = {}) {
    device_options.use_host_visible_memory = GetParam();
    HEKLA_VULKAN_TEST_DEVICE(device, device_options);
    std::shared_ptr<Pipelines> pipelines = *Pipelines::create(device, "");
    device_ = *LogicalDevice::create(device, pipelines, 0, options);
  }
  void TearDown() override {
    if (!device_) return;
    device_->close();
    EXPECT_TRUE(no_validation_messages());
  }

  std::shared_ptr<DeviceProgram> load(const ProgramBuilder& p, ProgramOptions options = {}) {
    options.check_barriers = true;
    auto loaded = DeviceProgram::load(device_, p.build(), options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return *loaded;
  }
  AllocationRef upload(const Words& words) {
    AllocationRef memory = *device_->memory().allocate(static_cast<int64_t>(words.size() * 4));
    std::promise<void> done;
    device_->transfers().upload(words.data(), memory, 0, memory->bytes(), [&](const Status& s) {
      EXPECT_TRUE(s.ok());
      done.set_value();
    });
    done.get_future().wait();
    return memory;
  }
  Words download(const AllocationRef& memory) {
    Words words(static_cast<size_t>(memory->bytes() / 4));
    std::promise<void> done;
    device_->transfers().download(memory, 0, words.data(), memory->bytes(), [&](const Status& s) {
      EXPECT_TRUE(s.ok());
      done.set_value();
    });
    done.get_future().wait();
    return words;
  }
  static LaunchInput ready_input(AllocationRef memory, bool is_donated = false) {
    return {std::move(memory), Completion::ready(), Completion::ready(), is_donated};
  }
  struct Launched {
    Status status;
    LaunchOutputs outputs;
    CompletionRef done;
  };
  Launched start(DeviceProgram& p, std::vector<LaunchInput> inputs, int64_t replica = 0,
                 pjrt::GangRef gang = nullptr) {
    LaunchRequest request;
    request.replica = replica;
    request.gang = std::move(gang);
    request.inputs = std::move(inputs);
    request.done = Completion::make();
    CompletionRef done = request.done;
    Result<LaunchOutputs> outputs = p.launch(request);
    if (!outputs.ok()) return {outputs.status(), {}, nullptr};
    return {ok_status(), std::move(*outputs), std::move(done)};
  }

  std::shared_ptr<LogicalDevice> device_;
};

inline Words ramp(size_t n, uint32_t start = 0) {
  Words words(n);
  for (size_t i = 0; i < n; ++i) words[i] = start + static_cast<uint32_t>(i);
  return words;
}

}  // namespace hekla::vulkan::testing
