// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/brief_wait.h"

#include <gtest/gtest.h>

namespace hekla {
namespace {

constexpr std::chrono::nanoseconds kNone{0};
constexpr auto kLong = std::chrono::hours(1);

TEST(BriefWait, WhatIsThereIsNotWaitedFor) {
  BriefWait brief;
  int asked = 0;
  EXPECT_TRUE(brief.wait(kNone, [&] { return ++asked > 0; }));
  EXPECT_EQ(asked, 1);
}

TEST(BriefWait, WaitsUntilItIsThere) {
  BriefWait brief;
  int asked = 0;
  EXPECT_TRUE(brief.wait(kLong, [&] { return ++asked == 1000; }));
}

TEST(BriefWait, IsTriedLessOftenTheLessComes) {
  BriefWait brief;
  constexpr int kWaits = 10'000;
  int tried = 0;
  for (int i = 0; i < kWaits; ++i) {
    int asked = 0;
    EXPECT_FALSE(brief.wait(kNone, [&] { return ++asked == 0; }));
    tried += asked > 1 ? 1 : 0;
  }
  EXPECT_LT(tried, 8 + kWaits / static_cast<int>(BriefWait::kMaxSkipped) + 2);
  EXPECT_GT(tried, kWaits / static_cast<int>(BriefWait::kMaxSkipped) - 2);
  // Once it comes again it is tried each time.
  const auto comes = [&] {
    int asked = 0;
    return brief.wait(kLong, [&] { return ++asked == 2; });
  };
  for (uint32_t i = 0; i <= BriefWait::kMaxSkipped && !comes(); ++i) {
  }
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(comes());
}

}  // namespace
}  // namespace hekla
