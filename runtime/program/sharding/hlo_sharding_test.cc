// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/hlo_sharding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/program/sharding/testing/random_sharding.h"

namespace hekla::sharding {
namespace {

HloSharding hlo_of(std::string_view text) {
  const Result<HloSharding> sharding = parse_hlo_sharding(text);
  EXPECT_TRUE(sharding.ok()) << text << ": " << sharding.status().to_string();
  return sharding.ok() ? *sharding : HloSharding();
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// Text and xla.OpSharding of jaxlib 0.10.2 (HloSharding.from_string, to_proto).
constexpr std::pair<const char*, const char*> kRecorded[] = {
    {"{replicated}", ""},
    {"{manual}", "0804"},
    {"{unreduced}", "0806"},
    {"{unknown}", "0805"},
    {"{maximal device=3}", "0801220103"},
    {"{devices=[2,4]<=[8]}", "08031a0202044a0108520100"},
    {"{devices=[2,4]<=[2,4]T(1,0)}", "08031a0202044a02020452020100"},
    {"{devices=[2,4]0,1,2,3,4,5,6,7}", "08031a02020422080001020304050607"},
    {"{devices=[8,1]7,6,5,4,3,2,1,0}", "08031a02080122080706050403020100"},
    {"{devices=[1,2,4]<=[8] last_tile_dims={manual}}", "08031a030102044201044a0108520100"},
    {"{devices=[1,2,4]<=[8] last_tile_dim_replicate}", "08031a0301020430014a0108520100"},
    {"{devices=[1,2,2,2]<=[8] last_tile_dims={manual, replicated}}",
     "08031a0401020202420204004a0108520100"},
    {"{devices=[8,1]<=[2,4]T(1,0) shard_as 3}", "08031a0208014a0202045202010058016003"},
    {"{replicated shard_like 1}", "580160016801"},
    {"{devices=[4,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}",
     "08031a020402220800010203040506073001"},
    {"{{replicated}, {devices=[8]<=[8]}, {replicated}, {replicated}, {replicated}, "
     "/*index=5*/{replicated}, {maximal device=1}}",
     "08022a002a0b08031a01084a01085201002a002a002a002a002a050801220101"},
};

TEST(HloSharding, TextAndBytesAreThoseOfXla) {
  for (const auto& [text, bytes] : kRecorded) {
    const HloSharding sharding = hlo_of(text);
    EXPECT_EQ(to_text(sharding), text);
    const std::string encoded = encode_op_sharding(sharding);
    EXPECT_EQ(hex(encoded), bytes) << text;
    const Result<HloSharding> again = decode_op_sharding(encoded);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, sharding) << text;
    EXPECT_EQ(*read_hlo_sharding(text), sharding);
    EXPECT_EQ(*read_hlo_sharding(encoded), sharding);
  }
}

TEST(HloSharding, WhatDoesNotMatterIsReadOver) {
  EXPECT_EQ(to_text(hlo_of("{ devices=[2,4]<=[8] metadata={op_name=\"a}b\"} }")),
            "{devices=[2,4]<=[8]}");
  EXPECT_EQ(to_text(hlo_of("{replicated metadata={{op_name=\"a\"},{op_name=\"b\"}}}")),
            "{replicated}");
  EXPECT_EQ(to_text(hlo_of("{devices=[1,8]<=[8] last_tile_dims={replicated}}")),
            "{devices=[1,8]<=[8] last_tile_dim_replicate}");
  // With a tile shape and metadata, fields 2 and 7; bytes of XLA.
  const std::string bytes(
      "\x08\x03\x12\x00\x1a\x02\x02\x04\x3a\x05\x12\x03\x61\x7d\x62"
      "\x4a\x01\x08\x52\x01\x00",
      21);
  const Result<HloSharding> sharding = decode_op_sharding(bytes);
  ASSERT_TRUE(sharding.ok()) << sharding.status().to_string();
  EXPECT_EQ(to_text(*sharding), "{devices=[2,4]<=[8]}");
  // Lists need not be packed.
  const Result<HloSharding> loose = decode_op_sharding("\x08\x03\x18\x02\x20\x01\x20\x02");
  ASSERT_TRUE(loose.ok()) << loose.status().to_string();
  EXPECT_EQ(to_text(*loose), "{devices=[2]1,2}");
}

TEST(HloSharding, HasOneCanonicalForm) {
  const std::pair<const char*, const char*> cases[] = {
      {"{devices=[2,2,2]<=[2,2,2]T(0,1,2)}", "{devices=[2,2,2]<=[8]}"},
      {"{devices=[2,4]0,1,2,3,4,5,6,7}", "{devices=[2,4]<=[8]}"},
      {"{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}",
       "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"},
      {"{devices=[4,2]1,0,3,2,5,4,7,6 last_tile_dim_replicate}",
       "{devices=[4,2]<=[8] last_tile_dim_replicate}"},
      {"{devices=[1,1,8]<=[8] last_tile_dim_replicate}", "{replicated}"},
      {"{devices=[1,8]<=[8] last_tile_dims={manual}}", "{manual}"},
      {"{devices=[1,8]<=[8] last_tile_dims={unreduced}}", "{unreduced}"},
      {"{devices=[1,2,4]<=[8] last_tile_dims={replicated, manual}}",
       "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={manual, replicated}}"},
      {"{devices=[2,2,2,1]<=[8] last_tile_dims={replicated, replicated, manual}}",
       "{devices=[2,4]<=[8] last_tile_dim_replicate}"},
      {"{devices=[8,1]<=[8] last_tile_dim_replicate}", "{devices=[8]<=[8]}"},
      {"{devices=[2,4]7,6,5,4,3,2,1,0}", "{devices=[2,4]7,6,5,4,3,2,1,0}"},
      {"{devices=[2,2]0,1,2,4 last_tile_dim_replicate}",
       "{devices=[2,2]0,1,2,4 last_tile_dim_replicate}"},
      {"{devices=[1]<=[1]}", "{replicated}"},
      {"{devices=[1]5}", "{devices=[1]5}"},
      {"{{devices=[8]0,1,2,3,4,5,6,7}, {replicated}}", "{{devices=[8]<=[8]}, {replicated}}"},
  };
  for (const auto& [given, expected] : cases) {
    EXPECT_EQ(to_text(canonical(hlo_of(given))), expected) << given;
  }
}

// Of partition 0, 1, ...: starts and sizes.
TEST(HloSharding, BoxesFollowTheList) {
  const auto boxes = [](std::string_view text, const Dims& shape) {
    const auto result = device_boxes(hlo_of(text), 8, shape);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *result : std::vector<DeviceBox>();
  };
  EXPECT_EQ(boxes("{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", {3, 2}),
            (std::vector<DeviceBox>{{0, {{0, 0}, {2, 2}}},
                                    {1, {{2, 0}, {1, 2}}},
                                    {2, {{0, 0}, {2, 2}}},
                                    {3, {{2, 0}, {1, 2}}}}));
  EXPECT_EQ(boxes("{maximal device=3}", {2}), (std::vector<DeviceBox>{{3, {{0}, {2}}}}));
  EXPECT_EQ(boxes("{manual}", {2}).size(), 8u);
  EXPECT_EQ(*local_shape(hlo_of("{devices=[4,2]<=[8]}"), {5, 5}), (Dims{2, 3}));
  EXPECT_EQ(*local_shape(hlo_of("{replicated}"), {5, 5}), (Dims{5, 5}));
  EXPECT_EQ(device_boxes(hlo_of("{devices=[4,2]<=[8]}"), 8, {5}).status().message(),
            "{devices=[4,2]<=[8]} cuts 2 dimensions, the tensor has 1");
  EXPECT_EQ(device_boxes(hlo_of("{unknown}"), 8, {5}).status().message(),
            "{unknown} says not where one tensor is");
}

TEST(HloSharding, CanonicalFormsMeanTheSame) {
  std::mt19937_64 random(3);
  int lists = 0;
  for (int i = 0; i < 2000; ++i) {
    using Kind = HloSharding::Kind;
    HloSharding sharding;
    sharding.kind = Kind::kTiled;
    int64_t count = 1;
    Dims shape;
    for (int64_t d = testing::draw(random, 1, 3); d > 0; --d) {
      sharding.tile_dims.push_back(testing::draw(random, 1, 4));
      shape.push_back(testing::draw(random, 0, 9));
      count *= sharding.tile_dims.back();
    }
    constexpr Kind kKinds[] = {Kind::kReplicated, Kind::kManual, Kind::kUnreduced};
    for (int64_t d = testing::draw(random, 0, 2); d > 0; --d) {
      sharding.tile_dims.push_back(testing::draw(random, 1, 3));
      sharding.subgroups.push_back(kKinds[testing::draw(random, 0, 2)]);
      count *= sharding.tile_dims.back();
    }
    for (int64_t k = 0; k < count; ++k) sharding.devices.push_back(k);
    if (i % 3 == 0) std::shuffle(sharding.devices.begin(), sharding.devices.end(), random);
    ASSERT_TRUE(check(sharding).ok());
    const HloSharding simple = canonical(sharding);
    ASSERT_TRUE(check(simple).ok()) << to_text(simple);
    EXPECT_EQ(canonical(simple), simple);
    EXPECT_EQ(hlo_of(to_text(simple)), simple);
    EXPECT_EQ(*device_boxes(simple, count, shape), *device_boxes(sharding, count, shape))
        << to_text(sharding);
    lists += simple.devices.empty() ? 0 : 1;
  }
  EXPECT_GT(lists, 100);
}

TEST(HloSharding, ErrorsSayWhatIsWrong) {
  const auto message = [](std::string_view text) {
    return parse_hlo_sharding(text).status().to_string();
  };
  const std::pair<const char*, const char*> cases[] = {
      {"", "INVALID_ARGUMENT: sharding text at 0: expected '{', found the end"},
      {"{{{replicated}}}",
       "INVALID_ARGUMENT: sharding text at 2: expected a sharding that is no tuple, found "
       "'{replicated}}}'"},
      {"{sharded}",
       "INVALID_ARGUMENT: sharding text at 1: expected devices=, replicated, maximal, manual, "
       "unreduced, unknown or a tuple"},
      {"{mesh[x=2], [{x}]}",
       "UNIMPLEMENTED: sharding text at 1: shardings with named axes, {mesh[...]}, are not read; "
       "the sender can write {devices=[...]}"},
      {"{devices=[2]0,1 last_tile_dims={maximal}}",
       "INVALID_ARGUMENT: sharding text at 39: expected manual, replicated or unreduced, found "
       "'}}'"},
      {"{replicated last_tile_dim_replicate}",
       "INVALID_ARGUMENT: sharding text at 12: expected last_tile_dim_replicate, "
       "last_tile_dims={...}, shard_as, shard_like, metadata={...} or the closing brace"},
      {"{replicated metadata={\"}}",
       "INVALID_ARGUMENT: sharding text at 22: a name without "
       "closing quotes"},
      {"{devices=[2]0,0}",
       "INVALID_ARGUMENT: device 0 stands twice in a sharding, again at tile 1"},
      {"{devices=[2]0,-1}", "INVALID_ARGUMENT: tile 1 of a sharding is on device -1"},
      {"{devices=[2,0]0,1}", "INVALID_ARGUMENT: dimension 1 of a sharding has 0 tiles"},
      {"{devices=[2,2]0,1}", "INVALID_ARGUMENT: a sharding of 4 tiles lists 2 devices"},
      {"{devices=[1048576,2]<=[2097152]}",
       "INVALID_ARGUMENT: a sharding of more than 1048576 tiles at dimension 1 of 2"},
      {"{devices=[8]<=[2,8]}", "INVALID_ARGUMENT: iota dimension 1 of 8 in a sharding of 8 tiles"},
      {"{devices=[8]<=[4]}", "INVALID_ARGUMENT: an iota of 4 devices for a sharding of 8 tiles"},
      {"{devices=[8]<=[2,4]T(0)}", "INVALID_ARGUMENT: an iota of 2 dimensions is transposed by 1"},
      {"{devices=[8]<=[2,4]T(1,1)}",
       "INVALID_ARGUMENT: an iota of 2 dimensions is transposed by [1,1]"},
      {"{maximal device=-1}", "INVALID_ARGUMENT: a maximal sharding names one device, not [-1]"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(message(text), expected) << text;
  for (const auto& [whole, bytes] : kRecorded) {
    for (size_t length = 0; length < std::string_view(whole).size(); ++length) {
      EXPECT_FALSE(parse_hlo_sharding(std::string_view(whole).substr(0, length)).ok());
    }
  }
  const auto decoded = [](std::string_view bytes) {
    return decode_op_sharding(bytes).status().to_string();
  };
  using namespace std::string_view_literals;
  EXPECT_EQ(decoded("\x08"sv), "INVALID_ARGUMENT: malformed protobuf message");
  EXPECT_EQ(decoded("\x08\x07"sv), "UNIMPLEMENTED: an OpSharding of type 7");
  EXPECT_EQ(decoded("\x72\x00"sv),
            "UNIMPLEMENTED: field 14 of an OpSharding, of a newer XLA, is not understood");
  EXPECT_EQ(decoded("\x28\x01"sv),
            "INVALID_ARGUMENT: field 5 of an OpSharding has another wire type");
  EXPECT_EQ(decoded("\x08\x03"sv), "INVALID_ARGUMENT: a tiled sharding without tiles");
  EXPECT_EQ(decoded("\x1a\x01\x02"sv), "INVALID_ARGUMENT: a sharding that is not tiled has tiles");
  EXPECT_EQ(decoded("\x08\x02\x2a\x04\x08\x02\x2a\x00"sv),
            "INVALID_ARGUMENT: an OpSharding of a tuple within another");
  EXPECT_EQ(decoded("\x08\x02\x58\x01\x60\x03"sv),
            "INVALID_ARGUMENT: a sharding of a tuple is in shard group 3: its elements may be");
  // An iota must say how it is transposed: XLA's client insists.
  EXPECT_EQ(decoded("\x08\x03\x1a\x01\x08\x4a\x01\x08"sv),
            "INVALID_ARGUMENT: an iota of 1 dimensions is transposed by 0");
}

}  // namespace
}  // namespace hekla::sharding
