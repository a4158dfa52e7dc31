// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace hekla {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Staging, ArraysAreTheirOwn) {
  std::vector<HostArray> arrays;
  for (int64_t i = 0; i < 4; ++i) {
    arrays.push_back(*Staging::allocate(DType::kUI8, {kMiB + i}));
    std::memset(arrays.back().mutable_data(), static_cast<int>(i), static_cast<size_t>(kMiB + i));
  }
  for (int64_t i = 0; i < 4; ++i) {
    const std::span<const std::byte> bytes = arrays[static_cast<size_t>(i)].bytes();
    EXPECT_EQ(bytes.size(), static_cast<size_t>(kMiB + i));
    EXPECT_EQ(bytes.front(), static_cast<std::byte>(i));
    EXPECT_EQ(bytes.back(), static_cast<std::byte>(i));
  }
  HostArray other = arrays[1];
  EXPECT_FALSE(other.is_unique());
  *other.mutable_data() = std::byte{9};
  EXPECT_EQ(arrays[1].bytes().front(), std::byte{1});
}

TEST(Staging, SmallAndBadOnesAreAsAnyOther) {
  const int64_t before = Staging::idle_bytes();
  { EXPECT_EQ(Staging::allocate(DType::kF32, {3})->size_bytes(), 12); }
  EXPECT_EQ(Staging::allocate(DType::kF32, {0})->size_bytes(), 0);
  EXPECT_EQ(Staging::idle_bytes(), before);
  EXPECT_EQ(Staging::allocate(DType::kF32, {-1}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(Staging::allocate(DType::kF64, {int64_t{1} << 50}).status().code(),
            StatusCode::kResourceExhausted);
}

#ifndef HEKLA_SANITIZED
TEST(Staging, WhatIsGivenBackIsTakenAgainUpToALimit) {
  const std::byte* first = nullptr;
  {
    const HostArray array = *Staging::allocate(DType::kUI8, {40 * kMiB});
    first = array.data();
  }
  EXPECT_EQ(Staging::allocate(DType::kUI8, {40 * kMiB - 5})->data(), first);
  {
    std::vector<HostArray> many;
    for (int i = 0; i < 10; ++i) many.push_back(*Staging::allocate(DType::kUI8, {50 * kMiB}));
  }
  EXPECT_LE(Staging::idle_bytes(), Staging::kHeld);
  EXPECT_GE(Staging::idle_bytes(), Staging::kHeld - 60 * kMiB);
  { const HostArray large = *Staging::allocate(DType::kUI8, {Staging::kHeld + kMiB}); }
  EXPECT_LE(Staging::idle_bytes(), Staging::kHeld);
}
#endif

TEST(Staging, SeveralThreadsTakeAndGive) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        HostArray array = *Staging::allocate(DType::kUI8, {kMiB * (1 + (i + t) % 3)});
        std::memset(array.mutable_data(), t, kMiB);
        for (int64_t at = 0; at < kMiB; at += 4096) {
          ASSERT_EQ(array.as<uint8_t>()[at], t);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hekla
