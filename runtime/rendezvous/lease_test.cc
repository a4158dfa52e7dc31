// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/lease.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"

namespace hekla::rendezvous {
namespace {

using std::chrono::seconds;

TEST(Lease, LivesAsLongAsItsHolder) {
  MemoryIo io;
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kNone);
  {
    const auto lease = Lease::hold(io, "/lease", "host a");
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kLive);
    EXPECT_EQ(*read_lease(io, "/lease"), "host a");
    const auto second = Lease::hold(io, "/lease", "host b");
    EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
    EXPECT_NE(second.status().message().find("host a"), std::string::npos);
  }
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kNone);
  EXPECT_TRUE(list_folder(io, "/")->empty());
}

TEST(Lease, ADeadOnesPlaceIsFree) {
  MemoryIo io;
  const auto lease = Lease::hold(io, "/lease", "");
  // The machine restarts: locks are gone, files stay.
  const auto after = io.after_power_cut(
      io.journal_size(),
      std::vector<MemoryIo::Fate>(static_cast<size_t>(io.pending(io.journal_size())),
                                  MemoryIo::Fate::kKept));
  EXPECT_EQ(*lease_state(*after, "/lease"), LeaseState::kDead);
  EXPECT_TRUE(Lease::hold(*after, "/lease", "").ok());
}

TEST(Lease, AnotherMachineIsBelievedByItsHeartbeat) {
  MemoryIo io;
  ASSERT_TRUE(create_file(io, "/lease", "another-boot-id\nhost b\n").ok());
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kFresh);
  io.advance(std::chrono::nanoseconds(seconds(59)).count());
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kFresh);
  io.advance(std::chrono::nanoseconds(seconds(2)).count());
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kDead);
}

TEST(Lease, BeatsEveryPeriod) {
  MemoryIo io;
  const auto lease = Lease::hold(io, "/lease", "", {std::chrono::milliseconds(5), seconds(60)});
  const int64_t first = stat_file(io, "/lease")->modified_ns;
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (stat_file(io, "/lease")->modified_ns == first && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GT(stat_file(io, "/lease")->modified_ns, first);
}

TEST(Lease, WithoutLocksTheHeartbeatSpeaks) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kLock, .count = 1000, .error = EOPNOTSUPP});
  const auto lease = Lease::hold(io, "/lease", "");
  ASSERT_TRUE(lease.ok()) << lease.status().to_string();
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kFresh);
  memory.advance(std::chrono::nanoseconds(seconds(120)).count());
  EXPECT_EQ(*lease_state(io, "/lease"), LeaseState::kDead);
}

TEST(Lease, FaultsLeaveNothingBehind) {
  for (int64_t call = 1; call < 6; ++call) {
    MemoryIo memory;
    ScriptedIo io(memory);
    io.add({.changes_only = true, .first = call, .error = EIO});
    const auto lease = Lease::hold(io, "/lease", "");
    if (!lease.ok()) {
      EXPECT_NE(lease.status().message().find("/lease"), std::string::npos);
      EXPECT_TRUE(list_folder(memory, "/")->empty()) << call;
    }
  }
}

}  // namespace
}  // namespace hekla::rendezvous
