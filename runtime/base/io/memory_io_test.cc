// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/io/memory_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "runtime/base/io/file.h"

namespace hekla {
namespace {

using Fate = MemoryIo::Fate;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// What a name holds after every power cut from `from` on; "-" where there is no such name.
std::set<std::string> contents_after_cuts(const MemoryIo& disk, int64_t from,
                                          const std::string& path) {
  std::set<std::string> found;
  for_each_power_cut(disk, from, 20, 1, [&](const PowerCutPoint&, MemoryIo& after) {
    const Result<std::string> text = read_file(after, path, 1000);
    found.insert(text.ok() ? *text : "-");
    return true;
  });
  return found;
}

TEST(PowerCut, WhatIsNotSyncedMayBeLostTornOrThere) {
  MemoryIo disk;
  auto file = File::open(disk, "/a", O_RDWR | O_CREAT);
  ASSERT_TRUE(sync_folder(disk, "/").ok());
  const int64_t from = disk.journal_size();
  ASSERT_TRUE(file->write(bytes_of("abcd"), 0).ok());
  EXPECT_EQ(contents_after_cuts(disk, from, "/a"), (std::set<std::string>{"", "ab", "abcd"}));
  ASSERT_TRUE(file->sync_data().ok());
  EXPECT_EQ(contents_after_cuts(disk, disk.journal_size(), "/a"), (std::set<std::string>{"abcd"}));
}

TEST(PowerCut, ANameIsDurableOnlyWithItsFolder) {
  MemoryIo disk;
  ASSERT_TRUE(create_file(disk, "/a", "text").ok());  // synced itself
  EXPECT_EQ(contents_after_cuts(disk, disk.journal_size(), "/a"),
            (std::set<std::string>{"-", "text"}));
  ASSERT_TRUE(sync_folder(disk, "/").ok());
  EXPECT_EQ(contents_after_cuts(disk, disk.journal_size(), "/a"), (std::set<std::string>{"text"}));
}

TEST(PowerCut, UnsyncedRenamesGetAheadOfUnsyncedData) {
  MemoryIo disk;
  ASSERT_TRUE(create_file(disk, "/a", "old").ok());
  ASSERT_TRUE(sync_folder(disk, "/").ok());
  const int64_t from = disk.journal_size();
  auto file = File::open(disk, "/b", O_RDWR | O_CREAT);
  ASSERT_TRUE(file->write(bytes_of("new!"), 0).ok());
  ASSERT_TRUE(rename_path(disk, "/b", "/a").ok());
  // The mistake that the simulation is there to find: a name with no data behind it.
  EXPECT_EQ(contents_after_cuts(disk, from, "/a"),
            (std::set<std::string>{"", "ne", "new!", "old"}));
}

TEST(PowerCut, ReplaceFileShowsTheOldOrTheNew) {
  MemoryIo disk;
  ASSERT_TRUE(create_file(disk, "/a", "old").ok());
  ASSERT_TRUE(sync_folder(disk, "/").ok());
  const int64_t from = disk.journal_size();
  ASSERT_TRUE(replace_file(disk, "/a", "new!").ok());
  EXPECT_EQ(contents_after_cuts(disk, from, "/a"), (std::set<std::string>{"new!", "old"}));
}

TEST(PowerCut, TheDiskAfterACutGoesOn) {
  MemoryIo disk;
  ASSERT_TRUE(make_folders(disk, "/d").ok());
  ASSERT_TRUE(create_file(disk, "/d/a", "1").ok());
  const auto after = disk.after_power_cut(
      disk.journal_size(),
      std::vector<Fate>(static_cast<size_t>(disk.pending(disk.journal_size())), Fate::kKept));
  EXPECT_EQ(after->fingerprint(), disk.fingerprint());
  EXPECT_EQ(after->pending(after->journal_size()), 0);
  ASSERT_TRUE(create_file(*after, "/d/b", "2").ok());
  EXPECT_EQ(contents_after_cuts(*after, after->journal_size(), "/d/a"),
            (std::set<std::string>{"1"}));
}

TEST(MemoryIo, BoundedSpaceFillsUp) {
  MemoryIo disk;
  disk.set_capacity(10);
  auto file = File::open(disk, "/a", O_RDWR | O_CREAT);
  EXPECT_EQ(file->allocate(11).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(file->write(bytes_of("0123456789"), 0).ok());
  EXPECT_EQ(file->write(bytes_of("x"), 10).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(file->close().ok());
  ASSERT_TRUE(unlink_file(disk, "/a").ok());
  EXPECT_TRUE(create_file(disk, "/b", "0123456789").ok());
}

TEST(MemoryIo, AnOpenFileOutlivesItsName) {
  MemoryIo disk;
  auto file = File::open(disk, "/a", O_RDWR | O_CREAT);
  ASSERT_TRUE(file->write(bytes_of("x"), 0).ok());
  ASSERT_TRUE(unlink_file(disk, "/a").ok());
  std::byte room[1];
  EXPECT_TRUE(file->read(room, 0).ok());
}

}  // namespace
}  // namespace hekla
