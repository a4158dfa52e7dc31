// SPDX-License-Identifier: Apache-2.0
// Columns of 8-bit integers into panels: four depths of a lane are one element, in their order from
// the low byte on. Included inside the unnamed namespace of micro_kernels_LEVEL.cc that are
// compiled for processors that the process may not run on, so nothing here is shared with other
// files. They define kBlock and transpose_block (blocks_avx.h) before. `kFlip` is 0x80 in each byte
// where the panel has the bytes with their highest bit turned round, else 0: lanes that are null,
// which stand for zeros, and the depths that fill up the last element become it.

constexpr int kDepths = 4;  // of an element

// Up to four depths of a lane as one element; the rest of it is zero.
inline uint32_t element_of(const uint8_t* from, int64_t step, int64_t depths) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < depths; ++i) bits |= static_cast<uint32_t>(from[i * step]) << (8 * i);
  return bits;
}
inline void put(uint32_t element, float* to) { __builtin_memcpy(to, &element, sizeof(element)); }

// Four depths of 32 lanes side by side.
template <uint32_t kFlip>
inline void copy_32_elements(const uint8_t* from, int64_t step, float* to) {
  __m256i depth[kDepths];
#pragma GCC unroll 4
  for (int i = 0; i < kDepths; ++i) {
    depth[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * step));
  }
  const __m256i first_low = _mm256_unpacklo_epi8(depth[0], depth[1]);
  const __m256i first_high = _mm256_unpackhi_epi8(depth[0], depth[1]);
  const __m256i last_low = _mm256_unpacklo_epi8(depth[2], depth[3]);
  const __m256i last_high = _mm256_unpackhi_epi8(depth[2], depth[3]);
  // Lanes 4 i to 4 i + 3, and those 16 further on in the upper half.
  const __m256i lanes[4] = {
      _mm256_unpacklo_epi16(first_low, last_low), _mm256_unpackhi_epi16(first_low, last_low),
      _mm256_unpacklo_epi16(first_high, last_high), _mm256_unpackhi_epi16(first_high, last_high)};
  const __m256i flip = _mm256_set1_epi32(static_cast<int>(kFlip));
  const auto store_eight = [&](int eight, __m256i elements) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + eight * 8),
                        _mm256_xor_si256(elements, flip));
  };
  store_eight(0, _mm256_permute2x128_si256(lanes[0], lanes[1], 0x20));
  store_eight(1, _mm256_permute2x128_si256(lanes[2], lanes[3], 0x20));
  store_eight(2, _mm256_permute2x128_si256(lanes[0], lanes[1], 0x31));
  store_eight(3, _mm256_permute2x128_si256(lanes[2], lanes[3], 0x31));
}

// Four depths of `kWidth` lanes side by side.
template <int kWidth, uint32_t kFlip>
inline void copy_elements(const uint8_t* from, int64_t step, float* to) {
  if constexpr (kWidth % 32 == 0) {
    for (int l = 0; l < kWidth; l += 32) copy_32_elements<kFlip>(from + l, step, to + l);
    return;
  }
  uint32_t row[kWidth];
  for (int l = 0; l < kWidth; ++l) {
    row[l] = kFlip ^ (from[l] | static_cast<uint32_t>(from[step + l]) << 8 |
                      static_cast<uint32_t>(from[2 * step + l]) << 16 |
                      static_cast<uint32_t>(from[3 * step + l]) << 24);
  }
  __builtin_memcpy(to, row, sizeof(row));
}

template <uint32_t kFlip>
inline void flip(float* elements, int64_t count) {
  if constexpr (kFlip == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, elements + i, sizeof(bits));
    put(bits ^ kFlip, elements + i);
  }
}

template <int kWidth, uint32_t kFlip>
void pack_width(const void* const* lanes, int64_t step, int64_t count, float* to) {
  const uint8_t* from[kWidth];
  bool all = true;
  for (int l = 0; l < kWidth; ++l) {
    from[l] = static_cast<const uint8_t*>(lanes[l]);
    all &= from[l] != nullptr;
  }
  bool side_by_side = all;
  for (int l = 1; all && l < kWidth; ++l) side_by_side &= from[l] == from[0] + l;
  int64_t d = 0;
  if (side_by_side) {
    for (; d + kDepths <= count; d += kDepths, to += kWidth) {
      copy_elements<kWidth, kFlip>(from[0] + d * step, step, to);
    }
  } else if (all && step == 1) {
    constexpr int64_t kDepthsOfBlock = kBlock * kDepths;
    const float* rows[kWidth];
    for (int l = 0; l < kWidth; ++l) rows[l] = reinterpret_cast<const float*>(from[l]);
    const int64_t blocks = count / kDepthsOfBlock;
    int l = 0;
    for (; l + kBlock <= kWidth; l += kBlock) {
      for (int64_t b = 0; b < blocks; ++b) {
        transpose_block(rows + l, b * kBlock, to + b * kBlock * kWidth + l, kWidth);
      }
    }
    for (; l < kWidth; ++l) {
      for (int64_t e = 0; e < blocks * kBlock; ++e) {
        put(element_of(from[l] + e * kDepths, 1, kDepths), to + e * kWidth + l);
      }
    }
    flip<kFlip>(to, blocks * kBlock * kWidth);
    d = blocks * kDepthsOfBlock;
    to += blocks * kBlock * kWidth;
  }
  for (; d < count; d += kDepths, to += kWidth) {
    const int64_t here = count - d < kDepths ? count - d : kDepths;
    for (int l = 0; l < kWidth; ++l) {
      put(kFlip ^ (from[l] == nullptr ? 0 : element_of(from[l] + d * step, step, here)), to + l);
    }
  }
}

// Rows of memory that are far apart, which no processor foresees. An address behind the last one
// does no harm.
inline void prefetch_depths(const uint8_t* from, int64_t step, int64_t length) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < kDepths; ++i, from += step) {
    for (int64_t l = 0; l < length; l += kLine) __builtin_prefetch(from + l);
  }
}

template <int kWidth, uint32_t kFlip>
void spread_width(const uint8_t* from, int64_t step, int64_t count, int64_t first, int64_t length,
                  int64_t panel_step, float* to) {
  to += first / kWidth * panel_step;
  for (int64_t d = 0; d < count; d += kDepths, to += kWidth) {
    const int64_t depths = count - d < kDepths ? count - d : kDepths;
    const uint8_t* at = from + d * step;
    prefetch_depths(at + 3 * kDepths * step, step, length);
    float* panel = to;
    int64_t lane = first % kWidth;
    for (int64_t left = length; left > 0;) {
      const int64_t here = kWidth - lane < left ? kWidth - lane : left;
      if (here == kWidth && depths == kDepths) {
        copy_elements<kWidth, kFlip>(at, step, panel);
      } else {
        for (int64_t l = 0; l < here; ++l) {
          put(kFlip ^ element_of(at + l, step, depths), panel + lane + l);
        }
      }
      at += here;
      left -= here;
      lane = 0;
      panel += panel_step;
    }
  }
}

template <int kWidth, uint32_t kFlip>
void spread_zeros(int64_t count, int64_t first, int64_t length, int64_t panel_step, float* to) {
  for (int64_t l = first; l < first + length; ++l) {
    float* lane = to + l / kWidth * panel_step + l % kWidth;
    for (int64_t d = 0; d < count; d += kDepths, lane += kWidth) put(kFlip, lane);
  }
}

template <int kWidth, uint32_t kFlip>
void spread_as(const void* from, int64_t step, int64_t count, int64_t first, int64_t length,
               int64_t panel_step, float* to) {
  if (from == nullptr) {
    spread_zeros<kWidth, kFlip>(count, first, length, panel_step, to);
  } else {
    spread_width<kWidth, kFlip>(static_cast<const uint8_t*>(from), step, count, first, length,
                                panel_step, to);
  }
}
