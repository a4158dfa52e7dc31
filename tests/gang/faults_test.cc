// SPDX-License-Identifier: Apache-2.0
// What goes wrong on one device of eight, a hundred times (ten where code is instrumented): all
// others end with its error, nothing hangs, and no memory, thread or file stays behind.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/gang/gang_fixture.h"
#include "tests/gang/holdings.h"

namespace hekla::runtime {
namespace {

#ifdef HEKLA_SANITIZED
constexpr int kRounds = 10;
#else
constexpr int kRounds = 100;
#endif
constexpr int64_t kLimit = int64_t{16} << 20;

// a f32[n] -> the sum over all devices, from that on one for each device: 2 MiB of results and of
// what comes in between.
constexpr std::string_view kSums = R"(module @sums {
  func.func @main(%a: tensor<262144xf32>) -> (tensor<262144xf32>, tensor<262144xf32>) {
    %s = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }) {
      replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids
    } : (tensor<262144xf32>) -> tensor<262144xf32>
    %t = stablehlo.tanh %s : tensor<262144xf32>
    return %s, %t : tensor<262144xf32>, tensor<262144xf32>
  }
})";

class GangFaultsTest : public GangFixture {
 protected:
  std::vector<int64_t> bytes_in_use() const {
    std::vector<int64_t> bytes;
    for (const Device& device : client_->addressable_devices()) {
      const auto stats = device.memory_stats();
      EXPECT_TRUE(stats.ok()) << stats.status().to_string();
      bytes.push_back(stats.ok() ? stats->bytes_in_use : -1);
    }
    return bytes;
  }

  // A launch may give its memory back a moment after it tells its end.
  void expect_in_use(const std::vector<int64_t>& expected) const {
    const Deadline deadline = Deadline::in(kPatience);
    while (bytes_in_use() != expected && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(bytes_in_use(), expected);
  }

  // What stays in use after a launch that went well.
  std::vector<int64_t> settled_bytes() const {
    std::vector<int64_t> before, now = bytes_in_use();
    do {
      before = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      now = bytes_in_use();
    } while (now != before);
    return now;
  }

  // The error of the launch, which must be the same on all devices where it began.
  static Status error_of(const Executable& executable,
                         const std::vector<std::vector<const Buffer*>>& arguments) {
    auto launch = executable.launch(arguments);
    if (!launch.ok()) return launch.status();
    Status first;
    for (size_t d = 0; d < launch->done.size(); ++d) {
      const Status status = launch->done[d].await(Deadline::in(kPatience));
      if (d == 0) first = status;
      EXPECT_EQ(status.to_string(), first.to_string()) << "device " << d;
    }
    return first;
  }
};

std::vector<std::vector<const Buffer*>> one_each(const std::vector<Buffer>& buffers) {
  std::vector<std::vector<const Buffer*>> arguments;
  for (const Buffer& buffer : buffers) arguments.push_back({&buffer});
  return arguments;
}

TEST_P(GangFaultsTest, ADeviceWithoutMemoryIsNamedOnAllAndNothingStays) {
  make_client({{"memory_limit_bytes", kLimit}});
  auto executable = compile(kSums);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  const std::vector<Buffer> buffers = upload_to_all(floats({262144}, 1));
  const auto arguments = one_each(buffers);
  ASSERT_TRUE(error_of(*executable, arguments).ok());
  const std::vector<int64_t> before = settled_bytes();
  Holdings held;
  for (int round = 0; round < kRounds; ++round) {
    if (round == kDevices) held = holdings();
    expect_in_use(before);
    const int poor = round % kDevices;
    std::vector<Buffer> fill;
    const auto each = int64_t{1} << 18;  // elements of f32
    for (int64_t left = kLimit - before[static_cast<size_t>(poor)]; left >= each * 4 + 4096;
         left -= each * 4) {
      auto one = client_->to_device(floats({each}, 0),
                                    client_->addressable_devices()[static_cast<size_t>(poor)]);
      if (!one.ok()) break;
      fill.push_back(*std::move(one));
    }
    const Status status = error_of(*executable, arguments);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
    EXPECT_NE(status.message().find(fmt::format("device {}: ", poor)), std::string::npos)
        << status.to_string();
    fill.clear();
    const Status again = error_of(*executable, arguments);
    EXPECT_TRUE(again.ok()) << again.to_string();
  }
  expect_in_use(before);
  expect_within(held);
}

TEST_P(GangFaultsTest, ADeviceThatFailsIsNamedOnAllAndNothingStays) {
  auto executable = compile(kOneFailsBeforeSum);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  const std::vector<Buffer> buffers = upload_to_all(floats({2}, 1));
  const auto run = [&](uint32_t who) {
    const std::vector<Buffer> number =
        upload_to_all(HostArray::from<uint32_t>(DType::kUI32, {}, std::vector<uint32_t>{who}));
    auto arguments = one_each(buffers);
    for (size_t d = 0; d < arguments.size(); ++d) arguments[d].push_back(&number[d]);
    return error_of(*executable, arguments);
  };
  ASSERT_TRUE(run(kDevices).ok());
  const std::vector<int64_t> before = settled_bytes();
  Holdings held;
  for (int round = 0; round < kRounds; ++round) {
    if (round == kDevices) held = holdings();
    const auto who = static_cast<size_t>(round % kDevices);
    const Status status = run(static_cast<uint32_t>(who));
    EXPECT_EQ(status.message().find(device_name(who)), 0U) << status.to_string();
  }
  EXPECT_TRUE(run(kDevices).ok());
  expect_in_use(before);
  expect_within(held);
}

TEST_P(GangFaultsTest, ClientsOfFailedGangsTakeAllWithThem) {
  Holdings held;
  for (int round = 0; round < kRounds; ++round) {
    // The first clients start what a process keeps.
    if (round == 3) held = holdings();
    make_client({});
    auto executable = compile(kOneFailsBeforeSum);
    ASSERT_TRUE(executable.ok()) << executable.status().to_string();
    const std::vector<Buffer> buffers = upload_to_all(floats({2}, 1));
    const std::vector<Buffer> number = upload_to_all(HostArray::from<uint32_t>(
        DType::kUI32, {}, std::vector<uint32_t>{static_cast<uint32_t>(round % kDevices)}));
    auto arguments = one_each(buffers);
    for (size_t d = 0; d < arguments.size(); ++d) arguments[d].push_back(&number[d]);
    if (round % 2 == 0) {
      EXPECT_FALSE(error_of(*executable, arguments).ok());
    } else {
      // While it runs: the client goes first for those that hold it no longer.
      EXPECT_TRUE(executable->launch(arguments).ok());
    }
  }
  client_.reset();
  expect_within(held);
}

INSTANTIATE_TEST_SUITE_P(Plugins, GangFaultsTest, testing::Values(HEKLA_PLUGINS),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hekla::runtime
