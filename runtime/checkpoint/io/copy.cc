// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/copy.h"

#include "runtime/base/copy_bytes.h"

namespace hekla::checkpoint {

void copy_past_cache(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kMinimum = size_t{256} << 10;  // less is read again while it is in cache
  if (bytes >= kMinimum) return stream_bytes(to, from, static_cast<int64_t>(bytes));
  copy_bytes(to, from, static_cast<int64_t>(bytes));
}

}  // namespace hekla::checkpoint
