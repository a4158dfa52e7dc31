// SPDX-License-Identifier: Apache-2.0
// The constraints of collectives, and the groups of devices that they form.
#include <gtest/gtest.h>

#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/stablehlo/text/text_reader.h"

namespace hekla::ir {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

const char kAdd[] = R"( ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }))";
const char kChannel[] = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>";

// A program of one operation on arguments of `inputs`' types.
std::unique_ptr<Module> program(std::string_view op, std::string_view attributes,
                                std::string_view region, const std::vector<std::string>& inputs,
                                std::string_view result) {
  std::string parameters, operands, types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const char* comma = i == 0 ? "" : ", ";
    parameters += fmt::format("{}%x{}: {}", comma, i, inputs[i]);
    operands += fmt::format("{}%x{}", comma, i);
    types += comma + inputs[i];
  }
  auto module = stablehlo::read_text(fmt::format(
      "func.func @main({}) {{\n \"stablehlo.{}\"({}) <{{{}}}>{} : ({}) -> {}\n return }}",
      parameters, op, operands, attributes, region, types, result));
  return std::move(module).value();
}

std::string error(std::string_view op, std::string_view attributes, std::string_view region,
                  const std::vector<std::string>& inputs, std::string_view result) {
  return verify(*program(op, attributes, region, inputs, result)).message();
}

#define EXPECT_ERROR(text, ...) \
  EXPECT_NE(error(__VA_ARGS__).find(text), std::string::npos) << error(__VA_ARGS__)

std::string groups_of(std::string_view rows, std::string_view shape) {
  return fmt::format("replica_groups = dense<{}> : tensor<{}xi64>", rows, shape);
}

const std::string kPair = groups_of("[[0, 1]]", "1x2");

TEST(InferCollective, SizesFollowFromTheGroups) {
  EXPECT_EQ(error("all_gather", "all_gather_dim = 0 : i64, " + kPair, "", {"tensor<3x4xf32>"},
                  "tensor<6x4xf32>"),
            "");
  EXPECT_ERROR("result 0 is tensor<6x4xf32>", "all_gather", "all_gather_dim = 0 : i64, " + kPair,
               "", {"tensor<3x4xf32>"}, "tensor<6x8xf32>");
  EXPECT_EQ(error("reduce_scatter", "scatter_dimension = 1 : i64, " + kPair, kAdd,
                  {"tensor<3x4xf32>"}, "tensor<3x2xf32>"),
            "");
  EXPECT_ERROR("dimension 0 of tensor<3x4xf32> does not divide by 2", "reduce_scatter",
               "scatter_dimension = 0 : i64, " + kPair, kAdd, {"tensor<3x4xf32>"},
               "tensor<1x4xf32>");
  EXPECT_EQ(error("all_to_all",
                  "split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, " +
                      kPair,
                  "", {"tensor<3x4xf32>"}, "tensor<6x2xf32>"),
            "");
  EXPECT_ERROR(
      "split_count 4 differs from the 2 participants", "all_to_all",
      "split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, " + kPair, "",
      {"tensor<3x4xf32>"}, "tensor<12x1xf32>");
  EXPECT_ERROR("all_gather_dim 2 is not a dimension", "all_gather",
               "all_gather_dim = 2 : i64, " + kPair, "", {"tensor<3x4xf32>"}, "tensor<3x4xf32>");
}

TEST(InferCollective, PartitionsOfAGroupOfReplicasMultiplyItsSize) {
  const std::string attributes = fmt::format("all_gather_dim = 0 : i64, {}, {}", kPair, kChannel);
  for (const char* result : {"tensor<6xf32>", "tensor<24xf32>"}) {
    EXPECT_EQ(error("all_gather", attributes, "", {"tensor<3xf32>"}, result), "") << result;
  }
  EXPECT_ERROR("is not a multiple of 6", "all_gather", attributes, "", {"tensor<3xf32>"},
               "tensor<9xf32>");
  // Of device numbers the size is exact.
  EXPECT_ERROR("result 0 is tensor<6xf32>", "all_gather", attributes + ", use_global_device_ids",
               "", {"tensor<3xf32>"}, "tensor<24xf32>");
}

TEST(InferCollective, GroupsAreSets) {
  EXPECT_ERROR("names 1 twice", "all_reduce", groups_of("[[0, 1], [1, 2]]", "2x2"), kAdd,
               {"tensor<f32>"}, "tensor<f32>");
  EXPECT_ERROR("holds -2", "all_reduce", groups_of("[[0, -2]]", "1x2"), kAdd, {"tensor<f32>"},
               "tensor<f32>");
  EXPECT_EQ(error("all_reduce", groups_of("[[0, -1], [1, 2]]", "2x2"), kAdd, {"tensor<f32>"},
                  "tensor<f32>"),
            "");
  EXPECT_ERROR("groups must be of one size", "all_gather",
               "all_gather_dim = 0 : i64, " + groups_of("[[0, -1], [1, 2]]", "2x2"), "",
               {"tensor<1xf32>"}, "tensor<2xf32>");
  EXPECT_ERROR("must be a matrix of i64", "all_reduce",
               "replica_groups = dense<[0, 1]> : tensor<2xi64>", kAdd, {"tensor<f32>"},
               "tensor<f32>");
  EXPECT_ERROR("use_global_device_ids needs a channel_handle", "all_reduce",
               kPair + ", use_global_device_ids", kAdd, {"tensor<f32>"}, "tensor<f32>");
  EXPECT_ERROR("the limit is", "all_reduce", groups_of("0", "10000000x2"), kAdd, {"tensor<f32>"},
               "tensor<f32>");
}

TEST(InferCollective, RegionsReduceTheOperands) {
  EXPECT_EQ(error("all_reduce", kPair, kAdd, {"tensor<2xf32>", "tensor<3x1xf32>"},
                  "(tensor<2xf32>, tensor<3x1xf32>)"),
            "");
  // They may compute in a wider type, which the result has.
  EXPECT_EQ(error("all_reduce", kPair, kAdd, {"tensor<2xbf16>"}, "tensor<2xf32>"), "");
  EXPECT_ERROR("result 0 is tensor<2xf32>", "all_reduce", kPair, kAdd, {"tensor<2xbf16>"},
               "tensor<2xbf16>");
  EXPECT_ERROR("the region reduces tensor<f32>, the operand is tensor<2xf64>", "all_reduce", kPair,
               kAdd, {"tensor<2xf64>"}, "tensor<2xf32>");
  EXPECT_ERROR("takes 1 regions, has 0", "all_reduce", kPair, "", {"tensor<2xf32>"},
               "tensor<2xf32>");
  EXPECT_ERROR("differ in element type", "all_reduce", kPair, kAdd,
               {"tensor<2xf32>", "tensor<2xbf16>"}, "(tensor<2xf32>, tensor<2xf32>)");
}

TEST(InferCollective, PairsAreAPartialPermutation) {
  const auto pairs = [](std::string_view rows, std::string_view shape) {
    return fmt::format("source_target_pairs = dense<{}> : tensor<{}xi64>", rows, shape);
  };
  const auto permute = [&](std::string_view rows, std::string_view shape) {
    return error("collective_permute", pairs(rows, shape), "", {"tensor<2xf32>"}, "tensor<2xf32>");
  };
  EXPECT_EQ(permute("[[0, 1], [1, 0]]", "2x2"), "");
  EXPECT_NE(permute("[[0, 1], [0, 2]]", "2x2").find("has the source 0 twice"), std::string::npos);
  EXPECT_NE(permute("[[0, 1], [2, 1]]", "2x2").find("has the target 1 twice"), std::string::npos);
  EXPECT_NE(permute("[[0, -1]]", "1x2").find("holds -1"), std::string::npos);
  EXPECT_NE(permute("[[0, 1, 2]]", "1x3").find("two columns"), std::string::npos);
  EXPECT_ERROR("has no source_target_pairs", "collective_permute", "", "", {"tensor<2xf32>"},
               "tensor<2xf32>");
}

TEST(InferCollective, RootsComeLast) {
  EXPECT_EQ(error("collective_broadcast", kPair + ", has_dynamic_root", "",
                  {"tensor<2xf32>", "tensor<1xi32>"}, "tensor<2xf32>"),
            "");
  EXPECT_ERROR("must be a vector of integers", "collective_broadcast", kPair + ", has_dynamic_root",
               "", {"tensor<2xf32>", "tensor<1xf32>"}, "tensor<2xf32>");
  EXPECT_ERROR("takes at least one operand", "collective_broadcast", kPair + ", has_dynamic_root",
               "", {"tensor<1xi32>"}, "()");
}

TEST(InferCollective, ChannelsOfTransfers) {
  const std::string device = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>";
  const std::string host = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>";
  const std::vector<std::string> inputs = {"tensor<2xf32>", "!stablehlo.token"};
  EXPECT_EQ(error("send", device, "", inputs, "!stablehlo.token"), "");
  EXPECT_EQ(error("send", host + ", is_host_transfer = true", "", inputs, "!stablehlo.token"), "");
  EXPECT_ERROR("needs a channel of type 1, not 2", "send", host, "", inputs, "!stablehlo.token");
  EXPECT_ERROR("has no channel_handle", "send", "", "", inputs, "!stablehlo.token");
  EXPECT_ERROR("the last operand must be a token", "send", device, "", {"tensor<2xf32>"},
               "!stablehlo.token");
  EXPECT_EQ(error("recv", device, "", {"!stablehlo.token"}, "(tensor<2xf32>, !stablehlo.token)"),
            "");
  EXPECT_ERROR("the last result must be a token", "recv", device, "", {"!stablehlo.token"},
               "tensor<2xf32>");
}

TEST(InferCollective, FuturesHoldTheResultsOfOneOperation) {
  const auto start = [](std::string_view body, std::string_view result) {
    return error("async_start", "", fmt::format(" ({{\n ^bb0(%p: tensor<2xf32>):\n {}\n }})", body),
                 {"tensor<2xf32>"}, result);
  };
  const std::string gather = fmt::format(
      "%0 = \"stablehlo.all_gather\"(%p) <{{all_gather_dim = 0 : i64, {}}}> : (tensor<2xf32>) -> "
      "tensor<4xf32>\n stablehlo.return %0 : tensor<4xf32>",
      kPair);
  EXPECT_EQ(start(gather, "!stablehlo.future<tensor<4xf32>>"), "");
  EXPECT_NE(start(gather, "!stablehlo.future<tensor<2xf32>>").find("result 0 is"),
            std::string::npos);
  EXPECT_NE(start("%0 = stablehlo.negate %p : tensor<2xf32>\n stablehlo.return %0 : tensor<2xf32>",
                  "!stablehlo.future<tensor<2xf32>>")
                .find("one collective or slice"),
            std::string::npos);
  EXPECT_EQ(error("async_done", "", "", {"!stablehlo.future<tensor<4xf32>>"}, "tensor<4xf32>"), "");
  EXPECT_ERROR("takes a future", "async_done", "", "", {"tensor<4xf32>"}, "tensor<4xf32>");
}

const std::vector<Mesh> kMeshes = {{"m", {{{"x", 2}, {"y", 3}}, {}}, {}}};

Result<Groups> groups(std::string_view op, const std::string& attributes, DeviceGrid grid) {
  const bool reduces = op == "all_reduce";
  const auto module =
      program(op, attributes, reduces ? kAdd : "", {"tensor<2xf32>"}, "tensor<2xf32>");
  return device_groups(*module->entry()->body().front().operations().front(), grid, kMeshes);
}

TEST(DeviceGroups, FollowTheModeOfTheOperation) {
  // Two replicas of three partitions: device 4 is (1, 1).
  const DeviceGrid grid{2, 3};
  EXPECT_EQ(*groups("all_reduce", groups_of("[[1, 0]]", "1x2"), grid),
            Groups({{3, 0}, {4, 1}, {5, 2}}));
  EXPECT_EQ(*groups("all_reduce", groups_of("[[1, 0]]", "1x2") + ", " + kChannel, grid),
            Groups({{3, 0, 4, 1, 5, 2}}));
  EXPECT_EQ(*groups("all_reduce",
                    groups_of("[[5, 0, 3], [1, 2, 4]]", "2x3") + ", " + kChannel +
                        ", use_global_device_ids",
                    grid),
            Groups({{5, 0, 3}, {1, 2, 4}}));
  EXPECT_EQ(*groups("collective_broadcast", groups_of("[[2, 0]]", "1x2") + ", " + kChannel, grid),
            Groups({{2, 0}, {5, 3}}));
  EXPECT_EQ(grid.name(4), "device 4 (replica 1, partition 1)");
}

TEST(DeviceGroups, NoGroupsAreAllDevices) {
  EXPECT_EQ(*groups("all_reduce", "replica_groups = dense<> : tensor<0x0xi64>", {3, 1}),
            Groups({{0, 1, 2}}));
  EXPECT_EQ(*groups("all_reduce", groups_of("[[0, -1], [1, 2]]", "2x2"), {3, 1}),
            Groups({{0}, {1, 2}}));
}

TEST(DeviceGroups, ByTheAxesOfAMesh) {
  const auto by_axes = [](std::string_view mesh, std::string_view axis) {
    return fmt::format(
        "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = {}, axes = "
        "[#stablehlo.axis_ref<name = \"{}\">]>",
        mesh, axis);
  };
  EXPECT_EQ(*groups("all_reduce", by_axes("@m", "x"), {6, 1}), Groups({{0, 3}, {1, 4}, {2, 5}}));
  EXPECT_EQ(*groups("all_reduce", by_axes("@m", "y"), {6, 1}), Groups({{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(
      *groups(
          "all_reduce",
          by_axes("#stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = \"z\", size = 2>]>", "z") +
              ", " + kChannel + ", use_global_device_ids",
          {1, 2}),
      Groups({{0, 1}}));
  EXPECT_NE(groups("all_reduce", by_axes("@n", "x"), {6, 1}).status().message().find("no mesh @n"),
            std::string::npos);
  EXPECT_FALSE(groups("all_reduce", by_axes("@m", "x"), {4, 1}).ok());
}

TEST(DeviceGroups, FitTheLaunch) {
  EXPECT_EQ(groups("all_reduce", kPair, {1, 2}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(groups("all_reduce", kPair, {3, 1}).status().message().find("in none of"),
            std::string::npos);
  // Devices that nobody broadcasts to get zeros.
  EXPECT_TRUE(groups("collective_broadcast", kPair, {3, 1}).ok());
}

}  // namespace
}  // namespace hekla::ir
