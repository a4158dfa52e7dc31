// SPDX-License-Identifier: Apache-2.0
// Host arrays in any order, to and from dense row-major bytes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "plugin_api/pjrt_c_api.h"
#include "runtime/base/host_array.h"

namespace hekla::pjrt {

// Byte strides of a dense row-major array.
std::vector<int64_t> dense_strides(DType dtype, std::span<const int64_t> dims);

// The byte strides that `layout` asks for on the host, or nullopt for dense row-major (also when
// `layout` is null or lists no dimensions). Tiled layouts may permute dimensions but not tile.
// Nested struct sizes are not looked at: callers leave them unset.
Result<std::optional<std::vector<int64_t>>> layout_strides(const PJRT_Buffer_MemoryLayout* layout,
                                                           DType dtype,
                                                           std::span<const int64_t> dims);

// Dense row-major `to` from elements at the given strides, which may be zero or negative.
void gather_strided(const std::byte* from, std::span<const int64_t> byte_strides,
                    std::span<const int64_t> dims, int64_t element_bytes, std::byte* to);
// The other way.
void scatter_strided(const std::byte* from, std::span<const int64_t> byte_strides,
                     std::span<const int64_t> dims, int64_t element_bytes, std::byte* to);

}  // namespace hekla::pjrt
