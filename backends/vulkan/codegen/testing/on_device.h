// SPDX-License-Identifier: Apache-2.0
// OnDevice: tests of generated shaders on the system's Vulkan device, against the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/codegen/testing/denormals.h"
#include "backends/vulkan/codegen/testing/shader_runner.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "runtime/base/cpu_info.h"

namespace hekla::vulkan::testing {

class OnDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::shared_ptr<Device>> opened = open_test_device();
    if (!opened.ok()) {
      reason_ = opened.status().to_string();
      return;
    }
    DeviceSnapshot snapshot = (*opened)->snapshot();
    snapshot.features = (*opened)->plan().features;
    target_ = make_target(snapshot);
    Result<std::unique_ptr<ShaderRunner>> runner = ShaderRunner::create(*opened);
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    runner_ = std::move(runner).value().release();
  }
  static void TearDownTestSuite() {
    delete runner_;
    runner_ = nullptr;
  }
  void SetUp() override {
    if (runner_ == nullptr) GTEST_SKIP() << reason_;
  }
  static Target target() { return target_; }
  // Whether the device's own instructions for rounding an f64 keep the sign of a zero. llvmpipe
  // composes them but with AVX-512, for which its compiler has an instruction.
  static bool rounds_doubles_right() {
    return !target_.folds_zeros || read_cpu_info().simd_level == "AVX-512";
  }

  // The first difference between device and interpreter, or why there is no result.
  static std::string difference(const kernel::testing::TestKernel& test, const Target& target,
                                const RunOptions& options = {}) {
    kernel::testing::Buffers expected = test.contents;
    const Status interpreted =
        interpret(test.kernel, kernel::testing::spans(expected), fma_rounding(target));
    if (!interpreted.ok()) return interpreted.message();
    const Result<Shader> shader = generate(test.kernel, target);
    if (!shader.ok()) return shader.status().message();
    if (const Status s = validate(shader->words); !s.ok()) return s.message();
    kernel::testing::Buffers actual = test.contents;
    if (const Status s = runner_->run(*shader, actual, options); !s.ok()) return s.message();
    leave_out_denormals(test, expected, actual);
    return kernel::testing::difference(test, expected, actual);
  }
  // Of what this device is free to compute in its own way, see denormals.h.
  static void leave_out_denormals(const kernel::testing::TestKernel& test,
                                  const kernel::testing::Buffers& expected,
                                  kernel::testing::Buffers& actual) {
    if (keeps_denormals(target_)) return;
    kernel::testing::Buffers flushed = test.contents;
    const FlushDenormals flush;
    const kernel::FmaRounding fma = fma_rounding(target_);
    if (!interpret(test.kernel, kernel::testing::spans(flushed), fma).ok()) return;
    for (size_t i = 0; i < actual.size(); ++i) {
      leave_out(expected[i], flushed[i], test.elements[i].bytes, actual[i]);
      if (test.elements[i].type == kernel::ScalarType::kF32) {
        leave_out_zeros_for_denormals(expected[i], actual[i]);
      }
    }
  }

  inline static ShaderRunner* runner_ = nullptr;
  inline static Target target_;
  inline static std::string reason_;  // why there is no device
};

}  // namespace hekla::vulkan::testing
