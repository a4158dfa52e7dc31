// SPDX-License-Identifier: Apache-2.0
// Numbers of as many matrices as a vector has lanes, and how they come from memory and go back.
// Part of lanes_body.h, in an unnamed namespace of each level.
#pragma once

#include "backends/lapack/module/lanes_kernels.h"

namespace hekla::lapack {
namespace {

template <typename R>
struct LaneTypes {
  static constexpr int kLanes = HEKLA_VECTOR_BYTES / static_cast<int>(sizeof(R));
  typedef R Vector __attribute__((vector_size(HEKLA_VECTOR_BYTES)));
  // As where it lies in arrays of matrices.
  typedef R Loose __attribute__((vector_size(HEKLA_VECTOR_BYTES), aligned(sizeof(R)), may_alias));
};
template <typename R>
using Vec = typename LaneTypes<R>::Vector;
// What comparisons give, all bits or none; whole numbers of that width.
template <typename R>
using Mask = decltype(Vec<R>() < Vec<R>());
template <typename R>
constexpr int kLanes = LaneTypes<R>::kLanes;

template <typename R>
constexpr R kTiny = sizeof(R) == 4 ? 0x1p-126 : 0x1p-1022;  // below: its inverse may overflow
template <typename R>
constexpr R kEpsilon = sizeof(R) == 4 ? 0x1p-23 : 0x1p-52;

template <typename R>
Vec<R> all(R x) {
  return Vec<R>{} + x;
}
template <typename R>
Mask<R> all_whole(int64_t i) {
  return Mask<R>{} + static_cast<decltype(+Mask<R>{}[0])>(i);
}
template <typename R>
Vec<R> nan() {
  return all(static_cast<R>(__builtin_nan("")));
}
template <typename V>
V magnitude(V x) {
  return x < 0 ? -x : x;
}
template <typename V>
V larger(V a, V b) {
  return a > b ? a : b;
}
template <typename R>
Vec<R> root(Vec<R> x) {
  alignas(HEKLA_VECTOR_BYTES) R numbers[kLanes<R>];
  *reinterpret_cast<Vec<R>*>(numbers) = x;
  for (int l = 0; l < kLanes<R>; ++l) {
    numbers[l] = sizeof(R) == 4 ? static_cast<R>(__builtin_sqrtf(static_cast<float>(numbers[l])))
                                : static_cast<R>(__builtin_sqrt(numbers[l]));
  }
  return *reinterpret_cast<Vec<R>*>(numbers);
}
template <typename M>
bool any(M mask) {
  auto bits = mask[0];
  for (int l = 1; l < static_cast<int>(sizeof(mask) / sizeof(mask[0])); ++l) bits |= mask[l];
  return bits != 0;
}

// A number in each lane: real and imaginary parts apart.
template <typename R, int kParts>
struct Number {
  Vec<R> part[kParts];
};

template <typename R, int P>
Number<R, P> conjugate(const Number<R, P>& a) {
  if constexpr (P == 1) {
    return a;
  } else {
    return {{a.part[0], -a.part[1]}};
  }
}
template <typename R, int P>
Number<R, P> times(const Number<R, P>& a, const Number<R, P>& b) {
  if constexpr (P == 1) {
    return {{a.part[0] * b.part[0]}};
  } else {
    return {{a.part[0] * b.part[0] - a.part[1] * b.part[1],
             a.part[0] * b.part[1] + a.part[1] * b.part[0]}};
  }
}
template <typename R, int P>
Number<R, P> scaled(const Number<R, P>& a, Vec<R> factor) {
  if constexpr (P == 1) {
    return {{a.part[0] * factor}};
  } else {
    return {{a.part[0] * factor, a.part[1] * factor}};
  }
}
// to + a b, to - a b.
template <typename R, int P>
void add(Number<R, P>& to, const Number<R, P>& a, const Number<R, P>& b) {
  to.part[0] += a.part[0] * b.part[0];
  if constexpr (P == 2) {
    to.part[0] -= a.part[1] * b.part[1];
    to.part[1] += a.part[0] * b.part[1];
    to.part[1] += a.part[1] * b.part[0];
  }
}
template <typename R, int P>
void take(Number<R, P>& to, const Number<R, P>& a, const Number<R, P>& b) {
  to.part[0] -= a.part[0] * b.part[0];
  if constexpr (P == 2) {
    to.part[0] += a.part[1] * b.part[1];
    to.part[1] -= a.part[0] * b.part[1];
    to.part[1] -= a.part[1] * b.part[0];
  }
}
template <typename R, int P>
Number<R, P> where(Mask<R> mask, const Number<R, P>& a, const Number<R, P>& b) {
  Number<R, P> result;
  for (int p = 0; p < P; ++p) result.part[p] = mask ? a.part[p] : b.part[p];
  return result;
}
template <typename R, int P>
Vec<R> square(const Number<R, P>& a) {
  Vec<R> result = a.part[0] * a.part[0];
  if constexpr (P == 2) result += a.part[1] * a.part[1];
  return result;
}
// LAPACK's measure of pivots.
template <typename R, int P>
Vec<R> size_of(const Number<R, P>& a) {
  Vec<R> result = magnitude(a.part[0]);
  if constexpr (P == 2) result += magnitude(a.part[1]);
  return result;
}
// Real ones less than kTiny have none that is finite (divided()); of complex ones Smith's (1962).
template <typename R, int P>
Number<R, P> inverse(const Number<R, P>& a) {
  if constexpr (P == 1) {
    return {{R(1) / a.part[0]}};
  } else {
    const Vec<R> re = a.part[0], im = a.part[1];
    const Mask<R> wide = magnitude(re) >= magnitude(im);
    const Vec<R> most = wide ? re : im, least = wide ? im : re;
    const Vec<R> ratio = least / most, scale = R(1) / (most + least * ratio);
    const Vec<R> rest = ratio * scale;
    return {{wide ? scale : rest, wide ? -rest : -scale}};
  }
}
// by is 1 / a: x by, or x / a in lanes whose inverse is none.
template <typename R, int P>
Number<R, P> divided(const Number<R, P>& x, const Number<R, P>& a, const Number<R, P>& by,
                     Mask<R> has_none) {
  Number<R, P> result = times(x, by);
  if constexpr (P == 1) {
    if (any(has_none)) result.part[0] = has_none ? x.part[0] / a.part[0] : result.part[0];
  }
  return result;
}
template <typename R, int P>
Mask<R> lacks_inverse(const Number<R, P>& a) {
  return magnitude(a.part[0]) < kTiny<R>;
}

// Powers of two that bring what is at most `most` near 1, and back.
template <typename R>
struct Scale {
  Vec<R> down, up;
  explicit Scale(Vec<R> most) {
    using Bits = Mask<R>;
    constexpr int kMantissa = sizeof(R) == 4 ? 23 : 52;
    constexpr int kBias = sizeof(R) == 4 ? 127 : 1023;
    Bits exponent = reinterpret_cast<Bits>(most) >> kMantissa;  // of no negative number
    exponent = exponent < 1 ? Bits{} + 1 : exponent;
    exponent = exponent > 2 * kBias - 1 ? Bits{} + (2 * kBias - 1) : exponent;
    up = reinterpret_cast<Vec<R>>(exponent << kMantissa);
    down = reinterpret_cast<Vec<R>>((2 * kBias - exponent) << kMantissa);
  }
};

template <int... kIndices>
struct Indices {};
template <int kCount, int... kIndices>
struct MakeIndices : MakeIndices<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct MakeIndices<0, kIndices...> {
  using Type = Indices<kIndices...>;
};

// Blocks of kStep beside the diagonal change places, in all pairs of vectors that are kStep apart.
template <typename R, int kStep, int... kIndices>
void exchange(Vec<R>* v, Indices<kIndices...> lanes) {
  constexpr int kCount = sizeof...(kIndices);
  for (int i = 0; i < kCount; ++i) {
    if ((i & kStep) != 0) continue;
    const Vec<R> a = v[i], b = v[i + kStep];
    v[i] = __builtin_shufflevector(
        a, b, ((kIndices & kStep) == 0 ? kIndices : kCount + kIndices - kStep)...);
    v[i + kStep] = __builtin_shufflevector(
        a, b, ((kIndices & kStep) == 0 ? kIndices + kStep : kCount + kIndices)...);
  }
  if constexpr (kStep > 1) exchange<R, kStep / 2>(v, lanes);
}
template <typename R>
void transpose(Vec<R>* v) {
  exchange<R, kLanes<R> / 2>(v, typename MakeIndices<kLanes<R>>::Type());
}

// `size` numbers of each of `width` arrays that follow each other, from `at`: number i of all is
// to[i]. Lanes that are left over repeat the last array.
template <typename R>
void load(const R* at, int64_t size, int width, Vec<R>* to) {
  constexpr int kCount = kLanes<R>;
  const R* from[kCount];
  for (int l = 0; l < kCount; ++l) from[l] = at + size * (l < width ? l : width - 1);
  if (size < kCount) {
    for (int64_t i = 0; i < size; ++i) {
      for (int l = 0; l < kCount; ++l) to[i][l] = from[l][i];
    }
    return;
  }
  // The last block may overlap the one before it.
  for (int64_t i = 0; i < size; i += kCount) {
    const int64_t first = i + kCount <= size ? i : size - kCount;
    Vec<R> block[kCount];
#pragma GCC unroll 16
    for (int l = 0; l < kCount; ++l) {
      block[l] = *reinterpret_cast<const typename LaneTypes<R>::Loose*>(from[l] + first);
    }
    transpose<R>(block);
#pragma GCC unroll 16
    for (int l = 0; l < kCount; ++l) to[first + l] = block[l];
  }
}

template <typename R>
void store(const Vec<R>* from, int64_t size, int width, R* at) {
  constexpr int kCount = kLanes<R>;
  if (size < kCount) {
    for (int l = 0; l < width; ++l) {
      for (int64_t i = 0; i < size; ++i) at[size * l + i] = from[i][l];
    }
    return;
  }
  for (int64_t i = 0; i < size; i += kCount) {
    const int64_t first = i + kCount <= size ? i : size - kCount;
    Vec<R> block[kCount];
#pragma GCC unroll 16
    for (int l = 0; l < kCount; ++l) block[l] = from[first + l];
    transpose<R>(block);
#pragma GCC unroll 16
    for (int l = 0; l < kCount; ++l) {
      if (l < width) {
        *reinterpret_cast<typename LaneTypes<R>::Loose*>(at + size * l + first) = block[l];
      }
    }
  }
}

// Matrices [rows, columns] in the order of memory; element (i, j) by steps.
template <typename R, int P>
struct Tile {
  Number<R, P> numbers[kMostLaneRows * kMostLaneRows];
  Number<R, P>* first = numbers;
  int64_t row = 1, column = 1;

  Number<R, P>& at(int64_t i, int64_t j) { return first[i * row + j * column]; }
  void order(bool by_rows, int64_t m, int64_t n) {
    row = by_rows ? n : 1;
    column = by_rows ? 1 : m;
  }
  void read(const void* from, int64_t size, int64_t index, int width) {
    load<R>(static_cast<const R*>(from) + index * size * P, size * P, width, numbers[0].part);
  }
  void write(void* to, int64_t size, int64_t index, int width) const {
    store<R>(numbers[0].part, size * P, width, static_cast<R*>(to) + index * size * P);
  }
};

// Calls f(first, width) for groups of matrices.
template <typename R, typename F>
void for_groups(int64_t count, const F& f) {
  for (int64_t first = 0; first < count; first += kLanes<R>) {
    const int64_t left = count - first;
    f(first, left < kLanes<R> ? static_cast<int>(left) : kLanes<R>);
  }
}

}  // namespace
}  // namespace hekla::lapack
