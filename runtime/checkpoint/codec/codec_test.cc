// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/codec/codec.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <random>

namespace hekla::checkpoint {
namespace {

std::vector<std::byte> some_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  // The upper half of each pair says little.
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(i % 2 == 0 ? random() : random() % 3);
  }
  return bytes;
}

TEST(Coder, GivesBackWhatItGot) {
  const auto coder = *Coder::create();
  for (const int64_t element : {1, 2, 3, 4, 8, 16}) {
    const auto bytes = some_bytes(static_cast<size_t>(48 * 1000), 7);
    const auto coded = coder->encode(bytes, element);
    ASSERT_TRUE(coded.ok());
    ASSERT_FALSE(coded->empty());
    const std::vector<std::byte> kept(coded->begin(), coded->end());
    std::vector<std::byte> back(bytes.size());
    ASSERT_TRUE(coder->decode(kept, element, back).ok());
    EXPECT_EQ(back, bytes);
    // zstd alone gives the shuffled bytes: byte k of element i at k * count + i.
    std::vector<std::byte> shuffled(bytes.size());
    ASSERT_EQ(ZSTD_decompress(shuffled.data(), shuffled.size(), kept.data(), kept.size()),
              bytes.size());
    const size_t e = static_cast<size_t>(element), count = bytes.size() / e;
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(shuffled[i % e * count + i / e], bytes[i]);
    }
  }
}

TEST(Coder, SaysWhenItDoesNotHelp) {
  std::mt19937_64 random(1);
  std::vector<std::byte> noise(100000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  EXPECT_TRUE((*Coder::create())->encode(noise, 4)->empty());
}

TEST(Coder, DamagedBytesAreDataLossOrTheyAreAllThere) {
  const auto coder = *Coder::create();
  const auto bytes = some_bytes(4096, 2);
  const auto coded = *coder->encode(bytes, 2);
  const std::vector<std::byte> good(coded.begin(), coded.end());
  std::vector<std::byte> into(bytes.size());
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_EQ(coder->decode(std::span(good).first(cut), 2, into).code(), StatusCode::kDataLoss);
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    const Status status = coder->decode(bad, 2, into);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status.to_string();
  }
  // A frame of another size than what is wanted.
  std::vector<std::byte> less(bytes.size() - 2), more(bytes.size() + 2);
  EXPECT_EQ(coder->decode(good, 2, less).code(), StatusCode::kDataLoss);
  EXPECT_EQ(coder->decode(good, 2, more).code(), StatusCode::kDataLoss);
  EXPECT_EQ(coder->decode(good, 3, into).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::checkpoint
