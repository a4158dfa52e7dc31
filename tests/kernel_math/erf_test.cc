// SPDX-License-Identifier: Apache-2.0
// erf as native code computes it, against the C library in double: the composite that JAX sends, in
// place of its decomposition, and the custom calls of older senders. The decomposition here is
// wrong, so that nothing is right by its doing.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/compiler/compile.h"
#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/execute/program.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::testing {
namespace {

enum class Form { kComposite, kChloCall, kMhloCall };

std::shared_ptr<const ir::Module> erf_program(Form form, DType dtype, int64_t size) {
  const std::string type = fmt::format("tensor<{}x{}>", size, dtype_name(dtype));
  const std::string call = form == Form::kComposite
                               ? "stablehlo.composite \"chlo.erf\" %x {decomposition = @wrong}"
                               : fmt::format("stablehlo.custom_call @{}.erf(%x)",
                                             form == Form::kChloCall ? "chlo" : "mhlo");
  Result<std::unique_ptr<ir::Module>> read = stablehlo::read_program(
      fmt::format("module {{\nfunc.func public @main(%x: {0}) -> {0} {{\n"
                  "  %r = {1} : ({0}) -> {0}\n  return %r : {0}\n}}\n"
                  "func.func private @wrong(%x: {0}) -> {0} {{\n  return %x : {0}\n}}\n}}\n",
                  type, call));
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? std::move(*read) : nullptr;
}

// A launch again and again over one program.
class NativeErf {
 public:
  NativeErf(Form form, DType dtype, int64_t size) {
    const auto plan = compile_program(erf_program(form, dtype, size));
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    static const auto compiler = cpu::KernelCompiler::create().value();
    auto program = cpu::Program::create(*plan, *compiler);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    program_ = *std::move(program);
    // No host step: the plan has kernels alone.
    EXPECT_EQ(plan::to_string(**plan).find("host"), std::string::npos) << plan::to_string(**plan);
  }

  void run(const void* in, void* out) {
    cpu::LaunchMemory memory;
    memory.inputs.push_back(static_cast<const std::byte*>(in));
    memory.outputs.push_back(static_cast<std::byte*>(out));
    const auto arena = cpu::BlockPool::process_pool().allocate(program_->plan().arena_bytes());
    ASSERT_TRUE(arena.ok());
    memory.arenas.assign(program_->plan().arenas.size(), arena->data());
    const Status status = program_->run(memory, {});
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

 private:
  std::shared_ptr<const cpu::Program> program_;
};

// The distance in units of the last place of the exact result, which are those of the smallest
// normal number below it.
double ulp_error(float got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(got) - exact) /
         std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// Some 90 million of all magnitudes, both signs; the step is odd so that every last bit is met.
TEST(Erf, IsWithinItsBoundForF32) {
  constexpr size_t kChunk = 1 << 20;
  constexpr uint32_t kStep = 47, kEnd = 0x7f800000;
  for (const Form form : {Form::kComposite, Form::kChloCall, Form::kMhloCall}) {
    NativeErf erf(form, DType::kF32, 2 * kChunk);
    std::vector<float> x(2 * kChunk), y(2 * kChunk);
    double worst = 0;
    float worst_at = 0;
    int64_t count = 0;
    // The calls are the same formula: a sample is enough.
    const uint32_t step = form == Form::kComposite ? kStep : 100 * kStep + 1;
    for (uint32_t bits = 0; bits <= kEnd;) {
      for (size_t i = 0; i < kChunk; ++i, bits = std::min(bits + step, kEnd + 1)) {
        x[2 * i] = std::bit_cast<float>(std::min(bits, kEnd));
        x[2 * i + 1] = -x[2 * i];
      }
      erf.run(x.data(), y.data());
      for (size_t i = 0; i < 2 * kChunk; i += 2) {
        const double error = ulp_error(y[i], std::erf(static_cast<double>(x[i])));
        if (!(error <= worst)) {
          worst = error;
          worst_at = x[i];
        }
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i + 1]), std::bit_cast<uint32_t>(y[i]) ^ 0x80000000)
            << x[i];
        ASSERT_LE(y[i], 1) << x[i];
      }
      count += kChunk;
    }
    std::printf("erf f32: %.3f ULP at %a of %lld arguments\n", worst, worst_at,
                static_cast<long long>(count));
    EXPECT_GE(count, form == Form::kComposite ? 45'000'000 : 100'000);
    EXPECT_LT(worst, 2) << worst_at;  // docs/numerics.md
  }
}

// Every f16 and bf16, rounded once from f32.
TEST(Erf, IsRoundedOnceForNarrowFloats) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    NativeErf erf(Form::kComposite, dtype, 1 << 16);
    std::vector<uint16_t> x(1 << 16), y(1 << 16);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
    erf.run(x.data(), y.data());
    int off = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double argument = float_from_bits(dtype, x[i]);
      const double got = float_from_bits(dtype, y[i]);
      if (std::isnan(argument)) {
        EXPECT_TRUE(std::isnan(got)) << i;
        continue;
      }
      const double want = float_from_bits(dtype, float_to_bits(dtype, std::erf(argument)));
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << argument;
      // A double rounding decides otherwise now and then.
      off += got != want ? 1 : 0;
      const double least = dtype == DType::kF16 ? 0x1p-24 : 0x1p-133;
      const double place = std::ldexp(1.0, std::ilogb(want == 0 ? least : want)) *
                           (dtype == DType::kF16 ? 0x1p-10 : 0x1p-7);
      EXPECT_LE(std::abs(got - want), std::max(place, least)) << argument;
    }
    EXPECT_LE(off, 8) << dtype_name(dtype);
  }
}

TEST(Erf, EdgesAndEmptyArrays) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0F, -0.0F, kInf, -kInf, std::nanf(""), 1e-45F, -1e-45F, 3e38F};
  std::vector<float> y(8);
  NativeErf erf(Form::kComposite, DType::kF32, 8);
  erf.run(x.data(), y.data());
  EXPECT_EQ(std::bit_cast<uint32_t>(y[0]), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(y[1]), 0x80000000u);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], -1);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1e-45F);
  EXPECT_EQ(y[6], -1e-45F);
  EXPECT_EQ(y[7], 1);
  EXPECT_TRUE(compile_program(erf_program(Form::kComposite, DType::kF32, 0)).ok());
}

// The oracle does not use the decomposition either.
TEST(Erf, TheEvaluatorTakesTheCLibrarys) {
  for (const Form form : {Form::kComposite, Form::kChloCall, Form::kMhloCall}) {
    HostArray x(DType::kF32, {1000});
    for (int64_t i = 0; i < 1000; ++i)
      x.mutable_as<float>()[i] = 0.004F * static_cast<float>(i) - 2;
    const auto module = erf_program(form, DType::kF32, 1000);
    const auto got = reference::evaluate(*module, {x});
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    for (int64_t i = 0; i < 1000; ++i) {
      EXPECT_EQ((*got)[0].as<float>()[i],
                static_cast<float>(std::erf(static_cast<double>(x.as<float>()[i]))));
    }
  }
}

}  // namespace
}  // namespace hekla::testing
