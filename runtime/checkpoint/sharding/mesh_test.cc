// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/mesh.h"

#include <gtest/gtest.h>

#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

Sharding parse(std::string_view text) { return parse_sharding(text).value(); }

TEST(Mesh, CutsDimensionsByTheirAxes) {
  const auto boxes = device_boxes(parse("mesh=(data:2,model:2) spec=(model,data)"), {4, 6});
  ASSERT_TRUE(boxes.ok());
  ASSERT_EQ(boxes->size(), 4u);
  // Position 1 is data 0, model 1.
  EXPECT_EQ((*boxes)[1].box, (Box{{2, 0}, {2, 3}}));
  EXPECT_EQ((*boxes)[2].box, (Box{{0, 3}, {2, 3}}));
}

TEST(Mesh, FirstOfSeveralAxesIsTheMajorOne) {
  const auto boxes = device_boxes(parse("mesh=(a:2,b:3) spec=((b,a))"), {6});
  ASSERT_TRUE(boxes.ok());
  // Position 1 is a 0, b 1: part 1 * 2 + 0.
  EXPECT_EQ((*boxes)[1].box, (Box{{2}, {1}}));
  EXPECT_EQ((*boxes)[3].box, (Box{{1}, {1}}));
}

TEST(Mesh, DeviceOrderNamesTheDeviceAtEachPosition) {
  const auto boxes = device_boxes(parse("mesh=(a:3) spec=(a) devices=[7,0,5]"), {3});
  ASSERT_TRUE(boxes.ok());
  EXPECT_EQ((*boxes)[0].device, 7);
  EXPECT_EQ((*boxes)[2].device, 5);
  EXPECT_EQ((*boxes)[2].box, (Box{{2}, {1}}));
}

// What XLA gives for 10 elements on 4 devices, and for 2 on 4.
TEST(Mesh, UnevenCutsArePaddedAtTheEnd) {
  auto boxes = device_boxes(parse("mesh=(a:4) spec=(a)"), {10});
  ASSERT_TRUE(boxes.ok());
  EXPECT_EQ((*boxes)[2].box, (Box{{6}, {3}}));
  EXPECT_EQ((*boxes)[3].box, (Box{{9}, {1}}));
  EXPECT_EQ((*boxes)[3].padded, (Dims{3}));
  boxes = device_boxes(parse("mesh=(a:4) spec=(a)"), {2});
  ASSERT_TRUE(boxes.ok());
  EXPECT_EQ((*boxes)[1].box, (Box{{1}, {1}}));
  EXPECT_EQ((*boxes)[3].box, (Box{{2}, {0}}));
}

TEST(Mesh, HeldBoxesGroupCopiesByRank) {
  const std::vector<int32_t> ranks = {0, 0, 1, 1};
  const auto held = held_boxes(parse("mesh=(copy:2,part:2) spec=(part)"), {8}, ranks);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(**held, (HeldBoxes{{{{0}, {4}}, {0, 1}}, {{{4}, {4}}, {0, 1}}}));
}

TEST(Mesh, EmptyBoxesAreHeldByNobodyUnlessAllIsEmpty) {
  auto held = held_boxes(parse("mesh=(a:4) spec=(a)"), {2});
  ASSERT_TRUE(held.ok());
  EXPECT_EQ((*held)->size(), 2u);
  held = held_boxes(parse("mesh=(a:4) spec=(a)"), {0, 5});
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(**held, (HeldBoxes{{{{0, 0}, {0, 5}}, {0, 1, 2, 3}}}));
}

TEST(Mesh, BadShardingsAreRefused) {
  const auto message = [](const Sharding& sharding, int64_t rank) {
    const Status status = check_sharding(sharding, rank);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message(parse("mesh=(a:2) spec=(a,None)"), 1),
            "a sharding of 2 dimensions for a tensor of 1");
  EXPECT_EQ(message({{{{{"a", 2}}}}, {{{"b"}}}}, 1),
            "dimension 0 of the sharding uses axis \"b\", which mesh <[\"a\"=2]> does not have");
  EXPECT_EQ(
      message({{{{{"a", 2}}}}, {{{"a"}, {"a"}}}}, 2),
      "dimension 1 of the sharding uses axis \"a\", and dimension 0 uses \"a\": they overlap, "
      "and a tensor may be cut by each part of an axis once");
  EXPECT_EQ(message({{{{{"a", 2}}}}, {{{"a"}}, {"a"}}}, 2),
            "the replicated axes of the sharding uses axis \"a\", and dimension 0 uses \"a\": they "
            "overlap, and a tensor may be cut by each part of an axis once");
  EXPECT_EQ(message({{{{{"a", 2}, {"a", 3}}}}, {}}, 2),
            "axes 0 and 1 of the mesh are both called \"a\"");
  EXPECT_EQ(message({{{{{"a", 0}}}}, {}}, 2), "axis \"a\" of the mesh has size 0");
  EXPECT_EQ(message({{{{{"a", 2}}, {3, 3}}}, {}}, 2), "device 3 stands twice in the mesh");
  EXPECT_EQ(message({{{{{"a", 2}}, {3}}}, {}}, 2), "the mesh has 2 positions and names 1 devices");
  EXPECT_EQ(message({{{{{"a", 1 << 20}, {"b", 2}}}}, {}}, 2),
            "a mesh of more than 1048576 devices at axis \"b\" of 2");
}

TEST(Holdings, OverlapNamesBothRanks) {
  const std::vector<Holding> holdings = {{0, {{0}, {5}}}, {3, {{4}, {4}}}};
  const auto held = held_boxes(holdings, {8});
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.status().message(),
            "rank 0 holds [0:5] and rank 3 holds [4:8] of a tensor of shape [8]: they overlap in "
            "[4:5] and are not the same; copies must be of the same box");
}

TEST(Holdings, HoleIsNamed) {
  const std::vector<Holding> holdings = {{0, {{0, 0}, {4, 2}}}, {1, {{0, 2}, {3, 2}}}};
  const auto held = held_boxes(holdings, {4, 4});
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.status().message(),
            "nobody holds [3:4,2:4] of a tensor of shape [4,4] (14 of 16 elements are held)");
}

TEST(Holdings, BoxOutsideNamesTheRank) {
  const std::vector<Holding> holdings = {{2, {{0}, {9}}}};
  const auto held = held_boxes(holdings, {8});
  ASSERT_EQ(held.status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(held.status().message(),
            "rank 2: a box takes 9 elements from 0 of dimension 0, which has 8");
}

TEST(Holdings, TensorOfNobodyIsRefused) {
  EXPECT_FALSE(held_boxes(std::span<const Holding>(), {}).ok());
  EXPECT_FALSE(held_boxes(std::span<const Holding>(), {0}).ok());
}

TEST(Holdings, TwiceTheSameIsOnce) {
  const std::vector<Holding> holdings = {{1, {{}, {}}}, {0, {{}, {}}}, {1, {{}, {}}}};
  const auto held = held_boxes(holdings, {});
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(**held, (HeldBoxes{{{{}, {}}, {0, 1}}}));
}

TEST(ShardingText, ReadsWhatItWrites) {
  for (std::string_view text : {
           "mesh=() spec=()",
           "mesh=(data:2,model:4) spec=(data,None,(model,expert))",
           "mesh=(data:2,model:4,expert:3) spec=(data,None,(model,expert))",
           "mesh=(data:2,model:2) spec=(data) replicated={model} devices=[0,2,1,3]",
           "mesh=(a:10) spec=() devices=[7-4,9-21/4,30,29] granules=[0*4,1*3,0,1,2]",
           "mesh=(a:1048576) spec=(a) devices=[1048575-0]",
           "mesh=(\"None\":2,\"a \\\"b\\\\\":1) spec=(None,\"None\",\"a \\\"b\\\\\")",
       }) {
    const Result<Sharding> sharding = parse_sharding(text);
    if (!sharding.ok()) {
      EXPECT_NE(
          sharding.status().message().find("dimension 2 of the sharding uses axis \"expert\""),
          std::string::npos)
          << sharding.status().to_string();
      continue;
    }
    EXPECT_EQ(sharding_text(*sharding), text);
  }
}

TEST(ShardingText, OtherSpellingsMeanTheSame) {
  EXPECT_EQ(parse("mesh=(a:2, b:3) spec=((a), ())"), parse("mesh=(a:2,b:3) spec=(a,None)"));
  EXPECT_EQ(parse("mesh=(a:6) spec=() devices=[3-1, 4-8/2]").mesh.device_ids,
            (std::vector<int64_t>{3, 2, 1, 4, 6, 8}));
  EXPECT_EQ(parse("mesh=(a:3) spec=() granules=[5-5,0*2]").mesh.granules,
            (std::vector<int64_t>{5, 0, 0}));
}

TEST(ShardingText, ErrorsNameThePlace) {
  const auto message = [](std::string_view text) {
    const Result<Sharding> sharding = parse_sharding(text);
    return sharding.ok() ? "read" : sharding.status().message();
  };
  EXPECT_EQ(message(""), "sharding text, character 0: expected \"mesh=\", found the end");
  EXPECT_EQ(message("mesh=(a:2) spec=(a"),
            "sharding text, character 18: expected \",\", found the end");
  EXPECT_EQ(message("mesh=(a:x) spec=()"),
            "sharding text, character 8: expected a number below 2^63, found \"x) spec=()\"");
  EXPECT_EQ(message("mesh=(a:99999999999999999999) spec=()").substr(0, 30),
            "sharding text, character 8: ex");
  EXPECT_EQ(message("mesh=(a:2) spec=() x"),
            "sharding text, character 18: expected the end, found \" x\"");
  EXPECT_EQ(message("mesh=(a:2) spec=() devices=[0-3/2]"),
            "sharding text, character 33: steps of 2 do not lead from 0 to 3, found \"]\"");
  for (const char* many : {"0*9223372036854775807", "0*0", "0-1048576", "5-0/0"}) {
    EXPECT_NE(message(fmt::format("mesh=(a:2) spec=() devices=[{}]", many)), "read") << many;
  }
  EXPECT_EQ(message("mesh=(a:2) spec=() granules=[0*3]"),
            "the mesh has 2 positions and names the granules of 3");
  EXPECT_EQ(message("mesh=(\"a"), "sharding text, character 8: expected \"\"\", found the end");
  EXPECT_EQ(message("mesh=(None:2) spec=()"),
            "sharding text, character 10: None is no axis; one of that name is quoted, found "
            "\":2) spec=()\"");
}

}  // namespace
}  // namespace hekla::checkpoint
