// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/plan_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace hekla::cpu {
namespace {

class PlanStoreTest : public testing::Test {
 protected:
  PlanStoreTest() : folder_(testing::TempDir() + "/plan_store_test") {
    std::filesystem::remove_all(folder_);
    plan_.input_bytes = {4};
    plan_.output_bytes = {4};
    plan_.output_input = {-1};
    plan_.constants = {HostArray::scalar<float>(DType::kF32, 2.5f)};
    using plan::Slice;
    plan_.steps = {
        {plan::CopyStep{{Slice::Space::kInput, 0, 0, 4}, {Slice::Space::kOutput, 0, 0, 4}}}};
  }
  const std::string folder_;
  plan::LaunchPlan plan_;
};

TEST_F(PlanStoreTest, AnotherProcessFindsThePlan) {
  PlanStore(folder_, "build").store("program", plan_);
  const auto found = PlanStore(folder_, "build").load("program");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(plan::to_string(*found), plan::to_string(plan_));
  EXPECT_TRUE(found->constants[0].identical(plan_.constants[0]));
}

TEST_F(PlanStoreTest, OtherProgramsAndBuildsDoNot) {
  PlanStore(folder_, "build").store("program", plan_);
  EXPECT_EQ(PlanStore(folder_, "build").load("another"), nullptr);
  EXPECT_EQ(PlanStore(folder_, "other build").load("program"), nullptr);
}

TEST_F(PlanStoreTest, WhatHasNoNameIsNotKept) {
  PlanStore(folder_, "build").store("", plan_);
  EXPECT_EQ(PlanStore(folder_, "build").load(""), nullptr);
  PlanStore(folder_, "").store("program", plan_);
  EXPECT_EQ(PlanStore(folder_, "").load("program"), nullptr);
  PlanStore("", "build").store("program", plan_);
  EXPECT_EQ(PlanStore("", "build").load("program"), nullptr);
}

TEST_F(PlanStoreTest, LargeConstantsAreNotKept) {
  plan_.constants.push_back(HostArray(DType::kF32, {2 << 20}));
  PlanStore(folder_, "build").store("program", plan_);
  EXPECT_EQ(PlanStore(folder_, "build").load("program"), nullptr);
}

TEST_F(PlanStoreTest, ADamagedFileIsMadeAgain) {
  PlanStore(folder_, "build").store("program", plan_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  PlanStore store(folder_, "build");
  EXPECT_EQ(store.load("program"), nullptr);
  store.store("program", plan_);
  EXPECT_NE(store.load("program"), nullptr);
}

TEST(BuildId, IsThatOfThisProgram) {
  const std::string id = build_id();
  EXPECT_GE(id.size(), 16u) << "the linker wrote no build id: no plan is kept";
  EXPECT_EQ(id, build_id());
}

}  // namespace
}  // namespace hekla::cpu
