// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/hazards.h"

#include <gtest/gtest.h>

#include <random>

namespace hekla::vulkan {
namespace {

using Steps = std::vector<std::vector<Access>>;

Access read(int64_t begin, int64_t end, int64_t region = 0) { return {region, begin, end, false}; }
Access write(int64_t begin, int64_t end, int64_t region = 0) { return {region, begin, end, true}; }

TEST(Hazards, ReadAfterWriteWriteAfterReadWriteAfterWrite) {
  EXPECT_EQ(place_barriers(Steps{{write(0, 8)}, {read(4, 6)}}), (std::vector<bool>{false, true}));
  EXPECT_EQ(place_barriers(Steps{{read(0, 8)}, {write(7, 9)}}), (std::vector<bool>{false, true}));
  EXPECT_EQ(place_barriers(Steps{{write(0, 8)}, {write(0, 1)}}), (std::vector<bool>{false, true}));
}

TEST(Hazards, ReadsNeighboursOtherRegionsAndEmptyRangesNeedNone) {
  const Steps steps = {{write(0, 8), read(8, 16)},
                       {read(8, 16)},
                       {write(16, 20)},
                       {write(0, 8, 1)},
                       {read(4, 4), write(9, 9)}};
  EXPECT_EQ(place_barriers(steps), std::vector<bool>(5, false));
}

TEST(Hazards, OneBarrierServesAllThatCameBefore) {
  const Steps steps = {{write(0, 4)}, {write(4, 8)}, {read(0, 4)}, {read(4, 8)}, {write(0, 4)}};
  EXPECT_EQ(place_barriers(steps), (std::vector<bool>{false, false, true, false, true}));
}

// What every byte says, by brute force: the last steps that wrote and read it, and whether a
// barrier came since.
bool is_safe(const Steps& steps, const std::vector<bool>& barriers) {
  constexpr int64_t kBytes = 64;
  constexpr int64_t kRegions = 3;
  std::vector<int> writer(kBytes * kRegions, -1);
  std::vector<int> reader(kBytes * kRegions, -1);
  int last_barrier = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (barriers[i]) last_barrier = static_cast<int>(i);
    for (const Access& a : steps[i]) {
      for (int64_t b = a.begin; b < a.end; ++b) {
        const size_t at = static_cast<size_t>(a.region * kBytes + b);
        if (writer[at] >= last_barrier || (a.is_write && reader[at] >= last_barrier)) return false;
      }
    }
    for (const Access& a : steps[i]) {
      for (int64_t b = a.begin; b < a.end; ++b) {
        const size_t at = static_cast<size_t>(a.region * kBytes + b);
        (a.is_write ? writer : reader)[at] = static_cast<int>(i);
      }
    }
  }
  return true;
}

TEST(Hazards, RandomStepsAreSafeAndEachBarrierIsNeeded) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 3000; ++round) {
    Steps steps(2 + random() % 12);
    for (std::vector<Access>& step : steps) {
      for (int64_t n = below(4); n >= 0; --n) {
        const int64_t begin = below(60);
        step.push_back({below(3), begin, std::min<int64_t>(64, begin + below(12)), below(3) == 0});
      }
    }
    const std::vector<bool> barriers = place_barriers(steps);
    ASSERT_TRUE(is_safe(steps, barriers));
    ASSERT_TRUE(check_barriers(steps, barriers).ok());
    for (size_t i = 0; i < barriers.size(); ++i) {
      if (!barriers[i]) continue;
      // Without this one, and those after it as they are, something conflicts.
      std::vector<bool> fewer = barriers;
      fewer[i] = false;
      ASSERT_FALSE(is_safe(steps, fewer));
      ASSERT_FALSE(check_barriers(steps, fewer).ok());
    }
    // The checker agrees with the bytes on any placement.
    std::vector<bool> any(steps.size());
    for (size_t i = 0; i < any.size(); ++i) any[i] = below(2) == 0;
    ASSERT_EQ(check_barriers(steps, any).ok(), is_safe(steps, any));
  }
}

TEST(Hazards, TheCheckerNamesTheSteps) {
  const Steps steps = {{write(0, 8)}, {read(20, 24)}, {read(4, 6)}};
  const Status status = check_barriers(steps, {false, true, false});
  EXPECT_TRUE(status.ok());
  const Status bad = check_barriers(steps, {false, false, false});
  EXPECT_EQ(bad.code(), StatusCode::kInternal);
  EXPECT_NE(bad.message().find("step 0"), std::string::npos);
  EXPECT_NE(bad.message().find("step 2"), std::string::npos);
}

// What comes behind a branch waits for whichever way led there; behind a barrier for none.
TEST(HazardTracker, RemembersAllWaysThatLeadTo) {
  const std::vector<Access> writes = {{0, 0, 4, true}}, reads = {{0, 0, 4, false}};
  HazardTracker taken;
  EXPECT_FALSE(taken.step(writes));
  HazardTracker not_taken;
  EXPECT_FALSE(not_taken.step(reads));
  HazardTracker behind;
  behind.join(taken);
  EXPECT_TRUE(behind.step(reads));
  taken.reset();
  EXPECT_FALSE(taken.step(reads));
}

}  // namespace
}  // namespace hekla::vulkan
