// SPDX-License-Identifier: Apache-2.0
// What denormals leave open on a device that does not declare DenormPreserve, for tests.
//
// Such a device may take a denormal for zero in one operation and not in the next (NVIDIA's driver
// does: add, mul and sub keep f32 denormals, comparisons, fma and conversions do not, and a change
// of sign does or does not). So a test computes what it expects twice, once under FlushDenormals,
// and leaves out what differs. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "backends/vulkan/codegen/target.h"

namespace hekla::vulkan::testing {

inline bool keeps_denormals(const Target& target) {
  return keeps_f32_subnormals(target) && keeps_f64_subnormals(target);
}

// While it lives, this thread's arithmetic takes denormals for zero and gives zero for them. On
// processors without SSE2 it does nothing.
class FlushDenormals {
 public:
#if defined(__SSE2__)
  FlushDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE2__)
  unsigned before_;
#endif
};

// Copies those elements of `expected` into `actual` that differ from `flushed`. All of one size, a
// multiple of `element_bytes`.
inline void leave_out(std::span<const std::byte> expected, std::span<const std::byte> flushed,
                      size_t element_bytes, std::span<std::byte> actual) {
  for (size_t i = 0; i + element_bytes <= actual.size(); i += element_bytes) {
    if (std::memcmp(&expected[i], &flushed[i], element_bytes) != 0) {
      std::memcpy(&actual[i], &expected[i], element_bytes);
    }
  }
}

// Copies the f32 denormals of `expected` for which `actual` has a zero of their sign.
inline void leave_out_zeros_for_denormals(std::span<const std::byte> expected,
                                          std::span<std::byte> actual) {
  constexpr uint32_t kExponent = 0x7f800000, kSign = 0x80000000;
  for (size_t i = 0; i + sizeof(uint32_t) <= actual.size(); i += sizeof(uint32_t)) {
    uint32_t wanted = 0, got = 0;
    std::memcpy(&wanted, &expected[i], sizeof(wanted));
    std::memcpy(&got, &actual[i], sizeof(got));
    if ((wanted & kExponent) == 0 && got == (wanted & kSign)) {
      std::memcpy(&actual[i], &wanted, sizeof(wanted));
    }
  }
}

}  // namespace hekla::vulkan::testing
