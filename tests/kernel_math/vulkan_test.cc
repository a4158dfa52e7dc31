// SPDX-License-Identifier: Apache-2.0
// Shaders of every expansion on the system's Vulkan device give the bits that the scalar IR says.
#include <gtest/gtest.h>

#include "backends/vulkan/codegen/testing/denormals.h"
#include "backends/vulkan/codegen/testing/shader_runner.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;
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
  constexpr OpCode kUnary[] = {OpCode::kExponential,
                               OpCode::kExponentialMinusOne,
                               OpCode::kLog,
                               OpCode::kLogPlusOne,
                               OpCode::kTanh,
                               OpCode::kLogistic,
                               OpCode::kSqrt,
                               OpCode::kRsqrt,
                               OpCode::kCbrt,
                               OpCode::kSine,
                               OpCode::kTan,
                               OpCode::kRoundNearestAfz,
                               OpCode::kSign,
                               OpCode::kPopcnt,
                               OpCode::kCountLeadingZeros};
  constexpr OpCode kBinary[] = {OpCode::kPower,    OpCode::kAtan2,   OpCode::kRemainder,
                                OpCode::kDivide,   OpCode::kMaximum, OpCode::kShiftLeft,
                                OpCode::kMultiply, OpCode::kMinimum};
  int checked = 0;
  for (DType dtype : {DType::kI8, DType::kUI16, DType::kI32, DType::kUI64, DType::kF8E4M3FN,
                      DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kC64}) {
    const auto [x, y] = interesting_pairs(dtype, 2000);
    const auto check = [&](OpCode code, const std::vector<HostArray>& operands) {
      const Expansion expand = [&](Builder& b, const std::vector<Element>& e) {
        return e.size() == 1 ? unary(b, code, dtype, e[0]) : binary(b, code, dtype, e[0], e[1]);
      };
      const std::optional<Kernel> kernel = make_kernel(dtype, operands, expand);
      if (!kernel) return;
      ++checked;
      const HostArray ours = run_on_device(**runner, target, *kernel, dtype, operands);
      const auto difference = [&](Fma fma) {
        const HostArray wanted = *run_expansion(dtype, operands, expand, fma);
        if (vulkan::testing::keeps_denormals(target)) return differences(ours, wanted, operands);
        const vulkan::testing::FlushDenormals flush;
        const HostArray flushed = *run_expansion(dtype, operands, expand, fma);
        HostArray kept = ours;
        const std::span<std::byte> bytes(kept.mutable_data(),
                                         static_cast<size_t>(kept.size_bytes()));
        vulkan::testing::leave_out(wanted.bytes(), flushed.bytes(),
                                   static_cast<size_t>(dtype_bytes(dtype)), bytes);
        if (complex_part(dtype) == DType::kF32) {
          vulkan::testing::leave_out_zeros_for_denormals(wanted.bytes(), bytes);
        }
        return differences(kept, wanted, operands);
      };
      // A device may fuse a multiply-add or not, all of them alike.
      const std::string fused = difference(Fma::kFused);
      if (fused.empty()) return;
      const std::string split = difference(Fma::kSplit);
      EXPECT_TRUE(split.empty()) << ir::op_name(code) << " " << dtype_name(dtype)
                                 << "\nfused: " << fused << "not fused: " << split;
    };
    for (OpCode code : kUnary) check(code, {x});
    for (OpCode code : kBinary) check(code, {x, y});
  }
  EXPECT_GE(checked, 150);
}

}  // namespace
}  // namespace hekla::kernel
