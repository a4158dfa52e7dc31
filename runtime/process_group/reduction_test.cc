// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/process_group/conformance/conformance.h"

namespace hekla::process_group {
namespace {

using enum ReduceOp;

template <typename T>
std::vector<T> reduced(const Reduction& by, DType dtype, const std::vector<std::vector<T>>& ranks) {
  std::vector<const std::byte*> inputs;
  for (const auto& values : ranks) {
    inputs.push_back(reinterpret_cast<const std::byte*>(values.data()));
  }
  std::vector<T> out(ranks[0].size());
  const auto bytes = static_cast<int64_t>(out.size() * sizeof(T));
  reduce(by, dtype, bytes / dtype_bytes(dtype), inputs, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// Every bit pattern there and back, and halfway cases, as dtype.h has them.
TEST(Reduction, SixteenBitFloatsAreThoseOfTheirFormats) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> all(65536), zeros(65536, 0x8000);  // -0 changes nothing
    for (uint32_t i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
    const std::vector<uint16_t> out = reduced<uint16_t>(kSum, dtype, {all, zeros});
    std::vector<uint16_t> next(65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      const double value = float_from_bits(dtype, i);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(float_from_bits(dtype, out[i]))) << i;
      } else {
        EXPECT_EQ(out[i], i) << dtype_name(dtype);
      }
      next[i] = static_cast<uint16_t>(i ^ 1);
    }
    // Averages of neighbours fall between two values: ties go to the even one.
    const std::vector<uint16_t> halves = reduced<uint16_t>(kAvg, dtype, {all, next});
    for (uint32_t i = 0; i < 65536; ++i) {
      const double exact = static_cast<double>(
          static_cast<float>(float_from_bits(dtype, i) + float_from_bits(dtype, next[i])) / 2);
      if (std::isnan(exact)) continue;
      EXPECT_EQ(halves[i], float_to_bits(dtype, exact)) << dtype_name(dtype) << " " << i;
    }
  }
}

// All pairs: what two ranks give is between two numbers of the format, halfway, or beyond all.
TEST(Reduction, FloatsOfAByteAreThoseOfTheirFormats) {
  int formats = 0;
  for (int d = 1; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    if (!is_float(dtype) || dtype_bytes(dtype) != 1) continue;
    ++formats;
    const int values = 1 << dtype_bits(dtype);
    HostArray left(dtype, {int64_t{values} * values}), right = left, out = left;
    for (int i = 0; i < values * values; ++i) {
      left.mutable_data()[i] = static_cast<std::byte>(i / values);
      right.mutable_data()[i] = static_cast<std::byte>(i % values);
    }
    const std::byte* const inputs[] = {left.data(), right.data()};
    for (const Reduction& by :
         {Reduction(kSum), Reduction(kProduct), Reduction(kAvg), Reduction::premul_sum(0.3)}) {
      reduce(by, dtype, left.size(), inputs, out.mutable_data());
      EXPECT_EQ(difference(out, reference_reduce(by, {left, right})), "")
          << dtype_name(dtype) << " " << reduce_op_name(by.op);
    }
  }
  EXPECT_GE(formats, 10);
}

TEST(Reduction, NarrowFloatsAreRoundedOnce) {
  // 256 + 1 + 1 + ... in bf16 would stay at 256 if each sum were rounded.
  const auto bits = [](double value) {
    return static_cast<uint16_t>(float_to_bits(DType::kBF16, value));
  };
  std::vector<std::vector<uint16_t>> ranks(9, {bits(1)});
  ranks[0] = {bits(256)};
  EXPECT_EQ(reduced(kSum, DType::kBF16, ranks)[0], bits(264));
}

TEST(Reduction, RanksAreFoldedFromTheLeft) {
  const std::vector<std::vector<float>> ranks = {{1e8F}, {-1e8F}, {1.0F}};
  EXPECT_EQ(reduced(kSum, DType::kF32, ranks)[0], 1.0F);
  EXPECT_EQ(reduced<float>(kSum, DType::kF32, {ranks[0], ranks[2], ranks[1]})[0], 0.0F);
}

TEST(Reduction, IntegersWrapAround) {
  EXPECT_EQ(reduced<int8_t>(kSum, DType::kI8, {{127}, {1}})[0], -128);
  EXPECT_EQ(reduced<int16_t>(kProduct, DType::kI16, {{-32768}, {-32768}, {3}})[0], 0);
  EXPECT_EQ(reduced<uint16_t>(kProduct, DType::kUI16, {{65535}, {65535}})[0], 1);
  EXPECT_EQ(reduced<int8_t>(kSum, DType::kI4, {{7}, {1}})[0], -8);
  EXPECT_EQ(reduced<uint8_t>(kSum, DType::kUI2, {{3}, {2}})[0], 1);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(reduced<int64_t>(kAvg, DType::kI64, {{most}, {most}})[0], most);
  EXPECT_EQ(reduced<int32_t>(kAvg, DType::kI32, {{-3}, {0}})[0], -1);
}

TEST(Reduction, NaNsWinAndZerosStayTheFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(reduced<float>(kMin, DType::kF32, {{1}, {nan}})[0]));
  EXPECT_TRUE(std::isnan(reduced<float>(kMax, DType::kF32, {{nan}, {1}})[0]));
  EXPECT_TRUE(std::signbit(reduced<float>(kMax, DType::kF32, {{-0.0F}, {0.0F}})[0]));
  EXPECT_FALSE(std::signbit(reduced<float>(kMin, DType::kF32, {{0.0F}, {-0.0F}})[0]));
}

TEST(Reduction, BooleansAreBits) {
  const std::vector<std::vector<uint8_t>> ranks = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  EXPECT_EQ(reduced(kSum, DType::kI1, ranks), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(reduced(kProduct, DType::kI1, ranks), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(reduced(kBitXor, DType::kI1, ranks), (std::vector<uint8_t>{0, 1, 1, 0}));
}

TEST(Reduction, ComplexNumbersMultiply) {
  const std::vector<float> product = reduced<float>(kProduct, DType::kC64, {{1, 2}, {3, -1}});
  EXPECT_EQ(product[0], 5);
  EXPECT_EQ(product[1], 5);
}

TEST(Reduction, TheOutputMayBeAnInput) {
  std::vector<float> a(3000, 1), b(3000, 2);
  const std::byte* const inputs[] = {reinterpret_cast<std::byte*>(a.data()),
                                     reinterpret_cast<std::byte*>(b.data())};
  reduce(Reduction::premul_sum(0.5), DType::kF32, 3000, inputs,
         reinterpret_cast<std::byte*>(b.data()));
  EXPECT_EQ(b, std::vector<float>(3000, 1.5F));
}

// Folded in steps, wherever it is cut, the bits are the same, for every type and operation.
TEST(Reduction, InStepsAsInOne) {
  constexpr int64_t kCount = 2100;  // more than are folded at a time
  constexpr size_t kRanks = 5;
  int checks = 0;
  for (int d = 1; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    std::vector<HostArray> arrays;
    std::vector<const std::byte*> inputs;
    for (size_t r = 0; r < kRanks; ++r) {
      arrays.push_back(conformance_input(dtype, kCount, static_cast<int>(r), "steps"));
      inputs.push_back(arrays.back().data());
    }
    for (int o = 0; o < kReduceOpCount; ++o) {
      Reduction by(static_cast<ReduceOp>(o));
      if (by.op == kPremulSum) by.factor = 0.3;
      if (!check_reduction(by, dtype).ok()) continue;
      const auto bytes = static_cast<size_t>(arrays[0].size_bytes());
      const auto folded_bytes = static_cast<size_t>(kCount * partial_bytes(by, dtype));
      std::vector<std::byte> wanted(bytes);
      reduce(by, dtype, kCount, inputs, wanted.data());
      const std::span<const std::byte* const> all(inputs);
      for (size_t first = 1; first < kRanks; ++first) {
        for (size_t second = first; second < kRanks; ++second) {
          std::vector<std::byte> begun(folded_bytes), more(folded_bytes), out(bytes);
          reduce_partly(by, dtype, kCount, nullptr, all.first(first), begun.data());
          reduce_partly(by, dtype, kCount, begun.data(), all.subspan(first, second - first),
                        more.data());
          reduce_rest(by, dtype, kCount, more.data(), all.subspan(second), kRanks, out.data());
          EXPECT_EQ(std::memcmp(out.data(), wanted.data(), bytes), 0)
              << by.to_string() << " of " << dtype_name(dtype) << " cut at " << first << ", "
              << second;
          ++checks;
        }
      }
    }
  }
  EXPECT_GT(checks, 1000);
}

TEST(Reduction, WhatMakesNoSenseIsSaid) {
  const auto refused = [](const Reduction& by, DType dtype) {
    return check_reduction(by, dtype).message();
  };
  EXPECT_EQ(refused(kBitAnd, DType::kF32), "band of f32: bits are those of integers");
  EXPECT_EQ(refused(kMax, DType::kC64), "max of complex<f32>: complex numbers have no order");
  EXPECT_EQ(refused(kAvg, DType::kI1), "avg of i1: booleans have no average");
  EXPECT_EQ(refused(Reduction::premul_sum(2), DType::kI32),
            "premul_sum(2) of i32: a factor is for floats");
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(reduce_op_from_name(reduce_op_name(op)), op);
  }
}

}  // namespace
}  // namespace hekla::process_group
