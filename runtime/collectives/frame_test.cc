// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace hekla::collectives {
namespace {

HostArray counting(int64_t bytes) {
  std::vector<uint8_t> values(static_cast<size_t>(bytes));
  std::iota(values.begin(), values.end(), uint8_t{1});
  return HostArray::from<uint8_t>(DType::kUI8, {bytes}, values);
}

std::string stream_of(const Message& message) {
  std::string bytes = *frame_of(message);
  for (const HostArray& block : message.blocks) {
    bytes.append(reinterpret_cast<const char*>(block.data()),
                 static_cast<size_t>(block.size_bytes()));
  }
  return bytes;
}

// In pieces of at most `most` bytes; the error that ended it.
Result<std::vector<Message>> read_all(std::string_view bytes, size_t most) {
  FrameReader reader;
  std::vector<Message> messages;
  while (!bytes.empty()) {
    const size_t count = std::min({bytes.size(), most, reader.target().size()});
    std::memcpy(reader.target().data(), bytes.data(), count);
    bytes.remove_prefix(count);
    HEKLA_ASSIGN_OR_RETURN(std::optional<Message> message, reader.advance(count));
    if (message) messages.push_back(*std::move(message));
  }
  return messages;
}

TEST(Frame, MessagesComeBackWhole) {
  std::vector<Message> sent(4);
  sent[0] = {"head", {counting(0), counting(7), counting(0), counting(300)}};
  sent[2] = {std::string(1000, '\0'), {}};
  sent[3] = {"", {counting(1)}};
  std::string bytes;
  for (const Message& message : sent) bytes += stream_of(message);
  for (const size_t most : {size_t{1}, size_t{5}, size_t{64}, bytes.size()}) {
    const auto read = read_all(bytes, most);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    ASSERT_EQ(read->size(), sent.size());
    for (size_t m = 0; m < sent.size(); ++m) {
      EXPECT_EQ((*read)[m].head, sent[m].head);
      ASSERT_EQ((*read)[m].blocks.size(), sent[m].blocks.size());
      for (size_t b = 0; b < sent[m].blocks.size(); ++b) {
        EXPECT_TRUE((*read)[m].blocks[b].identical(sent[m].blocks[b]));
      }
    }
  }
}

TEST(Frame, WhatIsNoneIsAnError) {
  const std::string good = stream_of({"head", {counting(8)}});
  const auto with = [&](size_t at, uint8_t value, size_t count) {
    std::string bytes = good;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, static_cast<char>(value));
    return read_all(bytes, 1).status().code();
  };
  EXPECT_EQ(with(0, 0, 1), StatusCode::kDataLoss);      // the mark
  EXPECT_EQ(with(4, 0xff, 4), StatusCode::kDataLoss);   // the head's size
  EXPECT_EQ(with(8, 0xff, 4), StatusCode::kDataLoss);   // the number of blocks
  EXPECT_EQ(with(16, 0xff, 8), StatusCode::kDataLoss);  // the block's size, negative
  EXPECT_EQ(with(16, 0x7f, 8), StatusCode::kDataLoss);  // or too large
  EXPECT_EQ(frame_of({std::string(Message::kMaxHeadBytes + 1, 'x'), {}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Frame, NonsenseDoesNoHarm) {
  std::mt19937 random(1);
  const std::string good = stream_of({"head", {counting(8), counting(40)}});
#ifdef HEKLA_SANITIZED
  constexpr int kRounds = 100;  // each large size that is announced is shadowed
#else
  constexpr int kRounds = 2000;
#endif
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = good + good;
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    static_cast<void>(read_all(bytes, 1 + random() % 50));
  }
}

}  // namespace
}  // namespace hekla::collectives
