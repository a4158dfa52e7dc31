// SPDX-License-Identifier: Apache-2.0
// Forms against the numbers that they stand for: every value of their terms is tried.
#include "backends/compiler/kernel/affine_form.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace hekla::kernel {
namespace {

ValueFacts term(int64_t low, int64_t high, uint64_t depends = 0, int zeros = 0) {
  ValueFacts facts;
  facts.low = low;
  facts.high = high;
  facts.depends = depends;
  facts.zeros = static_cast<uint8_t>(zeros);
  return facts;
}

int64_t value_of(const AffineForm& form, const std::vector<int64_t>& values) {
  int64_t sum = form.constant;
  for (const AffineTerm& t : form.all()) sum += t.factor * values[static_cast<size_t>(t.term)];
  return sum;
}

// Calls `look` with every combination of the terms' values that their facts allow.
void for_all(const std::vector<ValueFacts>& facts,
             const std::function<void(const std::vector<int64_t>&)>& look) {
  std::vector<int64_t> values;
  for (const ValueFacts& f : facts) values.push_back(f.low);
  for (;;) {
    look(values);
    size_t i = 0;
    for (; i < facts.size(); ++i) {
      values[i] += int64_t{1} << facts[i].zeros;
      if (values[i] <= facts[i].high) break;
      values[i] = facts[i].low;
    }
    if (i == facts.size()) return;
  }
}

TEST(AffineForm, TermsAreOrderedOnceAndGoneAtZero) {
  AffineForm form;
  form.add(7, 3);
  form.add(2, 5);
  form.add(7, -1);
  ASSERT_EQ(form.count, 2U);
  EXPECT_EQ(form.terms[0], (AffineTerm{2, 5}));
  EXPECT_EQ(form.terms[1], (AffineTerm{7, 2}));
  form.add(2, -5);
  ASSERT_EQ(form.count, 1U);
  EXPECT_EQ(form.terms[0], (AffineTerm{7, 2}));
  EXPECT_TRUE(form.fits);
}

TEST(AffineForm, WhatIsTooLargeDoesNotFit) {
  AffineForm many;
  for (Value v = 0; v < static_cast<Value>(kMostAffineTerms); ++v) many.add(v, 1);
  EXPECT_TRUE(many.fits);
  many.add(3, 1);  // known
  EXPECT_TRUE(many.fits);
  many.add(100, 1);
  EXPECT_FALSE(many.fits);
  for (const int64_t large : {kLargestFactor + 1, std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()}) {
    AffineForm factor, constant;
    factor.add(0, large);
    constant.add_constant(large);
    EXPECT_FALSE(factor.fits) << large;
    EXPECT_FALSE(constant.fits) << large;
  }
  AffineForm limit;
  limit.add(0, kLargestFactor);
  limit.add_constant(-kLargestFactor);
  EXPECT_TRUE(limit.fits);
}

TEST(AffineForm, RangesOfTheLargestFactorsAndBoundsDoNotOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<ValueFacts> facts(kMostAffineTerms, term(-kMax, kMax));
  AffineForm form;
  for (Value v = 0; v < static_cast<Value>(kMostAffineTerms); ++v) form.add(v, kLargestFactor);
  const WideRange range = range_of(form, facts);
  EXPECT_EQ(range.high, static_cast<__int128>(kMostAffineTerms) * kLargestFactor * kMax);
  EXPECT_EQ(range.low, -range.high);
}

TEST(AffineForm, CommonTermsHaveTheSameFactor) {
  AffineForm x, y;
  x.add(1, 4);
  x.add(2, 3);
  y.add(1, 4);
  y.add(2, 5);
  y.is_linear = false;
  const AffineForm common = common_terms(x, y);
  ASSERT_EQ(common.count, 1U);
  EXPECT_EQ(common.terms[0], (AffineTerm{1, 4}));
  EXPECT_FALSE(common.is_linear);
}

TEST(AffineForm, QuotientsOfRowsAndColumnsComeApart) {
  // 24 * row + column, column below 24: divided by 8, three blocks a row.
  const std::vector<ValueFacts> facts{term(0, 9, 1), term(0, 23, 2)};
  AffineForm index;
  index.add(0, 24);
  index.add(1, 1);
  const AffineParts rows = take_apart(index, 24, facts);
  ASSERT_EQ(rows.whole.count, 1U);
  EXPECT_EQ(rows.whole.terms[0], (AffineTerm{0, 1}));
  EXPECT_EQ(rows.high.count, 0U);
  EXPECT_EQ(depends_of(rows.low, facts), 2U);
  const AffineParts eighths = take_apart(index, 8, facts);
  ASSERT_EQ(eighths.whole.count, 1U);
  EXPECT_EQ(eighths.whole.terms[0], (AffineTerm{0, 3}));
}

// Random forms of small terms, each value of which is computed.
TEST(AffineForm, PartsRangesAndZerosHoldForEveryValue) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const int64_t factors[] = {1, 2, 3, 4, 6, 8, 12, 24, 32, -1, -2, -8, -12};
  int split = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<ValueFacts> facts;
    AffineForm form;
    for (Value v = 0; v <= below(3); ++v) {
      const int zeros = static_cast<int>(below(3));
      const int64_t low = (below(5) - 1) * 4, size = below(6);
      facts.push_back(term(low, low + (size << zeros), uint64_t{1} << v, zeros));
      form.add(v, factors[below(std::ssize(factors))]);
    }
    form.add_constant(below(40) - 12);
    const int64_t by = 1 + below(40);
    const AffineParts parts = take_apart(form, by, facts);
    const WideRange range = range_of(form, facts);
    const int zeros = zeros_of(form, facts);
    split += parts.low.count > 0 && parts.high.count > 0;
    ASSERT_EQ(by % parts.multiple, 0);
    for_all(facts, [&](const std::vector<int64_t>& values) {
      const int64_t x = value_of(form, values), whole = value_of(parts.whole, values),
                    high = value_of(parts.high, values), low = value_of(parts.low, values);
      ASSERT_EQ(x, by * whole + high + low);
      ASSERT_EQ(high % parts.multiple, 0);
      ASSERT_TRUE(low >= 0 && low < parts.multiple) << low << " of " << parts.multiple;
      ASSERT_EQ(floor_divide(x, by), whole + floor_divide(high, by));
      ASSERT_TRUE(x >= range.low && x <= range.high);
      ASSERT_EQ(x & ((int64_t{1} << zeros) - 1), 0);
    });
  }
  EXPECT_GT(split, 100);
}

}  // namespace
}  // namespace hekla::kernel
