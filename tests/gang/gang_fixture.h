// SPDX-License-Identifier: Apache-2.0
// GangFixture: a client of eight logical devices of the plugin that is the test's parameter; a
// program of which one device fails.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/client/client.h"

namespace hekla::runtime {

inline constexpr int kDevices = 8;

// (a f32[2], who ui32[]) -> the sum of a over all: partition `who` fails at a check in front of it;
// the others wait for it there.
inline constexpr std::string_view kOneFailsBeforeSum = R"(module @one_fails_before_sum {
  func.func @main(%a: tensor<2xf32>, %who: tensor<ui32>) -> tensor<2xf32> {
    %yes = stablehlo.constant dense<true> : tensor<i1>
    %p = stablehlo.partition_id : tensor<ui32>
    %is = stablehlo.compare NE, %p, %who, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    check.expect_eq %is, %yes : tensor<i1>, tensor<i1>
    %sum = "stablehlo.all_reduce"(%a) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {
      replica_groups = dense<[[0,1,2,3,4,5,6,7]]> : tensor<1x8xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids
    } : (tensor<2xf32>) -> tensor<2xf32>
    return %sum : tensor<2xf32>
  }
})";

class GangFixture : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { make_client({}); }

  // In place of the one before.
  void make_client(Options options) {
    const std::string path = std::string(HEKLA_BINARY_DIR "/lib/hekla/") + GetParam() + ".so";
    ASSERT_TRUE(std::filesystem::exists(path)) << path;
    auto plugin = Plugin::load("tested", path);
    ASSERT_TRUE(plugin.ok()) << plugin.status().to_string();
    options.emplace_back("num_devices", int64_t{kDevices});
    auto client = Client::create(*plugin, options);
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    client_.emplace(*std::move(client));
  }

  Result<Executable> compile(std::string_view program) const {
    CompileOptions options;
    options.num_partitions = kDevices;
    options.use_spmd_partitioning = false;
    return client_->compile(program, options);
  }
  Buffer upload(const HostArray& array, int device) const {
    return *client_->to_device(array, client_->addressable_devices()[static_cast<size_t>(device)]);
  }
  // One argument for each device, the same for all.
  std::vector<Buffer> upload_to_all(const HostArray& array) const {
    std::vector<Buffer> buffers;
    for (int d = 0; d < kDevices; ++d) buffers.push_back(upload(array, d));
    return buffers;
  }
  static HostArray floats(Dims dims, float value) {
    const auto count = static_cast<size_t>(element_count(dims));
    return HostArray::from<float>(DType::kF32, std::move(dims), std::vector<float>(count, value));
  }
  const std::string& device_name(size_t device) const {
    return client_->addressable_devices()[device].debug_string();
  }

  std::optional<Client> client_;
};

}  // namespace hekla::runtime
