// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/save_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/tiles.h"

namespace hekla::checkpoint {
namespace {

TensorLayout layout(std::string name, DType dtype, Dims shape, std::string spec) {
  const Sharding sharding = parse_sharding(spec).value();
  auto boxes = held_boxes(sharding, shape).value();
  return {{std::move(name), dtype, std::move(shape), std::move(spec)}, std::move(boxes)};
}

SaveOptions world(int32_t size) {
  SaveOptions options;
  options.world_size = size;
  return options;
}

SavePlan make(const std::vector<TensorLayout>& tensors, const SaveOptions& options) {
  return make_save_plan(tensors, options).value();
}

TEST(SavePlan, LargeCopyIsSplitAmongItsHoldersAlongRows) {
  // 64 MiB on 4 ranks: 4 parts of 16 MiB.
  const SavePlan plan =
      make({layout("w", DType::kF32, {4096, 4096}, "mesh=(a:4) spec=()")}, world(4));
  ASSERT_EQ(plan.pieces.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(plan.pieces[i].box, (Box{{i * 1024, 0}, {1024, 4096}}));
    EXPECT_EQ(plan.pieces[i].writer, i);
    EXPECT_EQ(plan.pieces[i].file, i);
    EXPECT_EQ(plan.pieces[i].bytes, 16 * kMiB);
  }
  EXPECT_EQ(plan.files[3], "data/shard-00003.h5");
}

TEST(SavePlan, PartsAreNotBelowTheSmallestSlice) {
  // 20 MiB: 2 parts of at least 8 MiB on 4 ranks; 15 MiB: whole.
  SavePlan plan = make({layout("w", DType::kUI8, {20 * kMiB}, "mesh=(a:4) spec=()")}, world(4));
  ASSERT_EQ(plan.pieces.size(), 2u);
  plan = make({layout("w", DType::kUI8, {15 * kMiB}, "mesh=(a:4) spec=()")}, world(4));
  ASSERT_EQ(plan.pieces.size(), 1u);
}

TEST(SavePlan, ShortFirstDimensionLeavesTheLongestToBeSplit) {
  const SavePlan plan =
      make({layout("w", DType::kUI8, {2, 16 * kMiB, 1}, "mesh=(a:4) spec=()")}, world(4));
  ASSERT_EQ(plan.pieces.size(), 4u);
  EXPECT_EQ(plan.pieces[1].box, (Box{{0, 4 * kMiB, 0}, {2, 4 * kMiB, 1}}));
}

TEST(SavePlan, SmallCopiesGoToWhoHasLeast) {
  // Rank 0 alone holds "a" of 4 MiB; six copies of 1 MiB then go to ranks 1 and 2, three each.
  std::vector<TensorLayout> tensors;
  const std::vector<Holding> alone = {{0, {{0}, {4 * kMiB}}}};
  tensors.push_back({{"a", DType::kUI8, {4 * kMiB}, ""}, held_boxes(alone, {4 * kMiB}).value()});
  for (int i = 0; i < 6; ++i) {
    tensors.push_back(layout(fmt::format("b{}", i), DType::kUI8, {kMiB}, "mesh=(a:3) spec=()"));
  }
  const SavePlan plan = make(tensors, world(3));
  EXPECT_EQ(bytes_by_rank(plan, 3), (std::vector<int64_t>{4 * kMiB, 3 * kMiB, 3 * kMiB}));
}

TEST(SavePlan, HostsAreBalancedBeforeRanks) {
  std::vector<TensorLayout> tensors;
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(layout(fmt::format("b{}", i), DType::kUI8, {kMiB}, "mesh=(a:4) spec=()"));
  }
  SaveOptions options = world(4);
  options.host_of_rank = {7, 7, 7, 3};
  EXPECT_EQ(bytes_by_rank(make(tensors, options), 4),
            (std::vector<int64_t>{kMiB, kMiB, 0, 2 * kMiB}));
}

// A model as it is: layers of matrices cut over 4 and copied over 8, biases and norms copied over
// all. The heaviest rank has at most 5 % more than the mean.
TEST(SavePlan, ModelIsBalanced) {
  std::vector<TensorLayout> tensors;
  const std::string mesh = "mesh=(data:8,model:4)";
  for (int l = 0; l < 12; ++l) {
    const std::string name = fmt::format("layers/{:02}/", l);
    tensors.push_back(layout(name + "bias", DType::kF32, {16384}, mesh + " spec=()"));
    tensors.push_back(layout(name + "down", DType::kBF16, {16384, 4096}, mesh + " spec=(model)"));
    tensors.push_back(layout(name + "norm", DType::kF32, {4096}, mesh + " spec=()"));
    tensors.push_back(
        layout(name + "up", DType::kBF16, {4096, 16384}, mesh + " spec=(None,model)"));
  }
  tensors.push_back(layout("vocabulary", DType::kBF16, {32000, 4096}, mesh + " spec=(model)"));
  const std::vector<int64_t> bytes = bytes_by_rank(make(tensors, world(32)), 32);
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  EXPECT_LE(*std::max_element(bytes.begin(), bytes.end()) * 32, total * 105 / 100);
}

TEST(SavePlan, ManyRanksShareFiles) {
  std::vector<TensorLayout> tensors = {layout("w", DType::kF32, {1000}, "mesh=(a:1000) spec=(a)")};
  SaveOptions options = world(1000);
  SavePlan plan = make(tensors, options);
  EXPECT_EQ(plan.files.size(), 125u);  // 8 ranks each
  EXPECT_EQ(plan.pieces[15].file, 1);
  EXPECT_EQ(plan.file_owners[1], 8);
  for (int32_t r = 0; r < 1000; ++r) options.host_of_rank.push_back(r % 100);
  plan = make(tensors, options);
  EXPECT_EQ(plan.files.size(), 100u);
  EXPECT_EQ(plan.pieces[815].file, 15);
}

// COMMIT lists files in the order of the ranks that report them; hosts may have any numbers.
TEST(SavePlan, FilesAreNumberedByTheirOwners) {
  SaveOptions options = world(6);
  options.max_files = 4;
  options.host_of_rank = {9, 5, 9, 1, 5, 1};
  const SavePlan plan = make({layout("w", DType::kF32, {6}, "mesh=(a:6) spec=(a)")}, options);
  EXPECT_EQ(plan.file_owners, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(plan.pieces[5].file, 2);
  EXPECT_EQ(plan.pieces[4].file, 1);
}

TEST(SavePlan, FrozenTensorsHaveAFileOfEachRank) {
  const std::string mesh = "mesh=(a:4)";
  const std::vector<TensorLayout> tensors = {layout("base/a", DType::kF32, {4}, mesh + " spec=(a)"),
                                             layout("base/b", DType::kF32, {4}, mesh + " spec=()"),
                                             layout("lora", DType::kF32, {4}, mesh + " spec=(a)")};
  SaveOptions options = world(4);
  options.ranks_per_file = 2;  // of the others
  options.frozen = {"nothing", "base/*"};
  const SavePlan plan = make(tensors, options);
  EXPECT_EQ(plan.files, (std::vector<std::string>{"data/shard-00000.h5", "data/shard-00001.h5",
                                                  "data/frozen-00000.h5", "data/frozen-00001.h5",
                                                  "data/frozen-00002.h5", "data/frozen-00003.h5"}));
  EXPECT_EQ(plan.file_owners, (std::vector<int32_t>{0, 2, 0, 1, 2, 3}));
  EXPECT_EQ(plan.file_kinds[1], ShardKind::kPlain);
  EXPECT_EQ(plan.file_kinds[2], ShardKind::kFrozen);
  for (const Piece& piece : plan.pieces) {
    EXPECT_EQ(piece.file, piece.tensor == 2 ? piece.writer / 2 : 2 + piece.writer);
  }
  EXPECT_NE(layout_hash(plan), layout_hash(make(tensors, world(4))));
}

TEST(SavePlan, RanksWithoutPiecesHaveNoFile) {
  const std::vector<Holding> holdings = {{5, {{0}, {8}}}, {2, {{8}, {8}}}};
  const SavePlan plan =
      make({{{"w", DType::kF32, {16}, ""}, held_boxes(holdings, {16}).value()}}, world(8));
  EXPECT_EQ(plan.files.size(), 2u);
  EXPECT_EQ(plan.file_owners, (std::vector<int32_t>{2, 5}));
}

TEST(SavePlan, TensorWithoutElementsIsOneEmptyPiece) {
  const SavePlan plan = make({layout("w", DType::kF32, {0, 4}, "mesh=(a:4) spec=(a)")}, world(4));
  ASSERT_EQ(plan.pieces.size(), 1u);
  EXPECT_EQ(plan.pieces[0].bytes, 0);
  EXPECT_EQ(plan.pieces[0].box, (Box{{0, 0}, {0, 4}}));
}

TEST(SavePlan, TilesFollowHintAndSpec) {
  const std::vector<TensorLayout> columns = {
      layout("w", DType::kF32, {4096, 4096}, "mesh=(a:2) spec=(None,a)")};
  SaveOptions options = world(2);
  SavePlan plan = make(columns, options);
  ASSERT_EQ(plan.pieces.size(), 2u * 8u);  // 32 MiB each in tiles of 4 MiB
  std::set<int64_t> column_starts;
  for (const Piece& piece : plan.pieces) {
    EXPECT_EQ(piece.bytes, 4 * kMiB);
    column_starts.insert(piece.box.start[1]);
  }
  EXPECT_GE(column_starts.size(), 4u);
  options.tile_hints = {{"w", {}}};
  EXPECT_EQ(make(columns, options).pieces.size(), 2u);
  options.tile_hints = {{"other*", {}}, {"*", {0, 512}}};
  EXPECT_EQ(make(columns, options).pieces.size(), 2u * 4u);
  options.tile_hints = {{"*", {1, 1}}};
  EXPECT_EQ(make(columns, options).pieces.size(), 2u * 8u);
  // Rows alone are no reason for tiles.
  EXPECT_EQ(
      make({layout("w", DType::kF32, {4096, 4096}, "mesh=(a:2) spec=(a)")}, world(2)).pieces.size(),
      2u);
}

TEST(SavePlan, PatternsMatch) {
  EXPECT_TRUE(matches("layers/3/wq", "layers/*/w?"));
  EXPECT_TRUE(matches("", "*"));
  EXPECT_TRUE(matches("aab", "*ab"));
  EXPECT_TRUE(matches("abcbd", "a*b*d**"));
  EXPECT_FALSE(matches("layers/3/wq", "layers/*/w"));
  EXPECT_FALSE(matches("", "?"));
}

TEST(SavePlan, BadInputIsRefused) {
  const TensorLayout good = layout("a", DType::kF32, {4}, "mesh=(a:2) spec=(a)");
  const auto message = [](std::vector<TensorLayout> tensors, SaveOptions options) {
    const Result<SavePlan> plan = make_save_plan(tensors, options);
    return plan.ok() ? "planned" : plan.status().message();
  };
  const auto named = [&](std::string name) {
    TensorLayout tensor = good;
    tensor.info.name = std::move(name);
    return tensor;
  };
  EXPECT_EQ(message({good}, world(2)), "planned");
  EXPECT_EQ(message({named("b"), good}, world(2)),
            "tensor \"a\" stands behind \"b\": names must ascend");
  // Names are checked by format/names.h.
  EXPECT_NE(message({good, good}, world(2)), "planned");
  EXPECT_NE(message({good, named("a-"), named("a/b")}, world(2)), "planned");
  EXPECT_NE(message({named("a//b")}, world(2)), "planned");
  EXPECT_EQ(message({good}, world(1)),
            "box [2:4] of tensor \"a\" is held by rank 1 in a world of 1");
  TensorLayout other = good;
  other.info.shape = {3};
  EXPECT_EQ(message({other}, world(2)),
            "tensor \"a\": a box takes 2 elements from 2 of dimension 0, which has 3");
  other.boxes = nullptr;
  EXPECT_EQ(message({other}, world(2)), "tensor \"a\" has no boxes");
  EXPECT_EQ(message({}, world(0)), "a world of 0 ranks cannot save");
  EXPECT_EQ(message({}, world(1)), "planned");
}

TEST(SavePlan, EveryPartIsInTheHash) {
  const SavePlan plan = make({layout("w", DType::kF32, {8}, "mesh=(a:2) spec=(a)")}, world(2));
  const uint64_t hash = layout_hash(plan);
  EXPECT_EQ(hash,
            layout_hash(make({layout("w", DType::kF32, {8}, "mesh=(a:2) spec=(a)")}, world(2))));
  const auto changed = [&](auto change) {
    SavePlan other = plan;
    change(&other);
    const std::string diff = diff_plans(plan_text(plan), plan_text(other), "rank 0", "rank 1");
    return layout_hash(other) != hash && !diff.empty();
  };
  EXPECT_TRUE(changed([](SavePlan* p) { p->tensors[0].name = "v"; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->tensors[0].dtype = DType::kI32; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->tensors[0].shape = {2, 4}; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->tensors[0].spec = ""; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->pieces[0].writer = 1; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->pieces[0].file = 1; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->pieces[0].box.size[0] = 3; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->files[0] = "data/other.h5"; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->file_owners[0] = 1; }));
  EXPECT_TRUE(changed([](SavePlan* p) { p->tensors.push_back({"x", DType::kF32, {}, ""}); }));
  // Offsets come later and follow from the rest.
  SavePlan later = plan;
  later.pieces[1].offset = 4096;
  EXPECT_EQ(layout_hash(later), hash);
}

TEST(SavePlan, DiffIsReadable) {
  const SavePlan a = make({layout("v", DType::kF32, {8}, "mesh=(a:2) spec=()"),
                           layout("w", DType::kF32, {8}, "mesh=(a:2) spec=(a)")},
                          world(2));
  const SavePlan b = make({layout("w", DType::kBF16, {8}, "mesh=(a:2) spec=(a)"),
                           layout("x\"", DType::kF32, {}, "mesh=(a:2) spec=()")},
                          world(2));
  EXPECT_EQ(diff_plans(plan_text(a), plan_text(b), "rank 0", "rank 3"),
            "\"v\" only on rank 0: f32[8] \"mesh=(a:2) spec=()\" [0:8]@rank0,file0\n"
            "\"w\" on rank 0: f32[8] \"mesh=(a:2) spec=(a)\" [0:4]@rank0,file0 [4:8]@rank1,file1; "
            "on rank 3: bf16[8] \"mesh=(a:2) spec=(a)\" [0:4]@rank0,file0 [4:8]@rank1,file1\n"
            "\"x\\\"\" only on rank 3: f32[] \"mesh=(a:2) spec=()\" []@rank0,file0\n");
  EXPECT_EQ(diff_plans(plan_text(a), plan_text(a), "rank 0", "rank 3"), "");
  const std::string cut = diff_plans(plan_text(a), plan_text(b), "rank 0", "rank 3", 1);
  EXPECT_EQ(cut.substr(cut.find('\n') + 1), "and 2 more\n");
}

TEST(SavePlanner, PlansAgainOnlyWhenSomethingChanged) {
  const auto state = [] {
    return std::vector<TensorLayout>{layout("v", DType::kF32, {8}, "mesh=(a:2) spec=()"),
                                     layout("w", DType::kF32, {8}, "mesh=(a:2) spec=(a)")};
  };
  SavePlanner planner;
  const auto first = planner.plan(state(), world(2)).value();
  EXPECT_EQ(planner.plan(state(), world(2)).value(), first);
  EXPECT_EQ(planner.plans_made(), 1);
  auto changed = state();
  changed[1].info.shape = {8, 1};
  changed[1].boxes = held_boxes(parse_sharding("mesh=(a:2) spec=(a)").value(), {8, 1}).value();
  EXPECT_NE(planner.plan(changed, world(2)).value(), first);
  EXPECT_NE(planner.plan(changed, world(3)).value(), first);
  changed.pop_back();
  EXPECT_EQ(planner.plan(changed, world(3)).value()->tensors.size(), 1u);
  EXPECT_EQ(planner.plans_made(), 4);
  changed[0].boxes = held_boxes(parse_sharding("mesh=(a:2) spec=(a)").value(), {8}).value();
  EXPECT_EQ(planner.plan(changed, world(3)).value()->pieces.size(), 2u);
  EXPECT_FALSE(planner.plan(changed, world(0)).ok());
  EXPECT_TRUE(planner.plan(changed, world(3)).ok());
  EXPECT_EQ(planner.plans_made(), 6);
}

}  // namespace
}  // namespace hekla::checkpoint
