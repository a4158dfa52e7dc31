// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/populate.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>

namespace hekla::checkpoint {
namespace {

constexpr size_t kMebi = size_t{1} << 20;

struct Mapping {
  explicit Mapping(size_t size)
      : bytes(static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
              size) {}
  ~Mapping() { ::munmap(bytes.data(), bytes.size()); }
  double share_there() const {
    std::vector<unsigned char> pages(bytes.size() / 4096);
    EXPECT_EQ(::mincore(bytes.data(), bytes.size(), pages.data()), 0);
    size_t there = 0;
    for (const unsigned char page : pages) there += page & 1;
    return static_cast<double>(there) / static_cast<double>(pages.size());
  }
  std::span<std::byte> bytes;
};

TEST(Populate, TakesPagesAndChangesNoByte) {
  const Mapping first(40 * kMebi), second(64 * kMebi), small(kMebi);
  std::memset(second.bytes.data() + 20 * kMebi, 7, 9 * kMebi + 13);
  {
    const Populate populate({first.bytes, small.bytes, second.bytes});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (second.share_there() < 0.9 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  }
  if (second.share_there() < 0.9) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  EXPECT_LT(first.share_there(), 0.3);  // what the readers begin with is theirs
  EXPECT_EQ(small.share_there(), 0);
  for (size_t at = 0; at < second.bytes.size(); ++at) {
    const bool is_ours = at >= 20 * kMebi && at < 29 * kMebi + 13;
    ASSERT_EQ(second.bytes[at], std::byte{is_ours ? uint8_t{7} : uint8_t{0}}) << at;
  }
}

TEST(Populate, EndsEarly) {
  const Mapping large(size_t{64} << 30);  // more than this machine may have
  const Populate populate({large.bytes});
}

}  // namespace
}  // namespace hekla::checkpoint
