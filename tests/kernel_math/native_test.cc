// SPDX-License-Identifier: Apache-2.0
// Native code of every expansion gives the bits that the scalar IR says: with fused multiply-adds
// where the instruction set has them, split ones elsewhere. So the measured accuracy is the CPU's.
#include <gtest/gtest.h>

#include "backends/cpu/codegen/target.h"
#include "backends/cpu/jit/kernel_compiler.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

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
  const int checked = for_each_function([&](const FunctionCase& c) {
    const HostArray wanted = *run_expansion(c.dtype, c.operands, c.expand, fma);
    EXPECT_EQ(
        differences(run_native(**compiler, c.kernel, c.dtype, c.operands), wanted, c.operands), "")
        << c.name;
  });
  EXPECT_GE(checked, 150);
}

INSTANTIATE_TEST_SUITE_P(Levels, Native, testing::Values("native", "avx2", "sse2"));

}  // namespace
}  // namespace hekla::kernel
