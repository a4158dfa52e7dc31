// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/implementations.h"

#include <gtest/gtest.h>

namespace hekla::kernel {
namespace {

TEST(Implementations, TheFirstThatSaysYesIsTaken) {
  Implementations ways;
  EXPECT_EQ(ways.taken(), "");
  EXPECT_FALSE(ways.ask("tile", "3 columns, fewer than 8"));
  EXPECT_TRUE(ways.ask("rows", ""));
  EXPECT_FALSE(ways.ask("points", ""));
  EXPECT_FALSE(ways.ask("host", "there is none"));
  EXPECT_EQ(ways.taken(), "rows");
  EXPECT_EQ(to_string(ways.asked()),
            "  tile: 3 columns, fewer than 8\n"
            "  rows: taken\n"
            "  points: not needed: rows is preferred\n"
            "  host: there is none\n");
}

}  // namespace
}  // namespace hekla::kernel
