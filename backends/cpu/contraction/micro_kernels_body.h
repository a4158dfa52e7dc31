// SPDX-License-Identifier: Apache-2.0
// The body of micro_kernels_LEVEL.cc, which define HEKLA_LEVEL, kBits, Vector and DoubleVector,
// splat, multiply_add, multiply_add_one and transpose_block for both, kBlockOf, multiply_add_pairs,
// sum_lanes (the second half of the lanes added to the first, until one is left), load_f16 and
// load_eight_f16 before. Those files are compiled for processors that the
// process may not run on, so nothing here may be shared with other files: all is in an unnamed
// namespace, and no header with inline functions is included.
// NOLINTNEXTLINE: included once by each level.
#pragma once

namespace hekla::cpu {
namespace {

// Of 32 bits.
constexpr int kLanes = kBits / 32;
constexpr int kPanelVectors = 2;
constexpr int kRows = kBits == 512 ? 12 : 6;
template <typename Real>
constexpr int kLanesOf = kBits / 8 / static_cast<int>(sizeof(Real));
template <typename Real>
constexpr int kColumnsOf = kPanelVectors* kLanesOf<Real>;
static_assert(kRows <= kMostTileRows && kColumnsOf<float> <= kMostPanelColumns);

inline Vector load(const float* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
inline DoubleVector load(const double* from) {
  DoubleVector v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
inline void store(float* to, Vector v) { __builtin_memcpy(to, &v, sizeof(v)); }
inline void store(double* to, DoubleVector v) { __builtin_memcpy(to, &v, sizeof(v)); }
template <typename Real>
using VectorOf = decltype(load(static_cast<const Real*>(nullptr)));

template <typename Real, int kCount, int kVectors, bool kPairs>
void tile(const TileOf<Real>& t) {
  constexpr int kLanes = kLanesOf<Real>;
  using Vector = VectorOf<Real>;
  Vector sums[kCount][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = t.continues ? load(t.out[r] + v * kLanes) : Vector{};
    }
  }
  const Real* columns = t.columns;
  const int64_t columns_step = t.columns_step;
  const int64_t step = t.step;
  const Real* const* rows = t.rows;
  for (int64_t s = 0; s < t.run_count; ++s, rows += kMostTileRows) {
    const Real* row[kCount];
#pragma GCC unroll 12
    for (int r = 0; r < kCount; ++r) row[r] = rows[r];
    const int64_t count = t.runs[s];
    int64_t at = 0;
    for (int64_t d = 0; d < count; ++d) {
      Vector c[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) c[v] = load(columns + v * kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < kCount; ++r) {
        const Vector a = splat(row[r] + at);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          if constexpr (kPairs) {
            sums[r][v] = multiply_add_pairs(a, c[v], sums[r][v]);
          } else {
            sums[r][v] = multiply_add(a, c[v], sums[r][v]);
          }
        }
      }
      at += step;
      columns += columns_step;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Real* to = t.out[r] + v * kLanes;
      store(to, t.adds ? load(to) + sums[r][v] : sums[r][v]);
    }
  }
}

inline float widen_bf16(const uint16_t* from) {
  const uint32_t bits = static_cast<uint32_t>(*from) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// What is read as it is.
template <typename Number>
struct AsIs {
  using Type = Number;
  using Real = Number;
  static Real at(const Real* from) { return *from; }
  static void all(const Real* from, int64_t count, Real* to) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
};
struct FromBF16 {
  using Type = uint16_t;
  using Real = float;
  static float at(const uint16_t* from) { return widen_bf16(from); }
  static void all(const uint16_t* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i) to[i] = widen_bf16(from + i);
  }
};
struct FromF16 {
  using Type = uint16_t;
  using Real = float;
  static float at(const uint16_t* from) { return load_f16(from); }
  // The compiler makes no vectors of the instruction for one.
  static void all(const uint16_t* from, int64_t count, float* to) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) load_eight_f16(from + i, to + i);
    for (; i < count; ++i) to[i] = load_f16(from + i);
  }
};

// `kWidth` numbers side by side. Through registers: the compiler does not know that they are apart.
template <typename From, int kWidth>
inline void copy_row(const typename From::Type* from, typename From::Real* to) {
  typename From::Real row[kWidth];
  From::all(from, kWidth, row);
  __builtin_memcpy(to, row, sizeof(row));
}

// Lanes side by side in memory.
template <typename From, int kWidth>
void copy_lanes(const typename From::Type* from, int64_t step, int64_t count,
                typename From::Real* to) {
  for (int64_t d = 0; d < count; ++d, from += step, to += kWidth) {
    copy_row<From, kWidth>(from, to);
  }
}

// Lanes, each of which is a row of memory, some at once turned by registers. A block of lanes all
// the way before the next: rows of memory that start in the same place of a page share few lines of
// the first level cache.
template <int kWidth, typename Real>
void transpose_lanes(const Real* const* lanes, int64_t count, Real* to) {
  constexpr int kBlock = kBlockOf<Real>;
  const int64_t whole = count / kBlock * kBlock;
  int l = 0;
  for (; l + kBlock <= kWidth; l += kBlock) {
    for (int64_t d = 0; d < whole; d += kBlock) {
      transpose_block(lanes + l, d, to + d * kWidth + l, kWidth);
    }
  }
  for (; l < kWidth; ++l) {
    for (int64_t d = 0; d < whole; ++d) to[d * kWidth + l] = lanes[l][d];
  }
  for (int64_t d = whole; d < count; ++d) {
    for (int k = 0; k < kWidth; ++k) to[d * kWidth + k] = lanes[k][d];
  }
}

template <typename From, int kWidth>
void pack_as(const void* const* lanes, int64_t step, int64_t count, typename From::Real* to) {
  using Type = typename From::Type;
  using Real = typename From::Real;
  const Type* from[kWidth];
  bool all = true;
  bool side_by_side = true;
  for (int l = 0; l < kWidth; ++l) {
    from[l] = static_cast<const Type*>(lanes[l]);
    all &= from[l] != nullptr;
  }
  if (all) {
    for (int l = 1; l < kWidth; ++l) side_by_side &= from[l] == from[0] + l;
    if (side_by_side) return copy_lanes<From, kWidth>(from[0], step, count, to);
    if constexpr (sizeof(Type) == sizeof(Real)) {
      if (step == 1) return transpose_lanes<kWidth>(from, count, to);
    }
    if (step == 1) {
      // Widened lane by lane, some at a time, then turned.
      constexpr int64_t kSome = 128;
      Real wide[kWidth][kSome];
      const Real* rows[kWidth];
      for (int l = 0; l < kWidth; ++l) rows[l] = wide[l];
      for (int64_t d = 0; d < count; d += kSome) {
        const int64_t here = count - d < kSome ? count - d : kSome;
        for (int l = 0; l < kWidth; ++l) From::all(from[l] + d, here, wide[l]);
        transpose_lanes<kWidth>(rows, here, to + d * kWidth);
      }
      return;
    }
    for (int64_t d = 0; d < count; ++d) {
      for (int l = 0; l < kWidth; ++l) to[d * kWidth + l] = From::at(from[l] + d * step);
    }
    return;
  }
  for (int l = 0; l < kWidth; ++l) {
    if (from[l] == nullptr) {
      for (int64_t d = 0; d < count; ++d) to[d * kWidth + l] = 0;
    } else {
      for (int64_t d = 0; d < count; ++d) to[d * kWidth + l] = From::at(from[l] + d * step);
    }
  }
}

// Two depths as one element; `second` null: a zero.
template <typename Type>
inline uint32_t pair_of(const Type* first, const Type* second) {
  const auto low = static_cast<uint16_t>(static_cast<int16_t>(*first));
  const auto high =
      second == nullptr ? uint16_t{0} : static_cast<uint16_t>(static_cast<int16_t>(*second));
  return low | static_cast<uint32_t>(high) << 16;
}

// `kWidth` lanes side by side.
template <typename Type, int kWidth>
inline void copy_pairs(const Type* first, const Type* second, float* to) {
  uint32_t row[kWidth];
  if (second == nullptr) {
    for (int l = 0; l < kWidth; ++l) row[l] = pair_of<Type>(first + l, nullptr);
  } else {
    for (int l = 0; l < kWidth; ++l) row[l] = pair_of(first + l, second + l);
  }
  __builtin_memcpy(to, row, sizeof(row));
}

template <typename Type>
inline void copy_pair(const Type* first, const Type* second, float* to) {
  const uint32_t pair = pair_of(first, second);
  __builtin_memcpy(to, &pair, sizeof(pair));
}

template <typename Type, int kWidth>
void pack_pairs(const void* const* lanes, int64_t step, int64_t count, float* to) {
  const Type* from[kWidth];
  bool all = true;
  bool side_by_side = true;
  for (int l = 0; l < kWidth; ++l) {
    from[l] = static_cast<const Type*>(lanes[l]);
    all &= from[l] != nullptr;
  }
  for (int l = 1; all && l < kWidth; ++l) side_by_side &= from[l] == from[0] + l;
  if (all && !side_by_side && step == 1) {
    // Widened lane by lane, some at a time, then turned.
    constexpr int64_t kSome = 128;
    float wide[kWidth][kSome / 2];
    const float* rows[kWidth];
    for (int l = 0; l < kWidth; ++l) rows[l] = wide[l];
    for (int64_t d = 0; d < count; d += kSome) {
      const int64_t here = count - d < kSome ? count - d : kSome;
      for (int l = 0; l < kWidth; ++l) {
        int16_t lane[kSome];
        for (int64_t i = 0; i < here; ++i) lane[i] = static_cast<int16_t>(from[l][d + i]);
        if (here % 2 != 0) lane[here] = 0;
        __builtin_memcpy(wide[l], lane, static_cast<size_t>((here + 1) / 2) * sizeof(float));
      }
      transpose_lanes<kWidth>(rows, (here + 1) / 2, to + d / 2 * kWidth);
    }
    return;
  }
  for (int64_t d = 0; d < count; d += 2, to += kWidth) {
    const bool has_second = d + 1 < count;
    if (all && side_by_side) {
      const Type* first = from[0] + d * step;
      copy_pairs<Type, kWidth>(first, has_second ? first + step : nullptr, to);
      continue;
    }
    for (int l = 0; l < kWidth; ++l) {
      if (from[l] == nullptr) {
        to[l] = 0;
        continue;
      }
      const Type* first = from[l] + d * step;
      copy_pair<Type>(first, has_second ? first + step : nullptr, to + l);
    }
  }
}

// Rows of memory that are some pages apart, which no processor foresees. An address behind the last
// one does no harm.
constexpr int64_t kPrefetchRows = 8;
template <typename Type>
inline void prefetch_row(const Type* from, int64_t length) {
  constexpr int64_t kLine = 64 / sizeof(Type);
  for (int64_t l = 0; l < length; l += kLine) __builtin_prefetch(from + l);
}

// Calls `each` with a number of rows, one to four, as a template argument.
template <typename Each>
inline void with_row_count(int count, const Each& each) {
  switch (count) {
    case 1:
      return each.template operator()<1>();
    case 2:
      return each.template operator()<2>();
    case 3:
      return each.template operator()<3>();
    default:
      return each.template operator()<4>();
  }
}

#include "backends/cpu/contraction/complex_panels.h"

template <int kWidth>
void pack_width(Narrow type, const void* const* lanes, int64_t step, int64_t count, float* to) {
  switch (type) {
    case Narrow::kComplex:
      return pack_complex<float, kWidth>(lanes, step, count, to);
    case Narrow::kS8:
      return pack_pairs<int8_t, kWidth>(lanes, step, count, to);
    case Narrow::kU8:
      return pack_pairs<uint8_t, kWidth>(lanes, step, count, to);
    case Narrow::kS16:
      return pack_pairs<int16_t, kWidth>(lanes, step, count, to);
    case Narrow::kF64:
      return;  // never into floats
    case Narrow::kF32:
      return pack_as<AsIs<float>, kWidth>(lanes, step, count, to);
    case Narrow::kBF16:
      return pack_as<FromBF16, kWidth>(lanes, step, count, to);
    case Narrow::kF16:
      return pack_as<FromF16, kWidth>(lanes, step, count, to);
  }
}

template <int kWidth>
void pack_width(Narrow type, const void* const* lanes, int64_t step, int64_t count, double* to) {
  if (type == Narrow::kComplex) return pack_complex<double, kWidth>(lanes, step, count, to);
  pack_as<AsIs<double>, kWidth>(lanes, step, count, to);
}

template <typename Real>
void pack(Narrow type, const void* const* lanes, int width, int64_t step, int64_t count, Real* to) {
  if (width == kRows) {
    pack_width<kRows>(type, lanes, step, count, to);
  } else if (width == kLanesOf<Real>) {
    pack_width<kLanesOf<Real>>(type, lanes, step, count, to);
  } else {
    pack_width<kColumnsOf<Real>>(type, lanes, step, count, to);
  }
}

template <typename From, int kWidth>
void spread_as(const typename From::Type* from, int64_t step, int64_t count, int64_t first,
               int64_t length, int64_t panel_step, typename From::Real* to) {
  to += first / kWidth * panel_step;
  const int64_t begin = first % kWidth;
  const int64_t head = begin == 0 ? 0 : (kWidth - begin < length ? kWidth - begin : length);
  for (int64_t d = 0; d < count; ++d, from += step) {
    prefetch_row(from + kPrefetchRows * step, length);
    const typename From::Type* at = from;
    typename From::Real* panel = to + d * kWidth;
    int64_t left = length;
    if (head != 0) {
      for (int64_t l = 0; l < head; ++l) panel[begin + l] = From::at(at + l);
      at += head;
      left -= head;
      panel += panel_step;
    }
    for (; left >= kWidth; left -= kWidth, at += kWidth, panel += panel_step) {
      copy_row<From, kWidth>(at, panel);
    }
    for (int64_t l = 0; l < left; ++l) panel[l] = From::at(at + l);
  }
}

template <typename Type, int kWidth>
void spread_pairs(const Type* from, int64_t step, int64_t count, int64_t first, int64_t length,
                  int64_t panel_step, float* to) {
  to += first / kWidth * panel_step;
  const int64_t begin = first % kWidth;
  const int64_t head = begin == 0 ? 0 : (kWidth - begin < length ? kWidth - begin : length);
  for (int64_t d = 0; d < count; d += 2, from += 2 * step) {
    const Type* at = from;
    const Type* second = d + 1 < count ? from + step : nullptr;
    const auto skip = [&](int64_t lanes) {
      at += lanes;
      if (second != nullptr) second += lanes;
    };
    const auto copy_some = [&](int64_t lanes, float* panel) {
      for (int64_t l = 0; l < lanes; ++l) {
        copy_pair<Type>(at + l, second == nullptr ? nullptr : second + l, panel + l);
      }
      skip(lanes);
    };
    float* panel = to + d / 2 * kWidth;
    int64_t left = length;
    if (head != 0) {
      copy_some(head, panel + begin);
      left -= head;
      panel += panel_step;
    }
    for (; left >= kWidth; left -= kWidth, panel += panel_step) {
      copy_pairs<Type, kWidth>(at, second, panel);
      skip(kWidth);
    }
    copy_some(left, panel);
  }
}

template <int kWidth, typename Real>
void spread_zeros(int64_t count, int64_t first, int64_t length, int64_t panel_step, Real* to) {
  for (int64_t l = first; l < first + length; ++l) {
    Real* lane = to + l / kWidth * panel_step + l % kWidth;
    for (int64_t d = 0; d < count; ++d) lane[d * kWidth] = 0;
  }
}

template <int kWidth>
void spread_width(Narrow type, const void* from, int64_t step, int64_t count, int64_t first,
                  int64_t length, int64_t panel_step, float* to) {
  const bool is_paired = type >= Narrow::kS8;
  if (from == nullptr && type == Narrow::kComplex) {
    return spread_complex_zeros<float, kWidth>(count, first, length, panel_step, to);
  }
  if (from == nullptr) {
    return spread_zeros<kWidth>(is_paired ? (count + 1) / 2 : count, first, length, panel_step, to);
  }
  const auto* narrow = static_cast<const uint16_t*>(from);
  switch (type) {
    case Narrow::kComplex:
      return spread_complex<float, kWidth>(static_cast<const float*>(from), step, count, first,
                                           length, panel_step, to);
    case Narrow::kS8:
      return spread_pairs<int8_t, kWidth>(static_cast<const int8_t*>(from), step, count, first,
                                          length, panel_step, to);
    case Narrow::kU8:
      return spread_pairs<uint8_t, kWidth>(static_cast<const uint8_t*>(from), step, count, first,
                                           length, panel_step, to);
    case Narrow::kS16:
      return spread_pairs<int16_t, kWidth>(static_cast<const int16_t*>(from), step, count, first,
                                           length, panel_step, to);
    case Narrow::kF64:
      return;  // never into floats
    case Narrow::kF32:
      return spread_as<AsIs<float>, kWidth>(static_cast<const float*>(from), step, count, first,
                                            length, panel_step, to);
    case Narrow::kBF16:
      return spread_as<FromBF16, kWidth>(narrow, step, count, first, length, panel_step, to);
    case Narrow::kF16:
      return spread_as<FromF16, kWidth>(narrow, step, count, first, length, panel_step, to);
  }
}

template <int kWidth>
void spread_width(Narrow type, const void* from, int64_t step, int64_t count, int64_t first,
                  int64_t length, int64_t panel_step, double* to) {
  if (type == Narrow::kComplex) {
    if (from == nullptr) {
      return spread_complex_zeros<double, kWidth>(count, first, length, panel_step, to);
    }
    return spread_complex<double, kWidth>(static_cast<const double*>(from), step, count, first,
                                          length, panel_step, to);
  }
  if (from == nullptr) return spread_zeros<kWidth>(count, first, length, panel_step, to);
  spread_as<AsIs<double>, kWidth>(static_cast<const double*>(from), step, count, first, length,
                                  panel_step, to);
}

template <typename Real>
void spread(Narrow type, const void* from, int64_t step, int64_t count, int64_t first,
            int64_t length, int width, int64_t panel_step, Real* to) {
  if (width == kRows) {
    spread_width<kRows>(type, from, step, count, first, length, panel_step, to);
  } else if (width == kLanesOf<Real>) {
    spread_width<kLanesOf<Real>>(type, from, step, count, first, length, panel_step, to);
  } else {
    spread_width<kColumnsOf<Real>>(type, from, step, count, first, length, panel_step, to);
  }
}

// `kCount` rows, eight depths at a time, so that as many rows of `columns` stream by.
template <int kCount, typename Real>
void wide_rows(const Real* const* rows, int64_t step, const Real* columns, int64_t columns_step,
               int64_t depth, int64_t width, Real* const* out) {
  constexpr int kLanes = kLanesOf<Real>;
  using Vector = VectorOf<Real>;
  constexpr int kTogether = 8;
  int64_t d = 0;
  for (; d + kTogether <= depth; d += kTogether) {
    const Real* from = columns + d * columns_step;
    int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) {
      Vector sums[kCount];
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) sums[r] = load(out[r] + c);
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
        const Vector b = load(from + i * columns_step + c);
#pragma GCC unroll 4
        for (int r = 0; r < kCount; ++r) {
          sums[r] = multiply_add(splat(rows[r] + (d + i) * step), b, sums[r]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) store(out[r] + c, sums[r]);
    }
    for (; c < width; ++c) {
      for (int r = 0; r < kCount; ++r) {
        Real sum = out[r][c];
        for (int i = 0; i < kTogether; ++i) {
          sum = multiply_add_one(rows[r][(d + i) * step], from[i * columns_step + c], sum);
        }
        out[r][c] = sum;
      }
    }
  }
  for (; d < depth; ++d) {
    const Real* from = columns + d * columns_step;
    for (int r = 0; r < kCount; ++r) {
      const Vector a = splat(rows[r] + d * step);
      int64_t c = 0;
      for (; c + kLanes <= width; c += kLanes) {
        store(out[r] + c, multiply_add(a, load(from + c), load(out[r] + c)));
      }
      for (; c < width; ++c) out[r][c] = multiply_add_one(rows[r][d * step], from[c], out[r][c]);
    }
  }
}

template <typename Real>
void wide(const Real* const* rows, int row_count, int64_t step, const Real* columns,
          int64_t columns_step, int64_t depth, int64_t width, Real* const* out) {
  with_row_count(row_count, [&]<int kCount>() {
    wide_rows<kCount>(rows, step, columns, columns_step, depth, width, out);
  });
}

// The last products of sums, fewer than kDotSums of each: of the row, with -0 behind them, and ones
// where there are any. Zeros times -0 change no sum, not even the sign of a zero.
struct LastProducts {
  LastProducts(const float* row, int64_t from, int64_t depth) : begin(from) {
    for (int64_t i = 0; i < kDotSums; ++i) {
      const bool is_inside = from + i < depth;
      this->row[i] = is_inside ? row[from + i] : -0.0F;
      mask[i] = is_inside ? -1 : 0;
    }
  }
  int64_t begin;  // depths before them
  float row[kDotSums];
  int32_t mask[kDotSums];
};

// Some columns at once, each with its partial sums in the lanes of one or more vectors. `reads_on`:
// there is memory of kDotSums numbers where the last products of each column are.
template <int kCount>
void chained_columns(const float* row, const float* columns, int64_t columns_step, int64_t depth,
                     const LastProducts& last, bool reads_on, float* out) {
  constexpr int kParts = kDotSums / kLanes;
  using Bits [[gnu::vector_size(sizeof(Vector))]] = int32_t;
  Vector sums[kCount][kParts];
#pragma GCC unroll 4
  for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) sums[c][p] = Vector{};
  }
  for (int64_t d = 0; d < last.begin; d += kDotSums) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const Vector x = load(row + d + p * kLanes);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) {
        const Vector y = load(columns + c * columns_step + d + p * kLanes);
        sums[c][p] = multiply_add(x, y, sums[c][p]);
      }
    }
  }
  if (last.begin < depth && reads_on) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const Vector x = load(last.row + p * kLanes);
      Bits mask;
      __builtin_memcpy(&mask, last.mask + p * kLanes, sizeof(mask));
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) {
        const Vector y = load(columns + c * columns_step + last.begin + p * kLanes);
        sums[c][p] = multiply_add(x, (Vector)((Bits)y & mask), sums[c][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kCount; ++c) {
    if (last.begin < depth && !reads_on) {
      const float* column = columns + c * columns_step;
      float parts[kDotSums];
      for (int p = 0; p < kParts; ++p) store(parts + p * kLanes, sums[c][p]);
      for (int64_t i = last.begin; i < depth; ++i) {
        float& part = parts[i - last.begin];
        part = multiply_add_one(row[i], column[i], part);
      }
      for (int p = 0; p < kParts; ++p) sums[c][p] = load(parts + p * kLanes);
    }
#pragma GCC unroll 2
    for (int half = kParts / 2; half > 0; half /= 2) {
#pragma GCC unroll 2
      for (int p = 0; p < half; ++p) sums[c][p] += sums[c][half + p];
    }
    out[c] = sum_lanes(sums[c][0]);
  }
}

void chained(const float* row, const float* columns, int64_t columns_step, int64_t depth,
             int64_t count, float* out) {
  constexpr int kTogether = kLanes == 4 ? 2 : 4;
  const LastProducts last(row, depth / kDotSums * kDotSums, depth);
  // What lies behind a column's end in memory is another column, but for the last ones.
  const int64_t end = (count - 1) * columns_step + depth;
  const auto reads_on = [&](int64_t column) {
    return columns_step >= 0 && column * columns_step + last.begin + kDotSums <= end;
  };
  int64_t c = 0;
  for (; c + kTogether <= count; c += kTogether) {
    chained_columns<kTogether>(row, columns + c * columns_step, columns_step, depth, last,
                               reads_on(c + kTogether - 1), out + c);
  }
  for (; c < count; ++c) {
    chained_columns<1>(row, columns + c * columns_step, columns_step, depth, last, reads_on(c),
                       out + c);
  }
}

template <int kCount, typename Real>
void add_tiles(MicroKernelsOf<Real>& kernels) {
  kernels.tile[kCount] = tile<Real, kCount, kPanelVectors, false>;
  kernels.half_tile[kCount] = tile<Real, kCount, 1, false>;
  if constexpr (sizeof(Real) == sizeof(float)) {
    kernels.tile_integers[kCount] = tile<Real, kCount, kPanelVectors, true>;
    kernels.half_tile_integers[kCount] = tile<Real, kCount, 1, true>;
  }
  if constexpr (kCount > 1) add_tiles<kCount - 1>(kernels);
}

template <typename Real>
MicroKernelsOf<Real> make_kernels() {
  MicroKernelsOf<Real> kernels;
  kernels.rows = kRows;
  kernels.columns = kColumnsOf<Real>;
  kernels.half_columns = kLanesOf<Real>;
  add_tiles<kRows>(kernels);
  kernels.pack = pack<Real>;
  kernels.spread = spread<Real>;
  kernels.wide = wide<Real>;
  kernels.wide_complex = wide_complex<Real>;
  return kernels;
}

MicroKernels make_all_kernels() {
  static const auto doubles = make_kernels<double>();
  auto kernels = make_kernels<float>();
  kernels.chained = chained;
#ifdef HEKLA_VNNI
  kernels.fours = fours_micro_kernels;
#endif
  kernels.doubles = &doubles;
  return kernels;
}

}  // namespace

const MicroKernels& HEKLA_LEVEL() {
  static const MicroKernels kernels = make_all_kernels();
  return kernels;
}

}  // namespace hekla::cpu
