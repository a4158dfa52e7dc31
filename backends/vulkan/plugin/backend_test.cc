// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/backend.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backends/vulkan/plugin/options.h"

namespace hekla::vulkan {
namespace {

// The loader reads these when it makes an instance, and finds no driver.
TEST(CreateBackend, WithoutADriverSaysWhatIsMissing) {
  setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  const Status status = create_backend({}).status();
  EXPECT_TRUE(status.code() == StatusCode::kUnavailable ||
              status.code() == StatusCode::kFailedPrecondition)
      << status.to_string();
  EXPECT_NE(status.message().find("install"), std::string::npos) << status.message();
}

TEST(ReadOptions, TakesIntegersAlsoAsText) {
  const BackendOptions options = *read_options({{"num_devices", std::string("3")},
                                                {"memory_limit_bytes", int64_t{1000}},
                                                {"vulkan_device", int64_t{2}},
                                                {"vulkan_staging", true},
                                                {"vulkan_mask", std::string("f16,i64")},
                                                {"vulkan_device_type", std::string("discrete")},
                                                {"cache_dir", std::string()}});
  EXPECT_EQ(options.common.device_count, 3);
  EXPECT_EQ(options.device.memory_limit_bytes, 1000);
  EXPECT_EQ(options.wanted_device, "2");
  EXPECT_FALSE(options.device.use_host_visible_memory);
  EXPECT_EQ(options.device.masked_features, (std::vector<std::string>{"f16", "i64"}));
  EXPECT_EQ(options.cache_folder, "");
}

TEST(ReadOptions, RefusesWhatItDoesNotKnow) {
  const auto code = [](const char* name, pjrt::OptionValue value) {
    return read_options({{name, std::move(value)}}).status().code();
  };
  EXPECT_EQ(code("colour", int64_t{1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("num_devices", int64_t{0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("num_devices", std::string("many")), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("memory_limit_bytes", int64_t{-1}), StatusCode::kInvalidArgument);
  // In nanoseconds it would be more than 64 bits hold, and every launch late.
  EXPECT_EQ(code("vulkan_launch_timeout", int64_t{10'000'000'000}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("vulkan_device_type", std::string("huge")), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("vulkan_mask", 1.5F), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::vulkan
