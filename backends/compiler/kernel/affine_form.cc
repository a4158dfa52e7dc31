// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/affine_form.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

namespace hekla::kernel {
namespace {

const ValueFacts& at(std::span<const ValueFacts> facts, Value term) {
  return facts[static_cast<size_t>(term)];
}

}  // namespace

bool is_small_factor(__int128 x) { return x >= -kLargestFactor && x <= kLargestFactor; }

int low_zeros(int64_t number) {
  return std::min(std::countr_zero(static_cast<uint64_t>(number)), kMostLowZeros);
}

__int128 floor_divide(__int128 a, __int128 b) { return a / b - (a % b < 0 ? 1 : 0); }

void AffineForm::add(Value term, int64_t factor) {
  size_t i = 0;
  while (i < count && terms[i].term < term) ++i;
  const auto here = terms.begin() + static_cast<ptrdiff_t>(i);
  const auto end = terms.begin() + static_cast<ptrdiff_t>(count);
  if (i == count || terms[i].term != term) {
    if (count == kMostAffineTerms) fits = false;
    if (!fits) return;
    std::move_backward(here, end, end + 1);
    *here = {term, 0};
    ++count;
  }
  fits &=
      !__builtin_add_overflow(here->factor, factor, &here->factor) && is_small_factor(here->factor);
  if (here->factor != 0) return;
  std::move(here + 1, terms.begin() + static_cast<ptrdiff_t>(count), here);
  --count;
}

void AffineForm::add_constant(int64_t number) {
  fits &= !__builtin_add_overflow(constant, number, &constant) && is_small_factor(constant);
}

WideRange range_of(const AffineForm& form, std::span<const ValueFacts> facts) {
  WideRange range{form.constant, form.constant};
  for (const AffineTerm& term : form.all()) {
    const ValueFacts& x = at(facts, term.term);
    range.low += __int128{term.factor} * (term.factor > 0 ? x.low : x.high);
    range.high += __int128{term.factor} * (term.factor > 0 ? x.high : x.low);
  }
  return range;
}

uint64_t depends_of(const AffineForm& form, std::span<const ValueFacts> facts) {
  uint64_t all = 0;
  for (const AffineTerm& term : form.all()) all |= at(facts, term.term).depends;
  return all;
}

int zeros_of(const AffineForm& form, std::span<const ValueFacts> facts) {
  int all = low_zeros(form.constant);
  for (const AffineTerm& term : form.all()) {
    all = std::min(all, low_zeros(term.factor) + at(facts, term.term).zeros);
  }
  return all;
}

AffineForm common_terms(const AffineForm& x, const AffineForm& y) {
  AffineForm common;
  common.is_linear = x.is_linear && y.is_linear;
  for (const AffineTerm& term : x.all()) {
    for (const AffineTerm& other : y.all()) {
      if (term == other) common.add(term.term, term.factor);
    }
  }
  return common;
}

AffineParts take_apart(const AffineForm& x, int64_t by, std::span<const ValueFacts> facts) {
  AffineParts parts;
  AffineForm rest;
  for (const AffineTerm& term : x.all()) {
    if (term.factor % by == 0) {
      parts.whole.add(term.term, term.factor / by);
    } else {
      rest.add(term.term, term.factor);
    }
  }
  const auto constant = static_cast<int64_t>(floor_divide(x.constant, by));
  parts.whole.add_constant(constant);
  rest.add_constant(x.constant - constant * by);
  const WideRange range = range_of(rest, facts);
  const __int128 first = floor_divide(range.low, by);
  parts.multiple = by;
  if (first == floor_divide(range.high, by) && is_small_factor(first * by)) {
    parts.whole.add_constant(static_cast<int64_t>(first));
    parts.low = rest;
    parts.low.add_constant(-static_cast<int64_t>(first) * by);
    return parts;
  }
  // What divides each term, and `by`.
  std::array<int64_t, kMostAffineTerms> divisors;
  for (size_t i = 0; i < rest.count; ++i) {
    const auto factor = static_cast<unsigned __int128>(std::abs(rest.terms[i].factor))
                        << at(facts, rest.terms[i].term).zeros;
    divisors[i] = std::gcd(static_cast<int64_t>(factor % static_cast<uint64_t>(by)), by);
  }
  std::array<int64_t, kMostAffineTerms> candidates = divisors;
  std::sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(rest.count),
            std::greater<>());
  for (size_t c = 0; c < rest.count && candidates[c] > 1; ++c) {
    const int64_t multiple = candidates[c];
    AffineForm high, low;
    for (size_t i = 0; i < rest.count; ++i) {
      AffineForm& part = divisors[i] % multiple == 0 ? high : low;
      part.add(rest.terms[i].term, rest.terms[i].factor);
    }
    low.constant = rest.constant % multiple;
    high.constant = rest.constant - low.constant;
    const WideRange range_of_low = range_of(low, facts);
    if (range_of_low.low < 0 || range_of_low.high >= multiple) continue;
    parts.multiple = multiple;
    parts.high = high;
    parts.low = low;
    return parts;
  }
  parts.multiple = 1;
  parts.high = rest;
  return parts;
}

}  // namespace hekla::kernel
