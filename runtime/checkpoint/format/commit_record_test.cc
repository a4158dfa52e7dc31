// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/commit_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/format/stored_type.h"
#include "runtime/checkpoint/format/user_block.h"

namespace hekla::checkpoint {
namespace {

CommitRecord sample() {
  CommitRecord record;
  record.step = 1500;
  record.run_uuid = "0f4e";
  record.nonce = "6b5a";
  record.wall_time = "2026-11-21T18:05:00Z";
  record.writer_version = "hekla 0.1.0";
  record.world_size = 4;
  record.mesh = "mesh=(data:2,model:4)\nsecond line, 100%";
  record.layout_hash = 0xfedcba9876543210;
  record.tensors = 12;
  record.logical_bytes = int64_t{1} << 40;
  record.metrics = {{"loss", 0.1}, {"a b", -0.0}, {"inf", INFINITY}, {"tiny", 5e-324}};
  record.reason = "interval";
  record.parent_step = 1400;
  record.files = {{"data/shard-00000.h5", 4096, std::string(32, 'a'), std::string(32, '0'), 3},
                  {"extra/Zustand 50%.json", 0, std::string(32, 'f'), "", 0},
                  {"data/frozen-00000.h5", 8192, std::string(32, 'b'), std::string(32, '1'), 0,
                   FileOrigin{1200, "77aa"}}};
  return record;
}

// `text` with its digest made right again.
std::string sealed(std::string text) {
  text.resize(text.size() - 40);
  return text + "digest=" + digest_text(text) + "\n";
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, text.npos) << what;
  return sealed(text.replace(at, what.size(), with));
}

TEST(CommitRecord, SurvivesItsText) {
  const auto text = write_commit(sample());
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const auto read = parse_commit(*text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, sample());
  EXPECT_TRUE(std::signbit(read->metrics.at("a b")));
  EXPECT_EQ(*write_commit(*read), *text);
}

TEST(CommitRecord, KeepsNotANumber) {
  CommitRecord record = sample();
  record.metrics["loss"] = std::numeric_limits<double>::quiet_NaN();
  const auto read = parse_commit(*write_commit(record));
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(std::isnan(read->metrics.at("loss")));
}

TEST(CommitRecord, EveryFlippedBitAndEveryCutIsCorrupt) {
  const std::string text = *write_commit(sample());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      ASSERT_EQ(parse_commit(flipped).status().code(), StatusCode::kDataLoss) << i;
    }
    ASSERT_EQ(parse_commit(text.substr(0, i)).status().code(), StatusCode::kDataLoss) << i;
  }
  EXPECT_FALSE(parse_commit(text + "\n").ok());
  EXPECT_FALSE(parse_commit(text + text).ok());
}

TEST(CommitRecord, SkipsKeysOfLaterMinorVersions) {
  const std::string text = *write_commit(sample());
  const auto read = parse_commit(
      replaced(replaced(text, "checkpoint 1.2", "checkpoint 1.9"), "mesh=", "colour=blue\nmesh="));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  CommitRecord expected = sample();
  expected.format_minor = 9;
  EXPECT_EQ(*read, expected);
}

TEST(CommitRecord, RefusesALaterMajorVersionInWords) {
  const auto read =
      parse_commit(replaced(*write_commit(sample()), "checkpoint 1.2", "checkpoint 2.0"));
  EXPECT_EQ(read.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(read.status().message().find("version 2.0"), std::string::npos);
}

TEST(CommitRecord, RefusesWhatCannotBe) {
  const std::string text = *write_commit(sample());
  const auto code = [&text](std::string_view what, std::string_view with) {
    return parse_commit(replaced(text, what, with)).status().code();
  };
  EXPECT_EQ(code("step=1500", "step=-1"), StatusCode::kDataLoss);
  EXPECT_EQ(code("step=1500", "step=99999999999999999999"), StatusCode::kDataLoss);
  EXPECT_EQ(code("step=1500", "step=1500 "), StatusCode::kDataLoss);
  EXPECT_EQ(code("step=1500\n", ""), StatusCode::kDataLoss);
  EXPECT_EQ(code("step=1500", "step=1500\nstep=1500"), StatusCode::kDataLoss);
  EXPECT_EQ(code("world_size=4", "world_size=0"), StatusCode::kDataLoss);
  EXPECT_EQ(code("files=3", "files=4"), StatusCode::kDataLoss);
  EXPECT_EQ(code("files=3", "files=2"), StatusCode::kDataLoss);
  EXPECT_EQ(code("files=3", "files=9223372036854775807"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t1200\t77aa", "\t-1\t77aa"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t1200\t77aa", "\t1200\t"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t1200\t77aa", "\t1200"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t1200\t77aa", "\t1200\t77aa\t"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t-\t0\n", "\t-\t0\t5\t77aa\n"), StatusCode::kDataLoss);
  EXPECT_EQ(code("data/shard-00000.h5", "../shard-00000.h5"), StatusCode::kDataLoss);
  EXPECT_EQ(code("data/shard-00000.h5", "/etc/passwd"), StatusCode::kDataLoss);
  EXPECT_EQ(code("data/shard-00000.h5", "extra/Zustand 50%25.json"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t4096\t", "\t-4096\t"), StatusCode::kDataLoss);
  EXPECT_EQ(code("100%25", "100%2"), StatusCode::kDataLoss);
  EXPECT_EQ(code("100%25", "100%41"), StatusCode::kDataLoss);
  EXPECT_EQ(code("tensors=12", "tensors 12"), StatusCode::kDataLoss);
  EXPECT_EQ(code("mesh=", "mesh=\xff"), StatusCode::kDataLoss);
  EXPECT_EQ(code("metric.loss=", "metric.="), StatusCode::kDataLoss);
  EXPECT_EQ(code("metric.loss=0.1", "metric.loss=0.1x"), StatusCode::kDataLoss);
  EXPECT_EQ(code("\t-\t0\n", "\t-\t0\t0\n"), StatusCode::kDataLoss);
}

TEST(CommitRecord, RefusesToWriteWhatItWouldNotRead) {
  const auto status = [](auto change) {
    CommitRecord record = sample();
    change(record);
    return write_commit(record).status().code();
  };
  using enum StatusCode;
  EXPECT_EQ(status([](CommitRecord& r) { r.step = -1; }), kInvalidArgument);
  EXPECT_EQ(status([](CommitRecord& r) { r.files[0].path = "../x"; }), kInvalidArgument);
  EXPECT_EQ(status([](CommitRecord& r) { r.files[1].path = r.files[0].path; }), kInvalidArgument);
  EXPECT_EQ(status([](CommitRecord& r) { r.files[0].metadata_digest = "?"; }), kInvalidArgument);
  EXPECT_EQ(status([](CommitRecord& r) {
              r.files[1].origin = FileOrigin{1, "n"};
            }),
            kInvalidArgument);  // no shard
  EXPECT_EQ(status([](CommitRecord& r) { r.files[2].origin->nonce.clear(); }), kInvalidArgument);
  EXPECT_EQ(status([](CommitRecord& r) { r.metrics["a=b"] = 1; }), kInvalidArgument);
  EXPECT_EQ(status([](CommitRecord& r) { r.mesh = "\xc0"; }), kInvalidArgument);
}

TEST(UserBlock, SurvivesItsBytes) {
  UserBlock block;
  block.identity = {"run", "nonce", 77};
  block.file = 5;
  block.file_size = 40960;
  block.table_offset = 20488;
  block.blocks = 3;
  block.metadata_digest = "0123456789abcdef0123456789abcdef";
  block.table_digest = std::string(32, 'e');
  block.areas = {{8192, 12288}, {16384, 20480}};
  const auto bytes = encode_user_block(block);
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  const auto read = parse_user_block(*bytes);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, block);
  EXPECT_EQ(metadata_ranges(block),
            (std::vector<ByteRange>{{4096, 8192}, {12288, 16384}, {20480, 40960}}));
  UserBlockBytes changed = *bytes;
  for (std::byte& byte : changed) {
    byte ^= std::byte{16};
    ASSERT_EQ(parse_user_block(changed).status().code(), StatusCode::kDataLoss);
    byte ^= std::byte{16};
  }
  EXPECT_FALSE(parse_user_block(std::span(*bytes).first(4095)).ok());

  const auto bad = [&block](auto change) {
    UserBlock other = block;
    change(other);
    return !encode_user_block(other).ok();
  };
  EXPECT_TRUE(bad([](UserBlock& b) { b.areas[1].end = 40961; }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.areas[1].begin = 8192; }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.areas[0].begin = 0; }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.areas.resize(201); }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.table_offset = 16384; }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.blocks = int64_t{1} << 60; }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.file_size = 40961; }));
  EXPECT_TRUE(bad([](UserBlock& b) { b.identity.nonce = ""; }));
}

TEST(Names, DotsSpacesAndAnyLanguageAreFine) {
  for (const std::string_view name :
       {"a", "a.b.c", "...", "layer 3/w", "größe/重み/🌋", "p0", "a/p0", "%d%s"}) {
    EXPECT_TRUE(check_name(name).ok()) << name;
  }
  EXPECT_TRUE(check_name(std::string(4096, 'x')).ok());
}

TEST(StoredType, NumbersAndNamesAreOneToOne) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const StoredType* type = stored_type(dtype);
    ASSERT_NE(type, nullptr) << i;
    EXPECT_EQ(dtype_from_code(type->code), dtype);
    EXPECT_EQ(dtype_from_stored_name(type->name), dtype);
  }
  EXPECT_EQ(stored_type(DType::kInvalid), nullptr);
  EXPECT_EQ(dtype_from_code(0), DType::kInvalid);
  EXPECT_EQ(dtype_from_code(kDTypeCount), DType::kInvalid);
  EXPECT_EQ(nan_bits(DType::kBF16), 0x7fc0u);
  EXPECT_EQ(nan_bits(DType::kF4E2M1FN), std::nullopt);
  EXPECT_EQ(nan_bits(DType::kI32), std::nullopt);
}

TEST(WallTime, IsRead) {
  EXPECT_EQ(*parse_wall_time("1970-01-02T00:00:01Z"), 86401);
  EXPECT_FALSE(parse_wall_time("yesterday").ok());
}

}  // namespace
}  // namespace hekla::checkpoint
