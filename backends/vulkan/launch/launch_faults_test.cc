// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/launch/testing/launch_fixture.h"
#include "runtime/base/testing/sanitizers.h"

namespace hekla::vulkan {
namespace {

using plan::BranchStep;
using plan::WhileStep;
using testing::arena;
using testing::input;
using testing::output;
using testing::ProgramBuilder;
using testing::ramp;
using testing::Words;

class LaunchFaultsTest : public testing::LaunchFixture {};

// Out of memory and device lost at each call of the driver, from loading a program over an upload,
// a launch with a loop of several submissions, a branch and a host step, to a download: an error,
// no hang, no crash; after the first the next launch works, after the second it says why not.
// Losses need a device each, so every third call will do; HEKLA_ALL_FAULTS=1: every one.
TEST_P(LaunchFaultsTest, FaultsOfTheDriverAtEachCall) {
  constexpr int64_t kBytes = 4 * 500;
  ProgramBuilder p({kBytes, 4}, {kBytes, 4}, kBytes + 256);
  WhileStep loop;
  loop.predicate = output(1, 1);
  loop.body = {p.multiply_add(output(1, 4), input(1, 4), output(1, 4), 1)};
  const BranchStep branch = {
      output(1, 4),
      {{p.multiply_add(arena(0, kBytes), arena(0, kBytes), output(0, kBytes), 1)},
       {p.fill(output(0, kBytes), 9)}}};
  p.plan.steps = {p.fill(output(1, 4), 150),
                  p.multiply_add(input(0, kBytes), input(0, kBytes), arena(0, kBytes), 1),
                  ProgramBuilder::host("nothing", R"(
                      func.func @main(%x: tensor<500xui32>) -> tensor<500xui32> {
                        return %x : tensor<500xui32>
                      })",
                                       {arena(0, kBytes)}, {arena(0, kBytes)}),
                  {loop},
                  {branch}};
  const auto transfer = [](const std::function<void(Transfers::Done)>& what) {
    std::promise<Status> promise;
    what([&](const Status& status) { promise.set_value(status); });
    return promise.get_future().get();
  };
  const auto run = [&]() -> Status {
    ProgramOptions options;
    // llvmpipe (Mesa 22.3) frees the mutex of a fence that a thread of its own may still be in: a
    // race within the driver, which thousands of timestamps show.
    options.profile = GetParam() && !kHasThreadSanitizer;
    HEKLA_ASSIGN_OR_RETURN(const auto loaded, DeviceProgram::load(device_, p.build(), options));
    const Words words = ramp(500);
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef a, device_->memory().allocate(kBytes));
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef minus_one, device_->memory().allocate(4));
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().upload(words.data(), a, 0, kBytes, std::move(done));
    }));
    const uint32_t one_less = ~0U;
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().upload(&one_less, minus_one, 0, 4, std::move(done));
    }));
    Launched l = start(*loaded, {ready_input(a), ready_input(minus_one)});
    HEKLA_RETURN_IF_ERROR(l.status);
    HEKLA_RETURN_IF_ERROR(l.done->await());
    Words result(500);
    HEKLA_RETURN_IF_ERROR(transfer([&](Transfers::Done done) {
      device_->transfers().download(l.outputs.memory[0], 0, result.data(), kBytes, std::move(done));
    }));
    if (result[7] != 4 * words[7]) return internal_error("a wrong result");
    return ok_status();
  };
  const bool is_long = std::getenv("HEKLA_ALL_FAULTS") != nullptr;
  for (const VkResult fault :
       {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST}) {
    int struck = 0;
    int failed = 0;
    const int stride = fault == VK_ERROR_DEVICE_LOST && !is_long ? 3 : 1;
    bool has_struck = true;
    for (int call = 0; has_struck; call += stride) {
      ASSERT_LT(call, 500) << "the sequence of calls does not end";
      if (!device_) open();
      if (!device_) return;
      testing::Faults& faults = testing::inject_faults(device_->device());
      faults.arm(call, fault);
      const Status status = run();
      has_struck = faults.has_struck;
      faults.disarm();
      struck += has_struck ? 1 : 0;
      failed += status.ok() ? 0 : 1;
      EXPECT_NE(status.code(), StatusCode::kInternal) << faults.where << status.to_string();
      const Status again = run();
      if (fault == VK_ERROR_DEVICE_LOST && has_struck) {
        // A loss during the last wait of all may come after the work is done.
        EXPECT_EQ(again.code(), StatusCode::kUnavailable) << faults.where;
      } else {
        EXPECT_TRUE(again.ok()) << again.to_string();
      }
      if (fault == VK_ERROR_DEVICE_LOST || !has_struck) {
        device_->close();
        device_.reset();
      }
    }
    EXPECT_GT(struck, 20 / stride);
    EXPECT_GT(failed, 12 / stride);
  }
}

INSTANTIATE_TEST_SUITE_P(, LaunchFaultsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
