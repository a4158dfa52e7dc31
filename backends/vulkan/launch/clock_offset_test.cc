// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/clock_offset.h"

#include <gtest/gtest.h>

namespace hekla::vulkan {
namespace {

TEST(ClockOffset, TheSmallestDelayCounts) {
  ClockOffset clock;
  EXPECT_EQ(clock.seen(1'000'500, 1'000), 999'500);
  EXPECT_EQ(clock.seen(1'002'010, 3'000), 999'010);
  EXPECT_EQ(clock.seen(1'005'800, 5'000), 999'010);  // seen late
}

TEST(ClockOffset, WorkInOrderIsShownInOrder) {
  ClockOffset clock;
  EXPECT_EQ(clock.seen_in_order(1'000'500, 500, 1'000), 999'500);
  // Seen at once, so that the one before it was placed too late: to 1'000'500.
  EXPECT_EQ(clock.seen_in_order(1'001'010, 1'100, 2'000), 999'400);
  EXPECT_EQ(clock.seen_in_order(1'009'010, 9'000, 10'000), 999'010);
}

TEST(ClockOffset, AClockMayBeginAnew) {
  ClockOffset clock;
  EXPECT_EQ(clock.seen(9'000'000'000, 8'000'000'000), 1'000'000'000);
  EXPECT_EQ(clock.seen(9'500'000'000, 1'000), 9'499'999'000);
}

}  // namespace
}  // namespace hekla::vulkan
