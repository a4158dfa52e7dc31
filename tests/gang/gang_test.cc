// SPDX-License-Identifier: Apache-2.0
// Launches of one program on eight devices, through the C++ client and each of our plugins.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/gang/gang_fixture.h"

namespace hekla::runtime {
namespace {

// Partition 3 leaves the loop after 50 steps and fails at the check behind it; the others would go
// on for hours.
constexpr std::string_view kFailsOnThree = R"(module @fails {
  func.func @main(%steps: tensor<i32>, %a: tensor<16xf32> {tf.aliasing_output = 0 : i32})
      -> tensor<16xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %few = stablehlo.constant dense<50> : tensor<i32>
    %three = stablehlo.constant dense<3> : tensor<ui32>
    %half = stablehlo.constant dense<0.5> : tensor<16xf32>
    %p = stablehlo.partition_id : tensor<ui32>
    %is = stablehlo.compare EQ, %p, %three, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %count = stablehlo.select %is, %few, %steps : tensor<i1>, tensor<i32>
    %r:2 = "stablehlo.while"(%zero, %a) ({
    ^bb0(%i: tensor<i32>, %x: tensor<16xf32>):
      %more = stablehlo.compare LT, %i, %count, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }, {
    ^bb0(%i: tensor<i32>, %x: tensor<16xf32>):
      %next = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.multiply %x, %half : tensor<16xf32>
      stablehlo.return %next, %y : tensor<i32>, tensor<16xf32>
    }) : (tensor<i32>, tensor<16xf32>) -> (tensor<i32>, tensor<16xf32>)
    check.expect_eq %r#0, %steps : tensor<i32>, tensor<i32>
    return %r#1 : tensor<16xf32>
  }
})";

// (a f32[4], factor f32[]) -> a * factor + the partition's number.
constexpr std::string_view kLinear = R"(module @linear {
  func.func @main(%a: tensor<4xf32>, %factor: tensor<f32>) -> tensor<4xf32> {
    %p = stablehlo.partition_id : tensor<ui32>
    %f = stablehlo.convert %p : (tensor<ui32>) -> tensor<f32>
    %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %c = stablehlo.broadcast_in_dim %factor, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %d = stablehlo.multiply %a, %c : tensor<4xf32>
    %r = stablehlo.add %d, %b : tensor<4xf32>
    return %r : tensor<4xf32>
  }
})";

// a f32[2] -> (the sum over all, all in order, the one of the partition before), three times over:
// whoever goes on waits for the others.
constexpr std::string_view kCollectives = R"(module @collectives {
  func.func @main(%a: tensor<2xf32>, %times: tensor<i32>)
      -> (tensor<2xf32>, tensor<16xf32>, tensor<2xf32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = "stablehlo.while"(%zero, %a) ({
    ^bb0(%i: tensor<i32>, %x: tensor<2xf32>):
      %more = stablehlo.compare LT, %i, %times, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }, {
    ^bb0(%i: tensor<i32>, %x: tensor<2xf32>):
      %next = stablehlo.add %i, %one : tensor<i32>
      %p = "stablehlo.collective_permute"(%x) {
        source_target_pairs = dense<[[0,1],[1,2],[2,3],[3,4],[4,5],[5,6],[6,7],[7,0]]> : tensor<8x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>
      } : (tensor<2xf32>) -> tensor<2xf32>
      stablehlo.return %next, %p : tensor<i32>, tensor<2xf32>
    }) : (tensor<i32>, tensor<2xf32>) -> (tensor<i32>, tensor<2xf32>)
    %sum = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {
      replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids
    } : (tensor<2xf32>) -> tensor<2xf32>
    %all = "stablehlo.all_gather"(%a) {
      all_gather_dim = 0 : i64,
      replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, use_global_device_ids
    } : (tensor<2xf32>) -> tensor<16xf32>
    return %sum, %all, %r#1 : tensor<2xf32>, tensor<16xf32>, tensor<2xf32>
  }
})";

class GangTest : public GangFixture {};

TEST_P(GangTest, AProgramThatFailsOnOneDeviceSoonEndsOnAll) {
  using Clock = std::chrono::steady_clock;
  auto executable = compile(kFailsOnThree);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  const HostArray steps =
      HostArray::from<int32_t>(DType::kI32, {}, std::vector<int32_t>{INT32_MAX});
  for (int round = 0; round < 3; ++round) {
    std::vector<Buffer> buffers;
    std::vector<std::vector<const Buffer*>> arguments(kDevices);
    buffers.reserve(2 * kDevices);
    for (int d = 0; d < kDevices; ++d) {
      for (const HostArray& array : {steps, floats({16}, 1)}) {
        buffers.push_back(upload(array, d));
        arguments[static_cast<size_t>(d)].push_back(&buffers.back());
      }
    }
    const Clock::time_point start = Clock::now();
    auto launch = executable->launch(arguments);
    ASSERT_TRUE(launch.ok()) << launch.status().to_string();
    // The promise is 100 ms from the error on, on an idle machine.
    const Deadline deadline = Deadline::in(std::chrono::seconds(60));
    const std::string name = client_->addressable_devices()[3].debug_string();
    for (size_t d = 0; d < kDevices; ++d) {
      const Status status = launch->done[d].await(deadline);
      EXPECT_NE(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_NE(status.message().find(name), std::string::npos) << status.to_string();
      EXPECT_FALSE(launch->outputs[d][0].to_host(deadline).ok());
      EXPECT_TRUE(*buffers[2 * d + 1].is_freed());
      EXPECT_FALSE(*buffers[2 * d].is_freed());
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    RecordProperty("milliseconds", std::to_string(took.count()));
  }
}

TEST_P(GangTest, GangsFromManyThreadsDoNotMixUp) {
  auto first = compile(kLinear);
  auto second = compile(kLinear);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status().to_string();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Executable& executable = t % 2 == 0 ? *first : *second;
      const auto factor = static_cast<float>(t + 1);
      for (int round = 0; round < 10; ++round) {
        std::vector<Buffer> buffers;
        buffers.reserve(2 * kDevices);
        std::vector<std::vector<const Buffer*>> arguments(kDevices);
        for (int d = 0; d < kDevices; ++d) {
          for (const HostArray& array : {floats({4}, 2), floats({}, factor)}) {
            buffers.push_back(upload(array, d));
            arguments[static_cast<size_t>(d)].push_back(&buffers.back());
          }
        }
        auto launch = executable.launch(arguments);
        ASSERT_TRUE(launch.ok()) << launch.status().to_string();
        for (size_t d = 0; d < kDevices; ++d) {
          auto result = launch->outputs[d][0].to_host();
          ASSERT_TRUE(result.ok()) << result.status().to_string();
          EXPECT_EQ(result->as<float>()[1], 2 * factor + static_cast<float>(d));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(GangTest, DevicesWaitForEachOtherInCollectives) {
  auto executable = compile(kCollectives);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto own = [t](size_t d) {
        return static_cast<float>(100 * t) + static_cast<float>(d);
      };
      for (int round = 0; round < 5; ++round) {
        std::vector<Buffer> buffers;
        buffers.reserve(2 * kDevices);
        std::vector<std::vector<const Buffer*>> arguments(kDevices);
        for (size_t d = 0; d < kDevices; ++d) {
          for (const HostArray& array :
               {floats({2}, own(d)),
                HostArray::from<int32_t>(DType::kI32, {}, std::vector<int32_t>{3})}) {
            buffers.push_back(upload(array, static_cast<int>(d)));
            arguments[d].push_back(&buffers.back());
          }
        }
        auto launch = executable->launch(arguments);
        ASSERT_TRUE(launch.ok()) << launch.status().to_string();
        const Deadline deadline = Deadline::in(std::chrono::seconds(60));
        for (size_t d = 0; d < kDevices; ++d) {
          const auto& outputs = launch->outputs[d];
          auto sum = outputs[0].to_host(deadline), all = outputs[1].to_host(deadline),
               moved = outputs[2].to_host(deadline);
          ASSERT_TRUE(sum.ok() && all.ok() && moved.ok()) << sum.status().to_string();
          EXPECT_EQ(sum->as<float>()[1], 8 * own(0) + 28);
          for (size_t i = 0; i < kDevices; ++i) EXPECT_EQ(all->as<float>()[2 * i], own(i));
          EXPECT_EQ(moved->as<float>()[0], own((d + 5) % kDevices));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(GangTest, WhoWaitsForADeviceThatFailsEndsWithItsError) {
  auto executable = compile(kOneFailsBeforeSum);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  const HostArray five = HostArray::from<uint32_t>(DType::kUI32, {}, std::vector<uint32_t>{5});
  for (int round = 0; round < 5; ++round) {
    std::vector<Buffer> buffers;
    buffers.reserve(2 * kDevices);
    std::vector<std::vector<const Buffer*>> arguments(kDevices);
    for (int d = 0; d < kDevices; ++d) {
      for (const HostArray& array : {floats({2}, 1), five}) {
        buffers.push_back(upload(array, d));
        arguments[static_cast<size_t>(d)].push_back(&buffers.back());
      }
    }
    auto launch = executable->launch(arguments);
    ASSERT_TRUE(launch.ok()) << launch.status().to_string();
    const std::string name = client_->addressable_devices()[5].debug_string();
    for (const Event& done : launch->done) {
      const Status status = done.await(Deadline::in(std::chrono::seconds(60)));
      EXPECT_EQ(status.message().find(name), 0U) << status.to_string();
    }
  }
}

TEST_P(GangTest, AWholeProgramMayNotAskForItsPartition) {
  CompileOptions options;
  options.num_partitions = 2;
  const auto refused = client_->compile(kLinear, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(refused.status().message().find("use_spmd_partitioning"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Plugins, GangTest, testing::Values(HEKLA_PLUGINS),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hekla::runtime
