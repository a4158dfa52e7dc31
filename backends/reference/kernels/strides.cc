// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/strides.h"

#include <cstdlib>
#include <cstring>

#include "backends/reference/kernels/dispatch.h"

namespace hekla::reference {
namespace {

struct Axis {
  int64_t size;
  int64_t in;
  int64_t out;
};

// Tiles of 32 x 32 elements keep both sides of a transposition in the first-level cache.
constexpr int64_t kTile = 32;

template <typename T>
void copy_row(const Axis& axis, const T* in, T* out) {
  if (axis.in == 1 && axis.out == 1) {
    std::memcpy(out, in, static_cast<size_t>(axis.size) * sizeof(T));
  } else if (axis.in == 0 && axis.out == 1) {
    std::fill_n(out, axis.size, *in);
  } else {
    for (int64_t i = 0; i < axis.size; ++i) out[i * axis.out] = in[i * axis.in];
  }
}

template <typename T>
void copy_tiled(const Axis& outer, const Axis& inner, const T* in, T* out) {
  for (int64_t i0 = 0; i0 < outer.size; i0 += kTile) {
    const int64_t i1 = std::min(outer.size, i0 + kTile);
    for (int64_t j0 = 0; j0 < inner.size; j0 += kTile) {
      const int64_t j1 = std::min(inner.size, j0 + kTile);
      for (int64_t i = i0; i < i1; ++i) {
        for (int64_t j = j0; j < j1; ++j) {
          out[i * outer.out + j * inner.out] = in[i * outer.in + j * inner.in];
        }
      }
    }
  }
}

// Drops axes of size 1, orders the rest so that writes are as sequential as can be, and merges
// neighbours that form one longer run. False when there is nothing to copy.
bool simplify(std::span<const int64_t> dims, std::span<const int64_t> in_strides,
              std::span<const int64_t> out_strides, std::vector<Axis>& axes) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == 0) return false;
    if (dims[d] != 1) axes.push_back({dims[d], in_strides[d], out_strides[d]});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return std::abs(a.out) > std::abs(b.out); });
  size_t kept = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (kept > 0) {
      Axis& last = axes[kept - 1];
      if (last.in == axes[i].in * axes[i].size && last.out == axes[i].out * axes[i].size) {
        last = {last.size * axes[i].size, axes[i].in, axes[i].out};
        continue;
      }
    }
    axes[kept++] = axes[i];
  }
  axes.resize(kept);
  return true;
}

}  // namespace

Dims row_major_strides(std::span<const int64_t> dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(dims[d], 1);
  }
  return strides;
}

bool are_unique_dims(std::span<const int64_t> dims, int64_t rank) {
  std::vector<bool> seen(static_cast<size_t>(rank), false);
  for (int64_t dim : dims) {
    if (dim < 0 || dim >= rank || seen[dim]) return false;
    seen[dim] = true;
  }
  return true;
}

bool is_permutation_of_dims(std::span<const int64_t> dims) {
  return are_unique_dims(dims, static_cast<int64_t>(dims.size()));
}

void copy_strided(DType dtype, std::span<const int64_t> dims, const std::byte* in,
                  std::span<const int64_t> in_strides, std::byte* out,
                  std::span<const int64_t> out_strides) {
  std::vector<Axis> axes;
  if (!simplify(dims, in_strides, out_strides, axes)) return;
  if (axes.empty()) {
    std::memcpy(out, in, static_cast<size_t>(dtype_bytes(dtype)));
    return;
  }
  // A transposition: the axis that is contiguous in the input becomes the partner of the innermost
  // one, and the two are copied in tiles.
  bool is_tiled = false;
  if (axes.size() > 1 && std::abs(axes.back().in) > 1) {
    for (size_t i = 0; i + 1 < axes.size(); ++i) {
      if (std::abs(axes[i].in) == 1) {
        std::rotate(axes.begin() + static_cast<ptrdiff_t>(i),
                    axes.begin() + static_cast<ptrdiff_t>(i) + 1, axes.end() - 1);
        is_tiled = true;
        break;
      }
    }
  }
  const size_t inner_count = is_tiled ? 2 : 1;
  Dims outer_dims, outer_in, outer_out;
  for (size_t i = 0; i + inner_count < axes.size(); ++i) {
    outer_dims.push_back(axes[i].size);
    outer_in.push_back(axes[i].in);
    outer_out.push_back(axes[i].out);
  }
  visit_element_size(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const T* typed_in = reinterpret_cast<const T*>(in);
    T* typed_out = reinterpret_cast<T*>(out);
    for_each_index<2>(outer_dims, {outer_in, outer_out}, [&](const std::array<int64_t, 2>& at) {
      if (is_tiled) {
        copy_tiled(axes[axes.size() - 2], axes.back(), typed_in + at[0], typed_out + at[1]);
      } else {
        copy_row(axes.back(), typed_in + at[0], typed_out + at[1]);
      }
    });
  });
}

void fill_elements(DType dtype, const std::byte* value, std::byte* out, int64_t count) {
  visit_element_size(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    std::fill_n(reinterpret_cast<T*>(out), count, *reinterpret_cast<const T*>(value));
  });
}

}  // namespace hekla::reference
