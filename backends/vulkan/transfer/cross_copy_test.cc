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

struct Case {
  // The host has full access to the memory.
  bool source_access = false;
  bool target_access = false;
  CrossWay way = CrossWay::kStaged;  // the best one that is left; without access it is taken
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << (c.source_access ? "access" : "none") << " to "
             << (c.target_access ? "access" : "none") << " through " << cross_way_name(c.way);
}

class CrossCopyTest : public ::testing::TestWithParam<Case> {
 protected:
  void open() {
    DeviceOptions options;
    const CrossWay way = GetParam().way;
    if (way != CrossWay::kDeviceMemory) {
      options.masked_features = {"opaque_fd_memory", "dma_buf_memory"};
    }
    if (way == CrossWay::kStaged) options.masked_features.emplace_back("host_memory_import");
    options.use_host_visible_memory = GetParam().source_access;
    HEKLA_VULKAN_TEST_DEVICE(source, options);
    options.use_host_visible_memory = GetParam().target_access;
    HEKLA_VULKAN_TEST_DEVICE(target, options);
    if (cross_ways(*source, *target).front() != way) {
      GTEST_SKIP() << source->snapshot().name << " offers nothing for " << cross_way_name(way);
    }
    from_.open(source);
    to_.open(target);
  }
  void close_sides() {
    for (Side* side : {&from_, &to_}) {
      side->transfers.reset();
      side->transfer.reset();
      side->compute.reset();
    }
  }
  void TearDown() override { EXPECT_TRUE(testing::no_validation_messages()); }

  Side from_, to_;
};

// Whoever opened it outlives it.
std::shared_ptr<CrossLink> link_of(Side& from, Side& to, int64_t piece_bytes,
                                   int64_t shared_from_bytes = 0) {
  const auto borrowed = [](Side& side) {
    return std::shared_ptr<Transfers>(std::shared_ptr<void>(), side.transfers.get());
  };
  return CrossLink::create(borrowed(from), borrowed(to), {piece_bytes, shared_from_bytes});
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
      // All by the way, or by staging alone, or those from the middle size on.
      for (int64_t shared_from : {int64_t{0}, int64_t{1} << 40, int64_t{3000}}) {
        const auto link = link_of(from_, to_, piece, shared_from);
        const Status status = wait_for([&](auto done) { link->copy(source, target, bytes, done); });
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(link->way(), GetParam().way);  // no driver refused
      }
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
    close_sides();
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
  const bool is_staged =
      !GetParam().source_access && !GetParam().target_access && GetParam().way == CrossWay::kStaged;
  EXPECT_EQ(most > 0, is_staged);
  for (size_t i = 0; i < kCopies; ++i) {
    std::vector<std::byte> back(data[i].size());
    ASSERT_TRUE(wait_for([&](auto done) {
                  to_.transfers->download(targets[i], 0, back.data(), kBytes, done);
                }).ok());
    EXPECT_EQ(back, data[i]) << i;
  }
}

// Errors of the driver, one call at a time: another way, or an error that says so.
TEST_P(CrossCopyTest, EveryFailingCallIsSurvived) {
  for (const bool is_source : {true, false}) {
    open();
    if (!to_.transfers) return;
    constexpr int64_t kBytes = 9000;
    const std::vector<std::byte> data = random_bytes(kBytes, 5);
    AllocationRef source = *from_.memory->allocate(kBytes);
    AllocationRef target = *to_.memory->allocate(kBytes);
    ASSERT_TRUE(wait_for([&](auto done) {
                  from_.transfers->upload(data.data(), source, 0, kBytes, done);
                }).ok());
    testing::Faults& faults = testing::inject_faults(is_source ? *from_.device : *to_.device);
    bool has_struck = true;
    int survived = 0;
    for (int call = 0; has_struck; ++call) {
      ASSERT_LT(call, 200);
      faults.arm(call, VK_ERROR_INITIALIZATION_FAILED);
      const Status status = wait_for(
          [&](auto done) { link_of(from_, to_, 4000)->copy(source, target, kBytes, done); });
      has_struck = faults.has_struck;
      faults.disarm();
      EXPECT_EQ(source->unordered_readers, 0);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kInternal) << status.to_string();
        continue;
      }
      survived += has_struck ? 1 : 0;
      std::vector<std::byte> back(data.size());
      ASSERT_TRUE(wait_for([&](auto done) {
                    to_.transfers->download(target, 0, back.data(), kBytes, done);
                  }).ok());
      EXPECT_EQ(back, data) << call;
    }
    const bool is_shared = !GetParam().source_access && !GetParam().target_access &&
                           GetParam().way != CrossWay::kStaged;
    if (is_shared) {
      EXPECT_GT(survived, 0);
    }
    source.reset();
    target.reset();
    close_sides();
  }
}

INSTANTIATE_TEST_SUITE_P(Access, CrossCopyTest,
                         ::testing::Values(Case{true, true}, Case{true, false}, Case{false, true},
                                           Case{}, Case{.way = CrossWay::kHostMemory},
                                           Case{.way = CrossWay::kDeviceMemory}));

void expect_arrival(Side& from, Side& to, CrossLink& link, int64_t bytes) {
  const std::vector<std::byte> data = random_bytes(bytes, 7);
  AllocationRef sent = *from.memory->allocate(bytes), got = *to.memory->allocate(bytes);
  ASSERT_TRUE(
      wait_for([&](auto done) { from.transfers->upload(data.data(), sent, 0, bytes, done); }).ok());
  ASSERT_TRUE(wait_for([&](auto done) { link.copy(sent, got, bytes, done); }).ok());
  std::vector<std::byte> back(data.size());
  ASSERT_TRUE(
      wait_for([&](auto done) { to.transfers->download(got, 0, back.data(), bytes, done); }).ok());
  EXPECT_EQ(back, data);
}

// A driver that takes the memory and loses what is written to it.
TEST(CrossCopyTrial, APatternThatDoesNotArriveTurnsToTheNextWay) {
  DeviceOptions options;
  options.use_host_visible_memory = false;
  HEKLA_VULKAN_TEST_DEVICE(source, options);
  HEKLA_VULKAN_TEST_DEVICE(target, options);
  const std::vector<CrossWay> ways = cross_ways(*source, *target);
  static PFN_vkCmdCopyBuffer driver;
  static std::atomic<int> lost;
  lost = 0;
  driver = source->call().CmdCopyBuffer;
  // Of the source: up into its memory, then into the piece.
  source->mutable_functions().CmdCopyBuffer = [](VkCommandBuffer commands, VkBuffer from,
                                                 VkBuffer to, uint32_t count,
                                                 const VkBufferCopy* regions) {
    const bool is_trial = regions->size == static_cast<VkDeviceSize>(kCrossTrialBytes);
    if (is_trial && ++lost % 2 == 0) return;
    driver(commands, from, to, count, regions);
  };
  Side from, to;
  from.open(source);
  from.transfers = std::make_unique<Transfers>(from.memory, *from.transfer, *from.compute);
  to.open(target);
  const auto link = link_of(from, to, 5000);
  EXPECT_EQ(link->way(), ways.front());
  expect_arrival(from, to, *link, 50'000);
  EXPECT_EQ(link->way(), CrossWay::kStaged);
  EXPECT_EQ(lost > 0, ways.size() > 1);
  EXPECT_TRUE(testing::no_validation_messages());
}

// Software drivers name dma-bufs and export none for buffers.
TEST(CrossCopyTrial, ADriverThatRefusesDmaBufsTurnsToTheNextWay) {
  DeviceOptions options;
  options.use_host_visible_memory = false;
  options.masked_features = {"opaque_fd_memory"};
  HEKLA_VULKAN_TEST_DEVICE(source, options);
  HEKLA_VULKAN_TEST_DEVICE(target, options);
  if (cross_ways(*source, *target).front() != CrossWay::kDeviceMemory) {
    GTEST_SKIP() << "no VK_EXT_external_memory_dma_buf";
  }
  Side from, to;
  from.open(source);
  to.open(target);
  expect_arrival(from, to, *link_of(from, to, 5000), 10'000);
  EXPECT_TRUE(testing::no_validation_messages());
}

}  // namespace
}  // namespace hekla::vulkan
