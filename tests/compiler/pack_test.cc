// SPDX-License-Identifier: Apache-2.0
// Packed plans come back as they were, and bytes that are no plan end in words.
#include "backends/compiler/plan/pack.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "backends/compiler/compile.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/testing/artifacts.h"

namespace hekla::testing {
namespace {

std::shared_ptr<const plan::LaunchPlan> plan_of(const std::string& bytes, bool contractions) {
  Result<std::unique_ptr<ir::Module>> module = stablehlo::read_program(bytes);
  EXPECT_TRUE(module.ok()) << module.status().message();
  plan::DeviceTraits traits;
  traits.has_contractions = traits.has_transforms = traits.scatters_in_order = contractions;
  return compile_program(std::shared_ptr<const ir::Module>(*std::move(module)), {}, traits).value();
}

bool has_host_step(const plan::LaunchPlan& plan) {
  for (const auto& [name, value] : plan::statistics(plan)) {
    if (name == "host_steps") return value > 0;
  }
  ADD_FAILURE() << "no number of host steps";
  return false;
}

void expect_same(const plan::LaunchPlan& want, const plan::LaunchPlan& got) {
  EXPECT_EQ(plan::to_string(want), plan::to_string(got));
  EXPECT_EQ(plan::kernels_string(want), plan::kernels_string(got));
  EXPECT_EQ(want.contractions, got.contractions);
  EXPECT_EQ(want.input_bytes, got.input_bytes);
  EXPECT_EQ(want.output_bytes, got.output_bytes);
  EXPECT_EQ(want.output_input, got.output_input);
  EXPECT_EQ(want.arenas, got.arenas);
  ASSERT_EQ(want.constants.size(), got.constants.size());
  for (size_t i = 0; i < want.constants.size(); ++i) {
    EXPECT_TRUE(want.constants[i].identical(got.constants[i])) << i;
  }
}

std::string real_program(const std::string& name) {
  return stablehlo::testing::read_real_program(name);
}

TEST(Pack, RealProgramsComeBack) {
  int packed = 0;
  for (const std::string& name : stablehlo::testing::real_program_names()) {
    SCOPED_TRACE(name);
    for (const bool contractions : {false, true}) {
      const auto plan = plan_of(real_program(name), contractions);
      ASSERT_FALSE(has_host_step(*plan));
      const auto bytes = plan::pack(*plan);
      ASSERT_TRUE(bytes.has_value());
      Result<plan::LaunchPlan> back = plan::unpack(*bytes);
      ASSERT_TRUE(back.ok()) << back.status().message();
      expect_same(*plan, *back);
      ++packed;
    }
  }
  EXPECT_GE(packed, 18);
}

TEST(Pack, TransformsComeBack) {
  const auto plan = plan_of(R"(
func.func @main(%x: tensor<9x12xf32>) -> tensor<9x7xcomplex<f32>> {
  %r = stablehlo.fft %x, type = RFFT, length = [9, 12] : (tensor<9x12xf32>) -> tensor<9x7xcomplex<f32>>
  return %r : tensor<9x7xcomplex<f32>>
})",
                            true);
  ASSERT_NE(plan::to_string(*plan).find("transform real 9 x 12 x 1 f32 by 2 3"), std::string::npos)
      << plan::to_string(*plan);
  const auto bytes = plan::pack(*plan);
  ASSERT_TRUE(bytes.has_value());
  Result<plan::LaunchPlan> back = plan::unpack(*bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  expect_same(*plan, *back);
}

TEST(Pack, LoopsAndBranchesComeBack) {
  const auto plan = plan_of(R"(
func.func @main(%x: tensor<7xf32>, %i: tensor<i32>) -> tensor<7xf32> {
  %b = "stablehlo.case"(%i) ({
    %s = stablehlo.sine %x : tensor<7xf32>
    stablehlo.return %s : tensor<7xf32>
  }, {
    stablehlo.return %x : tensor<7xf32>
  }) : (tensor<i32>) -> tensor<7xf32>
  %w:2 = stablehlo.while(%a = %b, %k = %i) : tensor<7xf32>, tensor<i32>
    cond {
      %limit = stablehlo.constant dense<100> : tensor<i32>
      %go = stablehlo.compare LT, %k, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %t = stablehlo.constant dense<3> : tensor<i32>
      %n = stablehlo.multiply %k, %t : tensor<i32>
      %d = stablehlo.add %a, %a : tensor<7xf32>
      stablehlo.return %d, %n : tensor<7xf32>, tensor<i32>
    }
  func.return %w#0 : tensor<7xf32>
})",
                            true);
  const std::string text = plan::to_string(*plan);
  ASSERT_NE(text.find("while"), std::string::npos) << text;
  ASSERT_FALSE(has_host_step(*plan));
  Result<plan::LaunchPlan> back = plan::unpack(plan::pack(*plan).value());
  ASSERT_TRUE(back.ok()) << back.status().message();
  expect_same(*plan, *back);
}

TEST(Pack, PlansWithHostStepsAreNotPacked) {
  const auto plan = plan_of(R"(
func.func @main(%a: tensor<4x3xf32>) -> tensor<3xf32> {
  %r:2 = stablehlo.custom_call @Qr(%a) : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>)
  func.return %r#1 : tensor<3xf32>
})",
                            true);
  ASSERT_TRUE(has_host_step(*plan));
  EXPECT_FALSE(plan::pack(*plan).has_value());
}

TEST(Pack, OtherBytesAreRefused) {
  const std::vector<std::byte> bytes = plan::pack(*plan_of(real_program("k_means"), true)).value();
  EXPECT_FALSE(plan::unpack({}).ok());
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50) {
    EXPECT_FALSE(plan::unpack(std::span(bytes).first(size)).ok()) << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(plan::unpack(longer).ok());
  // Changed bytes may be another plan; they must not be the end of the process.
  std::mt19937 random(5);
  int refused = 0;
  constexpr int kChanges = 2000;
  for (int i = 0; i < kChanges; ++i) {
    std::vector<std::byte> changed = bytes;
    for (int k = 0; k < 1 + i % 3; ++k) {
      changed[random() % changed.size()] = static_cast<std::byte>(random());
    }
    refused += !plan::unpack(changed).ok();
  }
  EXPECT_GT(refused, kChanges / 10);
}

}  // namespace
}  // namespace hekla::testing
