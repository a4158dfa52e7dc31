// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/status.h"

#include <gtest/gtest.h>

namespace hekla {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("{} is odd", n);
  return n / 2;
}

Result<int> quarter(int n) {
  HEKLA_ASSIGN_OR_RETURN(int h, half(n));
  return half(h);
}

TEST(Status, KeepsCodeAndMessage) {
  EXPECT_TRUE(ok_status().ok());
  Status status = resource_exhausted("{} bytes of {}", 10, 5);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.to_string(), "RESOURCE_EXHAUSTED: 10 bytes of 5");
  EXPECT_EQ(status.with_context("arena").message(), "arena: 10 bytes of 5");
  EXPECT_TRUE(ok_status().with_context("arena").ok());
}

TEST(Result, PassesErrorsOn) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "3 is odd");
}

TEST(ResultDeathTest, ReadingAFailedResultAborts) {
  EXPECT_DEATH((void)half(3).value(), "3 is odd");
}

}  // namespace
}  // namespace hekla
