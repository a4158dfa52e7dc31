// SPDX-License-Identifier: Apache-2.0
// Generated shaders on the system's Vulkan device against the kernel interpreter, bit for bit.
#include "backends/vulkan/codegen/testing/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/vulkan/codegen/generate.h"

namespace hekla::vulkan {
namespace {

using kernel::Op;
using kernel::ScalarType;
using kernel::testing::Buffers;
using kernel::testing::OpCase;
using kernel::testing::TestKernel;
using testing::RunOptions;
using testing::TestDevice;

class OnDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::unique_ptr<TestDevice>> opened = TestDevice::open();
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device_ = std::move(opened).value().release();
  }
  static void TearDownTestSuite() {
    delete device_;
    device_ = nullptr;
  }
  static Target target() { return make_target(device_->snapshot()); }

  // The first difference between device and interpreter, or why there is no result.
  static std::string difference(const TestKernel& test, const Target& target,
                                const RunOptions& options = {}) {
    Buffers expected = test.contents;
    if (const Status s = interpret(test.kernel, kernel::testing::spans(expected)); !s.ok()) {
      return s.message();
    }
    const Result<Shader> shader = generate(test.kernel, target);
    if (!shader.ok()) return shader.status().message();
    if (const Status s = validate(shader->words); !s.ok()) return s.message();
    Buffers actual = test.contents;
    if (const Status s = device_->run(*shader, actual, options); !s.ok()) return s.message();
    return kernel::testing::difference(test, expected, actual);
  }

  static TestDevice* device_;
};
TestDevice* OnDevice::device_ = nullptr;

std::map<ScalarType, std::vector<OpCase>> cases_by_type() {
  std::map<ScalarType, std::vector<OpCase>> groups;
  for (const OpCase& c : kernel::testing::all_op_cases()) {
    if (c.op != Op::kFma) groups[c.from].push_back(c);
  }
  return groups;
}

TEST_F(OnDevice, OpsAtEdgeValues) {
  for (const auto& [from, cases] : cases_by_type()) {
    EXPECT_EQ(difference(kernel::testing::op_kernel(cases), target()), "");
  }
}

// "200" or "1000+200" in HEKLA_RANDOM_KERNELS: how many, and from which seed on.
std::pair<uint64_t, uint64_t> seeds(uint64_t count) {
  const char* text = std::getenv("HEKLA_RANDOM_KERNELS");
  if (text == nullptr) return {0, count};
  char* end = nullptr;
  const uint64_t number = std::strtoull(text, &end, 10);
  if (*end != '+') return {0, number};
  return {number, number + std::strtoull(end + 1, nullptr, 10)};
}

TEST_F(OnDevice, RandomKernels) {
  const auto [first, last] = seeds(60);
  for (uint64_t seed = first; seed < last; ++seed) {
    EXPECT_EQ(difference(kernel::testing::random_kernel(seed), target()), "") << seed;
  }
}

}  // namespace
}  // namespace hekla::vulkan
