// SPDX-License-Identifier: Apache-2.0
// AffineForm: an integer as constant + sum of factor * term, and the arithmetic of such sums.
//
// Terms are numbers; what is known of each stands in a table of ValueFacts by that number. A form
// that would need too many terms or too large numbers says so in `fits` and means nothing then.
// Pure values; nothing fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/compiler/kernel/scalar.h"

namespace hekla::kernel {

struct AffineTerm {
  Value term = kNoValue;
  int64_t factor = 0;
  bool operator==(const AffineTerm&) const = default;
};

// What is known of a value or of a term.
struct ValueFacts {
  int64_t low = 0;  // both inclusive
  int64_t high = 0;
  uint64_t depends = 0;  // on variables, a bit each
  // Of values: the form.
  int64_t constant = 0;
  uint32_t first_term = 0;
  Value resolved = kNoValue;
  uint8_t term_count = 0;
  uint8_t zeros = 0;      // low bits that are 0
  bool is_exact = true;   // as in Bounds
  bool is_linear = true;  // the value is its form without wrapping
};

inline constexpr size_t kMostAffineTerms = 12;
// Sums of so many products with bounds of 63 bits fit into 128 bits.
inline constexpr int64_t kLargestFactor = int64_t{1} << 59;
// More are not counted.
inline constexpr int kMostLowZeros = 30;

bool is_small_factor(__int128 x);
// Low bits that are 0.
int low_zeros(int64_t number);
// Rounded down; b > 0.
__int128 floor_divide(__int128 a, __int128 b);

struct AffineForm {
  std::array<AffineTerm, kMostAffineTerms> terms;  // in ascending order, no factor 0
  size_t count = 0;
  int64_t constant = 0;
  bool is_linear = true;  // as in ValueFacts
  bool fits = true;       // else the rest means nothing

  std::span<const AffineTerm> all() const { return {terms.data(), count}; }
  // += factor * term
  void add(Value term, int64_t factor);
  void add_constant(int64_t number);
};

struct WideRange {
  __int128 low = 0;
  __int128 high = 0;
};
// Between which numbers the sum lies.
WideRange range_of(const AffineForm& form, std::span<const ValueFacts> facts);
// On which variables its terms depend.
uint64_t depends_of(const AffineForm& form, std::span<const ValueFacts> facts);
// Low bits of the sum that are 0.
int zeros_of(const AffineForm& form, std::span<const ValueFacts> facts);
// The terms that both have with the same factor, without the constants.
AffineForm common_terms(const AffineForm& x, const AffineForm& y);

// A form as by * whole + high + low, where high is a multiple of `multiple`, which divides `by`,
// and low lies in [0, multiple): so a quotient by `by`, rounded down, does not depend on low, and a
// remainder is low and something of high.
struct AffineParts {
  AffineForm whole, high, low;
  int64_t multiple = 1;
};
// 0 < by, which is_small_factor.
AffineParts take_apart(const AffineForm& x, int64_t by, std::span<const ValueFacts> facts);

}  // namespace hekla::kernel
