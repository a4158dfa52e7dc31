// SPDX-License-Identifier: Apache-2.0
// Lists of dimension numbers and of numbers for each dimension, as attributes hold them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hekla::lower {

// Below this many contiguous elements the last dimension does not fill a vector.
inline constexpr int64_t kFewContiguous = 8;

// Whether dimension `d` is in a list of dimension numbers, and where (its size: nowhere).
inline size_t position(const std::vector<int64_t>& list, size_t d) {
  return static_cast<size_t>(std::find(list.begin(), list.end(), static_cast<int64_t>(d)) -
                             list.begin());
}
inline bool contains(const std::vector<int64_t>& list, size_t d) {
  return position(list, d) != list.size();
}

// Element `i` of a list that may be left out.
inline int64_t at_or(const std::vector<int64_t>& list, size_t i, int64_t fallback) {
  return i < list.size() ? list[i] : fallback;
}

}  // namespace hekla::lower
