// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/commit/manager_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"

namespace hekla::checkpoint {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ManagerLock, HasOneHolder) {
  MemoryIo io;
  {
    const auto lock = ManagerLock::acquire(io, "/");
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(lock->is_held());
    const auto second = ManagerLock::acquire(io, "/");
    EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
    EXPECT_NE(second.status().message().find("process"), std::string::npos)
        << second.status().message();
    EXPECT_TRUE(lock->is_held());
  }
  EXPECT_TRUE(ManagerLock::acquire(io, "/").ok());
}

TEST(ManagerLock, OutlivesNoMachine) {
  MemoryIo io;
  const auto lock = ManagerLock::acquire(io, "/");
  const auto after = io.after_power_cut(
      io.journal_size(),
      std::vector<MemoryIo::Fate>(static_cast<size_t>(io.pending(io.journal_size())),
                                  MemoryIo::Fate::kKept));
  EXPECT_TRUE(ManagerLock::acquire(*after, "/").ok());
}

TEST(ManagerLock, IsStolenFromASilentMachineOnly) {
  MemoryIo io;
  ASSERT_TRUE(create_file(io, "/LOCK", "other-boot\nabc on far, process 1\n").ok());
  const auto refused = ManagerLock::acquire(io, "/");
  EXPECT_EQ(refused.status().code(), StatusCode::kAlreadyExists);
  EXPECT_NE(refused.status().message().find("far"), std::string::npos);
  io.advance(std::chrono::nanoseconds(seconds(91)).count());
  EXPECT_TRUE(ManagerLock::acquire(io, "/").ok());
}

TEST(ManagerLock, KnowsThatItWasStolen) {
  MemoryIo io;
  const auto lock = ManagerLock::acquire(io, "/", milliseconds(5));
  ASSERT_TRUE(lock->is_held());
  auto file = File::open(io, "/LOCK", 2);
  const std::string thief = "other-boot\nxyz on far, process 2, and a longer line than before\n";
  ASSERT_TRUE(file->write(std::as_bytes(std::span(thief.data(), thief.size())), 0).ok());
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (lock->is_held() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_FALSE(lock->is_held());
}

}  // namespace
}  // namespace hekla::checkpoint
