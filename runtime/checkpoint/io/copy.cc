// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/copy.h"

#include <cstdint>
#include <cstring>

#include "runtime/base/copy_bytes.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hekla::checkpoint {

void copy_past_cache(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  constexpr size_t kMinimum = size_t{256} << 10;  // less is read again while it is in cache
  if (bytes >= kMinimum) {
    const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    size_t at = head;
    for (; at + kLine <= bytes; at += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from + at);
      auto* target = reinterpret_cast<__m128i*>(to + at);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                    c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    _mm_sfence();  // before the buffer is handed to another thread
    std::memcpy(to + at, from + at, bytes - at);
    return;
  }
#endif
  copy_bytes(to, from, static_cast<int64_t>(bytes));
}

}  // namespace hekla::checkpoint
