// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/memory/offset_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hekla::vulkan {
namespace {

TEST(OffsetAllocator, TakesTheSmallestRangeThatFits) {
  OffsetAllocator allocator(4096, 256);
  const int64_t a = *allocator.allocate(1024);
  const int64_t b = *allocator.allocate(256);
  const int64_t c = *allocator.allocate(512);
  const int64_t d = *allocator.allocate(256);
  EXPECT_EQ((std::vector<int64_t>{a, b, c, d}), (std::vector<int64_t>{0, 1024, 1280, 1792}));
  allocator.release(a);
  allocator.release(c);
  EXPECT_EQ(allocator.allocate(300), 1280);  // 512 free bytes, not the 1024 or the 2048
  EXPECT_EQ(allocator.allocate(0), 0);
}

TEST(OffsetAllocator, KnowsItsEdges) {
  OffsetAllocator allocator(1000, 256);
  EXPECT_EQ(allocator.capacity_bytes(), 768);
  EXPECT_EQ(allocator.allocate(769), std::nullopt);
  EXPECT_EQ(allocator.allocate(-1), std::nullopt);
  EXPECT_EQ(allocator.allocate(768), 0);
  EXPECT_EQ(allocator.allocate(0), std::nullopt);
  EXPECT_EQ(allocator.largest_free_bytes(), 0);
  allocator.release(0);
  EXPECT_EQ(allocator.largest_free_bytes(), 768);
  OffsetAllocator nothing(100, 256);
  EXPECT_EQ(nothing.allocate(1), std::nullopt);
}

// Against a map of units: ranges never overlap, a request fails only when no free run holds it, and
// all free runs are joined.
TEST(OffsetAllocator, AgreesWithAMapOfUnits) {
  constexpr int64_t kUnit = 256;
  constexpr int64_t kUnits = 300;
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    OffsetAllocator allocator(kUnits * kUnit, kUnit);
    std::vector<bool> taken(kUnits, false);
    std::vector<std::pair<int64_t, int64_t>> live;  // unit, units
    const auto largest_run = [&] {
      int64_t best = 0;
      int64_t run = 0;
      for (bool t : taken) {
        run = t ? 0 : run + 1;
        best = std::max(best, run);
      }
      return best;
    };
    for (int i = 0; i < 2000; ++i) {
      if (live.empty() || random() % 100 < 55) {
        const int64_t bytes = static_cast<int64_t>(random() % (random() % 4 == 0 ? 20000 : 2000));
        const int64_t units = std::max<int64_t>((bytes + kUnit - 1) / kUnit, 1);
        const std::optional<int64_t> offset = allocator.allocate(bytes);
        ASSERT_EQ(offset.has_value(), units <= largest_run());
        if (!offset) continue;
        ASSERT_EQ(*offset % kUnit, 0);
        for (int64_t u = *offset / kUnit; u < *offset / kUnit + units; ++u) {
          ASSERT_FALSE(taken.at(static_cast<size_t>(u)));
          taken[static_cast<size_t>(u)] = true;
        }
        live.emplace_back(*offset / kUnit, units);
      } else {
        const size_t victim = random() % live.size();
        allocator.release(live[victim].first * kUnit);
        for (int64_t u = 0; u < live[victim].second; ++u) {
          taken[static_cast<size_t>(live[victim].first + u)] = false;
        }
        live.erase(live.begin() + static_cast<int64_t>(victim));
      }
      ASSERT_EQ(allocator.largest_free_bytes(), largest_run() * kUnit);
      ASSERT_EQ(allocator.used_bytes(), kUnit * std::count(taken.begin(), taken.end(), true));
      ASSERT_EQ(allocator.allocation_count(), static_cast<int64_t>(live.size()));
    }
  }
}

}  // namespace
}  // namespace hekla::vulkan
