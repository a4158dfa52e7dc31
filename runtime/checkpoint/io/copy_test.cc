// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hekla::checkpoint {
namespace {

TEST(CopyPastCache, CopiesTheseBytesAndNoOthers) {
  std::mt19937_64 draw(3);
  std::vector<std::byte> from(600'000);
  for (std::byte& byte : from) byte = static_cast<std::byte>(draw());
  constexpr std::byte kMark{0x5a};
  for (const size_t bytes : {0, 1, 63, 64, 262'143, 262'144, 262'145, 500'003}) {
    for (const size_t shift : {0, 1, 48, 64, 77}) {
      std::vector<std::byte> to(600'000, kMark);
      copy_past_cache(to.data() + shift, from.data() + 16, bytes);
      EXPECT_TRUE(std::equal(from.begin() + 16, from.begin() + 16 + static_cast<ptrdiff_t>(bytes),
                             to.begin() + static_cast<ptrdiff_t>(shift)));
      const auto is_mark = [](std::byte byte) { return byte == kMark; };
      EXPECT_TRUE(std::all_of(to.begin(), to.begin() + static_cast<ptrdiff_t>(shift), is_mark));
      EXPECT_TRUE(
          std::all_of(to.begin() + static_cast<ptrdiff_t>(shift + bytes), to.end(), is_mark));
    }
  }
  copy_past_cache(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace hekla::checkpoint
