// SPDX-License-Identifier: Apache-2.0
#include "tools/run/case_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/npy/npy.h"

namespace hekla::tools {
namespace {

namespace fs = std::filesystem;

class CaseTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(testing::TempDir()) /
        (std::string("case_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(folder_ / "p.mlir") << "program";
    const float values[] = {1, 2};
    const HostArray array = HostArray::from<float>(DType::kF32, {2}, values);
    ASSERT_TRUE(runtime::write_npy((folder_ / "x.npy").string(), array).ok());
  }
  void TearDown() override { fs::remove_all(folder_); }
  Result<Case> read(const std::string& json) {
    std::ofstream(folder_ / "case.json") << json;
    return read_case(folder_.string());
  }
  fs::path folder_;
};

TEST_F(CaseTest, ReadsFilesRulesAndSamples) {
  auto read_back = read(R"({"name": "n", "program": "p.mlir",
    "inputs": [{"file": "x.npy", "dtype": "f32"},
               {"rule": {"dtype": "i32", "shape": [3], "seed": 1, "kind": "constant", "low": 4}}],
    "outputs": [{"file": "x.npy", "dtype": "f32", "shape": [2], "rtol": 0.5, "atol": 0.25},
                {"samples": {"dtype": "f32", "shape": [9], "indices": [0, 8],
                             "values": ["nan", "-inf"]},
                 "sum": 1, "abs_sum": 2, "rtol": 0, "atol": 0, "sum_rtol": 0.1}]})");
  ASSERT_TRUE(read_back.ok()) << read_back.status().to_string();
  EXPECT_EQ(read_back->program, "program");
  EXPECT_EQ(read_back->inputs[0].as<float>()[1], 2);
  EXPECT_EQ(read_back->inputs[1].as<int32_t>()[2], 4);
  EXPECT_EQ(read_back->outputs[0].tolerance.rtol, 0.5);
  EXPECT_TRUE(std::isnan(read_back->outputs[1].values[0]));
  EXPECT_EQ(read_back->outputs[1].values[1], -INFINITY);
}

TEST_F(CaseTest, BrokenCasesGetAReason) {
  for (const std::string& json :
       {std::string(""), std::string("[]"), std::string("{"), std::string(R"({"name": 1})"),
        std::string(R"({"name": "n", "program": "gone", "inputs": [], "outputs": []})"),
        std::string(R"({"name": "n", "program": "../../etc/passwd", "inputs": [], "outputs": []})"),
        std::string(R"({"name": "n", "program": "/etc/passwd", "inputs": [], "outputs": []})"),
        std::string(R"({"name": "n", "program": "p.mlir", "inputs": [1], "outputs": []})"),
        std::string(R"({"name": "n", "program": "p.mlir", "inputs": {}, "outputs": []})"),
        std::string(R"({"name": "n", "program": "p.mlir", "outputs": [], "inputs":
          [{"file": "x.npy", "dtype": "f33"}]})"),
        std::string(R"({"name": "n", "program": "p.mlir", "outputs": [], "inputs":
          [{"file": "x.npy", "dtype": "f32", "shape": [3]}]})"),
        std::string(R"({"name": "n", "program": "p.mlir", "outputs": [], "inputs":
          [{"rule": {"dtype": "f32", "shape": [99999999999999], "seed": 1, "kind": "odd",
                     "low": 0}}]})"),
        std::string(R"({"name": "n", "program": "p.mlir", "inputs": [], "outputs":
          [{"samples": {"dtype": "f32", "shape": [1], "indices": [0], "values": []},
            "sum": 0, "abs_sum": 0, "sum_rtol": 0}]})")}) {
    auto result = read(json);
    ASSERT_FALSE(result.ok()) << json;
    EXPECT_NE(result.status().message().find("case.json"), std::string::npos)
        << result.status().message();
  }
}

TEST_F(CaseTest, FindsCasesInFolders) {
  EXPECT_EQ(find_cases(folder_.string()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_cases("/nonexistent").status().code(), StatusCode::kNotFound);
  for (const char* name : {"b", "a", "c"}) fs::create_directories(folder_ / name);
  for (const char* name : {"b", "a"}) std::ofstream(folder_ / name / "case.json") << "{}";
  auto cases = find_cases(folder_.string());
  ASSERT_TRUE(cases.ok());
  ASSERT_EQ(cases->size(), 2u);
  EXPECT_EQ(fs::path((*cases)[0]).filename(), "a");
}

}  // namespace
}  // namespace hekla::tools
