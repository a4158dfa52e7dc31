// SPDX-License-Identifier: Apache-2.0
// Transposes of matrices against their definition, at sizes on both sides of a tile.
#include "backends/reference/matrix_order.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace hekla::reference {
namespace {

constexpr int64_t kWidths[] = {4, 8, 16};

std::vector<std::byte> numbered(int64_t bytes) {
  std::vector<std::byte> result(static_cast<size_t>(bytes));
  uint32_t state = 1;
  for (std::byte& byte : result) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return result;
}

std::vector<std::byte> transposed(int64_t width, int64_t count, int64_t rows, int64_t columns,
                                  const std::vector<std::byte>& from) {
  std::vector<std::byte> to(from.size());
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t source = (k * rows + i) * columns + j, target = (k * columns + j) * rows + i;
        std::memcpy(&to[static_cast<size_t>(target * width)],
                    &from[static_cast<size_t>(source * width)], static_cast<size_t>(width));
      }
    }
  }
  return to;
}

// The last piece first.
const ForEach kBackwards = [](int64_t count, const std::function<void(int64_t)>& body) {
  for (int64_t i = count; i-- > 0;) body(i);
};

TEST(MatrixOrder, Transposes) {
  for (const ForEach& for_each : {ForEach(), kBackwards}) {
    for (const int64_t width : kWidths) {
      for (const int64_t count : {1, 3}) {
        for (const int64_t rows : {0, 1, 7, 8, 16, 17, 40, 256}) {
          for (const int64_t columns : {0, 1, 5, 8, 16, 31, 256}) {
            const std::vector<std::byte> from = numbered(width * count * rows * columns);
            std::vector<std::byte> to(from.size());
            transpose_matrices(width, count, rows, columns, from.data(), to.data(), for_each);
            EXPECT_EQ(to, transposed(width, count, rows, columns, from))
                << width << " " << count << " " << rows << " " << columns;
          }
        }
      }
    }
  }
}

TEST(MatrixOrder, TransposesSquaresInPlace) {
  for (const ForEach& for_each : {ForEach(), kBackwards}) {
    for (const int64_t width : kWidths) {
      for (const int64_t count : {1, 3}) {
        for (const int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 33, 64, 257}) {
          const std::vector<std::byte> from = numbered(width * count * n * n);
          std::vector<std::byte> data = from;
          transpose_squares(width, count, n, data.data(), for_each);
          EXPECT_EQ(data, transposed(width, count, n, n, from))
              << width << " " << count << " " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hekla::reference
