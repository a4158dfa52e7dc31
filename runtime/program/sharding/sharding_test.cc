// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/sharding.h"

#include <gtest/gtest.h>

#include "runtime/program/sharding/testing/random_sharding.h"
#include "runtime/program/sharding/text.h"

namespace hekla::sharding {
namespace {

const Mesh kMesh{{{"x", 2}, {"y", 4}, {"z", 12}}, {}};

TensorSharding sharding_of(std::string_view text) {
  const Result<TensorSharding> sharding = parse_sharding(text);
  EXPECT_TRUE(sharding.ok()) << sharding.status().to_string();
  return sharding.ok() ? *sharding : TensorSharding();
}

Mesh mesh_of(std::string_view text) {
  const Result<Mesh> mesh = parse_mesh(text);
  EXPECT_TRUE(mesh.ok()) << mesh.status().to_string();
  return mesh.ok() ? *mesh : Mesh();
}

std::vector<Box> boxes_of(const TensorSharding& sharding, const Mesh& mesh, const Dims& shape) {
  const auto boxes = device_boxes(sharding, mesh, shape);
  EXPECT_TRUE(boxes.ok()) << boxes.status().to_string();
  std::vector<Box> result;
  if (!boxes.ok()) return result;
  for (size_t i = 0; i < boxes->size(); ++i) {
    EXPECT_EQ((*boxes)[i].device, static_cast<int64_t>(i));
    result.push_back((*boxes)[i].box);
  }
  return result;
}

TEST(Mesh, ErrorsNameTheAxisOrTheDevice) {
  const auto message = [](std::string_view text) { return check(mesh_of(text)).message(); };
  EXPECT_EQ(message("<[]>"), "");
  EXPECT_EQ(message("<[], device_ids=[3]>"), "");
  EXPECT_EQ(message("<[\"x\"=2, \"y\"=1], device_ids=[1, 0]>"), "");
  EXPECT_EQ(message("<[\"x\"=2, \"y\"=2, \"x\"=2]>"),
            "axes 0 and 2 of the mesh are both called \"x\"");
  EXPECT_EQ(message("<[\"\"=2]>"), "axis 0 of the mesh has no name");
  EXPECT_EQ(message("<[\"x\"=0]>"), "axis \"x\" of the mesh has size 0");
  EXPECT_EQ(message("<[\"x\"=9223372036854775807, \"y\"=9223372036854775807]>"),
            "a mesh of more than 1048576 devices at axis \"x\" of 9223372036854775807");
  EXPECT_EQ(message("<[\"x\"=2], device_ids=[0]>"), "a mesh of 2 devices lists 1 device ids");
  EXPECT_EQ(message("<[\"x\"=2], device_ids=[0, 2]>"),
            "device id 2 at position 1 of a mesh of 2 devices");
  EXPECT_EQ(message("<[\"x\"=2], device_ids=[1, 1]>"),
            "device id 1 stands twice in the mesh, again at position 1");
  EXPECT_EQ(message("<[], device_ids=[-3]>"), "a maximal mesh on device -3");
  EXPECT_EQ(message("<[], device_ids=[0, 1]>"), "a mesh of 1 devices lists 2 device ids");
  Mesh many;
  for (size_t i = 0; i <= kMaxAxes; ++i) many.axes.push_back({std::to_string(i), 1});
  EXPECT_EQ(check(many).message(), "a mesh of 65 axes; the limit is 64");
}

TEST(TensorSharding, ErrorsNameTheAxisAndTheDimension) {
  const auto message = [](std::string_view text, size_t rank = 2) {
    return check(sharding_of(text), kMesh, rank).message();
  };
  EXPECT_EQ(message("<@m, [{\"x\", \"z\":(2)3}, {\"z\":(1)2, ?}p1], replicated={\"y\":(2)2}, "
                    "unreduced={\"y\":(1)2}>"),
            "");
  EXPECT_EQ(message("<@m, [{}]>"), "a sharding of 1 dimensions for a tensor of 2");
  EXPECT_EQ(message("<@m, [{}, {\"w\"}]>"),
            "dimension 1 of the sharding uses axis \"w\", which mesh <[\"x\"=2, \"y\"=4, "
            "\"z\"=12]> does not have");
  EXPECT_EQ(message("<@m, [{\"x\"}, {\"y\", \"x\"}]>"),
            "dimension 1 of the sharding uses axis \"x\", and dimension 0 uses \"x\": they "
            "overlap, and a tensor may be cut by each part of an axis once");
  EXPECT_EQ(message("<@m, [{\"y\"}, {}], replicated={\"y\":(1)2}>"),
            "the replicated axes of the sharding uses axis \"y\":(1)2, and dimension 0 uses "
            "\"y\": they overlap, and a tensor may be cut by each part of an axis once");
  EXPECT_EQ(message("<@m, [{\"z\":(1)4, \"z\":(6)2}, {}]>"),
            "dimension 0 of the sharding uses axis \"z\":(6)2, and dimension 0 uses \"z\":(1)4: "
            "they cannot be parts of one axis together, and a tensor may be cut by each part of "
            "an axis once");
  for (const char* sub : {"(1)5", "(0)2", "(1)1", "(2)12", "(-2)2", "(2)-2",
                          "(9223372036854775807)2", "(2)9223372036854775807"}) {
    const std::string text =
        message(fmt::format("<@m, [{{}}, {{}}], unreduced={{\"z\":{}}}>", sub));
    EXPECT_NE(text.find(fmt::format("the unreduced axes of the sharding uses sub-axis \"z\":{}, "
                                    "which does not divide axis \"z\" of 12",
                                    sub)),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(message("<@m, [{}p1, {}]>"),
            "dimension 0 of the sharding is closed and uses no axis, but has priority 1");
  EXPECT_EQ(message("<@m, [{?}p-1, {}]>"), "dimension 0 of the sharding has priority -1");

  const Mesh one = mesh_of("<[\"x\"=1]>");
  EXPECT_FALSE(check(sharding_of("<@m, [{\"x\"}, {\"x\"}]>"), one, 2).ok());
  const Mesh maximal = mesh_of("<[], device_ids=[3]>");
  EXPECT_TRUE(check(sharding_of("<@m, []>"), maximal, 2).ok());
  EXPECT_EQ(check(sharding_of("<@m, [{}, {}]>"), maximal, 2).message(),
            "a sharding on the maximal mesh <[], device_ids=[3]> names dimensions or axes: the "
            "whole tensor is on one device");
  EXPECT_EQ(check(ManualAxes{{"x", "w"}}, kMesh).message(),
            "manual axis \"w\" is not in mesh <[\"x\"=2, \"y\"=4, \"z\"=12]>");
  EXPECT_EQ(check(ManualAxes{{"x", "x"}}, kMesh).message(), "manual axis \"x\" is named twice");
  EXPECT_TRUE(check(ManualAxes{{"z", "x"}}, kMesh).ok());
  EXPECT_EQ(device_boxes(sharding_of("<@m, [{}, {}]>"), kMesh, {2, -1}).status().message(),
            "dimension 1 of a tensor to cut has size -1");
}

TEST(TensorSharding, HasOneCanonicalForm) {
  const std::pair<const char*, const char*> cases[] = {
      {"<@m, [{\"y\":(1)2, \"y\":(2)2}]>", "<@m, [{\"y\"}]>"},
      {"<@m, [{\"y\":(2)2, \"y\":(1)2}]>", "<@m, [{\"y\":(2)2, \"y\":(1)2}]>"},
      {"<@m, [{\"z\":(2)2, \"z\":(4)3}]>", "<@m, [{\"z\":(2)6}]>"},
      {"<@m, [{\"z\":(1)12}]>", "<@m, [{\"z\"}]>"},
      {"<@m, [{}], replicated={\"y\", \"x\"}>", "<@m, [{}], replicated={\"x\", \"y\"}>"},
      {"<@m, [{}], unreduced={\"y\":(2)2, \"x\", \"y\":(1)2}>",
       "<@m, [{}], unreduced={\"x\", \"y\"}>"},
      {"<mesh<[\"x\"=2], device_ids=[0, 1]>, [{}]>", "<mesh<[\"x\"=2]>, [{}]>"},
      {"<mesh<[], device_ids=[0]>, []>", "<mesh<[], device_ids=[0]>, []>"},
  };
  for (const auto& [given, expected] : cases) {
    EXPECT_EQ(to_text(canonical(sharding_of(given), kMesh)), expected);
  }
  EXPECT_EQ(to_text(canonical(ManualAxes{{"z", "x"}}, kMesh)), "{\"x\", \"z\"}");
}

TEST(Boxes, BlocksAreCeilNOverK) {
  // From the handbook of uneven dimensions.
  const auto sizes = [](int64_t n, int64_t parts) {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < parts; ++i) result.push_back(block_of(n, parts, i).size);
    return result;
  };
  EXPECT_EQ(sizes(7, 4), (std::vector<int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(sizes(5, 4), (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(sizes(3, 8), (std::vector<int64_t>{1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sizes(0, 3), (std::vector<int64_t>{0, 0, 0}));
  constexpr int64_t kHuge = INT64_MAX;
  EXPECT_EQ(block_of(kHuge, 2, 1).start, kHuge / 2 + 1);
  EXPECT_EQ(block_of(kHuge, 2, 1).size, kHuge / 2);
  EXPECT_EQ(block_of(3, kMaxDevices, kMaxDevices - 1).start, 3);
}

TEST(Boxes, FollowTheOrderOfAxesAndDevices) {
  const Mesh mesh = mesh_of("<[\"x\"=2, \"y\"=2], device_ids=[3, 0, 2, 1]>");
  const std::vector<Box> by_y_x = boxes_of(sharding_of("<@m, [{\"y\", \"x\"}]>"), mesh, {8});
  // Positions 0..3 hold parts 0, 2, 1, 3 and are devices 3, 0, 2, 1.
  EXPECT_EQ(by_y_x, (std::vector<Box>{{{4}, {2}}, {{6}, {2}}, {{2}, {2}}, {{0}, {2}}}));
  const Mesh maximal = mesh_of("<[], device_ids=[5]>");
  const auto one = device_boxes(sharding_of("<@m, []>"), maximal, {8, 3});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(*one, (std::vector<DeviceBox>{{5, {{0, 0}, {8, 3}}}}));
  EXPECT_EQ(*local_shape(sharding_of("<@m, [{\"y\"}, {}]>"), mesh, {5, 3}), (Dims{3, 3}));
  EXPECT_EQ(*local_shape(sharding_of("<@m, [{\"y\", \"x\"}, {}]>"), mesh, {3, 3}), (Dims{1, 3}));
}

TEST(Boxes, AreThoseOfTheAtoms) {
  std::mt19937_64 random(1);
  int with_ids = 0;
  int uneven = 0;
  for (int i = 0; i < 3000; ++i) {
    const testing::Sample sample = testing::random_sample(random, i % 3 != 0, false);
    ASSERT_TRUE(check(sample.sharding, sample.mesh, sample.shape.size()).ok());
    const std::vector<Box> expected = testing::expected_boxes(sample);
    ASSERT_EQ(boxes_of(sample.sharding, sample.mesh, sample.shape), expected)
        << to_text(sample.mesh) << to_text(sample.sharding);
    // The canonical form means the same.
    const TensorSharding simple = canonical(sample.sharding, sample.mesh);
    ASSERT_TRUE(check(simple, sample.mesh, sample.shape.size()).ok()) << to_text(simple);
    ASSERT_EQ(canonical(simple, sample.mesh), simple);
    ASSERT_EQ(boxes_of(simple, sample.mesh, sample.shape), expected) << to_text(simple);
    // The local shape is the largest box.
    Dims largest(sample.shape.size(), 0);
    for (const Box& box : expected) {
      for (size_t d = 0; d < largest.size(); ++d) largest[d] = std::max(largest[d], box.size[d]);
    }
    ASSERT_EQ(*local_shape(sample.sharding, sample.mesh, sample.shape), largest);
    with_ids += sample.mesh.device_ids.empty() ? 0 : 1;
    for (size_t d = 0; d < largest.size(); ++d) {
      if (sample.shape[d] % part_count(sample.sharding.dimensions[d].axes, sample.mesh) != 0) {
        ++uneven;
        break;
      }
    }
  }
  EXPECT_GT(with_ids, 300);
  EXPECT_GT(uneven, 300);
}

}  // namespace
}  // namespace hekla::sharding
