// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/copy_bytes.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hekla {
namespace {

constexpr int64_t kShortCopy = 2'048;    // for which no memcpy takes "rep movsb"
constexpr uintptr_t kAliasing = 4'096;   // loads and stores are compared modulo it first
constexpr uintptr_t kSlowDistance = 32;  // measured: 1 to 31 are slow, 32 is not

bool is_aliased(const void* to, const void* from) {
  const uintptr_t distance =
      (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kAliasing;
  return distance > 0 && distance < kSlowDistance;
}

using Vector = unsigned long long __attribute__((vector_size(16)));

Vector load(const std::byte* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void store(std::byte* to, const Vector& value) { std::memcpy(to, &value, sizeof(value)); }

constexpr size_t kLine = 64;

// All loads of a line before its stores: one wait for a line, not one for each vector.
void copy_lines(std::byte* to, const std::byte* from, size_t bytes) {
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const Vector a = load(from), b = load(from + 16), c = load(from + 32), d = load(from + 48);
    store(to, a);
    store(to + 16, b);
    store(to + 32, c);
    store(to + 48, d);
  }
  std::memcpy(to, from, bytes);
}

}  // namespace

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  if (bytes >= kShortCopy && is_aliased(to, from)) {
    copy_lines(static_cast<std::byte*>(to), static_cast<const std::byte*>(from),
               static_cast<size_t>(bytes));
    return;
  }
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void stream_bytes(void* to, const void* from, int64_t bytes) {
#ifdef __SSE2__
  if (bytes <= 0) return;
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  auto left = static_cast<size_t>(bytes);
  const size_t head = std::min(left, (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine);
  std::memcpy(target, source, head);
  for (target += head, source += head, left -= head; left >= kLine;
       target += kLine, source += kLine, left -= kLine) {
    const auto* line = reinterpret_cast<const __m128i*>(source);
    auto* out = reinterpret_cast<__m128i*>(target);
    const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1),
                  c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // before another thread is told of it
  std::memcpy(target, source, left);
#else
  copy_bytes(to, from, bytes);
#endif
}

void move_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0 || to == from) return;
  const auto target = reinterpret_cast<uintptr_t>(to), source = reinterpret_cast<uintptr_t>(from);
  const uintptr_t apart = target > source ? target - source : source - target;
  if (apart >= static_cast<uintptr_t>(bytes)) return copy_bytes(to, from, bytes);
  std::memmove(to, from, static_cast<size_t>(bytes));
}

}  // namespace hekla
