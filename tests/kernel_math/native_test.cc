// SPDX-License-Identifier: Apache-2.0
// Native code of every expansion gives the bits that the scalar IR says: with fused multiply-adds
// where the instruction set has them, split ones elsewhere. So the measured accuracy is the CPU's.
#include <gtest/gtest.h>

#include "backends/cpu/codegen/target.h"
#include "backends/cpu/jit/kernel_compiler.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;

HostArray run_native(cpu::KernelCompiler& compiler, const Kernel& kernel, DType result,
                     const std::vector<HostArray>& operands) {
  HostArray out(result, operands[0].dims());
  std::vector<const void*> pointers;
  for (const HostArray& operand : operands) pointers.push_back(operand.data());
  pointers.push_back(out.mutable_data());
  const cpu::KernelRequest request{&kernel, false};
  const auto code = compiler.compile({&request, 1});
  EXPECT_TRUE(code.ok()) << code.status().to_string();
  if (!code.ok()) return out;
  const cpu::CompiledKernel& compiled = (*code)->kernels[0];
  compiled.function(pointers.data(), 0, compiled.schedule.units());
  return out;
}

class Native : public testing::TestWithParam<const char*> {};

TEST_P(Native, GivesTheBitsOfTheScalarIr) {
  const auto compiler = cpu::KernelCompiler::create(GetParam());
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().to_string();
  const Result<cpu::Target> target = cpu::make_target(GetParam());
  ASSERT_TRUE(target.ok());
  const Fma fma = target->has_fma ? Fma::kFused : Fma::kSplit;
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
      const HostArray wanted = *run_expansion(dtype, operands, expand, fma);
      EXPECT_EQ(differences(run_native(**compiler, *kernel, dtype, operands), wanted, operands), "")
          << ir::op_name(code) << " " << dtype_name(dtype);
    };
    for (OpCode code : kUnary) check(code, {x});
    for (OpCode code : kBinary) check(code, {x, y});
  }
  EXPECT_GE(checked, 150);
}

INSTANTIATE_TEST_SUITE_P(Levels, Native, testing::Values("native", "avx2", "sse2"));

}  // namespace
}  // namespace hekla::kernel
