// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/exceptions.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace hekla {
namespace {

TEST(ExceptionsTest, BecomeAStatus) {
  EXPECT_TRUE(status_of_work([] { return ok_status(); }).ok());
  EXPECT_EQ(status_of_work([] { return unavailable("busy"); }).code(), StatusCode::kUnavailable);
  EXPECT_EQ(status_of_work([]() -> Status { throw std::bad_alloc(); }).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status_of_work([]() -> Status {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }).code(),
      StatusCode::kResourceExhausted);
  const Status broken =
      status_of_work([]() -> Status { throw std::runtime_error("the lamp broke"); });
  EXPECT_EQ(broken.code(), StatusCode::kInternal);
  EXPECT_NE(broken.message().find("the lamp broke"), std::string::npos);
  EXPECT_EQ(status_of_work([]() -> Status { throw 1; }).code(), StatusCode::kInternal);
}

// As Python ends threads that come back to it when the process ends.
TEST(ExceptionsTest, TheEndOfAThreadPasses) {
  bool is_behind = false;
  std::thread thread([&] {
    static_cast<void>(status_of_work([]() -> Status { ::pthread_exit(nullptr); }));
    is_behind = true;
  });
  thread.join();
  EXPECT_FALSE(is_behind);
}

}  // namespace
}  // namespace hekla
