// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/shared_reads.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace hekla::checkpoint {
namespace {

using Ranges = std::vector<ShardRange>;

TEST(SharedReads, AreThoseOfTwoRanksOfOneMachine) {
  const std::vector<std::string> texts = {
      reads_text("a", Ranges{{0, 0, 10}, {1, 5, 20}}),
      reads_text("a", Ranges{{0, 8, 12}, {1, 0, 6}, {1, 15, 16}}),
      reads_text("b", Ranges{{0, 0, 100}, {1, 0, 100}}),
      "",
  };
  EXPECT_EQ(shared_reads(texts, 0).value(), (Ranges{{0, 8, 10}, {1, 5, 6}, {1, 15, 16}}));
  EXPECT_EQ(shared_reads(texts, 1).value(), (Ranges{{0, 8, 10}, {1, 5, 6}, {1, 15, 16}}));
  EXPECT_EQ(shared_reads(texts, 2).value(), Ranges());
  EXPECT_EQ(shared_reads(texts, 3).value(), Ranges());
}

TEST(SharedReads, ManyRangesBecomeOneAFile) {
  Ranges many;
  for (int64_t i = 0; i < 10'000; ++i) many.push_back({i < 5'000 ? 0 : 2, i * 10, i * 10 + 5});
  const std::string text = reads_text("a", many);
  EXPECT_EQ(text, "a\n0 0 49995\n2 50000 99995\n");
}

TEST(SharedReads, OtherTextsAreErrors) {
  for (const char* bad : {"a\n1 2", "a\n1 2 3 4", "a\n1 3 2", "a\n-1 2 3", "a\n1 2 x", "a\n\n",
                          "a\n1", "a\n0 -5 3", "a\n1  2 3", "a\n99999999999 1 2"}) {
    const std::vector<std::string> texts = {"a\n0 0 1\n", bad};
    EXPECT_EQ(shared_reads(texts, 0).status().code(), StatusCode::kInternal) << bad;
  }
  const std::vector<std::string> texts = {"a\n"};
  EXPECT_EQ(shared_reads(texts, 1).status().code(), StatusCode::kInternal);
}

// Against sets of single bytes.
TEST(SharedReads, AgreeWithSetsOfBytes) {
  std::mt19937_64 random(11);
  const auto uniform = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  using Bytes = std::set<std::pair<int32_t, int64_t>>;
  for (int round = 0; round < 2'000; ++round) {
    const int world = uniform(1, 5);
    std::vector<std::string> texts;
    std::vector<Bytes> bytes(static_cast<size_t>(world));
    std::vector<int> machine(static_cast<size_t>(world));
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      machine[rank] = uniform(0, 1);
      Ranges ranges;
      for (int32_t file = 0; file < 3; ++file) {
        for (int64_t at = uniform(0, 9); at < 30; at += uniform(0, 9)) {
          const int64_t end = at + uniform(1, 6);
          ranges.push_back({file, at, end});
          for (; at < end; ++at) bytes[rank].emplace(file, at);
        }
      }
      texts.push_back(reads_text(std::to_string(machine[rank]), ranges));
    }
    for (int rank = 0; rank < world; ++rank) {
      Bytes expected, found;
      for (const auto& byte : bytes[static_cast<size_t>(rank)]) {
        for (size_t other = 0; other < bytes.size(); ++other) {
          if (static_cast<int>(other) != rank &&
              machine[other] == machine[static_cast<size_t>(rank)] && bytes[other].contains(byte)) {
            expected.insert(byte);
          }
        }
      }
      const auto shared = shared_reads(texts, rank);
      ASSERT_TRUE(shared.ok()) << shared.status().to_string();
      for (size_t i = 0; i < shared->size(); ++i) {
        const ShardRange& range = (*shared)[i];
        for (int64_t at = range.begin; at < range.end; ++at) {
          ASSERT_TRUE(found.emplace(range.file, at).second);
        }
        if (i == 0) continue;
        const ShardRange& before = (*shared)[i - 1];
        ASSERT_TRUE(before.file < range.file || before.end <= range.begin);
      }
      ASSERT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace hekla::checkpoint
