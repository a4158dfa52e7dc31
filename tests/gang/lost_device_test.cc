// SPDX-License-Identifier: Apache-2.0
// A gang over two physical Vulkan devices, one of which does not come to the end of its work and is
// given up: the launch ends with its loss on all, those of the other one too, whose devices go on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/testing/child.h"
#include "runtime/client/client.h"
#include "tests/gang/holdings.h"

namespace hekla::runtime {
namespace {

constexpr int kDevices = 4;  // two of each
constexpr int64_t kSide = 4096, kTimeoutSeconds = 6;

// (a f32[n, n], who ui32[]) -> the sum over all partitions of a[0, 0]; partition `who` multiplies
// a by itself some times before, which takes a software device longer than it is given.
std::string program() {
  return fmt::format(R"(module @late {{
  func.func @main(%a: tensor<{0}x{0}xf32>, %who: tensor<ui32>) -> tensor<1x1xf32> {{
    %p = stablehlo.partition_id : tensor<ui32>
    %is = stablehlo.compare EQ, %p, %who, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    %b = "stablehlo.if"(%is) ({{
      %1 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
      %2 = stablehlo.dot_general %1, %a, contracting_dims = [1] x [0] : (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
      %3 = stablehlo.dot_general %2, %a, contracting_dims = [1] x [0] : (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
      %4 = stablehlo.dot_general %3, %a, contracting_dims = [1] x [0] : (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
      %5 = stablehlo.dot_general %4, %a, contracting_dims = [1] x [0] : (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
      %6 = stablehlo.dot_general %5, %a, contracting_dims = [1] x [0] : (tensor<{0}x{0}xf32>, tensor<{0}x{0}xf32>) -> tensor<{0}x{0}xf32>
      stablehlo.return %6 : tensor<{0}x{0}xf32>
    }}, {{
      stablehlo.return %a : tensor<{0}x{0}xf32>
    }}) : (tensor<i1>) -> tensor<{0}x{0}xf32>
    %c = stablehlo.slice %b [0:1, 0:1] : (tensor<{0}x{0}xf32>) -> tensor<1x1xf32>
    %sum = "stablehlo.all_reduce"(%c) ({{
    ^bb0(%u: tensor<f32>, %v: tensor<f32>):
      %s = stablehlo.add %u, %v : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }}) {{
      replica_groups = dense<[[0,1,2,3]]> : tensor<1x4xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids
    }} : (tensor<1x1xf32>) -> tensor<1x1xf32>
    return %sum : tensor<1x1xf32>
  }}
}})",
                     kSide);
}

// What each device's part of a launch said.
Result<std::vector<Status>> run(const Client& client, const Executable& executable, uint32_t who) {
  std::vector<std::vector<Buffer>> inputs;
  std::vector<std::vector<const Buffer*>> arguments;
  for (const Device& device : client.addressable_devices()) {
    std::vector<Buffer>& each = inputs.emplace_back();
    for (const HostArray& array :
         {HostArray(DType::kF32, {kSide, kSide}),
          HostArray::from<uint32_t>(DType::kUI32, {}, std::vector<uint32_t>{who})}) {
      HEKLA_ASSIGN_OR_RETURN(Buffer buffer, client.to_device(array, device));
      each.push_back(std::move(buffer));
    }
  }
  for (const std::vector<Buffer>& each : inputs) arguments.push_back({&each[0], &each[1]});
  HEKLA_ASSIGN_OR_RETURN(const Launch launch, executable.launch(arguments));
  std::vector<Status> said;
  for (const Event& done : launch.done) said.push_back(done.await(Deadline::in(kPatience)));
  return said;
}

Status lose_one() {
  HEKLA_ASSIGN_OR_RETURN(const auto plugin,
                         Plugin::load("tested", HEKLA_BINARY_DIR "/lib/hekla/pjrt_vulkan.so"));
  HEKLA_ASSIGN_OR_RETURN(const Client client,
                         Client::create(plugin, {{"vulkan_device", std::string("0,0")},
                                                 {"num_devices", int64_t{kDevices / 2}},
                                                 {"vulkan_launch_timeout", kTimeoutSeconds}}));
  if (client.addressable_devices()[0].string_attribute("device_type") != "cpu") {
    fmt::print("a GPU would be done in time: nothing was tried\n");
    return ok_status();
  }
  CompileOptions options;
  options.num_partitions = kDevices;
  options.use_spmd_partitioning = false;
  HEKLA_ASSIGN_OR_RETURN(const Executable executable, client.compile(program(), options));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Status> well, run(client, executable, 99));
  for (const Status& status : well) HEKLA_RETURN_IF_ERROR(status);
  const auto begin = std::chrono::steady_clock::now();
  HEKLA_ASSIGN_OR_RETURN(const std::vector<Status> ill, run(client, executable, 1));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (size_t d = 0; d < ill.size(); ++d) {
    if (ill[d].code() == StatusCode::kUnavailable &&
        ill[d].message().find("is lost") != std::string::npos) {
      continue;
    }
    return internal_error("device {} said {}", d, ill[d].to_string());
  }
  if (seconds.count() > 5 * kTimeoutSeconds) return internal_error("after {} s", seconds.count());
  // The other physical device works as before.
  CompileOptions alone;
  alone.device_ids = {3};
  HEKLA_ASSIGN_OR_RETURN(
      const Executable twice,
      client.compile("func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> {\n"
                     "  %r = stablehlo.add %a, %a : tensor<3xf32>\n"
                     "  return %r : tensor<3xf32>\n}",
                     alone));
  HEKLA_ASSIGN_OR_RETURN(
      const Buffer three,
      client.to_device(HostArray::from<float>(DType::kF32, {3}, std::vector<float>{1, 2, 3}),
                       client.addressable_devices()[3]));
  const std::vector<const Buffer*> arguments[] = {{&three}};
  HEKLA_ASSIGN_OR_RETURN(const Launch launch, twice.launch(arguments));
  HEKLA_ASSIGN_OR_RETURN(const HostArray result, launch.outputs[0][0].to_host());
  if (result.as<float>()[2] != 6) return internal_error("a wrong result");
  return ok_status();
}

// In a process of its own: what is given up is never freed.
TEST(GangLostDevice, EndsTheLaunchOnAllOthers_pjrt_vulkan) {
#ifdef HEKLA_SANITIZED
  GTEST_SKIP() << "the driver's compiler alone takes as long here as a device is given";
#endif
  EXPECT_EQ(run_child([] {
              const Status status = lose_one();
              if (!status.ok()) fmt::print(stderr, "{}\n", status.to_string());
              return status.ok() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace hekla::runtime
