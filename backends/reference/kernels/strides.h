// SPDX-License-Identifier: Apache-2.0
// Walking dense arrays by strides: the one N-dimensional loop that all kernels share. Strides are
// in elements and may be zero or negative. Pure and thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::reference {

// Strides of a dense row-major array.
Dims row_major_strides(std::span<const int64_t> dims);

// True when `dims` are the numbers 0 .. size-1 in some order.
bool is_permutation_of_dims(std::span<const int64_t> dims);

// True when every entry is in [0, rank) and none occurs twice.
bool are_unique_dims(std::span<const int64_t> dims, int64_t rank);

// Copies the elements of an index space `dims` between two strided views. Views that overlap, or an
// output stride of zero, are the caller's mistake.
void copy_strided(DType dtype, std::span<const int64_t> dims, const std::byte* in,
                  std::span<const int64_t> in_strides, std::byte* out,
                  std::span<const int64_t> out_strides);

// Writes `count` copies of the element at `value`.
void fill_elements(DType dtype, const std::byte* value, std::byte* out, int64_t count);

// Calls f(offsets) for each index of `dims` in row-major order, where offsets[k] is the sum of
// index times strides[k]. One call with zero offsets for rank 0, none when a dimension is zero.
template <size_t N, typename F>
void for_each_index(std::span<const int64_t> dims,
                    const std::array<std::span<const int64_t>, N>& strides, F&& f) {
  for (int64_t dim : dims) {
    if (dim == 0) return;
  }
  const size_t rank = dims.size();
  std::vector<int64_t> index(rank, 0);
  std::array<int64_t, N> offsets{};
  while (true) {
    f(offsets);
    size_t d = rank;
    while (d > 0) {
      --d;
      if (++index[d] < dims[d]) {
        for (size_t k = 0; k < N; ++k) offsets[k] += strides[k][d];
        break;
      }
      index[d] = 0;
      for (size_t k = 0; k < N; ++k) offsets[k] -= strides[k][d] * (dims[d] - 1);
      if (d == 0) return;
    }
    if (rank == 0) return;
  }
}

}  // namespace hekla::reference
