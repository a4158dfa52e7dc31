// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/memory/device_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "backends/vulkan/device/testing/fault_injection.h"
#include "backends/vulkan/device/testing/test_device.h"

namespace hekla::vulkan {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(DeviceMemory, CutsBlocksAndGivesLargeRequestsTheirOwn) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const auto memory = DeviceMemory::create(device, 1024 * kMiB);
  AllocationRef a = *memory->allocate(1000);
  AllocationRef b = *memory->allocate(0);
  AllocationRef c = *memory->allocate(5);
  EXPECT_EQ(a->buffer(), b->buffer());
  EXPECT_EQ(b->offset() - a->offset(), 1024);
  EXPECT_NE(b->address(), c->address());
  EXPECT_NE(a->address(), 0u);
  EXPECT_EQ(a->address() % 256, 0u);
  AllocationRef large = *memory->allocate(300 * kMiB);
  EXPECT_NE(large->buffer(), a->buffer());
  EXPECT_EQ(memory->statistics().block_count, 2);
  EXPECT_EQ(memory->statistics().bytes_in_use, 1005 + 300 * kMiB);
  const VkBuffer medium = (*memory->allocate(100 * kMiB))->buffer();
  EXPECT_EQ((*memory->allocate(90 * kMiB))->buffer(), medium);  // the block stayed
  EXPECT_EQ(memory->statistics().block_count, 3);
  large.reset();  // larger than what stays
  EXPECT_EQ(memory->statistics().block_count, 2);
  EXPECT_EQ(memory->statistics().bytes_in_use, 1005);
  EXPECT_EQ(memory->statistics().peak_bytes_in_use, 1005 + 400 * kMiB);
  memory->reset_peak();
  EXPECT_EQ(memory->statistics().peak_bytes_in_use, 1005);
  EXPECT_EQ(memory->statistics().largest_allocation_bytes, 300 * kMiB);
  a.reset();
  b.reset();
  c.reset();
  EXPECT_EQ(memory->statistics().block_count, 2);  // kept for the next requests
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(DeviceMemory, SaysTheNumbersWhenTheLimitIsReached) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const auto memory = DeviceMemory::create(device, 10'000);
  AllocationRef a = *memory->allocate(6000);
  int calls = 0;
  memory->set_pressure_handler([&] {
    ++calls;
    return true;
  });
  const Status status = memory->allocate(5000).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"5000", "6000", "10000", "memory_limit_bytes"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << part;
  }
  EXPECT_GT(calls, 1);
  // Work in flight that ends gives its memory to the request, though what ends first holds none.
  calls = 0;
  memory->set_pressure_handler([&] {
    if (++calls == 3) a.reset();
    return true;
  });
  EXPECT_TRUE(memory->allocate(5000).ok());
  EXPECT_EQ(calls, 3);
  // Until there is none.
  AllocationRef b = *memory->allocate(6000);
  calls = 0;
  memory->set_pressure_handler([&] { return ++calls < 5; });
  EXPECT_EQ(memory->allocate(5000).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(memory->allocate(-1).status().code(), StatusCode::kInvalidArgument);
}

TEST(DeviceMemory, TriesMoreThanTheDriverPromises) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  testing::promise_allocations(*device, 64 * kMiB);
  const auto memory = DeviceMemory::create(device, 1024 * kMiB);
  // Small ones share blocks that are promised.
  const AllocationRef small = *memory->allocate(kMiB);
  EXPECT_EQ(memory->statistics().block_bytes, 64 * kMiB);
  const Result<AllocationRef> large = memory->allocate(200 * kMiB);
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_EQ((*large)->bytes(), 200 * kMiB);
  testing::refuse_allocations(*device, 64 * kMiB);
  const std::string message = memory->allocate(201 * kMiB).status().message();
  EXPECT_NE(message.find("the driver promises 67108864 bytes in one piece and did not allocate "
                         "210763776"),
            std::string::npos)
      << message;
  // Nothing is asked of the driver that it cannot have.
  const uint64_t heap = device->snapshot().heaps[device->plan().device_heap].size_bytes;
  const auto unlimited = DeviceMemory::create(device, int64_t{1} << 60);
  const int64_t most = std::max(static_cast<int64_t>(heap), device->plan().max_buffer_bytes);
  const Status refused = unlimited->allocate(most + 1).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("bytes are more than the driver's"), std::string::npos)
      << refused.message();
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(DeviceMemory, SurvivesEveryFailureOfTheDriver) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  testing::Faults& faults = testing::inject_faults(*device);
  const auto memory = DeviceMemory::create(device, 400 * kMiB);
  for (int call = 0;; ++call) {
    faults.arm(call, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    // The second try of the allocator may succeed.
    const Result<AllocationRef> result = memory->allocate(200 * kMiB);
    const bool has_struck = faults.has_struck;
    faults.disarm();
    if (!has_struck) break;
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
    }
    ASSERT_LT(call, 50);
  }
  EXPECT_EQ(memory->statistics().bytes_in_use, 0);
  EXPECT_TRUE(memory->allocate(200 * kMiB).ok());
  faults.arm(0, VK_ERROR_DEVICE_LOST);
  EXPECT_EQ(memory->allocate(200 * kMiB).status().code(), StatusCode::kUnavailable);
  faults.disarm();
  EXPECT_EQ(memory->allocate(1).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(DeviceMemory, IsSharedByThreads) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  const auto memory = DeviceMemory::create(device, 512 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      std::vector<AllocationRef> mine;
      for (int i = 0; i < 300; ++i) {
        const int64_t bytes = 1 + (i * 7919 + t) % 100'000;
        mine.push_back(*memory->allocate(bytes));
        if (mine.back()->host() != nullptr) {
          std::memset(mine.back()->host(), t + 1, static_cast<size_t>(bytes));
        }
        if (i % 3 == 2) mine.erase(mine.begin());
      }
      for (const AllocationRef& allocation : mine) {
        if (allocation->host() == nullptr) continue;
        for (int64_t i = 0; i < allocation->bytes(); ++i) {
          ASSERT_EQ(allocation->host()[i], std::byte(t + 1));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->statistics().bytes_in_use, 0);
}

TEST(DeviceMemory, StagingIsVisibleToTheHost) {
  DeviceOptions options;
  options.use_host_visible_memory = false;
  HEKLA_VULKAN_TEST_DEVICE(device, options);
  const auto memory = DeviceMemory::create(device);
  EXPECT_EQ((*memory->allocate(100))->host(), nullptr);
  for (MemoryRole role : {MemoryRole::kUpload, MemoryRole::kDownload, MemoryRole::kTable}) {
    EXPECT_NE((*memory->allocate(100, role))->host(), nullptr);
  }
  EXPECT_EQ(memory->statistics().bytes_in_use, 0);
}

TEST(DeviceMemory, ArraysInHostMemoryAreCountedApart) {
  for (const bool shares_memory : {true, false}) {
    DeviceOptions options;
    options.use_host_visible_memory = shares_memory;
    HEKLA_VULKAN_TEST_DEVICE(device, options);
    const auto memory = DeviceMemory::create(device, 10'000);
    AllocationRef host = *memory->allocate(50'000, MemoryRole::kHostTensor);  // above the limit
    EXPECT_EQ(host->role(), MemoryRole::kHostTensor);
    ASSERT_NE(host->host(), nullptr);
    EXPECT_NE(host->address(), 0U);
    EXPECT_EQ(memory->statistics().bytes_in_use, 0);
    EXPECT_EQ(memory->statistics().host_bytes_in_use, 50'000);
    host.reset();
    EXPECT_EQ(memory->statistics().host_bytes_in_use, 0);
    EXPECT_EQ(memory->statistics().peak_host_bytes_in_use, 50'000);
    memory->reset_peak();
    EXPECT_EQ(memory->statistics().peak_host_bytes_in_use, 0);
  }
}

TEST(DeviceMemory, ImportsHostMemoryInPlace) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  if (!device->plan().features.host_memory_import) GTEST_SKIP() << "no VK_EXT_external_memory_host";
  const auto memory = DeviceMemory::create(device, kMiB);
  alignas(64) static std::byte bytes[100'000];
  int released = 0;
  const auto import = [&](int64_t from, int64_t size) {
    return memory->import_host(bytes + from, size, [&released] { ++released; });
  };
  AllocationRef a = *import(16, 50'000);
  EXPECT_EQ(a->host(), bytes + 16);
  EXPECT_EQ(a->bytes(), 50'000);
  EXPECT_EQ(a->address() % 16, 0u);
  AllocationRef b = *import(48, 90'000);  // the same pages again
  EXPECT_NE(a->buffer(), b->buffer());
  AllocationRef nothing = *memory->import_host(nullptr, 0, [&released] { ++released; });
  EXPECT_EQ(memory->statistics().bytes_in_use, 0);  // it is not the device's
  EXPECT_EQ(import(8, 100).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(import(0, -1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(released, 0);
  a.reset();
  b.reset();
  EXPECT_EQ(released, 2);
  nothing.reset();
  EXPECT_EQ(released, 3);

  testing::Faults& faults = testing::inject_faults(*device);
  bool has_struck = true;
  for (int call = 0; has_struck; ++call) {
    ASSERT_LT(call, 20);
    faults.arm(call, VK_ERROR_OUT_OF_HOST_MEMORY);
    const StatusCode code = import(0, 5000).status().code();
    has_struck = faults.has_struck;
    faults.disarm();
    EXPECT_EQ(code, has_struck ? StatusCode::kResourceExhausted : StatusCode::kOk);
  }
  EXPECT_EQ(released, 4);  // of the one that came to be
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(DeviceMemory, SaysThatADeviceImportsNothing) {
  DeviceOptions options;
  options.masked_features = {"host_memory_import"};
  HEKLA_VULKAN_TEST_DEVICE(device, options);
  alignas(64) std::byte bytes[64];
  const Status status = DeviceMemory::create(device)->import_host(bytes, 64, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("VK_EXT_external_memory_host"), std::string::npos);
}

TEST(DeviceMemory, SharesMemoryBetweenDevicesOfOneDriver) {
  HEKLA_VULKAN_TEST_DEVICE(device, DeviceOptions{});
  HEKLA_VULKAN_TEST_DEVICE(other, DeviceOptions{});
  if (!device->plan().features.opaque_fd_memory) GTEST_SKIP() << "no VK_KHR_external_memory_fd";
  const auto memory = DeviceMemory::create(device, kMiB), there = DeviceMemory::create(other, kMiB);
  constexpr auto kHandle = SharedHandle::kOpaqueFd;
  AllocationRef exported = *memory->allocate_shared(100'000, kHandle);
  EXPECT_EQ(exported->bytes(), 100'000);
  AllocationRef imported = *there->import_shared(*exported, kHandle);
  EXPECT_EQ(imported->bytes(), 100'000);
  EXPECT_NE(imported->address(), 0u);
  EXPECT_EQ(memory->statistics().bytes_in_use + there->statistics().bytes_in_use, 0);
  exported.reset();  // the other device's stays
  EXPECT_NE(imported->buffer(), VK_NULL_HANDLE);
  imported.reset();
  EXPECT_EQ(memory->allocate_shared(0, kHandle).status().code(), StatusCode::kInvalidArgument);

  // Each call that fails, of the exporting device; it may be asked for the file alone.
  testing::Faults& faults = testing::inject_faults(*device);
  exported = *memory->allocate_shared(5000, kHandle);
  bool has_struck = true;
  for (int call = 0; has_struck; ++call) {
    ASSERT_LT(call, 20);
    faults.arm(call, VK_ERROR_OUT_OF_HOST_MEMORY);
    const Result<AllocationRef> made = memory->allocate_shared(5000, kHandle);
    const StatusCode code =
        made.ok() ? there->import_shared(**made, kHandle).status().code() : made.status().code();
    has_struck = faults.has_struck;
    faults.disarm();
    EXPECT_EQ(code, has_struck ? StatusCode::kResourceExhausted : StatusCode::kOk) << call;
  }
  EXPECT_TRUE(testing::no_validation_messages());
}

TEST(DeviceMemory, SaysThatADeviceSharesNothing) {
  DeviceOptions options;
  options.masked_features = {"opaque_fd_memory", "dma_buf_memory"};
  HEKLA_VULKAN_TEST_DEVICE(device, options);
  const auto memory = DeviceMemory::create(device);
  const AllocationRef own = *memory->allocate(64);
  for (const auto& [handle, name] :
       {std::pair{SharedHandle::kOpaqueFd, "VK_KHR_external_memory_fd"},
        std::pair{SharedHandle::kDmaBuf, "VK_EXT_external_memory_dma_buf"}}) {
    for (const Status& status : {memory->allocate_shared(64, handle).status(),
                                 memory->import_shared(*own, handle).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
      EXPECT_NE(status.message().find(name), std::string::npos) << status.to_string();
    }
  }
}

}  // namespace
}  // namespace hekla::vulkan
