// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/pipeline/pipelines.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"
#include "backends/vulkan/pipeline/statistics.h"
#include "shaders/memory/copy.comp.h"
#include "shaders/memory/loop_gate.comp.h"

namespace hekla::vulkan {
namespace {

namespace fs = std::filesystem;

std::vector<KernelCode> kernels() {
  std::vector<KernelCode> all(4);
  all[0].words.assign(std::begin(kcopy_spirv), std::end(kcopy_spirv));
  all[1].words.assign(std::begin(kloop_gate_spirv), std::end(kloop_gate_spirv));
  all[2] = all[0];
  all[3] = all[0];
  return all;
}

class PipelinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "hekla-pipelines-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path entry() const {
    for (const auto& file : fs::recursive_directory_iterator(folder_)) {
      if (file.is_regular_file()) return file.path();
    }
    return {};
  }
  fs::path folder_;
};

TEST_F(PipelinesTest, EqualCodeIsCompiledOnceAlsoFromManyThreads) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const auto pipelines = *Pipelines::create(device, "");
  std::vector<std::vector<PipelineRef>> results(4);
  std::vector<std::thread> threads;
  for (std::vector<PipelineRef>& result : results) {
    threads.emplace_back([&] { result = *pipelines->get(kernels()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<PipelineRef>& result : results) {
    ASSERT_EQ(result.size(), 4u);
    EXPECT_EQ(result[0], results[0][0]);
    EXPECT_EQ(result[0], result[2]);
    EXPECT_NE(result[0], result[1]);
  }
  EXPECT_EQ(pipelines->counters().compiled, 2);
  EXPECT_EQ(pipelines->counters().shared, 14);
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST_F(PipelinesTest, TheNextProcessStartsWithWhatWasStored) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  {
    const auto pipelines = *Pipelines::create(device, folder_.string());
    EXPECT_EQ(pipelines->counters().loaded_bytes, 0);
    ASSERT_TRUE(pipelines->get(kernels()).ok());
    EXPECT_GT(pipelines->counters().stored_bytes, 0);
  }
  const auto again = *Pipelines::create(device, folder_.string());
  EXPECT_GT(again->counters().loaded_bytes, 0);
  ASSERT_TRUE(again->get(kernels()).ok());

  // A damaged file is no error.
  const fs::path file = entry();
  fs::resize_file(file, fs::file_size(file) / 2);
  const auto damaged = *Pipelines::create(device, folder_.string());
  EXPECT_EQ(damaged->counters().loaded_bytes, 0);
  EXPECT_TRUE(damaged->get(kernels()).ok());

  // Nor is a folder that cannot be.
  EXPECT_TRUE(Pipelines::create(device, "/proc/nowhere").ok());
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST_F(PipelinesTest, RefusesWhatIsNoSpirv) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const auto pipelines = *Pipelines::create(device, "");
  std::vector<KernelCode> bad = kernels();
  bad[1].words = {1, 2, 3, 4, 5, 6};
  bad[1].name = "odd";
  const Status status = pipelines->get(bad).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("odd"), std::string::npos);
}

TEST_F(PipelinesTest, ErrorsOfTheDriverAreThoseOfTheCall) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  testing::Faults& faults = testing::inject_faults(*device);
  int failed = 0;
  for (int call = 0; call < 40; ++call) {
    faults.arm(call, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    const auto pipelines = Pipelines::create(device, folder_.string());
    const Status status =
        pipelines.ok() ? (*pipelines)->get(kernels()).status() : pipelines.status();
    const bool has_struck = faults.has_struck;
    faults.disarm();
    if (!has_struck) break;
    if (!status.ok()) {
      ++failed;
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    }
  }
  EXPECT_GE(failed, 4);
  EXPECT_TRUE((*Pipelines::create(device, folder_.string()))->get(kernels()).ok());
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(PipelineText, EndsAtItsZeroOrItsSizeAndMayBeNothing) {
  VkPipelineExecutableInternalRepresentationKHR from = {};
  std::strcpy(from.name, "Assembly");
  from.isText = VK_TRUE;
  from.dataSize = 100;  // as drivers say it where they are given no memory
  EXPECT_EQ(to_text(from).text, "");
  EXPECT_EQ(to_text(from).name, "Assembly");
  EXPECT_EQ(to_text(from).description, "");
  char text[] = "s_endpgm";
  from.pData = text;
  from.dataSize = sizeof(text);
  EXPECT_EQ(to_text(from).text, "s_endpgm");
  from.dataSize = 5;
  EXPECT_EQ(to_text(from).text, "s_end");
  from.isText = VK_FALSE;
  EXPECT_EQ(to_text(from).text, "");
}

TEST(BlobProblem, EveryFieldOfTheHeaderIsLookedAt) {
  DeviceSnapshot snapshot;
  snapshot.vendor_id = 0x1002;
  snapshot.device_id = 7;
  snapshot.pipeline_cache_uuid = "000102030405060708090a0b0c0d0e0f";
  std::vector<std::byte> blob(40);
  const uint32_t fields[] = {32, 1, 0x1002, 7};
  std::memcpy(blob.data(), fields, sizeof(fields));
  for (int i = 0; i < 16; ++i) blob[16 + i] = static_cast<std::byte>(i);
  EXPECT_EQ(blob_problem(blob, snapshot), "");
  for (size_t i = 0; i < 32; ++i) {
    std::vector<std::byte> bad = blob;
    bad[i] ^= std::byte{0x40};
    EXPECT_NE(blob_problem(bad, snapshot), "") << i;
  }
  EXPECT_NE(blob_problem(std::span(blob).first(31), snapshot), "");
}

}  // namespace
}  // namespace hekla::vulkan
