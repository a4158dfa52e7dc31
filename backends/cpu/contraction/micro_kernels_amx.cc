// SPDX-License-Identifier: Apache-2.0
// Products of 8-bit integers by the matrix unit of AMX_INT8: tiles of 16 rows of 64 bytes, each
// of which an instruction multiplies with 16 columns of 64 bytes. Compiled for processors that the
// process may not run on: nothing here is shared with other files.
#include <immintrin.h>

#include "backends/cpu/contraction/micro_kernels.h"

namespace hekla::cpu {
namespace {

constexpr int kRows = 16;
constexpr int kTileColumns = 16;
constexpr int kHalf = 2 * kTileColumns;
constexpr int kColumns = 4 * kTileColumns;
constexpr int64_t kRowBytes = 64;
constexpr int64_t kTileBytes = kRows * kRowBytes;
static_assert(kRows <= kMostTileRows && kColumns <= kMostPanelColumns);

constexpr int kBlock = 8;
#include "backends/cpu/contraction/blocks_avx.h"
#include "backends/cpu/contraction/bytes_panels.h"
static_assert(kUnitElements * kDepths == kRowBytes);

// Eight tiles of 16 rows of 64 bytes.
struct alignas(64) Config {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Config) == 64);
// In memory: GCC's intrinsic says of its argument that 8 bytes are read.
constexpr Config kConfig;

void begin() { _tile_loadconfig(&kConfig); }
void end() { _tile_release(); }

// Registers 0 to 3 hold sums, 4 rows and 5 to 7 columns; their numbers are literals.
#define HEKLA_MULTIPLY(sum, row, column)               \
  do {                                                 \
    if constexpr (kUnsignedRows && kUnsignedColumns) { \
      _tile_dpbuud(sum, row, column);                  \
    } else if constexpr (kUnsignedRows) {              \
      _tile_dpbusd(sum, row, column);                  \
    } else if constexpr (kUnsignedColumns) {           \
      _tile_dpbsud(sum, row, column);                  \
    } else {                                           \
      _tile_dpbssd(sum, row, column);                  \
    }                                                  \
  } while (false)

template <bool kIsHalf>
inline void load_sums(const float* from, int64_t bytes) {
  _tile_loadd(0, from, bytes);
  _tile_loadd(1, from + kTileColumns, bytes);
  if constexpr (kIsHalf) return;
  _tile_loadd(2, from + 2 * kTileColumns, bytes);
  _tile_loadd(3, from + 3 * kTileColumns, bytes);
}

template <bool kIsHalf>
inline void store_sums(float* to, int64_t bytes) {
  _tile_stored(0, to, bytes);
  _tile_stored(1, to + kTileColumns, bytes);
  if constexpr (kIsHalf) return;
  _tile_stored(2, to + 2 * kTileColumns, bytes);
  _tile_stored(3, to + 3 * kTileColumns, bytes);
}

// `kCount` rows of sums, with room for all.
template <int kCount, bool kIsHalf, bool kUnsignedRows, bool kUnsignedColumns>
void tile(const Tile& t) {
  constexpr int kWidth = kIsHalf ? kHalf : kColumns;
  constexpr int64_t kSumsBytes = kWidth * sizeof(float);
  const auto* rows = reinterpret_cast<const char*>(t.rows[0]);
  const auto* columns = reinterpret_cast<const char*>(t.columns);
  const int64_t columns_bytes = t.columns_step * static_cast<int64_t>(sizeof(float));
  const int64_t units = t.runs[0] / kUnitElements;
  // Rows of sums that lie as far apart as each other go to memory directly.
  bool is_direct = kCount == kRows;
  const int64_t distance = kCount == 1 ? 0 : t.out[1] - t.out[0];
  for (int r = 2; r < kCount; ++r) is_direct &= t.out[r] - t.out[r - 1] == distance;
  const int64_t out_bytes = distance * static_cast<int64_t>(sizeof(float));
  alignas(64) float sums[kRows][kWidth];
  if (!t.continues) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else if (is_direct) {
    load_sums<kIsHalf>(t.out[0], out_bytes);
  } else {
    for (int r = 0; r < kCount; ++r) __builtin_memcpy(sums[r], t.out[r], sizeof(sums[r]));
    load_sums<kIsHalf>(sums[0], kSumsBytes);
  }
  for (int64_t u = 0; u < units; ++u) {
    _tile_loadd(4, rows, kRowBytes);
    _tile_loadd(5, columns, columns_bytes);
    HEKLA_MULTIPLY(0, 4, 5);
    _tile_loadd(6, columns + kRowBytes, columns_bytes);
    HEKLA_MULTIPLY(1, 4, 6);
    if constexpr (!kIsHalf) {
      _tile_loadd(7, columns + 2 * kRowBytes, columns_bytes);
      HEKLA_MULTIPLY(2, 4, 7);
      _tile_loadd(5, columns + 3 * kRowBytes, columns_bytes);
      HEKLA_MULTIPLY(3, 4, 5);
    }
    rows += kTileBytes;
    columns += kUnitElements * columns_bytes;
  }
  if (is_direct) return store_sums<kIsHalf>(t.out[0], out_bytes);
  store_sums<kIsHalf>(sums[0], kSumsBytes);
  for (int r = 0; r < kCount; ++r) __builtin_memcpy(t.out[r], sums[r], sizeof(sums[r]));
}
#undef HEKLA_MULTIPLY

inline void copy_row_bytes(uint8_t* to, const uint8_t* from, int64_t count) {
  __builtin_memcpy(to, from, static_cast<size_t>(count));
}

void pack_row(const void* row, int64_t step, int64_t count, float* to) {
  auto* bytes = reinterpret_cast<uint8_t*>(to);
  const auto* from = static_cast<const uint8_t*>(row);
  for (int64_t d = 0; d < count; d += kRowBytes, bytes += kTileBytes) {
    const int64_t here = count - d < kRowBytes ? count - d : kRowBytes;
    if (from == nullptr || here < kRowBytes) __builtin_memset(bytes, 0, kRowBytes);
    if (from == nullptr) continue;
    if (step != 1) {
      for (int64_t i = 0; i < here; ++i) bytes[i] = from[(d + i) * step];
    } else if (here == kRowBytes) {
      copy_row_bytes(bytes, from + d, kRowBytes);
    } else {
      copy_row_bytes(bytes, from + d, here);
    }
  }
}

void pack(Narrow, const void* const* lanes, int width, int64_t step, int64_t count, float* to) {
  width == kHalf ? pack_width<kHalf, 0>(lanes, step, count, to)
                 : pack_width<kColumns, 0>(lanes, step, count, to);
}

void spread(Narrow, const void* from, int64_t step, int64_t count, int64_t first, int64_t length,
            int width, int64_t panel_step, float* to) {
  width == kHalf ? spread_as<kHalf, 0>(from, step, count, first, length, panel_step, to)
                 : spread_as<kColumns, 0>(from, step, count, first, length, panel_step, to);
}

template <int kCount, bool kUnsignedRows, bool kUnsignedColumns>
void add_tiles(MicroKernels& kernels) {
  kernels.tile_integers[kCount] = tile<kCount, false, kUnsignedRows, kUnsignedColumns>;
  kernels.half_tile_integers[kCount] = tile<kCount, true, kUnsignedRows, kUnsignedColumns>;
  if constexpr (kCount > 1) add_tiles<kCount - 1, kUnsignedRows, kUnsignedColumns>(kernels);
}

template <bool kUnsignedRows, bool kUnsignedColumns>
const MicroKernels* kernels() {
  static const MicroKernels made = [] {
    MicroKernels all;
    all.rows = kRows;
    all.columns = kColumns;
    all.half_columns = kHalf;
    all.depths = kDepths;
    add_tiles<kRows, kUnsignedRows, kUnsignedColumns>(all);
    all.pack = pack;
    all.spread = spread;
    all.pack_row = pack_row;
    all.begin = begin;
    all.end = end;
    return all;
  }();
  return &made;
}

}  // namespace

const MicroKernels* amx_micro_kernels(bool unsigned_rows, bool unsigned_columns) {
  if (unsigned_rows) return unsigned_columns ? kernels<true, true>() : kernels<true, false>();
  return unsigned_columns ? kernels<false, true>() : kernels<false, false>();
}

}  // namespace hekla::cpu
