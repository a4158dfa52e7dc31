// SPDX-License-Identifier: Apache-2.0
// The tools' functions on small steps; tests/checkpoint/test_tools.py looks at the command and at
// what other libraries read of its output.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/format/testing/write_step.h"
#include "runtime/checkpoint/sharding/box.h"
#include "tools/ckpt/convert.h"
#include "tools/ckpt/diff.h"
#include "tools/ckpt/repair.h"
#include "tools/ckpt/safetensors.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {
namespace {

using checkpoint::Box;
using checkpoint::TensorInfo;
using checkpoint::testing::PieceData;

// A step of tensors of every dtype, each cut in two along its first dimension.
class Tools : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<TensorInfo> tensors;
    std::vector<PieceData> data;
    std::mt19937 random(5);
    for (int i = 1; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      tensors.push_back({fmt::format("t/{}", dtype_name(dtype)), dtype, {6, 40, 3}, "spec"});
      for (const int64_t start : {0, 2}) {
        PieceData piece;
        piece.piece.tensor = i - 1;
        piece.piece.file = start == 0 ? 0 : 1;
        piece.piece.box = {{start, 0, 0}, {start == 0 ? 2 : 4, 40, 3}};
        piece.bytes.resize(static_cast<size_t>(
            checkpoint::stored_bytes(dtype, element_count(piece.piece.box.size))));
        // Booleans are 0 or 1; everything else may be any bits.
        for (std::byte& byte : piece.bytes) {
          byte = static_cast<std::byte>(random() % (dtype == DType::kI1 ? 2 : 256));
        }
        data.push_back(std::move(piece));
      }
    }
    step_ = folder_.file("run/step-000000000007");
    const auto written =
        checkpoint::testing::write_step(step_, {"run", "abcd", 7}, tensors, data, 2);
    ASSERT_TRUE(written.ok()) << written.status().to_string();
  }

  StepPointer open(const std::string& path) {
    auto step = open_step(posix_io(), path);
    EXPECT_TRUE(step.ok()) << step.status().to_string();
    return step.ok() ? *step : nullptr;
  }
  // What differs from the step, but for specs.
  std::vector<std::string> differences(const std::string& path) {
    const StepPointer a = open(step_), b = open(path);
    const auto report = diff_steps(posix_io(), *a, *b, std::regex(""));
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    std::vector<std::string> found;
    for (const TensorDifference& one : report->differences) {
      if (!one.what.starts_with("spec")) found.push_back(one.tensor + ": " + one.what);
    }
    return found;
  }

  TemporaryFolder folder_;
  std::string step_;
};

TEST_F(Tools, SafetensorsAndBackIsTheSameStep) {
  const StepPointer step = open(folder_.file("run"));
  for (const int64_t max_bytes : {int64_t{1} << 40, int64_t{3000}}) {
    const std::string out = folder_.file(fmt::format("out{}", max_bytes));
    const auto to = to_safetensors(*step, out, max_bytes);
    ASSERT_TRUE(to.ok()) << to.status().to_string();
    EXPECT_EQ(to->files.size() > 5, max_bytes == 3000);
    const auto from = from_safetensors(posix_io(), out, out + ".run", 3);
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(differences(out + ".run"), std::vector<std::string>());
  }
}

TEST_F(Tools, ReshardingKeepsEveryBit) {
  const StepPointer step = open(step_);
  const auto done =
      reshard(*step, folder_.file("out"), {"(a:4,b:3)", {"t/f*=(a,None,b)", "(b,a)"}});
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_EQ(differences(folder_.file("out")), std::vector<std::string>());
  const StepPointer cut = open(folder_.file("out"));
  EXPECT_EQ(cut->index().pieces_of(cut->index().find("t/f32")).size(),
            9u);  // ceil(6 / 4) = 2: 3 x 3
  EXPECT_EQ(cut->commit().world_size, 12);
  // The step is there already.
  EXPECT_EQ(reshard(*step, folder_.file("out"), {"(a:2)", {"(a)"}}).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(reshard(*step, folder_.file("bad"), {"(a:2)", {"(c)"}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(Tools, RepairMakesIndexAndViewAgain) {
  const auto index = checkpoint::testing::read_file(step_ + "/index.h5");
  const auto view = checkpoint::testing::read_file(step_ + "/model.h5");
  std::filesystem::remove(step_ + "/index.h5");
  checkpoint::testing::write_file(step_ + "/model.h5", std::span(view).first(100));
  const auto repaired = repair_run(posix_io(), folder_.file("run"), false);
  ASSERT_TRUE(repaired.ok()) << repaired.status().to_string();
  EXPECT_EQ(repaired->done.size(), 2u);
  EXPECT_TRUE(repaired->left.empty());
  EXPECT_TRUE(checkpoint::testing::read_file(step_ + "/index.h5") == index);
  EXPECT_TRUE(checkpoint::testing::read_file(step_ + "/model.h5") == view);
}

TEST(RowMajorParts, FollowEachOtherAndFillTheBox) {
  for (const Dims& size : {Dims{}, Dims{1}, Dims{7}, Dims{3, 4, 5}, Dims{2, 1, 3, 2}, Dims{0, 4}}) {
    Box box{Dims(size.size(), 10), size};
    for (const int64_t most : {1, 2, 4, 7, 20, 1000}) {
      int64_t next = 0;
      for (const Box& part : row_major_parts(box, most)) {
        // The number of the part's first element within the box is where the last part ended.
        int64_t first = 0;
        for (size_t d = 0; d < size.size(); ++d) {
          first = first * size[d] + part.start[d] - box.start[d];
        }
        ASSERT_EQ(first, next);
        ASSERT_LE(element_count(part.size), most);
        next += element_count(part.size);
      }
      EXPECT_EQ(next, element_count(size));
    }
  }
}

TEST(Packer, GivesTheSameBytesForAnyParts) {
  std::vector<std::byte> elements(1001);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::byte>(i * 7 % 64);
  for (const DType dtype : {DType::kF6E2M3FN, DType::kUI8}) {
    std::vector<std::byte> whole;
    for (const size_t part : {1001u, 1u, 3u, 8u, 500u}) {
      Packer packer(dtype);
      std::vector<std::byte> bytes;
      const auto keep = [&bytes](std::span<const std::byte> more) {
        bytes.insert(bytes.end(), more.begin(), more.end());
      };
      for (size_t at = 0; at < elements.size(); at += part) {
        keep(packer.add(std::span(elements).subspan(at, std::min(part, elements.size() - at))));
      }
      keep(packer.finish());
      EXPECT_EQ(static_cast<int64_t>(bytes.size()), checkpoint::stored_bytes(dtype, 1001));
      if (whole.empty()) whole = bytes;
      EXPECT_TRUE(bytes == whole) << part;
    }
  }
}

TEST(Safetensors, HeaderSurvivesItsText) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"größe", "\"quoted\"\n"}};
  header.tensors = {{"a.b", DType::kBF16, {3, 4}, 0, 24}, {"重み", DType::kF64, {}, 24, 32}};
  const auto text = safetensors_header(header);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->size() % 8, 0u);
  const auto read = parse_safetensors_header(std::string_view(*text).substr(8), 32);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->metadata, header.metadata);
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_EQ(read->tensors[0].name, "a.b");
  EXPECT_EQ(read->tensors[1].dtype, DType::kF64);
  EXPECT_FALSE(parse_safetensors_header(std::string_view(*text).substr(8), 31).ok());
  header.tensors[0].name = "__metadata__";
  EXPECT_EQ(safetensors_header(header).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::tools
