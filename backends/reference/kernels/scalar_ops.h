// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the compute types of dispatch.h where C++ and StableHLO differ: integers wrap, i1
// has logical forms, minimum and maximum propagate NaN and order zeros and complex numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

#include "backends/reference/kernels/dispatch.h"

namespace hekla::reference {

// An unsigned type in which integer arithmetic on T wraps without undefined promotion.
template <typename T>
using WrapType = std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>;

template <typename T>
T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<WrapType<T>>(a) + static_cast<WrapType<T>>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T wrapping_subtract(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<WrapType<T>>(a) - static_cast<WrapType<T>>(b));
  } else {
    return a - b;
  }
}

template <typename T>
T wrapping_multiply(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a && b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<WrapType<T>>(a) * static_cast<WrapType<T>>(b));
  } else if constexpr (kIsComplex<T>) {
    // The textbook formula, as XLA computes it; C's Annex G repair of infinities is not wanted.
    return T(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  } else {
    return a * b;
  }
}

// Lexicographic for complex numbers, by real part first.
template <typename T>
bool ordered_less(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
  } else {
    return a < b;
  }
}

template <typename T>
bool has_nan(T value) {
  if constexpr (kIsComplex<T>) {
    return std::isnan(value.real()) || std::isnan(value.imag());
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isnan(value);
  } else {
    return false;
  }
}

// NaN if either has one; -0 is below +0.
template <typename T>
T propagating_minimum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  } else {
    if (has_nan(a)) return a;
    if (has_nan(b)) return b;
    return ordered_less(b, a) ? b : a;
  }
}

template <typename T>
T propagating_maximum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
  } else {
    if (has_nan(a)) return a;
    if (has_nan(b)) return b;
    return ordered_less(a, b) ? b : a;
  }
}

}  // namespace hekla::reference
