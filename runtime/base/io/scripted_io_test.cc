// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/io/scripted_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/io/file.h"
#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/temporary_folder.h"
#include "runtime/base/testing/child.h"

namespace hekla {
namespace {

TEST(ScriptedIo, TheNthMatchingCallFails) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kMkdir, .path = "b", .first = 2, .count = 2, .error = ENOSPC});
  EXPECT_EQ(io.mkdir("/a", 0755), 0);
  EXPECT_EQ(io.mkdir("/b1", 0755), 0);
  EXPECT_EQ(io.mkdir("/b2", 0755), -ENOSPC);
  EXPECT_EQ(io.mkdir("/b3", 0755), -ENOSPC);
  EXPECT_EQ(io.mkdir("/b4", 0755), 0);
  EXPECT_EQ(io.calls(), 5);
  EXPECT_EQ(io.faults(), 2);
}

TEST(ScriptedIo, ChangesAreCountedApart) {
  MemoryIo memory;
  ScriptedIo io(memory);
  ASSERT_TRUE(create_file(io, "/a", "x").ok());  // open, pwrite, fsync, close
  EXPECT_EQ(io.changes(), 4);
  ASSERT_TRUE(read_file(io, "/a", 10).ok());
  EXPECT_EQ(io.changes(), 5);  // the close
  EXPECT_GT(io.calls(), 5);
}

TEST(ScriptedIo, KillsTheProcessWithAndWithoutAPart) {
  for (const bool torn : {false, true}) {
    TemporaryFolder folder;
    const int code = run_child([&] {
      ScriptedIo io(posix_io());
      io.add({.call = IoCall::kPwrite,
              .action = torn ? FaultRule::Action::kTornKill : FaultRule::Action::kKill});
      static_cast<void>(create_file(io, folder.file("a"), "12345678"));
      return 0;
    });
    EXPECT_EQ(code, -SIGKILL);
    EXPECT_EQ(*read_file(posix_io(), folder.file("a"), 100), torn ? "1234" : "");
  }
}

}  // namespace
}  // namespace hekla
