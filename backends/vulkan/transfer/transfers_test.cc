// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/transfers.h"

#include <gtest/gtest.h>

#include <future>
#include <random>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"

namespace hekla::vulkan {
namespace {

std::vector<std::byte> pattern(int64_t size, int seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  std::mt19937 random(static_cast<unsigned>(seed));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Runs a transfer and waits for it.
Status finish(const std::function<void(Transfers::Done)>& start) {
  std::promise<Status> promise;
  start([&](const Status& status) { promise.set_value(status); });
  return promise.get_future().get();
}

class TransfersTest : public ::testing::TestWithParam<bool> {
 protected:
  void open(TransferOptions options) {
    DeviceOptions device_options;
    device_options.use_host_visible_memory = GetParam();
    HEKLA_VULKAN_TEST_DEVICE(device, device_options);
    device_ = device;
    memory_ = DeviceMemory::create(device);
    compute_ = *Lane::create(device, device->compute_queue(), "compute");
    transfer_ = *Lane::create(device, device->transfer_queue(), "transfer");
    transfers_ = std::make_unique<Transfers>(memory_, *transfer_, *compute_, options);
  }
  void TearDown() override { EXPECT_TRUE(testing::no_validation_messages()); }

  std::shared_ptr<Device> device_;
  std::shared_ptr<DeviceMemory> memory_;
  std::unique_ptr<Lane> compute_;
  std::unique_ptr<Lane> transfer_;
  std::unique_ptr<Transfers> transfers_;
};

TEST_P(TransfersTest, AnyOffsetAndSizeArrives) {
  open({.chunk_bytes = 1000, .slots = 3});
  if (!transfers_) return;
  std::mt19937 random(5);
  for (int64_t bytes : {0, 1, 2, 3, 5, 999, 1000, 1001, 2000, 12'345}) {
    const int64_t offset = static_cast<int64_t>(random() % 77);
    AllocationRef a = *memory_->allocate(bytes + offset + 13);
    std::vector<std::byte> before = pattern(a->bytes(), 1);
    const std::vector<std::byte> data = pattern(bytes, 2);
    ASSERT_TRUE(
        finish([&](auto done) { transfers_->upload(before.data(), a, 0, a->bytes(), done); }).ok());
    ASSERT_TRUE(
        finish([&](auto done) { transfers_->upload(data.data(), a, offset, bytes, done); }).ok());
    AllocationRef b = *memory_->allocate(a->bytes());
    ASSERT_TRUE(finish([&](auto done) { transfers_->copy(a, b, a->bytes(), done); }).ok());
    std::vector<std::byte> back(before.size());
    ASSERT_TRUE(
        finish([&](auto done) { transfers_->download(b, 0, back.data(), b->bytes(), done); }).ok());
    std::copy(data.begin(), data.end(), before.begin() + offset);
    ASSERT_EQ(back, before) << bytes;
    std::vector<std::byte> part(data.size());
    ASSERT_TRUE(
        finish([&](auto done) { transfers_->download(b, offset, part.data(), bytes, done); }).ok());
    ASSERT_EQ(part, data);
  }
}

// Whoever hears of the end may count what is in use, or take the memory over.
TEST_P(TransfersTest, HoldMemoryUntilTheyReport) {
  open({.chunk_bytes = 1000, .slots = 3});
  if (!transfers_) return;
  const std::vector<std::byte> data = pattern(100'000, 2);
  std::vector<std::byte> back(data.size());
  const auto bytes = static_cast<int64_t>(data.size());
  AllocationRef a = *memory_->allocate(bytes);
  Allocation* raw = a.get();
  std::promise<void> uploaded, downloaded;
  transfers_->upload(data.data(), a, 0, bytes, [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    EXPECT_LE(a.use_count(), a->host() != nullptr ? 2 : 1);
    uploaded.set_value();
  });
  uploaded.get_future().wait();
  // A first download keeps the worker, so that the second is sure to wait.
  std::promise<void> go;
  const bool is_staged = a->host() == nullptr;
  if (is_staged) {
    transfers_->download(a, 0, back.data(), 4, [&](const Status&) { go.get_future().wait(); });
  }
  transfers_->download(a, 0, back.data(), bytes, [&](const Status& status) {
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(raw->unordered_readers, 0);
    downloaded.set_value();
  });
  EXPECT_EQ(raw->unordered_readers > 0, is_staged);
  go.set_value();
  downloaded.get_future().wait();
  EXPECT_EQ(back, data);
}

TEST_P(TransfersTest, ManyAtOnceFromSeveralThreads) {
  open({.chunk_bytes = 4096, .slots = 4});
  if (!transfers_) return;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        const std::vector<std::byte> data = pattern(20'000 + i * 371, t * 100 + i);
        AllocationRef a = *memory_->allocate(static_cast<int64_t>(data.size()));
        ASSERT_TRUE(finish([&](auto done) {
                      transfers_->upload(data.data(), a, 0, a->bytes(), done);
                    }).ok());
        std::vector<std::byte> back(data.size());
        ASSERT_TRUE(finish([&](auto done) {
                      transfers_->download(a, 0, back.data(), a->bytes(), done);
                    }).ok());
        ASSERT_EQ(back, data);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Two directions, four slots each, whatever the sizes were.
  EXPECT_LE(memory_->statistics().block_count, 3);
}

TEST_P(TransfersTest, ErrorsOfTheDriverEndTheTransfer) {
  open({.chunk_bytes = 1000, .slots = 2});
  if (!transfers_ || GetParam()) return;
  testing::Faults& faults = testing::inject_faults(*device_);
  const std::vector<std::byte> data = pattern(5000, 3);
  AllocationRef a = *memory_->allocate(5000);
  int failed = 0;
  for (int call = 0; call < 400; ++call) {
    faults.arm(call, VK_ERROR_OUT_OF_HOST_MEMORY);
    std::vector<std::byte> back(5000);
    const Status up = finish([&](auto done) { transfers_->upload(data.data(), a, 0, 5000, done); });
    const Status down =
        finish([&](auto done) { transfers_->download(a, 0, back.data(), 5000, done); });
    const bool has_struck = faults.has_struck;
    faults.disarm();
    if (!has_struck) break;
    for (const Status& status : {up, down}) {
      if (status.ok()) continue;
      ++failed;
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    }
    if (up.ok() && down.ok()) {
      EXPECT_EQ(back, data);
    }
    // The next one works.
    std::vector<std::byte> again(5000);
    ASSERT_TRUE(finish([&](auto done) { transfers_->upload(data.data(), a, 0, 5000, done); }).ok());
    ASSERT_TRUE(
        finish([&](auto done) { transfers_->download(a, 0, again.data(), 5000, done); }).ok());
    ASSERT_EQ(again, data) << faults.where;
  }
  EXPECT_GT(failed, 3);
  faults.arm(5, VK_ERROR_DEVICE_LOST);
  EXPECT_EQ(finish([&](auto done) { transfers_->upload(data.data(), a, 0, 5000, done); }).code(),
            StatusCode::kUnavailable);
  faults.disarm();
}

INSTANTIATE_TEST_SUITE_P(, TransfersTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ZeroCopy" : "Staged"; });

}  // namespace
}  // namespace hekla::vulkan
