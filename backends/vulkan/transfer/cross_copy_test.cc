// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/cross_copy.h"

#include <gtest/gtest.h>

#include <future>
#include <random>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"

namespace hekla::vulkan {
namespace {

std::vector<std::byte> random_bytes(int64_t size, unsigned seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  std::mt19937 random(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

Status wait_for(const std::function<void(Transfers::Done)>& start) {
  std::promise<Status> promise;
  start([&](const Status& status) { promise.set_value(status); });
  return promise.get_future().get();
}

// A physical device opened once more: to Vulkan another one.
struct Side {
  std::shared_ptr<Device> device;
  std::shared_ptr<DeviceMemory> memory;
  std::unique_ptr<Lane> compute, transfer;
  std::unique_ptr<Transfers> transfers;

  void open(std::shared_ptr<Device> opened) {
    device = std::move(opened);
    memory = DeviceMemory::create(device);
    compute = *Lane::create(device, device->compute_queue(), "compute");
    transfer = *Lane::create(device, device->transfer_queue(), "transfer");
    transfers = std::make_unique<Transfers>(memory, *transfer, *compute,
                                            TransferOptions{.chunk_bytes = 1000, .slots = 2});
  }
};

// Whether the host has full access to the source's memory, and to the target's.
class CrossCopyTest : public ::testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  void open() {
    DeviceOptions options;
    options.use_host_visible_memory = GetParam().first;
    HEKLA_VULKAN_TEST_DEVICE(source, options);
    options.use_host_visible_memory = GetParam().second;
    HEKLA_VULKAN_TEST_DEVICE(target, options);
    from_.open(source);
    to_.open(target);
  }
  void TearDown() override { EXPECT_TRUE(testing::no_validation_messages()); }

  Side from_, to_;
};

TEST_P(CrossCopyTest, AnySizeArrives) {
  open();
  if (!to_.transfers) return;
  for (int64_t bytes : {0, 1, 3, 999, 1000, 2999, 3000, 3001, 30'001}) {
    const std::vector<std::byte> data = random_bytes(bytes, 3);
    AllocationRef source = *from_.memory->allocate(bytes);
    AllocationRef target = *to_.memory->allocate(bytes);
    ASSERT_TRUE(wait_for([&](auto done) {
                  from_.transfers->upload(data.data(), source, 0, bytes, done);
                }).ok());
    for (int64_t piece : {int64_t{700}, int64_t{1000}, kCrossPieceBytes}) {
      const Status status = wait_for([&](auto done) {
        cross_copy(*from_.transfers, source, *to_.transfers, target, bytes, done, piece);
      });
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(source->unordered_readers, 0);
    EXPECT_EQ(source.use_count(), 1);
    EXPECT_EQ(target.use_count(), 1);
    std::vector<std::byte> back(data.size());
    ASSERT_TRUE(wait_for([&](auto done) {
                  to_.transfers->download(target, 0, back.data(), bytes, done);
                }).ok());
    EXPECT_EQ(back, data) << bytes;
  }
}

TEST_P(CrossCopyTest, ALossOfEitherSideIsItsError) {
  for (const bool is_source : {true, false}) {
    open();
    if (!to_.transfers) return;
    constexpr int64_t kBytes = 20'000;
    AllocationRef source = *from_.memory->allocate(kBytes);
    AllocationRef target = *to_.memory->allocate(kBytes);
    Side& lost = is_source ? from_ : to_;
    // Bytes of the host's are written where the device is not asked.
    const bool is_asked = !(is_source ? GetParam().first : GetParam().second);
    lost.device->lose("in a test");
    const Status status = wait_for([&](auto done) {
      cross_copy(*from_.transfers, source, *to_.transfers, target, kBytes, done, 700);
    });
    if (is_asked) {
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << is_source << status.to_string();
    }
    EXPECT_EQ(source->unordered_readers, 0);
    EXPECT_EQ(source.use_count(), 1);
    source.reset();
    target.reset();
    for (Side* side : {&from_, &to_}) {
      side->transfers.reset();
      side->transfer.reset();
      side->compute.reset();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Access, CrossCopyTest,
                         ::testing::Values(std::pair(true, true), std::pair(true, false),
                                           std::pair(false, true), std::pair(false, false)));

}  // namespace
}  // namespace hekla::vulkan
