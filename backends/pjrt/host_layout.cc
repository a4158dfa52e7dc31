// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/host_layout.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/copy_bytes.h"

namespace hekla::pjrt {
namespace {

// Calls copy(dense offset, strided offset) for the start of every innermost row.
template <typename Copy>
void for_each_row(std::span<const int64_t> strides, std::span<const int64_t> dims,
                  int64_t element_bytes, Copy copy) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return;
  const size_t outer = dims.empty() ? 0 : dims.size() - 1;
  const int64_t row = dims.empty() ? 1 : dims.back();
  std::vector<int64_t> index(outer);
  int64_t dense = 0;
  int64_t strided = 0;
  while (true) {
    copy(dense, strided);
    dense += row * element_bytes;
    size_t d = outer;
    while (d > 0) {
      --d;
      strided += strides[d];
      if (++index[d] < dims[d]) break;
      strided -= index[d] * strides[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t count, int64_t element_bytes) {
  if (from_stride == element_bytes && to_stride == element_bytes) {
    copy_bytes(to, from, count * element_bytes);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, static_cast<size_t>(element_bytes));
  }
}

}  // namespace

std::vector<int64_t> dense_strides(DType dtype, std::span<const int64_t> dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = dtype_bytes(dtype);
  for (size_t d = dims.size(); d > 0; --d) {
    strides[d - 1] = stride;
    // Sizes that overflow are refused by whoever needs the array's bytes.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(dims[d - 1], 1), &stride)) {
      stride = std::numeric_limits<int64_t>::max();
    }
  }
  return strides;
}

Result<std::optional<std::vector<int64_t>>> layout_strides(const PJRT_Buffer_MemoryLayout* layout,
                                                           DType dtype,
                                                           std::span<const int64_t> dims) {
  using Strides = std::optional<std::vector<int64_t>>;
  if (layout == nullptr) return Strides();
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    const auto& strides = layout->strides;
    if (strides.num_byte_strides == 0) return Strides();
    if (strides.num_byte_strides != dims.size() || strides.byte_strides == nullptr) {
      return invalid_argument("a layout of {} strides for rank {}", strides.num_byte_strides,
                              dims.size());
    }
    return Strides(std::vector<int64_t>(strides.byte_strides,
                                        strides.byte_strides + strides.num_byte_strides));
  }
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled) {
    return invalid_argument("there is no memory layout of type {}", static_cast<int>(layout->type));
  }
  const auto& tiled = layout->tiled;
  if (tiled.num_tiles != 0) return unimplemented("tiled layouts are not offered");
  if (tiled.minor_to_major_size == 0) return Strides();
  if (tiled.minor_to_major_size != dims.size() || tiled.minor_to_major == nullptr) {
    return invalid_argument("a layout of {} dimensions for rank {}", tiled.minor_to_major_size,
                            dims.size());
  }
  std::vector<int64_t> strides(dims.size(), -1);
  int64_t stride = dtype_bytes(dtype);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t d = tiled.minor_to_major[i];
    if (d < 0 || d >= static_cast<int64_t>(dims.size()) || strides[static_cast<size_t>(d)] >= 0) {
      return invalid_argument("minor_to_major is no permutation of {} dimensions", dims.size());
    }
    strides[static_cast<size_t>(d)] = stride;
    stride *= std::max<int64_t>(dims[static_cast<size_t>(d)], 1);
  }
  if (strides == dense_strides(dtype, dims)) return Strides();
  return Strides(std::move(strides));
}

void gather_strided(const std::byte* from, std::span<const int64_t> strides,
                    std::span<const int64_t> dims, int64_t element_bytes, std::byte* to) {
  const int64_t row = dims.empty() ? 1 : dims.back();
  const int64_t stride = dims.empty() ? element_bytes : strides.back();
  for_each_row(strides, dims, element_bytes, [&](int64_t dense, int64_t strided) {
    copy_row(from + strided, stride, to + dense, element_bytes, row, element_bytes);
  });
}

void scatter_strided(const std::byte* from, std::span<const int64_t> strides,
                     std::span<const int64_t> dims, int64_t element_bytes, std::byte* to) {
  const int64_t row = dims.empty() ? 1 : dims.back();
  const int64_t stride = dims.empty() ? element_bytes : strides.back();
  for_each_row(strides, dims, element_bytes, [&](int64_t dense, int64_t strided) {
    copy_row(from + dense, element_bytes, to + strided, stride, row, element_bytes);
  });
}

}  // namespace hekla::pjrt
