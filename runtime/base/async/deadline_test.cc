// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/async/deadline.h"

#include <gtest/gtest.h>

namespace hekla {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ns;

TEST(Deadline, IsNeverBeyondTheEndOfTheClock) {
  EXPECT_TRUE(Deadline::in(std::chrono::nanoseconds::max()).is_never());
  EXPECT_EQ(Deadline::never().left(), std::chrono::nanoseconds::max());
  EXPECT_FALSE(Deadline::never().expired());
}

TEST(Deadline, KnowsWhatIsLeft) {
  const Deadline far = Deadline::in(10000h);
  EXPECT_FALSE(far.is_never());
  EXPECT_FALSE(far.expired());
  EXPECT_LE(far.left(), 10000h);
  EXPECT_GT(far.left(), 9999h);
  const Deadline past = Deadline::at(Deadline::Clock::now() - 1h);
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.left(), 0ns);
  EXPECT_TRUE(Deadline::in(0ns).expired());
}

}  // namespace
}  // namespace hekla
