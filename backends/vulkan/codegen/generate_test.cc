// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/generate.h"

#include <gtest/gtest.h>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/testing/random_kernel.h"

namespace hekla::vulkan {
namespace {

using kernel::testing::TestKernel;

Target full_target() {
  Target t;
  t.device = "a test device";
  t.int64 = t.float64 = t.storage_8 = t.storage_16 = true;
  t.f32 = t.f64 = {.signed_zero_inf_nan_preserve = true, .rounding_rte = true};
  t.max_workgroup_invocations = t.max_workgroup_size_x = 1024;
  return t;
}

TEST(Generate, RandomKernelsGiveValidModules) {
  kernel::testing::RandomOptions options;
  options.fma = true;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Target target = full_target();
    target.is_cpu = seed % 2 == 0;
    target.splits_store_chains = seed % 3 == 0;
    if (seed % 5 == 0) target.max_narrow_bytes = 64;
    const TestKernel test = kernel::testing::random_kernel(seed, options);
    const Result<Shader> shader = generate(test.kernel, target);
    ASSERT_TRUE(shader.ok()) << shader.status().message();
    const Status status = validate(shader->words);
    ASSERT_TRUE(status.ok()) << seed << ": " << status.message() << "\n"
                             << disassemble(shader->words);
  }
}

}  // namespace
}  // namespace hekla::vulkan
