// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers by AVX512_VNNI: an instruction multiplies four unsigned bytes of each
// lane with four signed ones and adds the products to a sum of 32 bits. Where rows and columns have
// the same sign, the columns' bytes get their highest bit turned round, which makes them 128 more
// or less than they are; each sum of a row starts with what that adds up to. Compiled for
// processors that the process may not run on: nothing here is shared with other files.
#include <immintrin.h>

#include "backends/cpu/contraction/micro_kernels.h"

namespace hekla::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kPanelVectors = 2;
constexpr int kColumns = kPanelVectors * kLanes;
constexpr int kRows = 12;
static_assert(kRows <= kMostTileRows && kColumns <= kMostPanelColumns && kRows != kLanes);

constexpr int kBlock = 8;
#include "backends/cpu/contraction/blocks_avx.h"
#include "backends/cpu/contraction/bytes_panels.h"

inline __m512i load(const float* from) { return _mm512_loadu_si512(from); }

// Rows are bytes: their elements begin anywhere.
inline __m512i splat(const float* from) {
  int32_t bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

template <bool kUnsignedRows>
inline __m512i multiply_add(__m512i row, __m512i column, __m512i sum) {
  return kUnsignedRows ? _mm512_dpbusd_epi32(sum, row, column)
                       : _mm512_dpbusd_epi32(sum, column, row);
}

template <int kCount, int kVectors, bool kUnsignedRows>
void tile(const Tile& t) {
  __m512i sums[kCount][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kCount; ++r) {
    const __m512i start = t.starts == nullptr ? __m512i{} : _mm512_set1_epi32(t.starts[r]);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = t.continues ? _mm512_add_epi32(start, load(t.out[r] + v * kLanes)) : start;
    }
  }
  const float* columns = t.columns;
  const int64_t columns_step = t.columns_step;
  const int64_t step = t.step;
  const float* const* rows = t.rows;
  for (int64_t s = 0; s < t.run_count; ++s, rows += kMostTileRows) {
    const float* row[kCount];
#pragma GCC unroll 12
    for (int r = 0; r < kCount; ++r) row[r] = rows[r];
    const int64_t count = t.runs[s];
    int64_t at = 0;
    for (int64_t d = 0; d < count; ++d) {
      __m512i c[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) c[v] = load(columns + v * kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) {
        const __m512i a = splat(row[r] + at);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = multiply_add<kUnsignedRows>(a, c[v], sums[r][v]);
        }
      }
      at += step;
      columns += columns_step;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_si512(t.out[r] + v * kLanes, sums[r][v]);
  }
}

// 128 times a row's sum, of signed bytes negative: what its columns' turned bits add, taken back.
template <bool kUnsignedRows>
void find_starts(const Tile& t, int count, int32_t* starts) {
  const __m512i turned = _mm512_set1_epi8(static_cast<char>(0x80));
  const auto add = [&](__m512i sum, __m512i row) {
    return multiply_add<kUnsignedRows>(row, turned, sum);
  };
  if (t.step != 1) {
    // From a panel: a lane is a row.
    constexpr auto kAll = static_cast<__mmask16>((1 << kRows) - 1);
    __m512i sums{};
    for (int64_t d = 0; d < t.runs[0]; ++d) {
      sums = add(sums, _mm512_maskz_loadu_epi32(kAll, t.rows[0] + d * t.step));
    }
    const auto wanted = static_cast<__mmask16>((1 << count) - 1);
    _mm512_mask_storeu_epi32(starts, wanted, _mm512_sub_epi32(__m512i{}, sums));
    return;
  }
  for (int r = 0; r < count; ++r) {
    __m512i sums{};
    for (int64_t s = 0; s < t.run_count; ++s) {
      const float* row = t.rows[s * kMostTileRows + r];
      int64_t d = 0;
      for (; d + kLanes <= t.runs[s]; d += kLanes) sums = add(sums, load(row + d));
      const auto rest = static_cast<__mmask16>((1 << (t.runs[s] - d)) - 1);
      sums = add(sums, _mm512_maskz_loadu_epi32(rest, row + d));
    }
    alignas(64) int32_t lanes[kLanes];
    _mm512_store_si512(lanes, sums);
    uint32_t sum = 0;  // wraps
    for (const int32_t lane : lanes) sum -= static_cast<uint32_t>(lane);
    starts[r] = static_cast<int32_t>(sum);
  }
}

constexpr uint32_t kTurned = 0x80808080U;

template <uint32_t kFlip>
void pack(Narrow, const void* const* lanes, int width, int64_t step, int64_t count, float* to) {
  if (width == kRows) {
    pack_width<kRows, 0>(lanes, step, count, to);
  } else if (width == kLanes) {
    pack_width<kLanes, kFlip>(lanes, step, count, to);
  } else {
    pack_width<kColumns, kFlip>(lanes, step, count, to);
  }
}

template <uint32_t kFlip>
void spread(Narrow, const void* from, int64_t step, int64_t count, int64_t first, int64_t length,
            int width, int64_t panel_step, float* to) {
  if (width == kRows) {
    spread_as<kRows, 0>(from, step, count, first, length, panel_step, to);
  } else if (width == kLanes) {
    spread_as<kLanes, kFlip>(from, step, count, first, length, panel_step, to);
  } else {
    spread_as<kColumns, kFlip>(from, step, count, first, length, panel_step, to);
  }
}

template <int kCount, bool kUnsignedRows>
void add_tiles(MicroKernels& kernels) {
  kernels.tile_integers[kCount] = tile<kCount, kPanelVectors, kUnsignedRows>;
  kernels.half_tile_integers[kCount] = tile<kCount, 1, kUnsignedRows>;
  if constexpr (kCount > 1) add_tiles<kCount - 1, kUnsignedRows>(kernels);
}

template <bool kUnsignedRows, bool kUnsignedColumns>
const MicroKernels* kernels() {
  static const MicroKernels made = [] {
    MicroKernels all;
    all.rows = kRows;
    all.columns = kColumns;
    all.half_columns = kLanes;
    all.depths = kDepths;
    add_tiles<kRows, kUnsignedRows>(all);
    constexpr uint32_t kFlip = kUnsignedRows == kUnsignedColumns ? kTurned : 0;
    if (kFlip != 0) all.find_starts = find_starts<kUnsignedRows>;
    all.pack = pack<kFlip>;
    all.spread = spread<kFlip>;
    return all;
  }();
  return &made;
}

}  // namespace

const MicroKernels* fours_micro_kernels(bool unsigned_rows, bool unsigned_columns) {
  if (unsigned_rows) return unsigned_columns ? kernels<true, true>() : kernels<true, false>();
  return unsigned_columns ? kernels<false, true>() : kernels<false, false>();
}

}  // namespace hekla::cpu
