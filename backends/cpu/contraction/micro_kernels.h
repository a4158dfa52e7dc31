// SPDX-License-Identifier: Apache-2.0
// The inner loops of contractions, compiled once for each instruction set level.
//
// A tile is up to `rows` x `columns` sums that stay in registers while their depth goes by. Rows
// are read where they lie or from a panel, columns from a panel: for each depth, `columns` numbers
// side by side. Plain functions on memory of the caller; any thread; nothing fails. Each sum takes
// its products in the order of the depth, by a fused multiply-add where the level has one, from 0
// or from what is in `out` on; what it is from 0 on may be added to what is there.
//
// Integers of 8 and 16 bits go in pairs: two depths, widened to 16 bits, are one element of a row
// or panel (a float whose bits they are), and sums are of 32 bits. Such sums wrap, so no order
// matters. Processors with instructions for bytes (AVX512_VNNI) or a matrix unit for them (AMX)
// have kernels of their own for those: four depths, as they are, are one element. Of f64 there are
// tiles, panels and `wide`, with half as many columns.
//
// A product of complex numbers is one of their parts, with rows twice as deep: for the real part of
// a row's element a panel has (re, im) of each column, for the imaginary part (-im, re).
#pragma once

#include <cstdint>

namespace hekla::cpu {

inline constexpr int kMostTileRows = 16;
inline constexpr int kMostPanelColumns = 64;
inline constexpr int kDotSums = 16;
inline constexpr int kUnitElements = 16;

// One tile over a part of the depth, which is a list of runs: elements of a row that lie `step`
// apart. Real: float or double.
template <typename Real>
struct TileOf {
  // Row r of run s starts at rows[s * kMostTileRows + r].
  const Real* const* rows = nullptr;
  const int32_t* runs = nullptr;  // length of each
  int64_t run_count = 0;
  int64_t step = 1;
  const Real* columns = nullptr;
  int64_t columns_step = 0;    // from one depth to the next
  Real* const* out = nullptr;  // per row: `columns` sums side by side
  bool continues = false;      // starts with what is in `out`; otherwise at 0
  bool adds = false;           // adds its sums to what is in `out`; of floats that start at 0
  // Per row, what each of its sums starts with besides; null: nothing.
  const int32_t* starts = nullptr;
};
using Tile = TileOf<float>;

// What a panel is filled from: lane l of run s starts at lanes[l], null for zeros. kF64 alone into
// one of double. kComplex: two numbers of the panel's type.
enum class Narrow : uint8_t { kF64, kF32, kBF16, kF16, kComplex, kS8, kU8, kS16 };

struct TileShape {
  int rows = 0;          // of a full tile
  int columns = 0;       // of a panel
  int half_columns = 0;  // of half a panel
};

template <typename Real>
struct MicroKernelsOf : TileShape {
  // By number of rows, from 1; entry 0 is not used.
  using Tiles = void (*[kMostTileRows + 1])(const TileOf<Real>&);
  Tiles tile = {};
  Tiles half_tile = {};  // of half a panel's columns
  // The same for integers.
  Tiles tile_integers = {};
  Tiles half_tile_integers = {};
  // Depths of integers that are one element.
  int depths = 2;
  // For products of 8-bit integers by a matrix unit, and by instructions that take four depths, by
  // whether rows and columns are unsigned; null: the level has none.
  const MicroKernelsOf* (*bytes)(bool unsigned_rows, bool unsigned_columns) = nullptr;
  const MicroKernelsOf* (*fours)(bool unsigned_rows, bool unsigned_columns) = nullptr;
  // Writes Tile::starts of a tile of `count` rows, of which rows, runs and step are set; null:
  // there are none.
  void (*find_starts)(const TileOf<Real>& tile, int count, int32_t* starts) = nullptr;
  // Writes `count` depths of `width` lanes: to[d * width + l] = lanes[l][d * step], with zeros for
  // lanes that are null. `width` is `rows`, `columns` or `half_columns`. Integers: `count` depths
  // become half as many pairs, the last of which may end with a zero; d numbers pairs in `to`.
  // Complex numbers: of rows `width` lanes, of columns half as many; `count` depths become twice as
  // many.
  void (*pack)(Narrow type, const void* const* lanes, int width, int64_t step, int64_t count,
               Real* to) = nullptr;
  // The same of lanes that lie side by side, for several panels of `width` at once: depth d of lane
  // first + l is from[d * step + l], for l below `length`; panels begin `panel_step` apart. `from`
  // null: zeros.
  void (*spread)(Narrow type, const void* from, int64_t step, int64_t count, int64_t first,
                 int64_t length, int width, int64_t panel_step, Real* to) = nullptr;
  // Of matrix units. Rows are not packed by `pack` then: `count` depths of one row, null for zeros,
  // go to `to`, where those of row r of a tile begin r * kUnitElements behind its first; runs are
  // whole multiples of kUnitElements. A thread that runs tiles is between `begin` and `end`.
  void (*pack_row)(const void* row, int64_t step, int64_t count, Real* to) = nullptr;
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  // out[r][c] += sum over d of rows[r][d * step] * columns[d * columns_step + c] for c below
  // `width` and up to four rows: for few rows and columns that are read once.
  void (*wide)(const Real* const* rows, int row_count, int64_t step, const Real* columns,
               int64_t columns_step, int64_t depth, int64_t width, Real* const* out) = nullptr;
  // The same of complex numbers, of which steps, depth and width count whole ones.
  void (*wide_complex)(const Real* const* rows, int row_count, int64_t step, const Real* columns,
                       int64_t columns_step, int64_t depth, int64_t width,
                       Real* const* out) = nullptr;
  // out[c] = the sum over d of row[d] * columns[c * columns_step + d] for c below `count`, each in
  // kDotSums partial sums that are added by halves (kernel::Contraction::chains). None of f64.
  void (*chained)(const Real* row, const Real* columns, int64_t columns_step, int64_t depth,
                  int64_t count, Real* out) = nullptr;
  // Of the same level, for f64.
  const MicroKernelsOf<double>* doubles = nullptr;
};
using MicroKernels = MicroKernelsOf<float>;

const MicroKernels& portable_micro_kernels();
const MicroKernels& avx2_micro_kernels();
const MicroKernels& avx512_micro_kernels();
const MicroKernels& avx512_vnni_micro_kernels();
// Those of a matrix unit for 8-bit integers, by whether rows and columns are unsigned (AMX_INT8).
const MicroKernels* amx_micro_kernels(bool unsigned_rows, bool unsigned_columns);
// Those of AVX512_VNNI, which avx512_vnni_micro_kernels() names.
const MicroKernels* fours_micro_kernels(bool unsigned_rows, bool unsigned_columns);
// Whether the system lets this process use it; asked for all its threads when that is first needed,
// as registers of 8 KiB make signal frames larger.
bool may_use_amx();

struct MicroKernelLevel {
  int vector_bits = 128;
  bool has_fma = false;
  bool has_vnni = false;  // with 512 bits: multiplies pairs of 16 bits and adds them (AVX512_VNNI)
  bool has_amx = false;   // with that: AMX_INT8
};
const MicroKernels& micro_kernels(const MicroKernelLevel& level);

}  // namespace hekla::cpu
