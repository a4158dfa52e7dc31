// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/copy_bytes.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace hekla {
namespace {

// Distances modulo a page and sizes on both sides of what decides the way; nothing beside is
// written.
TEST(CopyBytes, CopiesFromAnyPlaceToAnyOther) {
  constexpr int64_t kPage = 4'096, kMost = 3 * kPage;
  constexpr std::byte kUntouched{0xEE};
  std::vector<std::byte> from(static_cast<size_t>(kMost + 2 * kPage));
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 + i / 251);
  std::vector<std::byte> to(from.size());
  for (const int64_t begin : {0, 1, 16, 63}) {
    for (const int64_t distance : {-64, -16, -1, 0, 1, 8, 15, 16, 31, 32, 33, 64}) {
      for (const int64_t bytes : {0L, 1L, 2'047L, 2'048L, 2'049L, 2'111L, 2'112L, kPage, kMost}) {
        for (auto* const copy : {copy_bytes, stream_bytes}) {
          to.assign(to.size(), kUntouched);
          const std::byte* source = from.data() + begin;
          // `distance` behind the source, modulo a page.
          const int64_t place = static_cast<int64_t>((reinterpret_cast<uintptr_t>(source) -
                                                      reinterpret_cast<uintptr_t>(to.data()) +
                                                      static_cast<uintptr_t>(kPage + distance)) %
                                                     kPage);
          copy(to.data() + place, source, bytes);
          for (int64_t i = 0; i < static_cast<int64_t>(to.size()); ++i) {
            const bool is_inside = i >= place && i < place + bytes;
            ASSERT_EQ(to[static_cast<size_t>(i)], is_inside ? source[i - place] : kUntouched)
                << begin << " " << distance << " " << bytes << " at " << i - place;
          }
        }
      }
    }
  }
}

TEST(CopyBytes, NothingMayBeNull) {
  copy_bytes(nullptr, nullptr, 0);
  stream_bytes(nullptr, nullptr, 0);
  move_bytes(nullptr, nullptr, 0);
}

TEST(MoveBytes, PlacesMayOverlap) {
  constexpr size_t kBegin = 5'000;
  for (const int64_t distance : {-4'080, -4'096, -16, -1, 0, 1, 16, 31, 2'064, 4'096, 4'112}) {
    for (const int64_t bytes : {0, 1, 2'048, 4'096, 4'112, 4'113}) {
      std::vector<std::byte> memory(3 * kBegin);
      for (size_t i = 0; i < memory.size(); ++i)
        memory[i] = static_cast<std::byte>(i * 31 + i / 251);
      std::vector<std::byte> expected = memory;
      for (int64_t i = 0; i < bytes; ++i) expected[kBegin + distance + i] = memory[kBegin + i];
      move_bytes(memory.data() + kBegin + distance, memory.data() + kBegin, bytes);
      EXPECT_EQ(memory, expected) << distance << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace hekla
