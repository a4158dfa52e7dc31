// SPDX-License-Identifier: Apache-2.0
// Several physical devices in one client. Where there is one alone it is opened twice, which is two
// for Vulkan.
#include <gtest/gtest.h>

#include <random>

#include "backends/vulkan/plugin/backend.h"
#include "backends/vulkan/plugin/choose_devices.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::vulkan {
namespace {

DeviceSnapshot snapshot(const std::string& name, DeviceType type) {
  DeviceSnapshot made;
  made.name = name;
  made.type = type;
  return made;
}

std::string chosen(const std::vector<DeviceSnapshot>& devices, std::string_view wanted) {
  const auto indices = choose_devices(devices, wanted);
  if (!indices.ok()) return std::string(status_code_name(indices.status().code()));
  std::string text;
  for (const size_t index : *indices) text += std::to_string(index);
  return text;
}

TEST(ChooseDevices, OneOrAListOfThem) {
  const std::vector<DeviceSnapshot> devices = {
      snapshot("llvmpipe (LLVM 15, 256 bits)", DeviceType::kCpu),
      snapshot("Big GPU", DeviceType::kDiscrete), snapshot("Big GPU", DeviceType::kDiscrete)};
  EXPECT_EQ(chosen(devices, "1"), "1");
  EXPECT_EQ(chosen(devices, "1,2"), "12");
  EXPECT_EQ(chosen(devices, " 2, 0,2"), "202");
  EXPECT_EQ(chosen(devices, "big"), "1");
  EXPECT_EQ(chosen(devices, "llvmpipe,big"), "01");
  // A name that means several means each of them once, then the first again.
  EXPECT_EQ(chosen(devices, "big,big"), "12");
  EXPECT_EQ(chosen(devices, "big,llvmpipe,big,big"), "1021");
  // Names have commas, too.
  EXPECT_EQ(chosen(devices, "LLVM 15, 256"), "0");
  EXPECT_FALSE(choose_devices(devices, "1,3").ok());
  EXPECT_FALSE(choose_devices(devices, "1,small").ok());
  EXPECT_FALSE(choose_devices({devices[1]}, ",").ok());
  // None of these can be used, for want of all that a device must have.
  EXPECT_EQ(choose_devices(devices, "all").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(choose_devices({}, "all").status().code(), StatusCode::kFailedPrecondition);
}

Status finish(const std::function<void(CompletionRef)>& start) {
  CompletionRef done = Completion::make();
  start(done);
  return done->await();
}

class SeveralDevices : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto made = create_backend({{"vulkan_device", std::string("0,0")},
                                {"num_devices", int64_t{2}},
                                {"vulkan_staging", GetParam()},
                                {"cache_dir", std::string()}});
    if (!made.ok() && (made.status().code() == StatusCode::kUnavailable ||
                       made.status().code() == StatusCode::kFailedPrecondition)) {
      GTEST_SKIP() << made.status().to_string();
    }
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    backend_ = *std::move(made);
  }
  std::unique_ptr<pjrt::Backend> backend_;
};

TEST_P(SeveralDevices, CopyToEachOther) {
  if (backend_ == nullptr) return;
  ASSERT_EQ(backend_->devices().size(), 4U);
  for (const int64_t bytes : {int64_t{1}, int64_t{4097}, int64_t{9'000'001}}) {
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    std::mt19937 random(1);
    for (std::byte& b : data) b = static_cast<std::byte>(random());
    pjrt::StorageRef at = *backend_->allocate(0, 0, bytes);
    ASSERT_TRUE(
        finish([&](auto done) { backend_->copy_from_host(data.data(), at, 0, bytes, done); }).ok());
    // Within one physical device, to the other one, there, and back; to the host's kinds, too.
    for (const auto& [device, kind] : {std::pair(1, 0), std::pair(2, 0), std::pair(3, 1),
                                       std::pair(0, 1), std::pair(2, 2), std::pair(0, 0)}) {
      pjrt::StorageRef next = *backend_->allocate(device, static_cast<size_t>(kind), bytes);
      const Status status = finish([&](auto done) { backend_->copy(at, next, bytes, done); });
      ASSERT_TRUE(status.ok()) << status.to_string();
      at = std::move(next);
    }
    std::vector<std::byte> back(data.size());
    ASSERT_TRUE(
        finish([&](auto done) { backend_->copy_to_host(at, 0, back.data(), bytes, done); }).ok());
    EXPECT_EQ(back, data);
  }
}

TEST_P(SeveralDevices, OneThatIsNamedTwiceSharesItsMemory) {
  if (backend_ == nullptr) return;
  auto alone = create_backend({{"vulkan_device", std::string("0")},
                               {"num_devices", int64_t{2}},
                               {"cache_dir", std::string()}});
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  // Budgets move a little with what others take.
  const auto whole = static_cast<double>((*alone)->memory_stats(0).bytes_limit);
  for (int device = 0; device < 4; ++device) {
    const auto part = static_cast<double>(backend_->memory_stats(device).bytes_limit);
    EXPECT_NEAR(part / whole, 0.5, 0.1);
  }
}

TEST_P(SeveralDevices, ACopyEndsWhoeverLetsGoMeanwhile) {
  if (backend_ == nullptr) return;
  constexpr int64_t kBytes = 60'000'000;
  std::vector<std::byte> data(static_cast<size_t>(kBytes), std::byte{7});
  pjrt::StorageRef source = *backend_->allocate(2, 0, kBytes);
  pjrt::StorageRef target = *backend_->allocate(0, 0, kBytes);
  ASSERT_TRUE(finish([&](auto done) {
                backend_->copy_from_host(data.data(), source, 0, kBytes, done);
              }).ok());
  const CompletionRef done = Completion::make();
  backend_->copy(source, target, kBytes, done);
  source.reset();
  target.reset();
  backend_.reset();
  EXPECT_TRUE(done->await().ok());
}

TEST_P(SeveralDevices, RunWhatIsCompiledOnce) {
  if (backend_ == nullptr) return;
  pjrt::CompileRequest request;
  auto module = stablehlo::read_program(
      "func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> {\n"
      "  %r = stablehlo.add %a, %a : tensor<3xf32>\n  return %r : tensor<3xf32>\n}");
  ASSERT_TRUE(module.ok()) << module.status().to_string();
  request.module = *std::move(module);
  auto executable = backend_->compile(request);
  ASSERT_TRUE(executable.ok()) << executable.status().to_string();
  for (int device = 0; device < 4; ++device) {
    const float data[] = {1, 2, static_cast<float>(device)};
    pjrt::Launch launch;
    launch.device = device;
    launch.done = Completion::make();
    pjrt::StorageRef input = *backend_->allocate(device, 0, sizeof(data));
    ASSERT_TRUE(finish([&](auto done) {
                  backend_->copy_from_host(data, input, 0, sizeof(data), done);
                }).ok());
    launch.inputs.push_back({input, Completion::ready(), false});
    const CompletionRef done = launch.done;
    ASSERT_TRUE((*executable)->launch({&launch, 1}).ok());
    ASSERT_TRUE(done->await().ok());
    float back[3];
    ASSERT_TRUE(finish([&](auto read) {
                  backend_->copy_to_host(launch.outputs[0], 0, back, sizeof(back), read);
                }).ok());
    EXPECT_EQ(back[2], 2 * data[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Staging, SeveralDevices, ::testing::Bool());

}  // namespace
}  // namespace hekla::vulkan
