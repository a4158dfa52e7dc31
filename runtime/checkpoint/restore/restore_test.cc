// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/restore.h"

#include <gtest/gtest.h>

#include "runtime/base/io/temporary_folder.h"
#include "runtime/checkpoint/restore/cast.h"
#include "runtime/checkpoint/restore/testing/written_state.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {
namespace {

using testing::part_of;
using testing::State;

class RestoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 random(4);
    for (const char* name : {"encoder/0/w", "encoder/1/w", "head/w"}) {
      state_.add(name, DType::kF32, {10, 12}, "mesh=(a:4) spec=(a)", random);
    }
    state_.add("step", DType::kI32, {}, "mesh=(a:4) spec=()", random);
    ASSERT_TRUE(testing::write_state(folder_.file("step"), state_, 4, {"run", "nonce", 1}).ok());
    auto reader = StepReader::open(posix_io(), folder_.file("step"));
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    step_ = *reader;
  }

  const HostArray& value(std::string_view name) const {
    return state_.values[static_cast<size_t>(step_->index().find(name))];
  }

  TemporaryFolder folder_;
  State state_;
  std::shared_ptr<const StepReader> step_;
};

TEST_F(RestoreTest, WithoutTargetsAllComesBack) {
  const Result<RestoreReport> report = restore(*step_, {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->tensors.size(), 4u);
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(report->tensors[t].name, state_.tensors[t].name);
    ASSERT_EQ(report->tensors[t].arrays.size(), 1u);
    EXPECT_TRUE(report->tensors[t].arrays[0].identical(state_.values[t]));
  }
  EXPECT_EQ(report->bytes_wanted, 3 * 480 + 4);
  EXPECT_GE(report->bytes_read, report->bytes_wanted);
  EXPECT_TRUE(report->unexpected.empty());
}

TEST_F(RestoreTest, SubsetAndNewNames) {
  RestoreRequest request;
  request.only = {"encoder/*"};
  request.renames = {{"encoder/1", "last"}, {"encoder", "backbone"}};
  const Result<RestoreReport> report = restore(*step_, request);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->tensors.size(), 2u);
  EXPECT_EQ(report->tensors[0].name, "backbone/0/w");
  EXPECT_EQ(report->tensors[1].name, "last/w");
  EXPECT_TRUE(report->tensors[1].arrays[0].identical(value("encoder/1/w")));
}

TEST_F(RestoreTest, NamesAreReplacedByLevel) {
  EXPECT_EQ(renamed("a/b", {{"a", "x"}}), "x/b");
  EXPECT_EQ(renamed("ab/c", {{"a", "x"}}), "ab/c");
  EXPECT_EQ(renamed("a/b", {{"a/b", "x"}}), "x");
  EXPECT_EQ(renamed("a/b", {{"a", ""}}), "b");
  EXPECT_EQ(renamed("a/b", {{"", "x"}}), "x/a/b");
  EXPECT_EQ(renamed("a/b", {}), "a/b");
}

TEST_F(RestoreTest, TwoTensorsOfOneNewNameAreRefused) {
  RestoreRequest request;
  request.renames = {{"encoder/0", "x"}, {"encoder/1", "x"}};
  const Result<RestoreReport> report = restore(*step_, request);
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(report.status().message(),
            "\"encoder/0/w\" and \"encoder/1/w\" are both renamed to \"x/w\"");
}

TEST_F(RestoreTest, BoxesOfAnotherMeshWithPadding) {
  const Sharding sharding = parse_sharding("mesh=(a:3,b:2) spec=(b,a)").value();
  const std::vector<DeviceBox> boxes = device_boxes(sharding, {10, 12}).value();
  RestoreTarget target{.name = "head/w", .shape = Dims{10, 12}};
  for (const DeviceBox& box : boxes) target.boxes.push_back({box.box, box.padded});
  target.boxes.push_back({{{9, 0}, {1, 12}}, {4, 13}});
  RestoreRequest request;
  request.targets = {target};
  request.only = {"head/*"};
  const Result<RestoreReport> report = restore(*step_, request);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const RestoredTensor& restored = report->tensors[0];
  ASSERT_EQ(restored.arrays.size(), 7u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(restored.arrays[i].identical(part_of(value("head/w"), boxes[i].box))) << i;
  }
  const HostArray& padded = restored.arrays[6];
  EXPECT_EQ(padded.dims(), (Dims{4, 13}));
  EXPECT_TRUE(
      part_of(padded, {{0, 0}, {1, 12}}).identical(part_of(value("head/w"), restored.boxes[6])));
  EXPECT_EQ(padded.as<uint32_t>()[12], 0u);
  EXPECT_EQ(padded.as<uint32_t>()[4 * 13 - 1], 0u);
}

TEST_F(RestoreTest, TargetsAreCast) {
  RestoreRequest request;
  request.targets = {{.name = "head/w", .dtype = DType::kBF16},
                     {.name = "step", .dtype = DType::kI64}};
  request.strict = false;
  const Result<RestoreReport> report = restore(*step_, request);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->tensors[0].arrays[0].identical(*cast(value("head/w"), DType::kBF16)));
  EXPECT_EQ(report->tensors[1].arrays[0].as<int64_t>()[0], value("step").as<int32_t>()[0]);
  EXPECT_EQ(report->unexpected, (std::vector<std::string>{"encoder/0/w", "encoder/1/w"}));
}

TEST_F(RestoreTest, StrictNamesAllThatDoesNotFit) {
  RestoreRequest request;
  request.targets = {{.name = "head/w", .shape = Dims{12, 10}},
                     {.name = "step", .dtype = DType::kI32},
                     {.name = "encoder/0/w", .dtype = DType::kI8},
                     {.name = "head/b"}};
  Result<RestoreReport> report = restore(*step_, request);
  ASSERT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      report.status().message(),
      folder_.file("step") +
          " does not hold what is wanted: 1 missing in the checkpoint: head/b; 1 in the "
          "checkpoint and not asked for: encoder/1/w; 2 that do not fit: \"head/w\" is wanted "
          "as [12,10] and stored as f32[10,12], \"encoder/0/w\" is wanted as i8 and stored as "
          "f32; only floats are cast to floats, integers to anything. Rename, choose with "
          "`only`, or restore without `strict`");
  request.strict = false;
  report = restore(*step_, request);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->missing, std::vector<std::string>{"head/b"});
  EXPECT_EQ(report->unexpected, std::vector<std::string>{"encoder/1/w"});
  EXPECT_EQ(report->mismatched.size(), 2u);
  ASSERT_EQ(report->tensors.size(), 1u);
  EXPECT_TRUE(report->tensors[0].arrays[0].identical(value("step")));
}

TEST_F(RestoreTest, RankWithoutABoxOfATensorReadsNothingOfIt) {
  RestoreRequest request;
  request.only = {"head/w"};
  request.targets = {{.name = "head/w", .nothing_here = true}};
  const Result<RestoreReport> report = restore(*step_, request);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->tensors[0].arrays.empty());
  EXPECT_EQ(report->bytes_read, 0);
}

TEST_F(RestoreTest, RequestsThatContradictThemselvesAreRefused) {
  RestoreRequest request;
  request.targets = {{.name = "step"}, {.name = "step"}};
  EXPECT_EQ(restore(*step_, request).status().code(), StatusCode::kInvalidArgument);
  request.targets = {{.name = "head/w", .boxes = {{{{0, 0}, {11, 12}}, {}}}}};
  EXPECT_EQ(restore(*step_, request).status().code(), StatusCode::kInvalidArgument);
  request.targets = {{.name = "head/w", .boxes = {{{{0, 0}, {2, 12}}, {1, 12}}}}};
  request.strict = false;
  EXPECT_EQ(restore(*step_, request).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::checkpoint
