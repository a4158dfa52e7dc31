// SPDX-License-Identifier: Apache-2.0
// Programs whose collectives name groups by the axes of a mesh become those of the lists that the
// axes stand for.
#include <gtest/gtest.h>

#include "backends/compiler/spmd/partition_program.h"
#include "runtime/program/stablehlo/read_program.h"
#include "runtime/program/stablehlo/text/print.h"

namespace hekla::spmd {
namespace {

std::string by_axes(const std::string& mesh, const std::string& axes) {
  return fmt::format("#stablehlo.replica_group_mesh_axes<mesh = {}, axes = [{}]>", mesh, axes);
}

std::string lists(const std::string& rows, int groups, int devices) {
  return fmt::format("dense<{}> : tensor<{}x{}xi64>", rows, groups, devices);
}

// A sum and a gather in a function that a manual computation over a mesh of 2 x 4 calls, of arrays
// that are cut by x or by nothing.
std::string program(const std::string& groups, int64_t devices, bool cut) {
  const int64_t rows = cut ? 4 : 8;
  return fmt::format(R"(module @m attributes {{mhlo.num_partitions = 8 : i32}} {{
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func private @sum(%a: tensor<{1}x3xf32>) -> tensor<{2}x3xf32> {{
    %s = "stablehlo.all_reduce"(%a) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = {0}, use_global_device_ids}}> ({{
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }}) : (tensor<{1}x3xf32>) -> tensor<{1}x3xf32>
    %g = "stablehlo.all_gather"(%s) <{{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = {0}, use_global_device_ids}}> : (tensor<{1}x3xf32>) -> tensor<{2}x3xf32>
    return %g : tensor<{2}x3xf32>
  }}
  func.func public @main(%a: tensor<8x3xf32>) -> tensor<{4}x3xf32> {{
    %r = sdy.manual_computation(%a) in_shardings=[<@mesh, [{3}, {{}}]>] out_shardings=[<@mesh, [{3}, {{}}]>] manual_axes={{"x", "y"}} (%p: tensor<{1}x3xf32>) {{
      %s = func.call @sum(%p) : (tensor<{1}x3xf32>) -> tensor<{2}x3xf32>
      sdy.return %s : tensor<{2}x3xf32>
    }} : (tensor<8x3xf32>) -> tensor<{4}x3xf32>
    return %r : tensor<{4}x3xf32>
  }}
}})",
                     groups, rows, rows * devices, cut ? R"({"x"})" : "{}",
                     rows * devices * (cut ? 2 : 1));
}

// The program of one device, or what is wrong.
std::string partitioned(const std::string& text) {
  const auto module = stablehlo::read_program(text);
  if (!module.ok()) return module.status().to_string();
  const auto one = partition_program(**module, {.partitions = 8});
  return one.ok() ? stablehlo::print_module(*one->module) : one.status().to_string();
}

TEST(MeshGroups, AreTheListsThatTheyStandFor) {
  const std::string x = R"(#stablehlo.axis_ref<name = "x">)";
  const std::string y = R"(#stablehlo.axis_ref<name = "y">)";
  const std::string part = R"(#stablehlo.axis_ref<name = "y", sub_axis_info = (2)2>)";
  const std::string turned =
      R"(#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 2>, #stablehlo.mesh_axis<name = "y", size = 4>], device_ids = dense<[7, 6, 5, 4, 3, 2, 1, 0]> : tensor<8xi64>>)";
  const std::tuple<std::string, std::string, int64_t> cases[] = {
      {by_axes("@mesh", x), lists("[[0, 4], [1, 5], [2, 6], [3, 7]]", 4, 2), 2},
      {by_axes("@mesh", y), lists("[[0, 1, 2, 3], [4, 5, 6, 7]]", 2, 4), 4},
      {by_axes("@mesh", x + ", " + y), lists("[[0, 1, 2, 3, 4, 5, 6, 7]]", 1, 8), 8},
      {by_axes("@mesh", y + ", " + x), lists("[[0, 4, 1, 5, 2, 6, 3, 7]]", 1, 8), 8},
      {by_axes("@mesh", part), lists("[[0, 1], [2, 3], [4, 5], [6, 7]]", 4, 2), 2},
      {by_axes("@mesh", ""), lists("[[0], [1], [2], [3], [4], [5], [6], [7]]", 8, 1), 1},
      {by_axes(turned, x), lists("[[7, 3], [6, 2], [5, 1], [4, 0]]", 4, 2), 2},
  };
  for (const auto& [axes, rows, devices] : cases) {
    for (const bool cut : {false, true}) {
      const std::string given = partitioned(program(axes, devices, cut));
      EXPECT_EQ(given, partitioned(program(rows, devices, cut))) << axes;
      EXPECT_NE(given.find("stablehlo.all_gather"), std::string::npos) << given;
      EXPECT_EQ(given.find("mesh_axes"), std::string::npos) << given;
    }
  }
}

TEST(MeshGroups, AxesThatThereAreNotAreRefused) {
  const std::string refused[][2] = {
      {by_axes("@other", R"(#stablehlo.axis_ref<name = "x">)"), "there is no mesh @other"},
      {by_axes("@mesh", R"(#stablehlo.axis_ref<name = "z">)"), "\"z\""},
  };
  for (const auto& [axes, reason] : refused) {
    const std::string given = partitioned(program(axes, 2, true));
    EXPECT_NE(given.find("INVALID_ARGUMENT: stablehlo.all_reduce"), std::string::npos) << given;
    EXPECT_NE(given.find("replica_groups"), std::string::npos) << given;
    EXPECT_NE(given.find(reason), std::string::npos) << given;
  }
}

}  // namespace
}  // namespace hekla::spmd
