// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/placements.h"

#include <gtest/gtest.h>

#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::pjrt {
namespace {

std::unique_ptr<ir::Module> module_of(const std::string& text) {
  auto module = stablehlo::read_program(text);
  EXPECT_TRUE(module.ok()) << module.status().to_string();
  EXPECT_TRUE(ir::verify(**module).ok());
  return *std::move(module);
}

std::string kind_of(const ir::Module& module, size_t result) {
  const auto& all = module.entry()->result_attributes;
  const auto* kind = all[result].get("mhlo.memory_kind").get<ir::StringValue>();
  return kind == nullptr ? "" : kind->value;
}

constexpr const char* kProgram = R"(module @m {
  func.func public @main(%a: tensor<4xf32> {mhlo.memory_kind = "pinned_host"}, %b: tensor<4xf32>)
      -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32> {mhlo.memory_kind = "device"}) {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    %1 = stablehlo.custom_call @annotate_device_placement(%0) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "unpinned_host"}} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.add %1, %b : tensor<4xf32>
    %3 = func.call @inner(%2) : (tensor<4xf32>) -> tensor<4xf32>
    %4 = stablehlo.optimization_barrier %3 : tensor<4xf32>
    return %1, %2, %4, %a, %1 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
  func.func private @inner(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.negate %a : tensor<4xf32>
    %1 = stablehlo.custom_call @annotate_device_placement(%0) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
})";

TEST(Placements, ResultsHaveTheKindThatTheyWereTold) {
  const auto module = module_of(kProgram);
  take_placements(*module);
  EXPECT_EQ(kind_of(*module, 0), "unpinned_host");
  EXPECT_EQ(kind_of(*module, 1), "");  // computed from such a value
  EXPECT_EQ(kind_of(*module, 2), "pinned_host");
  EXPECT_EQ(kind_of(*module, 3), "pinned_host");
  EXPECT_EQ(kind_of(*module, 4), "device");  // the attribute has the last word
}

TEST(Placements, NoneIsLeft) {
  const auto module = module_of(kProgram);
  take_placements(*module);
  EXPECT_TRUE(ir::verify(*module).ok());
  EXPECT_EQ(stablehlo::print_module(*module).find("annotate_device_placement"), std::string::npos);
}

TEST(Placements, ResultsThatAreLeftOpenHaveTheLayoutOfAConstraint) {
  const auto module = module_of(R"(module @m {
  func.func public @main(%a: tensor<4x2xf32>) -> (tensor<2x4xf32> {mhlo.layout_mode = "auto"}, tensor<2x4xf32>, tensor<2x4xf32> {mhlo.layout_mode = "auto"}) {
    %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x2xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.custom_call @LayoutConstraint(%0) {backend_config = "", operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>]} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %1, %1, %0 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
  }
})");
  take_placements(*module);
  const auto mode_of = [&](size_t result) {
    const auto& attributes = module->entry()->result_attributes[result];
    const auto* mode = attributes.get("mhlo.layout_mode").get<ir::StringValue>();
    return mode == nullptr ? "" : mode->value;
  };
  EXPECT_EQ(mode_of(0), "{1,0}");
  EXPECT_EQ(mode_of(1), "");
  EXPECT_EQ(mode_of(2), "auto");
  EXPECT_EQ(stablehlo::print_module(*module).find("LayoutConstraint"), std::string::npos);
}

TEST(Placements, HostComputeIsFound) {
  const auto with = [](const std::string& attributes) {
    return module_of(
        "module @m {\n  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "    %0 = stablehlo.negate %a " +
        attributes +
        " : tensor<4xf32>\n"
        "    return %0 : tensor<4xf32>\n  }\n}");
  };
  EXPECT_FALSE(asks_for_host_compute(*with("")));
  EXPECT_FALSE(asks_for_host_compute(
      *with(R"({mhlo.frontend_attributes = {_xla_compute_type = "dense"}})")));
  EXPECT_TRUE(
      asks_for_host_compute(*with(R"({mhlo.frontend_attributes = {_xla_compute_type = "host"}})")));
}

}  // namespace
}  // namespace hekla::pjrt
