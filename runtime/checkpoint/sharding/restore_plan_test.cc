// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/restore_plan.h"

#include <gtest/gtest.h>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/mesh.h"
#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;

Piece piece(int32_t tensor, Box box, int64_t bytes, int64_t offset, int32_t file = 0) {
  Piece one;
  one.tensor = tensor;
  one.box = std::move(box);
  one.bytes = bytes;
  one.offset = offset;
  one.file = file;
  return one;
}

// 8,192 rows of 8 KiB, rows halved into two files; offsets as direct I/O wants them.
PieceIndex matrix() {
  std::vector<Piece> pieces = {
      piece(0, {{4096, 0}, {4096, 2048}}, 32 * kMiB, 8192, 1),
      piece(0, {{0, 0}, {4096, 2048}}, 32 * kMiB, 4096, 0),
  };
  return PieceIndex::make({{"w", DType::kF32, {8192, 2048}, ""}}, std::move(pieces), 2).value();
}

TEST(RestorePlan, EqualLayoutReadsEachPieceOnceInOrder) {
  const RestorePlan plan =
      plan_restore(matrix(), std::vector<Wanted>{{0, {{4096, 0}, {4096, 2048}}, {}},
                                                 {0, {{0, 0}, {4096, 2048}}, {}}})
          .value();
  EXPECT_EQ(plan.read_bytes, 64 * kMiB);
  EXPECT_EQ(plan.wanted_bytes, 64 * kMiB);
  EXPECT_EQ(plan.blocks.size(), 64u);
  ASSERT_EQ(plan.reads.size(), 6u);  // 12 + 12 + 8 MiB each
  EXPECT_EQ(plan.reads[0].file, 0);
  EXPECT_EQ(plan.reads[0].offset, 4096);
  EXPECT_EQ(plan.reads[0].bytes, 12 * kMiB);
  EXPECT_EQ(plan.reads[5].bytes, 8 * kMiB);
  EXPECT_EQ(plan.reads[5].method, ReadMethod::kWholeBlocks);
}

TEST(RestorePlan, FewRowsReadTheirBlocksOnly) {
  // 200 rows of 8 KiB from row 100 on: bytes 0.78 to 2.34 MiB.
  const std::vector<Wanted> wanted = {{0, {{100, 0}, {200, 2048}}, {}}};
  RestorePlan plan = plan_restore(matrix(), wanted).value();
  ASSERT_EQ(plan.reads.size(), 1u);
  EXPECT_EQ(plan.reads[0].offset, 4096);
  EXPECT_EQ(plan.reads[0].bytes, 3 * kMiB);
  EXPECT_EQ(plan.reads[0].method, ReadMethod::kLongRuns);
  RestoreOptions options;
  options.whole_blocks = false;
  plan = plan_restore(matrix(), wanted, options).value();
  ASSERT_EQ(plan.reads.size(), 1u);
  EXPECT_EQ(plan.reads[0].offset, 4096 + 100 * 8 * kKiB);
  EXPECT_EQ(plan.reads[0].bytes, 200 * 8 * kKiB);
  EXPECT_TRUE(plan.blocks.empty());
}

TEST(RestorePlan, NarrowColumnsAreStrided) {
  RestoreOptions options;
  options.whole_blocks = false;
  const std::vector<Wanted> wanted = {{0, {{0, 10}, {4096, 2}}, {}}};
  const RestorePlan plan = plan_restore(matrix(), wanted, options).value();
  EXPECT_EQ(plan.reads[0].method, ReadMethod::kStrided);
  EXPECT_EQ(plan.regions.size(), 1u);
  EXPECT_EQ(plan.wanted_bytes, 4096 * 8);
}

TEST(RestorePlan, FarRunsAreReadApart) {
  // Rows of 256 KiB, 2 KiB of each wanted.
  const PieceIndex index = PieceIndex::make({{"w", DType::kF32, {16, 65536}, ""}},
                                            {piece(0, {{0, 0}, {16, 65536}}, 4 * kMiB, 0)}, 1)
                               .value();
  RestoreOptions options;
  options.whole_blocks = false;
  const std::vector<Wanted> wanted = {{0, {{0, 512}, {16, 512}}, {}}};
  const RestorePlan plan = plan_restore(index, wanted, options).value();
  EXPECT_EQ(plan.reads.size(), 16u);
  EXPECT_EQ(plan.read_bytes, 16 * 2 * kKiB);
}

TEST(RestorePlan, SmallNeighboursAreReadTogether) {
  std::vector<TensorInfo> tensors;
  std::vector<Piece> pieces;
  std::vector<Wanted> wanted;
  for (int32_t t = 0; t < 100; ++t) {
    tensors.push_back({"bias" + std::to_string(t), DType::kF32, {64}, ""});
    pieces.push_back(piece(t, {{0}, {64}}, 256, 10'000 + t * 300));
    wanted.push_back({t, {{0}, {64}}, {}});
  }
  const PieceIndex index = PieceIndex::make(tensors, pieces, 1).value();
  const RestorePlan plan = plan_restore(index, wanted).value();
  ASSERT_EQ(plan.reads.size(), 1u);
  EXPECT_EQ(plan.reads[0].block_count, 100u);
  EXPECT_EQ(plan.reads[0].copy_count, 100u);
  EXPECT_EQ(plan.read_bytes, 99 * 300 + 256);
}

TEST(RestorePlan, CopiesOfOneProcessAreReadOnce) {
  const std::vector<Wanted> wanted(8, Wanted{0, {{0, 0}, {4096, 2048}}, {}});
  const RestorePlan plan = plan_restore(matrix(), wanted).value();
  EXPECT_EQ(plan.read_bytes, 32 * kMiB);
  EXPECT_EQ(plan.wanted_bytes, 8 * 32 * kMiB);
}

// Each of them needs a part of every block; a block is read once and goes to all.
TEST(RestorePlan, ColumnsOfOneProcessAreReadOnce) {
  const std::vector<Wanted> wanted = {{0, {{0, 0}, {8192, 700}}, {}},
                                      {0, {{0, 700}, {8192, 900}}, {}},
                                      {0, {{0, 1600}, {8192, 448}}, {}}};
  const RestorePlan plan = plan_restore(matrix(), wanted).value();
  EXPECT_EQ(plan.read_bytes, 64 * kMiB);
  EXPECT_EQ(plan.wanted_bytes, 64 * kMiB);
  for (const PlannedRead& read : plan.reads) EXPECT_EQ(read.copy_count, 3u);
}

// A matrix saved by rows, wanted by columns: with tiles a rank reads its columns, without
// everything.
TEST(RestorePlan, TilesSaveReadingAcrossAnotherCut) {
  const auto bytes_read = [](std::vector<TileHint> hints) {
    const Sharding rows = parse_sharding("mesh=(a:4) spec=(a)").value();
    const Dims shape = {8192, 8192};
    const TensorLayout layout{{"w", DType::kF32, shape, ""}, held_boxes(rows, shape).value()};
    SaveOptions save;
    save.world_size = 4;
    save.tile_hints = std::move(hints);
    SavePlan plan = make_save_plan(std::vector<TensorLayout>{layout}, save).value();
    std::vector<int64_t> ends(plan.files.size(), 8192);
    for (Piece& one : plan.pieces) {
      one.offset = ends[one.file];
      ends[one.file] += one.bytes;
    }
    const PieceIndex index = PieceIndex::make(plan.tensors, plan.pieces, 4).value();
    const std::vector<Wanted> wanted = {{0, {{0, 2048}, {8192, 2048}}, {}}};
    return plan_restore(index, wanted)->read_bytes;
  };
  EXPECT_EQ(bytes_read({}), 256 * kMiB);
  EXPECT_EQ(bytes_read({{"w", {0, 1024}}}), 64 * kMiB);
}

TEST(RestorePlan, HoleIsDataLossAndNamed) {
  const PieceIndex index =
      PieceIndex::make({{"w", DType::kF32, {8, 2}, ""}}, {piece(0, {{0, 0}, {5, 2}}, 40, 0)}, 1)
          .value();
  const auto plan = plan_restore(index, std::vector<Wanted>{{0, {{4, 0}, {4, 1}}, {}}});
  ASSERT_EQ(plan.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(plan.status().message(), "no piece holds [5:8,0:1] of tensor \"w\" (f32[8,2])");
  EXPECT_TRUE(plan_restore(index, std::vector<Wanted>{{0, {{5, 0}, {0, 2}}, {}}}).ok());
}

TEST(RestorePlan, BadWishesAreRefused) {
  const auto code = [](Wanted wanted) {
    return plan_restore(matrix(), std::vector<Wanted>{std::move(wanted)}).status().code();
  };
  EXPECT_EQ(code({1, {{0, 0}, {1, 1}}, {}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({-1, {{0, 0}, {1, 1}}, {}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {{0, 0}, {1, 2049}}, {}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {{0}, {1}}, {}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {{0, 0}, {2, 2}}, {2, 1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {{0, 0}, {2, 2}}, {4}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({0, {{0, 0}, {2, 2}}, {2, INT64_MAX}}), StatusCode::kInvalidArgument);
  RestoreOptions options;
  options.block_bytes = 0;
  EXPECT_FALSE(plan_restore(matrix(), {}, options).ok());
}

TEST(PieceIndex, ContradictionsAreDataLoss) {
  const std::vector<TensorInfo> tensors = {{"w", DType::kF32, {8}, ""}};
  const auto message = [&](std::vector<Piece> pieces, std::vector<int64_t> sizes = {}) {
    const Result<PieceIndex> index = PieceIndex::make(tensors, std::move(pieces), 1, sizes);
    if (index.ok()) return std::string("made");
    EXPECT_EQ(index.status().code(), StatusCode::kDataLoss);
    return index.status().message();
  };
  const std::string whole = "piece [0:8] of tensor \"w\" (f32[8])";
  EXPECT_EQ(message({piece(0, {{0}, {8}}, 32, 0)}, {32}), "made");
  EXPECT_EQ(message({piece(1, {{0}, {8}}, 32, 0)}), "a piece belongs to tensor 1 of 1");
  EXPECT_EQ(message({piece(0, {{0}, {9}}, 36, 0)}),
            "a piece of tensor \"w\": a box takes 9 elements from 0 of dimension 0, which has 8");
  EXPECT_EQ(message({piece(0, {{0}, {8}}, 31, 0)}),
            whole + " is said to have 31 bytes; its box has 32");
  EXPECT_EQ(message({piece(0, {{0}, {8}}, 32, 0, 1)}), whole + " lies in file 1 of 1");
  EXPECT_EQ(message({piece(0, {{0}, {8}}, 32, 1)}, {32}),
            whole + " lies at offset 1, digest block 0 of file 0, which has 32 bytes");
  EXPECT_EQ(message({piece(0, {{0}, {8}}, 32, INT64_MAX)}, {32}),
            whole +
                " lies at offset 9223372036854775807, digest block 0 of file 0, which has 32 "
                "bytes");
  EXPECT_EQ(message({piece(0, {{0}, {5}}, 20, 0), piece(0, {{4}, {4}}, 16, 64)}),
            "tensor \"w\": the boxes [0:5] and [4:8] overlap in [4:5]");
  EXPECT_EQ(message({piece(0, {{0}, {4}}, 16, 0), piece(0, {{4}, {4}}, 16, 12)}),
            "piece [0:4] of tensor \"w\" (f32[8]) and piece [4:8] of tensor \"w\" (f32[8]) overlap "
            "in file 0 at offset 12");
  EXPECT_FALSE(PieceIndex::make({tensors[0], tensors[0]}, {}, 0).ok());
  EXPECT_FALSE(PieceIndex::make({{"w", DType::kF32, {-1}, ""}}, {}, 0).ok());
}

TEST(PieceIndex, FindsNamesInAnyOrder) {
  const PieceIndex index =
      PieceIndex::make(
          {{"b", DType::kF32, {}, ""}, {"a", DType::kF32, {}, ""}, {"c", DType::kF32, {}, ""}}, {},
          0)
          .value();
  EXPECT_EQ(index.find("a"), 1);
  EXPECT_EQ(index.find("c"), 2);
  EXPECT_EQ(index.find("d"), -1);
}

TEST(Assemble, FileThatEndsTooEarlyIsDataLoss) {
  const PieceIndex index =
      PieceIndex::make({{"w", DType::kUI8, {8}, ""}}, {piece(0, {{0}, {8}}, 8, 0)}, 1).value();
  const RestorePlan plan = plan_restore(index, std::vector<Wanted>{{0, {{0}, {8}}, {}}}).value();
  std::vector<std::byte> bytes(7);
  std::vector<std::byte> array(8);
  const std::vector<std::span<const std::byte>> files = {bytes};
  std::byte* const target = array.data();
  EXPECT_EQ(assemble(index, plan, files, {&target, 1}).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hekla::checkpoint
