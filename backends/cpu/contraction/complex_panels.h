// SPDX-License-Identifier: Apache-2.0
// Complex numbers into panels, and few rows of them. Included inside the unnamed namespace of
// micro_kernels_body.h, for each level. A panel of rows has, for each depth, the real parts of its
// rows, then their imaginary parts; one of columns (re, im) of each, then (-im, re).

// A panel's width in lanes: complex rows, or complex columns of two numbers each.
template <int kWidth>
constexpr int kComplexLanes = kWidth == kRows ? kWidth : kWidth / 2;

// The numbers (re, im) of one depth's columns are there: those that belong to imaginary parts.
template <typename Real, int kWidth>
inline void turn_row(const Real* from, Real* to) {
  for (int l = 0; l < kWidth; l += kLanesOf<Real>) store(to + l, turn(load(from + l)));
}

// One lane's number into a panel; `to` is at the depth of real parts.
template <typename Real, int kWidth>
inline void put_complex(const Real* from, int64_t lane, Real* to) {
  if constexpr (kWidth == kRows) {
    to[lane] = from[0];
    to[kWidth + lane] = from[1];
  } else {
    to[2 * lane] = from[0];
    to[2 * lane + 1] = from[1];
    to[kWidth + 2 * lane] = -from[1];
    to[kWidth + 2 * lane + 1] = from[0];
  }
}

// Columns that are rows of memory.
template <typename Real, int kWidth>
void turn_columns(const Real* const* lanes, int64_t count, Real* to) {
  constexpr int kColumns = kWidth / 2;
  int64_t whole = 0;
  if constexpr (sizeof(Real) == sizeof(float)) {
    // A number is as long as a double, of which blocks are turned by registers.
    constexpr int kBlock = kBlockOf<double>;
    if constexpr (kBits > 128 && kColumns % kBlock == 0) {
      const double* as_double[kColumns];
      __builtin_memcpy(as_double, lanes, sizeof(as_double));
      whole = count / kBlock * kBlock;
      for (int l = 0; l < kColumns; l += kBlock) {
        for (int64_t d = 0; d < whole; d += kBlock) {
          transpose_block(as_double + l, d, reinterpret_cast<double*>(to + 2 * d * kWidth) + l,
                          kWidth);
        }
      }
    }
  }
  for (int64_t d = whole; d < count; ++d) {
    for (int l = 0; l < kColumns; ++l) {
      __builtin_memcpy(to + 2 * d * kWidth + 2 * l, lanes[l] + 2 * d, 2 * sizeof(Real));
    }
  }
  for (int64_t d = 0; d < count; ++d, to += 2 * kWidth) turn_row<Real, kWidth>(to, to + kWidth);
}

template <typename Real, int kWidth>
void pack_complex(const void* const* lanes, int64_t step, int64_t count, Real* to) {
  constexpr int kLanes = kComplexLanes<kWidth>;
  bool all = step == 1;
  for (int l = 0; l < kLanes; ++l) all &= lanes[l] != nullptr;
  if (all) {
    if constexpr (kWidth == kRows) {
      return pack_as<AsIs<Real>, kWidth>(lanes, 1, 2 * count, to);
    } else {
      const Real* from[kLanes];
      for (int l = 0; l < kLanes; ++l) from[l] = static_cast<const Real*>(lanes[l]);
      return turn_columns<Real, kWidth>(from, count, to);
    }
  }
  constexpr Real kZero[2] = {};
  for (int l = 0; l < kLanes; ++l) {
    const bool is_there = lanes[l] != nullptr;
    const Real* from = is_there ? static_cast<const Real*>(lanes[l]) : kZero;
    const int64_t next = is_there ? 2 * step : 0;
    for (int64_t d = 0; d < count; ++d) {
      put_complex<Real, kWidth>(from, l, to + 2 * d * kWidth);
      from += next;
    }
  }
}

// Some columns of one depth, fewer than a panel's. In vectors that every level has.
template <typename Real>
inline void put_columns(const Real* from, int64_t numbers, Real* to, Real* turned) {
  typedef Real Some __attribute__((vector_size(16)));
  constexpr int kNumbers = 16 / sizeof(Real);
  int64_t l = 0;
  for (; l + kNumbers <= numbers; l += kNumbers) {
    Some some;
    __builtin_memcpy(&some, from + l, sizeof(some));
    __builtin_memcpy(to + l, &some, sizeof(some));
    if constexpr (kNumbers == 4) {
      some = Some{-some[1], some[0], -some[3], some[2]};
    } else {
      some = Some{-some[1], some[0]};
    }
    __builtin_memcpy(turned + l, &some, sizeof(some));
  }
  for (; l < numbers; l += 2) {
    to[l] = from[l];
    to[l + 1] = from[l + 1];
    turned[l] = -from[l + 1];
    turned[l + 1] = from[l];
  }
}

template <typename Real, int kWidth>
void spread_complex(const Real* from, int64_t step, int64_t count, int64_t first, int64_t length,
                    int64_t panel_step, Real* to) {
  constexpr int kLanes = kComplexLanes<kWidth>;
  to += first / kLanes * panel_step;
  const int64_t begin = first % kLanes;
  for (int64_t d = 0; d < count; ++d, from += 2 * step, to += 2 * kWidth) {
    prefetch_row(from + 2 * kPrefetchRows * step, 2 * length);
    const Real* at = from;
    Real* panel = to;
    int64_t lane = begin;
    for (int64_t left = length; left > 0; lane = 0, panel += panel_step) {
      const int64_t here = kLanes - lane < left ? kLanes - lane : left;
      if constexpr (kWidth == kRows) {
        for (int64_t l = 0; l < here; ++l) put_complex<Real, kWidth>(at + 2 * l, lane + l, panel);
      } else if (here == kLanes) {
        copy_row<AsIs<Real>, kWidth>(at, panel);
        turn_row<Real, kWidth>(at, panel + kWidth);
      } else {
        put_columns(at, 2 * here, panel + 2 * lane, panel + kWidth + 2 * lane);
      }
      at += 2 * here;
      left -= here;
    }
  }
}

template <typename Real, int kWidth>
void spread_complex_zeros(int64_t count, int64_t first, int64_t length, int64_t panel_step,
                          Real* to) {
  constexpr int kLanes = kComplexLanes<kWidth>;
  constexpr Real kZero[2] = {};
  for (int64_t l = first; l < first + length; ++l) {
    Real* panel = to + l / kLanes * panel_step;
    for (int64_t d = 0; d < count; ++d) {
      put_complex<Real, kWidth>(kZero, l % kLanes, panel + 2 * d * kWidth);
    }
  }
}

// `kCount` rows, some depths at a time, so that as many rows of `columns` stream by.
template <int kCount, typename Real>
void wide_complex_rows(const Real* const* rows, int64_t step, const Real* columns,
                       int64_t columns_step, int64_t depth, int64_t width, Real* const* out) {
  constexpr int kLanes = kLanesOf<Real>;
  constexpr int64_t kTogether = 8;
  const int64_t numbers = 2 * width;
  for (int64_t d = 0; d < depth; d += kTogether) {
    const int64_t here = depth - d < kTogether ? depth - d : kTogether;
    const Real* from = columns + 2 * d * columns_step;
    int64_t c = 0;
    for (; c + kLanes <= numbers; c += kLanes) {
      VectorOf<Real> sums[kCount];
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) sums[r] = load(out[r] + c);
      const auto add = [&](int64_t i) {
        const VectorOf<Real> b = load(from + 2 * i * columns_step + c);
        const VectorOf<Real> turned = turn(b);
#pragma GCC unroll 4
        for (int r = 0; r < kCount; ++r) {
          const Real* a = rows[r] + 2 * (d + i) * step;
          sums[r] = multiply_add(splat(a + 1), turned, multiply_add(splat(a), b, sums[r]));
        }
      };
      if (here == kTogether) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < kTogether; ++i) add(i);
      } else {
        for (int64_t i = 0; i < here; ++i) add(i);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) store(out[r] + c, sums[r]);
    }
    for (; c < numbers; c += 2) {
      for (int r = 0; r < kCount; ++r) {
        Real re = out[r][c], im = out[r][c + 1];
        for (int64_t i = 0; i < here; ++i) {
          const Real* a = rows[r] + 2 * (d + i) * step;
          const Real* b = from + 2 * i * columns_step + c;
          re = multiply_add_one(a[1], -b[1], multiply_add_one(a[0], b[0], re));
          im = multiply_add_one(a[1], b[0], multiply_add_one(a[0], b[1], im));
        }
        out[r][c] = re;
        out[r][c + 1] = im;
      }
    }
  }
}

template <typename Real>
void wide_complex(const Real* const* rows, int row_count, int64_t step, const Real* columns,
                  int64_t columns_step, int64_t depth, int64_t width, Real* const* out) {
  with_row_count(row_count, [&]<int kCount>() {
    wide_complex_rows<kCount>(rows, step, columns, columns_step, depth, width, out);
  });
}
