// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/io/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "runtime/base/io/memory_io.h"
#include "runtime/base/io/scripted_io.h"
#include "runtime/base/io/temporary_folder.h"

namespace hekla {
namespace {

TEST(IoError, NamesCallFileAndErrno) {
  const Status status = io_error(ENOSPC, "pwrite of 5 bytes at offset 8", "/run/a");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "pwrite of 5 bytes at offset 8 of /run/a: No space left on device (errno 28)");
  EXPECT_EQ(io_error(EROFS, "open", "x").code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(io_error(EIO, "fsync", "x").code(), StatusCode::kInternal);
}

TEST(Paths, AreJoinedAndCut) {
  EXPECT_EQ(join_path("/a", "b"), "/a/b");
  EXPECT_EQ(join_path("/a/", "b"), "/a/b");
  EXPECT_EQ(parent_path("/a/b"), "/a");
  EXPECT_EQ(parent_path("/a/b//"), "/a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
}

// The same promises on the kernel's files and on those in memory.
class FileOn : public testing::TestWithParam<bool> {
 protected:
  Io& io() { return GetParam() ? static_cast<Io&>(memory_) : posix_io(); }
  std::string file(const std::string& name) { return GetParam() ? "/" + name : folder_.file(name); }
  MemoryIo memory_;
  TemporaryFolder folder_;
};

TEST_P(FileOn, CreatesReplacesReadsAndRemoves) {
  ASSERT_TRUE(create_file(io(), file("a"), "one").ok());
  EXPECT_EQ(create_file(io(), file("a"), "two").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*read_file(io(), file("a"), 100), "one");
  ASSERT_TRUE(replace_file(io(), file("a"), "three").ok());
  EXPECT_EQ(*read_file(io(), file("a"), 100), "three");
  EXPECT_EQ(read_file(io(), file("a"), 4).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read_file(io(), file("b"), 4).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(find_file(io(), file("b"))->has_value());
  ASSERT_TRUE(make_folders(io(), file("d/e/f")).ok());
  ASSERT_TRUE(make_folders(io(), file("d/e/f")).ok());
  ASSERT_TRUE(create_file(io(), file("d/e/x"), "").ok());
  const auto entries = list_folder(io(), file("d/e"));
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "f");
  EXPECT_EQ((*entries)[0].kind, FileKind::kDirectory);
  EXPECT_EQ((*entries)[1].kind, FileKind::kRegular);
  ASSERT_TRUE(remove_tree(io(), file("d")).ok());
  EXPECT_TRUE(remove_tree(io(), file("d")).ok());
  EXPECT_FALSE(find_file(io(), file("d"))->has_value());
}

TEST_P(FileOn, RenamesFoldersOnlyOverNothing) {
  ASSERT_TRUE(make_folders(io(), file("a/x")).ok());
  ASSERT_TRUE(make_folders(io(), file("b/y")).ok());
  EXPECT_FALSE(rename_path(io(), file("a"), file("b")).ok());
  ASSERT_TRUE(rename_path(io(), file("a"), file("c")).ok());
  EXPECT_TRUE(find_file(io(), file("c/x"))->has_value());
  EXPECT_TRUE(sync_folder(io(), file("c")).ok());
}

TEST_P(FileOn, LocksExcludeEachOther) {
  auto a = File::open(io(), file("lock"), O_RDWR | O_CREAT);
  auto b = File::open(io(), file("lock"), O_RDWR);
  auto c = File::open(io(), file("lock"), O_RDWR);
  EXPECT_TRUE(*a->try_lock(LockKind::kShared));
  EXPECT_TRUE(*b->try_lock(LockKind::kShared));
  EXPECT_FALSE(*c->try_lock(LockKind::kExclusive));
  ASSERT_TRUE(a->close().ok());
  EXPECT_TRUE(*b->try_lock(LockKind::kNone));
  EXPECT_TRUE(*c->try_lock(LockKind::kExclusive));
  EXPECT_FALSE(*b->try_lock(LockKind::kShared));
}

TEST_P(FileOn, ReadsPastTheEndAreNamed) {
  ASSERT_TRUE(create_file(io(), file("a"), "12345").ok());
  auto opened = File::open(io(), file("a"), O_RDONLY);
  std::byte room[8];
  const Status status = opened->read(room, 0);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("ends at 5: 3 more bytes"), std::string::npos)
      << status.message();
}

INSTANTIATE_TEST_SUITE_P(Both, FileOn, testing::Bool(),
                         [](const auto& info) { return info.param ? "Memory" : "Kernel"; });

TEST(FileFaults, ShortTransfersAndInterruptsAreCarriedOn) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kPwrite, .first = 1, .count = 4, .action = FaultRule::Action::kShort});
  io.add({.call = IoCall::kPread,
          .first = 1,
          .count = 2,
          .action = FaultRule::Action::kFail,
          .error = EINTR});
  io.add({.call = IoCall::kOpen, .first = 1, .count = 1, .error = EINTR});
  const std::string text(1000, 'x');
  ASSERT_TRUE(create_file(io, "/a", text).ok());
  EXPECT_EQ(*read_file(io, "/a", 1000), text);
  EXPECT_EQ(io.faults(), 7);
  EXPECT_EQ(io.open_files(), 0);
}

TEST(FileFaults, AFailedCreateLeavesNothing) {
  for (const IoCall call : {IoCall::kPwrite, IoCall::kFsync, IoCall::kClose}) {
    MemoryIo memory;
    ScriptedIo io(memory);
    io.add({.call = call, .error = EIO});
    const Status status = create_file(io, "/a", "text");
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find(std::string(io_call_name(call))), std::string::npos);
    EXPECT_NE(status.message().find("/a"), std::string::npos);
    EXPECT_FALSE(find_file(memory, "/a")->has_value());
  }
}

TEST(FileFaults, ASyncIsNeverTriedAgain) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kFsync, .error = EINTR});
  EXPECT_FALSE(create_file(io, "/a", "text").ok());
}

TEST(FileFaults, NoFallocateMeansTruncate) {
  MemoryIo memory;
  ScriptedIo io(memory);
  io.add({.call = IoCall::kFallocate, .error = EOPNOTSUPP});
  auto file = File::open(io, "/a", O_RDWR | O_CREAT);
  ASSERT_TRUE(file->allocate(1000).ok());
  EXPECT_EQ(file->info()->size, 1000);
}

}  // namespace
}  // namespace hekla
