// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/sharding/convert.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "runtime/program/sharding/testing/random_sharding.h"
#include "runtime/program/sharding/text.h"
#include "runtime/program/stablehlo/testing/artifacts.h"

namespace hekla::sharding {
namespace {

TensorSharding shardy_of(std::string_view text) {
  const Result<TensorSharding> sharding = parse_sharding(text);
  EXPECT_TRUE(sharding.ok()) << text << ": " << sharding.status().to_string();
  return sharding.ok() ? *sharding : TensorSharding();
}

HloSharding tiles_of(std::string_view text) {
  const Result<HloSharding> sharding = parse_hlo_sharding(text);
  EXPECT_TRUE(sharding.ok()) << text << ": " << sharding.status().to_string();
  return sharding.ok() ? *sharding : HloSharding();
}

std::string text_or_error(const Result<HloSharding>& sharding) {
  return sharding.ok() ? to_text(*sharding) : sharding.status().message();
}

std::string text_or_error(const Result<ShardingOnMesh>& converted) {
  if (!converted.ok()) return converted.status().message();
  TensorSharding sharding = converted->sharding;
  if (!sharding.inline_mesh()->is_maximal()) sharding.mesh = "m";
  return to_text(sharding) +
         (converted->manual.names.empty() ? "" : " manual " + to_text(converted->manual));
}

// What JAX 0.10.2 makes of NamedSharding(mesh, spec).
struct Pair {
  const char* mesh;
  const char* shardy;
  const char* hlo;
};
constexpr Pair kOfJax[] = {
    {R"(<["x"=2, "y"=4]>)", R"(<@m, [{}, {}]>)", "{replicated}"},
    {R"(<["x"=2, "y"=4]>)", R"(<@m, []>)", "{replicated}"},
    {R"(<["x"=2, "y"=4]>)", R"(<@m, [{}], unreduced={"x"}>)",
     "{devices=[1,2,4]<=[8] last_tile_dims={unreduced, replicated}}"},
    {R"(<["x"=2, "y"=4]>)", R"(<@m, [{}]>)", "{replicated}"},
    {R"(<["x"=2, "y"=4]>)", R"(<@m, [{"y"}], unreduced={"x"}>)",
     "{devices=[4,2]<=[2,4]T(1,0) last_tile_dims={unreduced}}"},
    {R"(<["x"=2, "y"=4]>)", R"(<@m, [{"x"}, {"y"}, {}]>)", "{devices=[2,4,1]<=[8]}"},
    {R"(<["x"=2, "y"=3, "z"=4]>)", R"(<@m, [{"x"}]>)",
     "{devices=[2,12]<=[24] last_tile_dim_replicate}"},
    {R"(<["x"=2, "y"=3, "z"=4]>)", R"(<@m, [{}]>)", "{replicated}"},
    {R"(<["x"=2, "y"=3, "z"=4]>)", R"(<@m, [{"x"}, {"y", "z"}]>)", "{devices=[2,12]<=[24]}"},
    {R"(<["x"=2, "y"=3, "z"=4]>)", R"(<@m, [], unreduced={"z"}>)",
     "{devices=[4,6]<=[6,4]T(1,0) last_tile_dims={unreduced, replicated}}"},
    {R"(<["x"=2, "y"=3, "z"=4]>)", R"(<@m, [{"y"}, {"z", "x"}]>)", "{devices=[3,8]<=[2,12]T(1,0)}"},
    {R"(<["x"=2, "y"=3, "z"=4]>)", R"(<@m, []>)", "{replicated}"},
    {R"(<["a"=4, "b"=1, "c"=2]>)", R"(<@m, []>)", "{replicated}"},
    {R"(<["a"=4, "b"=1, "c"=2]>)", R"(<@m, [{}]>)", "{replicated}"},
    {R"(<["a"=4, "b"=1, "c"=2]>)", R"(<@m, [{}, {"c"}]>)",
     "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
    {R"(<["a"=4, "b"=1, "c"=2]>)", R"(<@m, [{"b"}, {"a"}]>)",
     "{devices=[1,4,2]<=[8] last_tile_dim_replicate}"},
    {R"(<["a"=4, "b"=1, "c"=2]>)", R"(<@m, [{"c"}, {}]>)",
     "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
    {R"(<["a"=4, "b"=1, "c"=2]>)", R"(<@m, [{}, {"b"}]>)", "{replicated}"},
    {R"(<["x"=2, "y"=2, "z"=2]>)", R"(<@m, []>)", "{replicated}"},
    {R"(<["x"=2, "y"=2, "z"=2]>)", R"(<@m, [{"z"}, {}, {}]>)",
     "{devices=[2,1,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
    {R"(<["x"=2, "y"=2, "z"=2]>)", R"(<@m, [{}]>)", "{replicated}"},
    {R"(<["x"=2, "y"=2, "z"=2]>)", R"(<@m, [], unreduced={"y"}>)",
     "{devices=[2,4]<=[2,2,2]T(1,0,2) last_tile_dims={unreduced, replicated}}"},
    {R"(<["x"=2, "y"=2, "z"=2]>)", R"(<@m, [{"y", "z", "x"}, {}]>)",
     "{devices=[8,1]<=[2,4]T(1,0)}"},
    {R"(<["m"=1]>)", R"(<@m, [{}, {}, {"m"}]>)", "{replicated}"},
    {R"(<["m"=1]>)", R"(<@m, [{}, {"m"}, {}]>)", "{replicated}"},
    {R"(<["m"=1]>)", R"(<@m, [{"m"}, {}, {}]>)", "{replicated}"},
    {R"(<["m"=1]>)", R"(<@m, [{"m"}, {}]>)", "{replicated}"},
    {R"(<["m"=1]>)", R"(<@m, [{}, {}]>)", "{replicated}"},
    {R"(<["n"=6]>)", R"(<@m, [{}, {}], unreduced={"n"}>)", "{unreduced}"},
    {R"(<["n"=6]>)", R"(<@m, [{"n"}, {}]>)", "{devices=[6,1]<=[6]}"},
    {R"(<["n"=6]>)", R"(<@m, [{}, {}]>)", "{replicated}"},
    {R"(<["n"=6]>)", R"(<@m, [{}]>)", "{replicated}"},
};

// What JAX cannot write: sub-axes and orders of devices. Worked out by hand.
constexpr Pair kByHand[] = {
    {R"(<["x"=8]>)", R"(<@m, [{"x":(1)2}, {"x":(4)2}]>)",
     "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}"},
    {R"(<["x"=8]>)", R"(<@m, [{"x":(2)4}]>)",
     "{devices=[4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"},
    {R"(<["x"=2, "y"=4]>)", R"(<@m, [{"y":(2)2, "x"}, {"y":(1)2}]>)",
     "{devices=[4,2]<=[4,2]T(1,0)}"},
    {R"(<["x"=4], device_ids=[3, 2, 1, 0]>)", R"(<@m, [{"x"}]>)", "{devices=[4]3,2,1,0}"},
    {R"(<["x"=2, "y"=2], device_ids=[0, 2, 1, 3]>)", R"(<@m, [{"x"}, {"y"}]>)",
     "{devices=[2,2]<=[2,2]T(1,0)}"},
    {R"(<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>)", R"(<@m, [{"x"}]>)",
     "{devices=[2,2]2,3,0,1 last_tile_dim_replicate}"},
};

TEST(Conversion, IsJaxs) {
  for (const auto* list : {&kOfJax[0], &kByHand[0]}) {
    const size_t count = list == &kOfJax[0] ? std::size(kOfJax) : std::size(kByHand);
    for (size_t i = 0; i < count; ++i) {
      const Mesh mesh = *parse_mesh(list[i].mesh);
      const TensorSharding sharding = shardy_of(list[i].shardy);
      const size_t rank = sharding.dimensions.size();
      EXPECT_EQ(text_or_error(to_hlo(sharding, mesh, rank)), list[i].hlo)
          << list[i].mesh << list[i].shardy;
      const Result<ShardingOnMesh> back = from_hlo(tiles_of(list[i].hlo), mesh, rank);
      // Axes of size 1 are nowhere in tiles.
      if (std::string_view(list[i].mesh).find("=1") != std::string_view::npos) continue;
      EXPECT_EQ(text_or_error(back), list[i].shardy);
    }
  }
}

TEST(Conversion, ManualAxesBecomeAManualSubgroup) {
  // From the handbook of shardings: a manual region over x of mesh x=2, y=4.
  const Mesh mesh = *parse_mesh("<[\"x\"=2, \"y\"=4]>");
  const struct {
    const char* shardy;
    const char* hlo;
  } cases[] = {
      {"<@m, [{}, {}]>", "{devices=[1,1,2,4]<=[8] last_tile_dims={manual, replicated}}"},
      {"<@m, [{}, {\"y\"}]>", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dims={manual}}"},
      {"<@m, []>", "{devices=[2,4]<=[8] last_tile_dims={manual, replicated}}"},
      {"<@m, [{\"y\":(2)2}], unreduced={\"y\":(1)2}>",
       "{devices=[2,2,2]<=[4,2]T(1,0) last_tile_dims={manual, unreduced}}"},
  };
  const ManualAxes manual{{"x"}};
  for (const auto& [shardy, hlo] : cases) {
    const TensorSharding sharding = shardy_of(shardy);
    const size_t rank = sharding.dimensions.size();
    EXPECT_EQ(text_or_error(to_hlo(sharding, mesh, rank, manual)), hlo);
    EXPECT_EQ(text_or_error(from_hlo(tiles_of(hlo), mesh, rank)),
              std::string(shardy) + " manual {\"x\"}");
  }
  EXPECT_EQ(text_or_error(to_hlo(shardy_of("<@m, [{}]>"), mesh, 1, {{"y", "x"}})), "{manual}");
  EXPECT_EQ(text_or_error(from_hlo(tiles_of("{manual}"), mesh, 1)),
            "<@m, [{}]> manual {\"x\", \"y\"}");
  EXPECT_EQ(text_or_error(to_hlo(shardy_of("<@m, [{}, {\"x\"}]>"), mesh, 2, manual)),
            "dimension 1 of the sharding uses axis \"x\", which is manual here");
}

TEST(Conversion, MaximalShardingsHaveTheirOwnMesh) {
  const Mesh mesh = *parse_mesh("<[\"x\"=2]>");
  const Mesh one = *parse_mesh("<[], device_ids=[3]>");
  EXPECT_EQ(text_or_error(to_hlo(shardy_of("<@m, []>"), one, 2)), "{maximal device=3}");
  EXPECT_EQ(text_or_error(from_hlo(tiles_of("{maximal device=3}"), mesh, 2)),
            "<mesh<[], device_ids=[3]>, []>");
}

TEST(Conversion, WhatHasNoEquivalentIsSaid) {
  const Mesh mesh = *parse_mesh("<[\"x\"=2, \"y\"=3]>");
  const auto message = [&](std::string_view text, size_t rank) {
    return from_hlo(tiles_of(text), mesh, rank).status().message();
  };
  const std::string no_order =
      " cannot be said with the axes of mesh <[\"x\"=2, \"y\"=3]>: its tiles do not follow whole "
      "axes or sub-axes. A mesh with other axes or device ids can say it";
  EXPECT_EQ(message("{devices=[3,2]<=[6]}", 2), "{devices=[3,2]<=[6]}" + no_order);
  EXPECT_EQ(message("{devices=[6]5,4,3,2,1,0}", 1), "{devices=[6]5,4,3,2,1,0}" + no_order);
  EXPECT_EQ(message("{devices=[6]5,4,3,2,1,6}", 1), "{devices=[6]5,4,3,2,1,6}" + no_order);
  EXPECT_EQ(message("{devices=[3,2]<=[2,3]T(1,0)}", 1),
            "{devices=[3,2]<=[2,3]T(1,0)} cuts 2 dimensions, the tensor has 1");
  EXPECT_EQ(message("{devices=[4]<=[4]}", 1),
            "{devices=[4]<=[4]} is over 4 partitions, mesh <[\"x\"=2, \"y\"=3]> has 6");
  EXPECT_EQ(message("{{replicated}}", 1), "{{replicated}} is of a tuple: convert its elements");
  EXPECT_EQ(message("{unknown}", 1),
            "{unknown} says nothing that a sharding over a mesh could say");
  EXPECT_EQ(from_hlo(tiles_of("{devices=[2,2]<=[4] last_tile_dims={manual}}"),
                     *parse_mesh("<[\"x\"=4]>"), 1)
                .status()
                .message(),
            "{devices=[2,2]<=[4] last_tile_dims={manual}} has a manual region over \"x\":(2)2 of "
            "mesh <[\"x\"=4]>: regions are manual over whole axes");
  EXPECT_EQ(
      text_or_error(to_hlo(shardy_of("<@m, [], unreduced={\"x\"}, reduction_kind=2>"), mesh, 0)),
      "a sharding with reduction kind 2: HLO has partial sums and no other partial values");
}

TEST(Conversion, BothFormsGiveTheSameBoxes) {
  std::mt19937_64 random(4);
  int with_lists = 0;
  int with_manual = 0;
  int with_sub_axes = 0;
  for (int i = 0; i < 5000; ++i) {
    const testing::Sample sample = testing::random_sample(random, i % 3 != 0, i % 2 == 0);
    const std::vector<Box> expected = testing::expected_boxes(sample);
    const auto partitions = static_cast<int64_t>(expected.size());
    const auto same = [&](const Result<std::vector<DeviceBox>>& boxes) {
      ASSERT_TRUE(boxes.ok()) << boxes.status().to_string();
      ASSERT_EQ(boxes->size(), expected.size());
      for (size_t p = 0; p < expected.size(); ++p) {
        ASSERT_EQ((*boxes)[p], (DeviceBox{static_cast<int64_t>(p), expected[p]}));
      }
    };
    const std::string what = to_text(sample.mesh) + to_text(sample.sharding);
    SCOPED_TRACE(what);
    const size_t rank = sample.shape.size();
    const Result<HloSharding> hlo = to_hlo(sample.sharding, sample.mesh, rank, sample.manual);
    ASSERT_TRUE(hlo.ok()) << hlo.status().to_string();
    ASSERT_TRUE(check(*hlo).ok());
    ASSERT_EQ(canonical(*hlo), *hlo);
    same(device_boxes(*hlo, partitions, sample.shape));
    ASSERT_EQ(*local_shape(*hlo, sample.shape),
              *local_shape(sample.sharding, sample.mesh, sample.shape));
    // And back, over the same mesh; the same tiles come of it again.
    const Result<ShardingOnMesh> back = from_hlo(*hlo, sample.mesh, rank);
    ASSERT_TRUE(back.ok()) << to_text(*hlo) << back.status().to_string();
    same(device_boxes(back->sharding, sample.mesh, sample.shape));
    ASSERT_EQ(text_or_error(to_hlo(back->sharding, sample.mesh, rank, back->manual)),
              to_text(*hlo));
    // And over a mesh of its own.
    const Result<Mesh> own = common_mesh(std::vector<HloSharding>{*hlo}, partitions);
    ASSERT_TRUE(own.ok()) << own.status().to_string();
    const Result<ShardingOnMesh> renamed = from_hlo(*hlo, *own, rank);
    ASSERT_TRUE(renamed.ok()) << to_text(*hlo) << renamed.status().to_string();
    same(device_boxes(renamed->sharding, *own, sample.shape));
    with_lists += hlo->devices.empty() ? 0 : 1;
    with_manual += sample.manual.names.empty() ? 0 : 1;
    with_sub_axes += what.find(":(") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(with_lists, 300);
  EXPECT_GT(with_manual, 500);
  EXPECT_GT(with_sub_axes, 500);
}

TEST(Conversion, AListInAnyOrderHasAMesh) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 500; ++i) {
    HloSharding sharding;
    sharding.kind = HloSharding::Kind::kTiled;
    sharding.tile_dims = {testing::draw(random, 1, 4), testing::draw(random, 1, 4),
                          testing::draw(random, 1, 3)};
    sharding.subgroups = {HloSharding::Kind::kReplicated};
    const int64_t count = sharding.tile_dims[0] * sharding.tile_dims[1] * sharding.tile_dims[2];
    for (int64_t k = 0; k < count; ++k) sharding.devices.push_back(k);
    std::shuffle(sharding.devices.begin(), sharding.devices.end(), random);
    const Dims shape = {7, 6};
    const Result<Mesh> mesh = common_mesh(std::vector<HloSharding>{sharding}, count);
    ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
    const Result<ShardingOnMesh> shardy = from_hlo(sharding, *mesh, 2);
    ASSERT_TRUE(shardy.ok()) << shardy.status().to_string();
    EXPECT_EQ(*device_boxes(shardy->sharding, *mesh, shape), *device_boxes(sharding, count, shape))
        << to_text(sharding);
  }
}

TEST(CommonMesh, IsTheUsersUpToNames) {
  const auto mesh_of = [](const std::vector<const char*>& texts, int64_t partitions) {
    std::vector<HloSharding> shardings;
    for (const char* text : texts) shardings.push_back(tiles_of(text));
    const Result<Mesh> mesh = common_mesh(shardings, partitions);
    return mesh.ok() ? to_text(*mesh) : mesh.status().message();
  };
  EXPECT_EQ(mesh_of({"{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
                     "{{devices=[4,2]<=[2,4]T(1,0)}, {replicated}}"},
                    8),
            "<[\"axis_0\"=2, \"axis_1\"=4]>");
  EXPECT_EQ(mesh_of({"{devices=[2,4]<=[8] last_tile_dim_replicate}",
                     "{devices=[4,2]<=[8] last_tile_dim_replicate}"},
                    8),
            "<[\"axis_0\"=2, \"axis_1\"=2, \"axis_2\"=2]>");
  EXPECT_EQ(mesh_of({"{replicated}"}, 8), "<[\"axis_0\"=8]>");
  EXPECT_EQ(mesh_of({}, 1), "<[\"axis_0\"=1]>");
  EXPECT_EQ(mesh_of({"{devices=[4]3,1,2,0}", "{devices=[2,2]3,1,2,0}"}, 4),
            "<[\"axis_0\"=2, \"axis_1\"=2], device_ids=[3, 1, 2, 0]>");
  EXPECT_EQ(mesh_of({"{devices=[2,3]<=[6]}", "{devices=[3,2]<=[6]}"}, 6),
            "shardings that split 6 partitions at 3 and at 2 have no mesh in common");
  EXPECT_EQ(mesh_of({"{devices=[4]3,1,2,0}", "{devices=[4]<=[4]}"}, 4),
            "{devices=[4]<=[4]} orders partitions as no mesh can together with the others");
  EXPECT_EQ(mesh_of({"{devices=[4]<=[4]}"}, 8), "{devices=[4]<=[4]} is not over partitions 0 to 7");
}

// The recorded programs: shardings of @main's arguments and results as Shardy wrote them, and as
// XLA used them. Where the artifacts are.
TEST(Conversion, IsXlasInRecordedPrograms) {
  const std::filesystem::path folder =
      stablehlo::testing::artifact_path("spmd/README.md").parent_path();
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no recorded programs here";
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  };
  int programs = 0;
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string text =
        read(std::filesystem::path(entry.path()).replace_extension(".propagated.mlir"));
    const auto truth = nlohmann::json::parse(read(entry.path()));
    ++programs;
    // Meshes by name, then the signature, which is one line.
    std::map<std::string, Mesh> meshes;
    for (size_t at = 0; (at = text.find("sdy.mesh @", at)) != std::string::npos; ++at) {
      const size_t open = text.find(" = <", at);
      const size_t close = text.find('>', open);
      meshes[text.substr(at + 10, open - at - 10)] =
          *parse_mesh(text.substr(open + 3, close - open - 2));
    }
    const size_t main = text.find("func.func public @main(");
    ASSERT_NE(main, std::string::npos);
    const std::string line = text.substr(main, text.find('\n', main) - main);
    const size_t arrow = line.find(") -> ");
    const auto compare = [&](std::string_view part, const nlohmann::json& values) {
      // One piece per value begins with its type.
      std::vector<std::string_view> pieces;
      for (size_t at = part.find("tensor<"); at != std::string_view::npos;) {
        const size_t next = part.find("tensor<", at + 1);
        pieces.push_back(part.substr(at, next == std::string_view::npos ? next : next - at));
        at = next;
      }
      ASSERT_EQ(pieces.size(), values.size()) << entry.path();
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (values[i]["spec"].is_null()) continue;
        const size_t start = pieces[i].find("#sdy.sharding<");
        if (start == std::string_view::npos) continue;
        const size_t end = pieces[i].find(">", start);
        const TensorSharding sharding = shardy_of(pieces[i].substr(start + 13, end - start - 12));
        const Mesh& mesh = meshes.at(*sharding.mesh_name());
        const Dims shape = values[i]["shape"].get<Dims>();
        EXPECT_EQ(text_or_error(to_hlo(sharding, mesh, shape.size())),
                  values[i]["xla_sharding"].get<std::string>())
            << entry.path() << " " << pieces[i];
        const HloSharding hlo = tiles_of(values[i]["xla_sharding"].get<std::string>());
        EXPECT_EQ(*local_shape(hlo, shape), values[i]["local_shape"].get<Dims>());
        EXPECT_EQ(*local_shape(sharding, mesh, shape), values[i]["local_shape"].get<Dims>());
        ++compared;
      }
    };
    compare(std::string_view(line).substr(0, arrow), truth["inputs"]);
    compare(std::string_view(line).substr(arrow), truth["outputs"]);
  }
  EXPECT_GE(programs, 33);
  std::printf("%d programs, %d shardings\n", programs, compared);
  EXPECT_GE(compared, 100);
}

}  // namespace
}  // namespace hekla::sharding
