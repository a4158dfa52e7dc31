// SPDX-License-Identifier: Apache-2.0
// What tests make launch plans by hand of.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/plan/launch_plan.h"
#include "backends/cpu/jit/kernel_compiler.h"

namespace hekla::cpu::testing {

inline KernelCompiler& compiler() {
  static const std::shared_ptr<KernelCompiler> made = KernelCompiler::create().value();
  return *made;
}

inline plan::Slice arena(int64_t offset, int64_t bytes) {
  return {plan::Slice::Space::kArena, 0, offset, bytes};
}

// `to` = `from` + 1 on one i32, and whether it is below `limit`.
inline kernel::Kernel count_up(int32_t limit) {
  constexpr kernel::ScalarType kInt = kernel::ScalarType::kI32;
  kernel::Builder b(0, kInt);
  const kernel::Value next = b.add(b.load(kInt, {0, 4}, b.index(0)), b.index(1));
  b.store({1, 4}, b.index(0), next);
  const kernel::Value below = b.binary(kernel::Op::kLtS, next, b.index(limit));
  b.store({2, 1}, b.index(0), b.convert(kernel::Op::kBoolToInt, kInt, below));
  kernel::Kernel kernel;
  kernel.name = "count_up";
  kernel.operands = {{4, true, false, true}, {4, false, true}, {1, false, true}};
  kernel.body = b.finish();
  return kernel;
}

}  // namespace hekla::cpu::testing
