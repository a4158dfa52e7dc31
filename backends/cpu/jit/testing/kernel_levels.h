// SPDX-License-Identifier: Apache-2.0
// Levels: a test of native kernels at each instruction set that this processor has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/cpu/jit/kernel_compiler.h"
#include "backends/cpu/testing/guarded_memory.h"

namespace hekla::cpu {

inline constexpr kernel::ScalarType kI32 = kernel::ScalarType::kI32;
inline constexpr kernel::ScalarType kI64 = kernel::ScalarType::kI64;
inline constexpr kernel::ScalarType kF32 = kernel::ScalarType::kF32;

// One compiler per instruction set; null where this processor does not run it.
inline std::shared_ptr<KernelCompiler> compiler(const std::string& level) {
  static std::map<std::string, std::shared_ptr<KernelCompiler>> all;
  auto it = all.find(level);
  if (it == all.end()) {
    Result<std::shared_ptr<KernelCompiler>> made = KernelCompiler::create(level);
    it = all.emplace(level, made.ok() ? *made : nullptr).first;
  }
  return it->second;
}

class Levels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    compiler_ = compiler(GetParam());
    if (compiler_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  }
  std::shared_ptr<const CompiledKernels> compile(
      const std::vector<const kernel::Kernel*>& kernels) {
    std::vector<KernelRequest> requests;
    for (const kernel::Kernel* kernel : kernels) requests.push_back({kernel, false});
    auto code = compiler_->compile(requests);
    if (!code.ok()) {
      ADD_FAILURE() << code.status().to_string();
      return nullptr;
    }
    return *code;
  }
  std::shared_ptr<KernelCompiler> compiler_;
};

// Runs the units in ranges of random sizes, in guarded memory.
inline kernel::testing::Buffers run(const CompiledKernel& code,
                                    const kernel::testing::Buffers& contents, bool guard_end,
                                    uint64_t seed) {
  std::vector<GuardedMemory> memory;
  std::vector<const void*> pointers;
  for (const auto& bytes : contents) {
    memory.emplace_back(static_cast<int64_t>(bytes.size()), guard_end);
    if (!bytes.empty()) std::memcpy(memory.back().bytes().data(), bytes.data(), bytes.size());
    pointers.push_back(memory.back().bytes().data());
  }
  std::mt19937_64 random(seed);
  const int64_t units = code.schedule.units();
  for (int64_t begin = 0; begin < units;) {
    const int64_t count = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(units));
    const int64_t end = std::min(units, begin + count);
    code.function(pointers.data(), begin, end);
    begin = end;
  }
  kernel::testing::Buffers result;
  for (const GuardedMemory& m : memory) result.emplace_back(m.bytes().begin(), m.bytes().end());
  return result;
}

inline void expect_as_interpreted(const CompiledKernel& code,
                                  const kernel::testing::TestKernel& test, uint64_t seed) {
  kernel::testing::Buffers expected = test.contents;
  const Status status = interpret(test.kernel, kernel::testing::spans(expected));
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const bool guard_end : {false, true}) {
    const kernel::testing::Buffers actual = run(code, test.contents, guard_end, seed);
    ASSERT_EQ(kernel::testing::difference(test, expected, actual), "") << "seed " << seed << "\n"
                                                                       << to_string(test.kernel);
  }
}

inline bool has_fma(const std::string& level) { return level != "sse2"; }

}  // namespace hekla::cpu
