// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/logical_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>

#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/launch/launch_end.h"

namespace hekla::vulkan {
namespace {

using std::chrono_literals::operator""ms;

std::shared_ptr<LogicalDevice> make_device() {
  Result<std::shared_ptr<Device>> device = testing::open_test_device();
  if (!device.ok()) return nullptr;
  return *LogicalDevice::create(*device, *Pipelines::create(*device, ""), 0, {});
}

// Leaves the last reference to its own worker, as soon as `wait` returns.
void let_go_on_worker(std::shared_ptr<LogicalDevice> device, std::function<void()> wait,
                      std::promise<void>& gone) {
  SerialQueue& worker = device->worker();
  worker.post([device = std::move(device), wait = std::move(wait), &gone]() mutable {
    wait();
    device.reset();
    gone.set_value();
  });
}

bool ends_within(const std::weak_ptr<Device>& device, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!device.expired() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  return device.expired();
}

TEST(LogicalDevice, EndsWhereItsOwnWorkerLetsItGo) {
  std::shared_ptr<LogicalDevice> device = make_device();
  if (!device) GTEST_SKIP() << "no Vulkan device";
  const std::weak_ptr<Device> weak = device->device_ref();
  std::promise<void> gone;
  let_go_on_worker(
      std::move(device), [] {}, gone);
  gone.get_future().wait();
  EXPECT_TRUE(ends_within(weak, 10000ms));
}

// An abort is told while its launch is under way; who hears of it may hold the last reference to
// the client, whose end waits for launches.
TEST(LogicalDevice, IsClosedByWhoIsToldOfAnAbort) {
  const std::shared_ptr<LogicalDevice> device = make_device();
  if (!device) GTEST_SKIP() << "no Vulkan device";
  ASSERT_TRUE(device->begin_launch());
  const CompletionRef submitted = Completion::make(), done = Completion::make();
  done->on_done([device](const Status&) { device->close(); });
  auto told = std::async(std::launch::async, [end = std::make_unique<LaunchEnd>(submitted, done)] {
    end->abort(cancelled("a peer is lost"));
  });
  EXPECT_EQ(told.wait_for(10000ms), std::future_status::ready);
  EXPECT_TRUE(device->is_closed());
  device->end_launch();
}

// What the process that ends lets go of, after the back end's own handlers at the exit have run.
struct AtExit {
  std::promise<void> begun;
  std::promise<void> gone;
  std::weak_ptr<Device> device;
};
AtExit& at_exit() {
  static AtExit* const state = new AtExit;
  return *state;
}

// Exits with 0 where the device is still there when its last user has gone.
void exit_while_a_worker_keeps_the_device() {
  // Handlers run in reverse order, so this one runs after those that devices bring.
  std::atexit([] {
    at_exit().begun.set_value();
    at_exit().gone.get_future().wait();
    if (ends_within(at_exit().device, 300ms)) std::_Exit(1);
  });
  std::promise<void> gone;
  let_go_on_worker(
      make_device(), [] {}, gone);
  gone.get_future().wait();
  std::shared_ptr<LogicalDevice> device = make_device();
  at_exit().device = device->device_ref();
  let_go_on_worker(
      std::move(device), [] { at_exit().begun.get_future().wait(); }, at_exit().gone);
  std::exit(0);
}

TEST(LogicalDeviceDeathTest, StaysWhereItIsWhenTheProcessEnds) {
  HEKLA_VULKAN_TEST_DEVICE(device, {});  // skips; no LogicalDevice here, or its handler is first
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_a_worker_keeps_the_device(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hekla::vulkan
