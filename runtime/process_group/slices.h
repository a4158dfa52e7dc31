// SPDX-License-Identifier: Apache-2.0
// Slice: rank r's part of an array that all ranks reduce together. A plain value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hekla::process_group {

struct Slice {
  int64_t first, count;
};

// The first ones have one element more.
inline Slice slice_of(int64_t count, int size, int rank) {
  const int64_t least = count / size, more = count % size;
  return {rank * least + std::min<int64_t>(rank, more), least + (rank < more ? 1 : 0)};
}

}  // namespace hekla::process_group
