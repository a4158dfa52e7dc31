// SPDX-License-Identifier: Apache-2.0
// Chunks of long sums: how sizes decide on them, and where they end, also in the parts of a
// contraction whose window has a base dilation.
#include "backends/compiler/kernel/contraction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace hekla::kernel {
namespace {

int64_t product_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

Contraction with_depth(const std::vector<int64_t>& sizes, const SumChunks& chunks) {
  Contraction c;
  for (const int64_t size : sizes) c.depth.push_back({size, 1, 1, 0});
  c.chunks = chunks;
  return c;
}

TEST(SumChunks, OneForShortSums) {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{}, {512}, {2, 256}, {1, 512, 1}, {0}, {5, 0, 1000}}) {
    EXPECT_EQ(cut_sum(sizes, 512).axis, -1);
    EXPECT_EQ(chunk_ends(with_depth(sizes, cut_sum(sizes, 512))),
              std::vector<int64_t>{product_of(sizes)});
  }
}

TEST(SumChunks, AreEqualWhereTheyCanBe) {
  const int64_t one[] = {1024};
  EXPECT_EQ(cut_sum(one, 512), (SumChunks{0, 512, 0, 1}));
  const int64_t odd[] = {1026};
  EXPECT_EQ(cut_sum(odd, 512), (SumChunks{0, 342, 0, 1}));
  const int64_t prime[] = {1021};
  EXPECT_EQ(cut_sum(prime, 512), (SumChunks{0, 512, 0, 1}));
  const int64_t window[] = {3, 3, 256};  // two taps, one tap
  EXPECT_EQ(cut_sum(window, 512), (SumChunks{1, 2, 0, 1}));
  EXPECT_EQ(chunk_ends(with_depth({3, 3, 256}, cut_sum(window, 512))),
            (std::vector<int64_t>{512, 768, 1280, 1536, 2048, 2304}));
}

// Never longer than asked for, more than a quarter of that on average, and all of the sum.
TEST(SumChunks, AreNeitherLongNorMany) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto most = static_cast<int64_t>(1 + random() % 600);
    std::vector<int64_t> sizes(random() % 5);
    for (int64_t& size : sizes) size = static_cast<int64_t>(1 + random() % (1 << (random() % 10)));
    const int64_t depth = product_of(sizes);
    if (depth > 1'000'000) continue;
    const SumChunks chunks = cut_sum(sizes, most);
    ASSERT_EQ(chunks.axis >= 0, depth > most);
    ASSERT_EQ(why_no_chunks(chunks, sizes.size()), "");
    const std::vector<int64_t> ends = chunk_ends(with_depth(sizes, chunks));
    int64_t begin = 0;
    for (const int64_t end : ends) {
      ASSERT_GT(end, begin);
      ASSERT_LE(end - begin, most);
      begin = end;
    }
    ASSERT_EQ(begin, depth);
    ASSERT_LE(static_cast<int64_t>(ends.size() - 1) * most, 4 * depth);
  }
}

// A part has the taps that meet the input: it ends a chunk where the whole one does.
TEST(SumChunks, OfThePartsOfADilatedInput) {
  Contraction c = with_depth({7, 100}, {0, 3, 0, 1});  // taps 0 to 2, 3 to 5, 6
  c.rows = {{20, 0, 0, 1}};
  c.windows = {{0, 0, 1, 1, 0, 10, 2, 1}};
  const std::vector<Contraction> parts = split_base_dilation(c);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(chunk_ends(parts[0]), (std::vector<int64_t>{200, 300, 400}));  // taps 0 2, 4, 6
  EXPECT_EQ(chunk_ends(parts[1]), (std::vector<int64_t>{100, 300}));       // taps 1, 3 5
}

TEST(SumChunks, ThatCannotBe) {
  EXPECT_EQ(why_no_chunks({}, 0), "");
  EXPECT_NE(why_no_chunks({1, 4, 0, 1}, 1), "");
  EXPECT_NE(why_no_chunks({-2, 4, 0, 1}, 1), "");
  EXPECT_NE(why_no_chunks({0, 0, 0, 1}, 1), "");
  EXPECT_NE(why_no_chunks({0, 4, -1, 1}, 1), "");
  EXPECT_NE(why_no_chunks({0, 4, 0, 0}, 1), "");
}

}  // namespace
}  // namespace hekla::kernel
