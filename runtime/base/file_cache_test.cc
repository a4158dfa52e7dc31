// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/base/testing/child.h"

namespace hekla {
namespace {

namespace fs = std::filesystem;

class FileCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "hekla-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<FileCache> open(int64_t max_bytes = 1 << 20) {
    Result<std::unique_ptr<FileCache>> cache =
        FileCache::open((folder_ / "a/b").string(), max_bytes);
    EXPECT_TRUE(cache.ok()) << cache.status().to_string();
    return std::move(*cache);
  }

  fs::path folder_;
};

std::vector<std::byte> pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

TEST_F(FileCacheTest, GivesBackWhatWasStoredAlsoToTheNextProcess) {
  for (size_t size : {0, 1, 4096, 100'001}) {
    ASSERT_TRUE(open()->store(fmt::format("key {}", size), pattern(size, 7)).ok());
  }
  const auto cache = open();
  for (size_t size : {0, 1, 4096, 100'001}) {
    EXPECT_EQ(cache->load(fmt::format("key {}", size)), pattern(size, 7));
  }
  EXPECT_EQ(cache->load("another"), std::nullopt);
  EXPECT_EQ(cache->stats().hits, 4);
  EXPECT_EQ(cache->stats().misses, 1);
}

TEST_F(FileCacheTest, ReplacesAnEntry) {
  const auto cache = open();
  ASSERT_TRUE(cache->store("k", pattern(10, 1)).ok());
  ASSERT_TRUE(cache->store("k", pattern(20, 2)).ok());
  EXPECT_EQ(cache->load("k"), pattern(20, 2));
}

// Each single damaged byte, each shorter file and a longer one count as absent.
TEST_F(FileCacheTest, NeverGivesDamagedBytes) {
  const auto cache = open();
  ASSERT_TRUE(cache->store("key", pattern(40, 3)).ok());
  const std::string path = cache->path_of("key");
  std::string good;
  {
    std::ifstream in(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto try_bytes = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), bytes.size());
    EXPECT_EQ(cache->load("key"), std::nullopt);
    EXPECT_FALSE(fs::exists(path));
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    try_bytes(bad);
  }
  for (size_t size = 0; size < good.size(); ++size) try_bytes(good.substr(0, size));
  try_bytes(good + "x");
  EXPECT_EQ(cache->stats().corrupt, static_cast<int64_t>(2 * good.size() + 1));
}

TEST_F(FileCacheTest, AnEntryOfAnotherKeyUnderThisNameIsAbsent) {
  const auto cache = open();
  ASSERT_TRUE(cache->store("one", pattern(40, 3)).ok());
  fs::rename(cache->path_of("one"), cache->path_of("two"));
  EXPECT_EQ(cache->load("two"), std::nullopt);
}

TEST_F(FileCacheTest, StaysBelowItsLimitAndDropsTheOldest) {
  const auto cache = open(10'000);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(cache->store(fmt::format("{}", i), pattern(900, i)).ok());
    // Used again and again, so it must survive; times of files are coarse.
    ASSERT_TRUE(cache->load("0").has_value()) << i;
    std::this_thread::sleep_for(std::chrono::milliseconds(12));
    uintmax_t total = 0;
    for (const auto& file : fs::directory_iterator(cache->folder())) total += file.file_size();
    ASSERT_LE(total, 10'000u);
  }
  EXPECT_EQ(cache->load("1"), std::nullopt);
  EXPECT_EQ(cache->load("29"), pattern(900, 29));
  EXPECT_GT(cache->stats().evictions, 10);
  EXPECT_EQ(cache->store("big", pattern(20'000, 1)).code(), StatusCode::kResourceExhausted);
}

TEST_F(FileCacheTest, SeveralProcessesShareAFolder) {
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(start_child([&] {
      const auto cache = open(40'000);
      int bad = 0;
      for (int i = 0; i < 200; ++i) {
        const int key = (i * 7 + child) % 12;
        if (!cache->store(fmt::format("{}", key), pattern(3000, key)).ok()) ++bad;
        if (auto bytes = cache->load(fmt::format("{}", (key + 5) % 12));
            bytes && *bytes != pattern(3000, (key + 5) % 12)) {
          ++bad;
        }
      }
      // Readers must never have seen half a file.
      if (cache->stats().corrupt != 0) ++bad;
      return bad == 0 ? 0 : 1;
    }));
  }
  for (pid_t pid : children) EXPECT_EQ(wait_for_child(pid), 0);
}

TEST_F(FileCacheTest, RemovesWhatDeadWritersLeft) {
  const auto cache = open();
  const fs::path left = fs::path(cache->folder()) / ".writing-1-1";
  std::ofstream(left) << "half";
  ASSERT_TRUE(open()->store("k", pattern(10, 1)).ok());
  EXPECT_TRUE(fs::exists(left));  // may still be written
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(open()->store("k", pattern(10, 1)).ok());
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(FileCacheTest, TheFirstStoreBringsALargerFolderBelowTheLimit) {
  {
    const auto large = open();
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(large->store(fmt::format("{}", i), pattern(900, i)).ok());
    }
  }
  const auto cache = open(10'000);
  ASSERT_TRUE(cache->store("new", pattern(900, 1)).ok());
  uintmax_t total = 0;
  for (const auto& file : fs::directory_iterator(cache->folder())) total += file.file_size();
  EXPECT_LE(total, 10'000u);
  EXPECT_EQ(cache->load("new"), pattern(900, 1));
}

TEST_F(FileCacheTest, SaysWhyAFolderCannotBeUsed) {
  std::ofstream(folder_ / "file") << "x";
  const auto cache = FileCache::open((folder_ / "file/below").string(), 100);
  EXPECT_EQ(cache.status().code(), StatusCode::kPermissionDenied);
  EXPECT_NE(cache.status().message().find("HEKLA_CACHE_DIR"), std::string::npos);
}

}  // namespace
}  // namespace hekla
