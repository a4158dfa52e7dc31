// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/cross_copy.h"

#include <gtest/gtest.h>

#include <atomic>
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

// Whoever opened it outlives it.
std::shared_ptr<CrossLink> link_of(Side& from, Side& to, int64_t piece_bytes) {
  const auto borrowed = [](Side& side) {
    return std::shared_ptr<Transfers>(std::shared_ptr<void>(), side.transfers.get());
  };
  return CrossLink::create(borrowed(from), borrowed(to), piece_bytes);
}

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
      const Status status = wait_for(
          [&](auto done) { link_of(from_, to_, piece)->copy(source, target, bytes, done); });
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
    lost.device->lose("in a test");
    const Status status =
        wait_for([&](auto done) { link_of(from_, to_, 700)->copy(source, target, kBytes, done); });
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << is_source << status.to_string();
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

TEST_P(CrossCopyTest, ManyCopiesShareAFewBuffers) {
  open();
  if (!to_.transfers) return;
  constexpr int64_t kBytes = 5001, kPiece = 700;
  constexpr int kCopies = 40;
  const auto link = link_of(from_, to_, kPiece);
  std::vector<std::vector<std::byte>> data;
  std::vector<AllocationRef> sources, targets;
  for (unsigned i = 0; i < kCopies; ++i) {
    data.push_back(random_bytes(kBytes, i));
    sources.push_back(*from_.memory->allocate(kBytes));
    targets.push_back(*to_.memory->allocate(kBytes));
    ASSERT_TRUE(wait_for([&](auto done) {
                  from_.transfers->upload(data[i].data(), sources[i], 0, kBytes, done);
                }).ok());
  }
  std::vector<std::promise<Status>> ends(kCopies);
  std::atomic<int64_t> most{0};
  for (size_t i = 0; i < kCopies; ++i) {
    link->copy(sources[i], targets[i], kBytes, [&, i](const Status& status) {
      const int64_t now = link->host_bytes();
      for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      ends[i].set_value(status);
    });
  }
  for (auto& end : ends) EXPECT_TRUE(end.get_future().get().ok());
  EXPECT_LE(most, kCrossPieces * kPiece);
  const bool is_staged = !GetParam().first && !GetParam().second;
  EXPECT_EQ(most > 0, is_staged);
  for (size_t i = 0; i < kCopies; ++i) {
    std::vector<std::byte> back(data[i].size());
    ASSERT_TRUE(wait_for([&](auto done) {
                  to_.transfers->download(targets[i], 0, back.data(), kBytes, done);
                }).ok());
    EXPECT_EQ(back, data[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Access, CrossCopyTest,
                         ::testing::Values(std::pair(true, true), std::pair(true, false),
                                           std::pair(false, true), std::pair(false, false)));

}  // namespace
}  // namespace hekla::vulkan
