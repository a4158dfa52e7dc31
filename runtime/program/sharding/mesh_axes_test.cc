// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/mesh_axes.h"

#include <gtest/gtest.h>

namespace hekla::sharding {
namespace {

using DeviceGroups = std::vector<std::vector<int64_t>>;

const Mesh kTwoByFour{{{"x", 2}, {"y", 4}}, {}};

TEST(MeshAxes, TextReadsBack) {
  const MeshAxes all[] = {
      {"mesh", {{"x", {}}, {"y", SubAxis{2, 2}}}},
      {"a name", {}},
      {Mesh{{{"x", 2}}, {}}, {{"x", {}}}},
      {Mesh{{{"x", 2}, {"q\"", 1}}, {1, 0}}, {{"q\"", {}}}},
  };
  for (const MeshAxes& axes : all) {
    const auto read = parse_mesh_axes(to_text(axes));
    ASSERT_TRUE(read.ok()) << to_text(axes) << read.status().to_string();
    EXPECT_EQ(*read, axes) << to_text(axes);
  }
}

TEST(MeshAxes, DeviceIdsAsBytes) {
  const auto read = parse_mesh_axes(
      "#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = "
      "[#stablehlo.mesh_axis<name = \"x\", size = 2>], device_ids = "
      "dense<\"0x01000000000000000A00000000000000\"> : tensor<2xi64>>, axes = []>");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(std::get<Mesh>(read->mesh).device_ids, std::vector<int64_t>({1, 10}));
}

TEST(MeshAxes, MalformedTextIsRefusedByPosition) {
  for (const char* text :
       {"", "#stablehlo.replica_group_mesh_axes<mesh = @m>",
        "#stablehlo.replica_group_mesh_axes<mesh = @m, axes = [#stablehlo.axis_ref<name = 3>]>",
        "#stablehlo.replica_group_mesh_axes<mesh = @m, axes = []> x",
        "#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [], device_ids = "
        "dense<[1]> : tensor<2xi64>>, axes = []>"}) {
    TextError error;
    EXPECT_EQ(parse_mesh_axes(text, &error).status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_FALSE(error.reason.empty()) << text;
  }
}

TEST(MeshAxes, GroupsDifferAlongTheAxes) {
  EXPECT_EQ(*device_groups({{"y", {}}}, kTwoByFour), DeviceGroups({{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(*device_groups({{"x", {}}}, kTwoByFour),
            DeviceGroups({{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // The first axis is the major one.
  EXPECT_EQ(*device_groups({{"y", {}}, {"x", {}}}, kTwoByFour),
            DeviceGroups({{0, 4, 1, 5, 2, 6, 3, 7}}));
  EXPECT_EQ(*device_groups({{"y", SubAxis{1, 2}}}, kTwoByFour),
            DeviceGroups({{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(*device_groups({}, kTwoByFour), DeviceGroups({{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(*device_groups({{"x", {}}}, Mesh{{{"x", 2}, {"y", 2}}, {3, 1, 0, 2}}),
            DeviceGroups({{3, 0}, {1, 2}}));
  EXPECT_FALSE(device_groups({{"z", {}}}, kTwoByFour).ok());
}

}  // namespace
}  // namespace hekla::sharding
