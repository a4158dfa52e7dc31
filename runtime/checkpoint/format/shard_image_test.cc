// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/shard_image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/shard_reader.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/format/testing/write_step.h"
#include "runtime/checkpoint/format/view.h"

namespace hekla::checkpoint {
namespace {

using testing::PieceData;
using testing::ShardBytes;

const ShardIdentity kIdentity{"0f4e-run", "6b5a", 1500};

std::vector<std::byte> random_bytes(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

PieceData piece_of(const std::vector<TensorInfo>& tensors, int32_t tensor, Box box, int32_t file) {
  Piece piece;
  piece.tensor = tensor;
  piece.box = std::move(box);
  piece.file = file;
  const int64_t bytes =
      stored_bytes(tensors[static_cast<size_t>(tensor)].dtype, element_count(piece.box.size));
  return {piece, random_bytes(bytes, static_cast<unsigned>(tensor * 31 + file))};
}

struct Step {
  std::vector<TensorInfo> tensors;
  std::vector<PieceData> data;

  std::vector<Piece> pieces() const {
    std::vector<Piece> pieces;
    for (const PieceData& piece : data) pieces.push_back(piece.piece);
    return pieces;
  }
};

Step sample_step() {
  Step step;
  step.tensors = {
      {"w", DType::kF32, {300, 1000}, "mesh=(data:2) spec=(data,None)"},
      {"layers/0/bias", DType::kBF16, {77}, ""},
      {"scalar", DType::kF64, {}, ""},
      {"empty", DType::kI32, {3, 0}, ""},
      {"layers/0/codes", DType::kI4, {33, 5000}, ""},
      {"unplaced", DType::kI1, {0}, ""},
  };
  step.data = {
      piece_of(step.tensors, 0, {{150, 0}, {150, 1000}}, 1),
      piece_of(step.tensors, 0, {{0, 0}, {150, 1000}}, 0),
      piece_of(step.tensors, 1, {{0}, {77}}, 0),
      piece_of(step.tensors, 2, {{}, {}}, 1),
      piece_of(step.tensors, 3, {{0, 0}, {3, 0}}, 1),
      piece_of(step.tensors, 4, {{0, 0}, {33, 5000}}, 1),
  };
  return step;
}

Result<ShardBytes> shard_of(const Step& step, int32_t file, const ShardIdentity& identity) {
  HEKLA_ASSIGN_OR_RETURN(ShardImage image, ShardImage::make(step.tensors, step.pieces(), file));
  return testing::fill_shard(image, identity, step.data);
}

Result<ShardContents> contents_of(const std::vector<std::byte>& bytes) {
  HEKLA_ASSIGN_OR_RETURN(const UserBlock block, parse_user_block(bytes));
  std::vector<std::span<const std::byte>> ranges;
  for (const ByteRange& range : metadata_ranges(block)) {
    if (range.end > static_cast<int64_t>(bytes.size())) return data_loss("cut off");
    ranges.push_back(std::span(bytes).subspan(static_cast<size_t>(range.begin),
                                              static_cast<size_t>(range.end - range.begin)));
  }
  return read_shard(block, ranges);
}

TEST(ShardImage, PlacesPayloadOnPagesAndSmallPiecesInTheMetadata) {
  const Step step = sample_step();
  const auto image = ShardImage::make(step.tensors, step.pieces(), 1);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  EXPECT_EQ(image->file_size() % 4096, 0);
  ASSERT_EQ(image->payload().size(), 1u);
  const ByteRange area = image->payload()[0];
  EXPECT_EQ(area.begin, 8192);
  EXPECT_EQ(area.end, 8192 + 602112 + 86016);  // 600,000 and 82,500 bytes in whole pages
  for (size_t i = 0; i < image->pieces().size(); ++i) {
    const Piece& piece = image->pieces()[i];
    if (image->is_small(i)) {
      EXPECT_TRUE(piece.bytes == 0 ? piece.offset == 0 : piece.offset >= area.end);
    } else {
      EXPECT_EQ(piece.offset % 4096, 0);
      EXPECT_GE(piece.offset, area.begin);
      EXPECT_LE(piece.offset + piece.bytes, area.end);
    }
  }
  EXPECT_EQ(image->blocks(), 3);
}

TEST(ShardImage, HoldsNothingButItsMetadataWhenItHasNoPieces) {
  const Step step = sample_step();
  const auto shard = shard_of(step, 2, kIdentity);
  ASSERT_TRUE(shard.ok()) << shard.status().to_string();
  const auto contents = contents_of(shard->bytes);
  ASSERT_TRUE(contents.ok()) << contents.status().to_string();
  EXPECT_TRUE(contents->pieces.empty());
  EXPECT_TRUE(contents->tensors.empty());
  EXPECT_EQ(contents->tensors_of_step, 6);
}

TEST(ShardImage, IsTheSameBytesEveryTime) {
  const Step step = sample_step();
  const auto one = shard_of(step, 0, kIdentity);
  const auto two = shard_of(step, 0, kIdentity);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_TRUE(one->bytes == two->bytes);
  EXPECT_EQ(one->record, two->record);
}

TEST(ShardImage, ServesTheNextSaveByPatching) {
  Step step = sample_step();
  auto image = ShardImage::make(step.tensors, step.pieces(), 1);
  ASSERT_TRUE(image.ok());
  ASSERT_TRUE(testing::fill_shard(*image, kIdentity, step.data).ok());
  for (PieceData& piece : step.data) {
    piece.bytes = random_bytes(static_cast<int64_t>(piece.bytes.size()), 99);
  }
  const ShardIdentity next{"0f4e-run", "77", 1600};
  const auto patched = testing::fill_shard(*image, next, step.data);
  const auto fresh = shard_of(step, 1, next);
  ASSERT_TRUE(patched.ok() && fresh.ok());
  EXPECT_TRUE(patched->bytes == fresh->bytes);
}

TEST(ShardImage, ReadsBackWhatItWrote) {
  const Step step = sample_step();
  const auto shard = shard_of(step, 1, kIdentity);
  ASSERT_TRUE(shard.ok());
  const auto contents = contents_of(shard->bytes);
  ASSERT_TRUE(contents.ok()) << contents.status().to_string();
  EXPECT_EQ(contents->ids, (std::vector<int32_t>{0, 2, 3, 4}));
  ASSERT_EQ(contents->pieces.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(contents->pieces[i].tensor, shard->pieces[i].tensor);
    EXPECT_EQ(contents->pieces[i].box, shard->pieces[i].box);
    EXPECT_EQ(contents->pieces[i].offset, shard->pieces[i].offset);
    EXPECT_EQ(contents->pieces[i].first_block, shard->pieces[i].first_block);
  }
  EXPECT_EQ(contents->digests, shard->digests);
  EXPECT_EQ(contents->tensors[0].spec, "mesh=(data:2) spec=(data,None)");
  const auto block = parse_user_block(shard->bytes);
  ASSERT_TRUE(block.ok());
  const auto table = read_block_table(*block, std::span(shard->bytes)
                                                  .subspan(static_cast<size_t>(block->table_offset),
                                                           static_cast<size_t>(block->blocks * 8)));
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  EXPECT_EQ(*table, shard->digests);
}

TEST(ShardImage, EveryFlippedMetadataByteIsFoundBeforeHdf5SeesIt) {
  const Step step = sample_step();
  const auto shard = shard_of(step, 1, kIdentity);
  ASSERT_TRUE(shard.ok());
  const auto block = parse_user_block(shard->bytes);
  ASSERT_TRUE(block.ok());
  std::vector<ByteRange> ranges = metadata_ranges(*block);
  ranges.push_back({0, kUserBlockBytes});
  std::vector<std::byte> bytes = shard->bytes;
  for (const ByteRange& range : ranges) {
    for (int64_t at = range.begin; at < range.end; at += 7) {
      const auto i = static_cast<size_t>(at);
      bytes[i] ^= static_cast<std::byte>(1u << (at % 8));
      const auto contents = contents_of(bytes);
      ASSERT_FALSE(contents.ok()) << "byte " << at;
      ASSERT_EQ(contents.status().code(), StatusCode::kDataLoss) << contents.status().to_string();
      bytes[i] = shard->bytes[i];
    }
  }
  for (size_t cut = 0; cut < bytes.size(); cut += bytes.size() / 100) {
    ASSERT_FALSE(contents_of({bytes.begin(), bytes.begin() + static_cast<int64_t>(cut)}).ok());
  }
}

TEST(ShardImage, SwappedShardsAreNamed) {
  const Step step = sample_step();
  const auto old = shard_of(step, 1, {"0f4e-run", "55", 1400});
  const auto now = shard_of(step, 1, kIdentity);
  ASSERT_TRUE(old.ok() && now.ok());
  CommitRecord commit;
  commit.run_uuid = kIdentity.run_uuid;
  commit.nonce = kIdentity.nonce;
  commit.step = kIdentity.step;
  const auto check = [&](const ShardBytes& shard, int32_t number) {
    return check_belongs(*parse_user_block(shard.bytes), commit, now->record, number);
  };
  EXPECT_TRUE(check(*now, 1).ok()) << check(*now, 1).to_string();
  EXPECT_EQ(check(*now, 0).code(), StatusCode::kDataLoss);
  const Status swapped = check(*old, 1);
  EXPECT_EQ(swapped.code(), StatusCode::kDataLoss);
  EXPECT_NE(swapped.message().find("step 1400"), std::string::npos) << swapped.message();
}

TEST(ShardImage, RefusesWhatCannotBeStored) {
  const auto make = [](std::vector<TensorInfo> tensors, std::vector<Piece> pieces = {}) {
    return ShardImage::make(tensors, pieces, 0).status();
  };
  const std::string deep = "a/b";
  for (const std::string name :
       {"", ".", "..", "/a", "a/", "a//b", "a/./b", "../a", "a\nb", "\xff\xfe", "a/\xed\xa0\x80"}) {
    EXPECT_EQ(make({{name, DType::kF32, {1}, ""}}).code(), StatusCode::kInvalidArgument) << name;
  }
  const Status group = make({{"a", DType::kF32, {1}, ""}, {"a/b", DType::kF32, {1}, ""}});
  EXPECT_NE(group.message().find("also the group of tensor 'a/b'"), std::string::npos);
  EXPECT_FALSE(make({{"a", DType::kF32, {1}, ""}, {"a", DType::kF32, {1}, ""}}).ok());
  EXPECT_FALSE(make({{"a", DType::kF32, Dims(33, 1), ""}}).ok());
  EXPECT_FALSE(make({{"a", DType::kF32, {-1}, ""}}).ok());
  EXPECT_FALSE(make({{"a", DType::kInvalid, {1}, ""}}).ok());
  EXPECT_FALSE(make({{std::string(4097, 'a'), DType::kF32, {1}, ""}}).ok());
  Piece outside;
  outside.box = {{1}, {1}};
  EXPECT_FALSE(make({{"a", DType::kF32, {1}, ""}}, {outside}).ok());
  outside.tensor = 1;
  EXPECT_FALSE(make({{"a", DType::kF32, {1}, ""}}, {outside}).ok());
}

TEST(ShardImage, RefusesAnIdentityThatDoesNotFit) {
  const Step step = sample_step();
  EXPECT_FALSE(shard_of(step, 0, {"", "a", 1}).ok());
  EXPECT_FALSE(shard_of(step, 0, {"run", std::string(48, 'a'), 1}).ok());
  EXPECT_FALSE(shard_of(step, 0, {"run", "a/b", 1}).ok());
  EXPECT_FALSE(shard_of(step, 0, {"run", "a", -1}).ok());
}

// Seconds of the processor are printed, not judged: the machine is shared.
TEST(ShardImage, TakesTwentyThousandTensors) {
  Step step;
  for (int i = 0; i < 20000; ++i) {
    step.tensors.push_back(
        {fmt::format("layers/{:04}/block/{}", i / 8, i % 8), DType::kF32, {4}, ""});
    Piece piece;
    piece.tensor = i;
    piece.box = {{0}, {4}};
    step.data.push_back({piece, std::vector<std::byte>(16)});
  }
  auto seconds = [begin = std::clock()]() mutable {
    const std::clock_t now = std::clock();
    return static_cast<double>(now - std::exchange(begin, now)) / CLOCKS_PER_SEC;
  };
  auto image = ShardImage::make(step.tensors, step.pieces(), 0);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const double made = seconds();
  const auto shard = testing::fill_shard(*image, kIdentity, step.data);
  ASSERT_TRUE(shard.ok());
  const double filled = seconds();
  const auto index = make_index(1, step.tensors, shard->pieces, {shard->record}, {shard->digests});
  ASSERT_TRUE(index.ok());
  const auto bytes = write_index(*index);
  ASSERT_TRUE(bytes.ok());
  const double written = seconds();
  const FileRecord record{"index.h5", static_cast<int64_t>(bytes->size()), digest_text(*bytes), ""};
  const auto read = read_index(*bytes, record);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const double loaded = seconds();
  ASSERT_TRUE(make_view(*index).ok());
  std::printf(
      "20,000 tensors, processor time: image %.3f s, %zu bytes; next save %.4f s; index written "
      "%.4f s, "
      "%zu bytes; read %.4f s; view %.3f s\n",
      made, shard->bytes.size(), filled, written, bytes->size(), loaded, seconds());
}

}  // namespace
}  // namespace hekla::checkpoint
