// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace hekla::cpu {
namespace {

TEST(BlockPool, SizesAreRoundedUpByAQuarterAtMost) {
  for (int64_t bytes = 0; bytes < 5'000'000; bytes += 1 + bytes / 7) {
    const int64_t size = BlockPool::rounded_size(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_EQ(size % 64, 0) << bytes;
    EXPECT_LE(size, std::max<int64_t>(256, bytes + bytes / 4 + 4096)) << bytes;
    EXPECT_EQ(BlockPool::rounded_size(size), size);
  }
}

TEST(BlockPool, FreedBlocksAreHandedOutAgain) {
  BlockPool pool(int64_t{64} << 20);
  std::byte* first = nullptr;
  {
    Result<Block> block = pool.allocate(3'000'000);
    ASSERT_TRUE(block.ok());
    first = block->data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    std::memset(first, 1, 3'000'000);
  }
  EXPECT_GE(pool.kept_bytes(), 3'000'000);
  const Result<Block> again = pool.allocate(2'990'000);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->data(), first);
  EXPECT_EQ(pool.kept_bytes(), 0);
}

TEST(BlockPool, KeepsNoMoreThanItsBound) {
  BlockPool pool(10'000);
  std::vector<Block> blocks;
  for (int i = 0; i < 20; ++i) {
    Result<Block> block = pool.allocate(1000);
    ASSERT_TRUE(block.ok());
    blocks.push_back(*std::move(block));
  }
  blocks.clear();
  EXPECT_LE(pool.kept_bytes(), 10'000);
  EXPECT_GT(pool.kept_bytes(), 8'000);
}

TEST(BlockPool, SaysWhenThereIsNoMemory) {
  BlockPool pool(0);
  const Result<Block> block = pool.allocate(int64_t{1} << 58);
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.status().code(), StatusCode::kResourceExhausted);
}

TEST(BlockPool, ServesManyThreads) {
  BlockPool pool(int64_t{1} << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 500; ++i) {
        const Result<Block> block = pool.allocate(100 + (i % 7) * 1000);
        ASSERT_TRUE(block.ok());
        std::memset(block->data(), t, 100);
        for (int k = 0; k < 100; ++k) ASSERT_EQ(block->data()[k], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hekla::cpu
