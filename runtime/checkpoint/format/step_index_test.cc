// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/step_index.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "runtime/base/testing/child.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/format/testing/write_step.h"

namespace hekla::checkpoint {
namespace {

const std::string kDigest(32, 'a');

Piece piece_at(int32_t tensor, Box box, int32_t file, int64_t bytes) {
  Piece piece;
  piece.tensor = tensor;
  piece.box = std::move(box);
  piece.file = file;
  piece.bytes = bytes;
  return piece;
}

std::vector<TensorInfo> tensors() {
  return {{"a", DType::kF32, {4, 2}, "spec"},
          {"b/c", DType::kBF16, {}, ""},
          {"z", DType::kI1, {0}, ""}};
}
std::vector<Piece> pieces() {
  return {piece_at(1, {{}, {}}, 1, 2), piece_at(0, {{2, 0}, {2, 2}}, 1, 16),
          piece_at(0, {{0, 0}, {2, 2}}, 0, 16)};
}
std::vector<FileRecord> files() {
  return {{"data/shard-00000.h5", 8192, kDigest, kDigest, 0},
          {"data/shard-00001.h5", 8192, kDigest, kDigest, 3}};
}
std::vector<std::vector<uint64_t>> digests() { return {{1}, {2, 3}}; }

StatusCode code(std::vector<Piece> changed) {
  return make_index(7, tensors(), std::move(changed), files(), digests()).status().code();
}

FileRecord record_of(const std::vector<std::byte>& bytes) {
  return {"index.h5", static_cast<int64_t>(bytes.size()), digest_text(bytes), "", 0};
}

TEST(StepIndex, SurvivesItsFile) {
  const auto index = make_index(7, tensors(), pieces(), files(), digests());
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  const auto bytes = write_index(*index);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  const auto again = write_index(*index);
  EXPECT_TRUE(*bytes == *again);
  const auto read = read_index(*bytes, record_of(*bytes));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->step, 7);
  ASSERT_EQ(read->tensors.size(), 3u);
  EXPECT_EQ(read->tensors[0].shape, (Dims{4, 2}));
  EXPECT_EQ(read->tensors[0].spec, "spec");
  EXPECT_EQ(read->tensors[1].dtype, DType::kBF16);
  EXPECT_EQ(read->files, index->files);
  EXPECT_EQ(read->digests, digests());
  const auto own = read->pieces_of(0);
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].box.start, (Dims{0, 0}));
  EXPECT_EQ(own[1].file, 1);
  EXPECT_TRUE(read->pieces_of(2).empty());
  EXPECT_EQ(read->find("b/c"), 1);
  EXPECT_EQ(read->find("b"), std::nullopt);
  EXPECT_EQ(read->tensor_digest(0), index->tensor_digest(0));
  EXPECT_NE(read->tensor_digest(0), read->tensor_digest(1));
}

TEST(StepIndex, OpensOnlyWhatCommitLists) {
  const auto index = make_index(7, tensors(), pieces(), files(), digests());
  auto bytes = write_index(*index);
  ASSERT_TRUE(bytes.ok());
  const FileRecord record = record_of(*bytes);
  for (size_t i = 0; i < bytes->size(); i += 61) {
    (*bytes)[i] ^= std::byte{4};
    ASSERT_EQ(read_index(*bytes, record).status().code(), StatusCode::kDataLoss);
    (*bytes)[i] ^= std::byte{4};
  }
  bytes->resize(bytes->size() - 1);
  EXPECT_EQ(read_index(*bytes, record).status().code(), StatusCode::kDataLoss);
  // Right digest, no HDF5.
  const std::vector<std::byte> other(5000, std::byte{7});
  EXPECT_EQ(read_index(other, record_of(other)).status().code(), StatusCode::kDataLoss);
}

TEST(StepIndex, RefusesHolesOverlapsAndPlacesOutside) {
  EXPECT_EQ(code(pieces()), StatusCode::kOk);
  auto hole = pieces();
  hole.pop_back();
  EXPECT_EQ(code(hole), StatusCode::kInvalidArgument);
  auto overlap = pieces();
  overlap[1].box.start = {1, 0};
  EXPECT_EQ(code(overlap), StatusCode::kInvalidArgument);
  auto twice = pieces();
  twice.push_back(twice[0]);
  EXPECT_EQ(code(twice), StatusCode::kInvalidArgument);
  auto outside = pieces();
  outside[0].offset = 8191;
  EXPECT_EQ(code(outside), StatusCode::kInvalidArgument);
  auto no_file = pieces();
  no_file[0].file = 2;
  EXPECT_EQ(code(no_file), StatusCode::kInvalidArgument);
  auto no_block = pieces();
  no_block[0].first_block = 2;
  EXPECT_EQ(code(no_block), StatusCode::kInvalidArgument);
  auto size = pieces();
  size[0].bytes = 4;
  EXPECT_EQ(code(size), StatusCode::kInvalidArgument);
}

// Checks that compare all pieces with all others would not end.
TEST(StepIndex, TakesManyPiecesOfOneTensor) {
  constexpr int64_t kSide = 300;
  const std::vector<TensorInfo> one = {{"w", DType::kUI8, {kSide, kSide}, ""}};
  std::vector<Piece> many;
  for (int64_t row = 0; row < kSide; ++row) {
    for (int64_t column = 0; column < kSide; ++column) {
      many.push_back(piece_at(0, {{row, column}, {1, 1}}, 0, 1));
    }
  }
  const std::vector<FileRecord> file = {files()[0]};
  EXPECT_TRUE(make_index(1, one, many, file, {}).ok());
  many.back().box.start = {0, 0};
  EXPECT_EQ(make_index(1, one, many, file, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST(StepIndex, IsRebuiltFromShards) {
  std::vector<TensorInfo> all = tensors();
  ShardContents one{3, {0, 2}, {all[0], all[2]}, {pieces()[2]}, {1}};
  ShardContents two{3, {0, 1}, {all[0], all[1]}, {pieces()[0], pieces()[1]}, {2, 3}};
  const std::vector<ShardContents> shards = {one, two};
  const auto rebuilt = rebuild_index(7, shards, files());
  ASSERT_TRUE(rebuilt.ok()) << rebuilt.status().to_string();
  const auto index = make_index(7, tensors(), pieces(), files(), digests());
  EXPECT_TRUE(*write_index(*rebuilt) == *write_index(*index));

  const auto code_of = [](const std::vector<ShardContents>& changed) {
    auto some = files();
    some.resize(changed.size());
    return rebuild_index(7, changed, some).status().code();
  };
  EXPECT_EQ(code_of({one}), StatusCode::kDataLoss);
  auto other = two;
  other.tensors[0].shape = {4, 3};
  EXPECT_EQ(code_of({one, other}), StatusCode::kDataLoss);
  EXPECT_EQ(code_of({two, one}), StatusCode::kDataLoss);
}

// A child of fork has no thread that makes HDF5's calls; it gets one.
TEST(StepIndex, IsWrittenInAChildOfForkToo) {
  const auto index = make_index(7, tensors(), pieces(), files(), digests());
  const auto bytes = write_index(*index);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(run_child(
                [&] {
                  const auto again = write_index(*index);
                  return again.ok() && *again == *bytes ? 0 : 1;
                },
                /*limit_s=*/20),
            0);
}

TEST(StepIndex, IsWrittenFromSeveralThreads) {
  const auto index = make_index(7, tensors(), pieces(), files(), digests());
  const auto bytes = write_index(*index);
  ASSERT_TRUE(bytes.ok());
  std::atomic<int> same = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) {
        const auto again = write_index(*index);
        same += again.ok() && *again == *bytes && read_index(*again, record_of(*again)).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 20);
}

TEST(CheckTensors, NamesThatAreTakenInAnyOrder) {
  const auto check = [](const std::vector<std::string>& names) {
    std::vector<TensorInfo> tensors;
    for (const std::string& name : names) tensors.push_back({name, DType::kF32, {2}, ""});
    return check_tensors(tensors);
  };
  EXPECT_TRUE(check({"a", "a-b", "b/c/d", "b/c/e", "b/d"}).ok());
  EXPECT_TRUE(check({"b/c/e", "a", "b/c/d"}).ok());
  for (const std::vector<std::string>& names : std::vector<std::vector<std::string>>{
           {"a", "a-b", "a/b"},                   // in order, with one between
           {"a/b", "a"},                          // not in order
           {"a/b", "a/b/c/d", "a/b/c/e"},         // the group of several
           {"x/y", "x/y/a", "x/y/b/c", "x/y/b"},  // a group of its own neighbour, not in order
       }) {
    const Status status = check(names);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << names.back();
    EXPECT_NE(status.message().find("is also the group of"), std::string::npos);
  }
  EXPECT_NE(check({"a", "b", "b", "c"}).message().find("two tensors"), std::string::npos);
  EXPECT_NE(check({"b", "a", "b"}).message().find("two tensors"), std::string::npos);
}

}  // namespace
}  // namespace hekla::checkpoint
