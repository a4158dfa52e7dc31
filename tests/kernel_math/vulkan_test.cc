// SPDX-License-Identifier: Apache-2.0
// Shaders of every expansion on the system's Vulkan device give the bits that the scalar IR says.
#include <gtest/gtest.h>

#include "backends/vulkan/codegen/testing/denormals.h"
#include "backends/vulkan/codegen/testing/shader_runner.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using vulkan::testing::ShaderRunner;

HostArray run_on_device(ShaderRunner& runner, const vulkan::Target& target, const Kernel& kernel,
                        DType result, const std::vector<HostArray>& operands) {
  HostArray out(result, operands[0].dims());
  testing::Buffers buffers;
  for (const HostArray& operand : operands) {
    buffers.emplace_back(operand.bytes().begin(), operand.bytes().end());
  }
  buffers.emplace_back(static_cast<size_t>(out.size_bytes()));
  const auto shader = vulkan::generate(kernel, target);
  EXPECT_TRUE(shader.ok()) << shader.status().to_string();
  if (!shader.ok()) return out;
  const Status status = runner.run(*shader, buffers);
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::memcpy(out.mutable_data(), buffers.back().data(), buffers.back().size());
  return out;
}

TEST(Vulkan, GivesTheBitsOfTheScalarIr) {
  const auto device = vulkan::testing::open_test_device();
  if (!device.ok()) GTEST_SKIP() << device.status().to_string();
  vulkan::DeviceSnapshot snapshot = (*device)->snapshot();
  snapshot.features = (*device)->plan().features;
  const vulkan::Target target = vulkan::make_target(snapshot);
  const auto runner = ShaderRunner::create(*device);
  ASSERT_TRUE(runner.ok()) << runner.status().to_string();
  const int checked = for_each_function([&](const FunctionCase& c) {
    const HostArray ours = run_on_device(**runner, target, c.kernel, c.dtype, c.operands);
    const auto difference = [&](Fma fma) {
      const HostArray wanted = *run_expansion(c.dtype, c.operands, c.expand, fma);
      if (vulkan::testing::keeps_denormals(target)) return differences(ours, wanted, c.operands);
      const vulkan::testing::FlushDenormals flush;
      const HostArray flushed = *run_expansion(c.dtype, c.operands, c.expand, fma);
      HostArray kept = ours;
      const std::span<std::byte> bytes(kept.mutable_data(), static_cast<size_t>(kept.size_bytes()));
      vulkan::testing::leave_out(wanted.bytes(), flushed.bytes(),
                                 static_cast<size_t>(dtype_bytes(c.dtype)), bytes);
      if (complex_part(c.dtype) == DType::kF32) {
        vulkan::testing::leave_out_zeros_for_denormals(wanted.bytes(), bytes);
      }
      return differences(kept, wanted, c.operands);
    };
    // A device may fuse a multiply-add or not, all of them alike.
    const std::string fused = difference(Fma::kFused);
    if (fused.empty()) return;
    const std::string split = difference(Fma::kSplit);
    EXPECT_TRUE(split.empty()) << c.name << "\nfused: " << fused << "not fused: " << split;
  });
  EXPECT_GE(checked, 150);
}

}  // namespace
}  // namespace hekla::kernel
