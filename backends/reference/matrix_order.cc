// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/matrix_order.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/reference/task_ranges.h"

namespace hekla::reference {
namespace {

struct Wide {
  uint64_t parts[2];
};

// A square of one cache line a row, of elements of 16 bytes two, transposed.
template <typename T>
class Tile {
 public:
  static constexpr int64_t kSize = sizeof(T) == 4 ? 16 : 8;

  // From rows `stride` elements apart.
  void load(const T* from, int64_t stride) {
    if constexpr (sizeof(T) == 8) {
      using Pair = uint64_t __attribute__((vector_size(16)));
      for (int64_t i = 0; i < kSize; i += 2) {
        for (int64_t j = 0; j < kSize; j += 2) {
          const Pair a = read<Pair>(from + i * stride + j);
          const Pair b = read<Pair>(from + (i + 1) * stride + j);
          write(j, i, Pair{a[0], b[0]});
          write(j + 1, i, Pair{a[1], b[1]});
        }
      }
    } else if constexpr (sizeof(T) == 4) {
      using Four = uint32_t __attribute__((vector_size(16)));
      for (int64_t i = 0; i < kSize; i += 4) {
        for (int64_t j = 0; j < kSize; j += 4) {
          Four rows[4];
          for (int64_t k = 0; k < 4; ++k) rows[k] = read<Four>(from + (i + k) * stride + j);
          const Four low = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
          const Four low2 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
          const Four high = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
          const Four high2 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
          write(j, i, __builtin_shufflevector(low, low2, 0, 1, 4, 5));
          write(j + 1, i, __builtin_shufflevector(low, low2, 2, 3, 6, 7));
          write(j + 2, i, __builtin_shufflevector(high, high2, 0, 1, 4, 5));
          write(j + 3, i, __builtin_shufflevector(high, high2, 2, 3, 6, 7));
        }
      }
    } else {
      for (int64_t i = 0; i < kSize; ++i) {
        for (int64_t j = 0; j < kSize; ++j) values_[j * kSize + i] = from[i * stride + j];
      }
    }
  }
  void store(T* to, int64_t stride) const {
    for (int64_t j = 0; j < kSize; ++j) {
      std::memcpy(to + j * stride, values_ + j * kSize, kSize * sizeof(T));
    }
  }

 private:
  template <typename V>
  static V read(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  template <typename V>
  void write(int64_t row, int64_t column, V value) {
    std::memcpy(values_ + row * kSize + column, &value, sizeof(value));
  }

  alignas(64) T values_[kSize * kSize];
};

template <typename T>
void transpose_each(int64_t count, int64_t rows, int64_t columns, const T* from, T* to,
                    const ForEach& for_each) {
  constexpr int64_t kTile = Tile<T>::kSize;
  const int64_t stripes = (rows + kTile - 1) / kTile;
  const auto stripe = [&](int64_t begin, int64_t end) {
    Tile<T> tile;
    for (int64_t s = begin; s < end; ++s) {
      const T* source = from + s / stripes * rows * columns;
      T* target = to + s / stripes * rows * columns;
      const int64_t first = s % stripes * kTile, last = std::min(first + kTile, rows);
      int64_t column = 0;
      if (last - first == kTile) {
        for (; column + kTile <= columns; column += kTile) {
          tile.load(source + first * columns + column, columns);
          tile.store(target + column * rows + first, rows);
        }
      }
      for (; column < columns; ++column) {
        for (int64_t i = first; i < last; ++i)
          target[column * rows + i] = source[i * columns + column];
      }
    }
  };
  if (columns > 0) {
    for_ranges(for_each, count * stripes, static_cast<double>(kTile * columns), stripe);
  }
}

template <typename T>
void transpose_each_square(int64_t count, int64_t n, T* data, const ForEach& for_each) {
  constexpr int64_t kTile = Tile<T>::kSize;
  const int64_t stripes = (n + kTile - 1) / kTile;
  // Each stripe of rows with the columns that mirror it, from the diagonal on.
  const auto stripe = [&](int64_t begin, int64_t end) {
    Tile<T> above, below;
    for (int64_t s = begin; s < end; ++s) {
      T* a = data + s / stripes * n * n;
      const int64_t first = s % stripes * kTile, last = std::min(first + kTile, n);
      int64_t column = first;
      if (last - first == kTile) {
        above.load(a + first * n + first, n);
        above.store(a + first * n + first, n);
        for (column += kTile; column + kTile <= n; column += kTile) {
          T* const right = a + first * n + column;
          T* const under = a + column * n + first;
          above.load(right, n);
          below.load(under, n);
          above.store(under, n);
          below.store(right, n);
        }
      }
      for (; column < n; ++column) {
        for (int64_t i = first; i < std::min(last, column); ++i)
          std::swap(a[i * n + column], a[column * n + i]);
      }
    }
  };
  for_ranges(for_each, count * stripes, static_cast<double>(kTile * n), stripe);
}

template <typename F>
void with_element(int64_t width, const F& f) {
  if (width == 4) return f(static_cast<uint32_t*>(nullptr));
  if (width == 8) return f(static_cast<uint64_t*>(nullptr));
  f(static_cast<Wide*>(nullptr));
}

}  // namespace

void transpose_matrices(int64_t width, int64_t count, int64_t rows, int64_t columns,
                        const void* from, void* to, const ForEach& for_each) {
  with_element(width, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    transpose_each(count, rows, columns, static_cast<const T*>(from), static_cast<T*>(to),
                   for_each);
  });
}

void transpose_squares(int64_t width, int64_t count, int64_t n, void* data,
                       const ForEach& for_each) {
  with_element(width, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    transpose_each_square(count, n, static_cast<T*>(data), for_each);
  });
}

}  // namespace hekla::reference
