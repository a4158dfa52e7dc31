// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace hekla::checkpoint {
namespace {

template <typename T>
HostArray array(DType dtype, std::vector<T> values) {
  return HostArray::from<T>(dtype, {static_cast<int64_t>(values.size())},
                            std::span<const T>(values));
}

TEST(Cast, FloatsAreRoundedOnceToNearestEven) {
  // Ties of bf16 at 1: 2^-8 to even, 3 * 2^-8 to even above; and what carries into the exponent.
  const HostArray floats =
      array<float>(DType::kF32, {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1p-8f + 0x1p-23f,
                                 0x1.ffffp0f, -0.0f, HUGE_VALF, 3.4e38f});
  const HostArray result = cast(floats, DType::kBF16).value();
  const auto* bits = result.as<uint16_t>();
  EXPECT_EQ(bits[0], 0x3f80);
  EXPECT_EQ(bits[1], 0x3f82);
  EXPECT_EQ(bits[2], 0x3f81);
  EXPECT_EQ(bits[3], 0x4000);
  EXPECT_EQ(bits[4], 0x8000);
  EXPECT_EQ(bits[5], 0x7f80);
  EXPECT_EQ(bits[6], 0x7f80);
}

TEST(Cast, EveryPairOfFloatsAgreesWithTheScalarConversion) {
  std::mt19937_64 random(1);
  for (int f = 1; f < kDTypeCount; ++f) {
    const auto from = static_cast<DType>(f);
    if (!is_float(from)) continue;
    const int64_t size = dtype_bytes(from);
    // More elements than values: the way with a table.
    const int64_t many = dtype_bits(from) == 16 ? 66'000 : 300;
    for (const int64_t count : {int64_t{37}, many}) {
      HostArray values(from, {count});
      auto* bytes = reinterpret_cast<uint8_t*>(values.mutable_data());
      for (int64_t i = 0; i < values.size_bytes(); ++i) {
        bytes[i] = random() & (dtype_bits(from) < 8 ? (1u << dtype_bits(from)) - 1 : 0xff);
      }
      for (int t = 1; t < kDTypeCount; ++t) {
        const auto to = static_cast<DType>(t);
        if (!is_float(to) || to == from) continue;
        const HostArray result = cast(values, to).value();
        for (int64_t i = 0; i < count; ++i) {
          uint64_t bits = 0;
          uint64_t found = 0;
          std::memcpy(&bits, values.data() + i * size, size);
          std::memcpy(&found, result.data() + i * dtype_bytes(to), dtype_bytes(to));
          ASSERT_EQ(found, float_to_bits(to, float_from_bits(from, bits)))
              << dtype_name(from) << " " << bits << " to " << dtype_name(to);
        }
      }
    }
  }
}

// Hardware rounds an i64 to f32 once; going through a double would round twice.
TEST(Cast, LargeIntegersAreRoundedOnce) {
  std::mt19937_64 random(2);
  std::vector<int64_t> values = {std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max(),
                                 0,
                                 -1,
                                 (int64_t{1} << 54) + (int64_t{1} << 30) + 1,
                                 -((int64_t{1} << 60) + (int64_t{1} << 36) + 1)};
  for (int i = 0; i < 10'000; ++i)
    values.push_back(static_cast<int64_t>(random()) >> random() % 63);
  // One above a tie of f32, so near that a double cannot tell.
  for (int shift = 0; shift < 8; ++shift) {
    values.push_back(((int64_t{1} << 55) + (int64_t{1} << 31) + 1) << shift);
  }
  const HostArray integers = array<int64_t>(DType::kI64, values);
  const HostArray floats = cast(integers, DType::kF32).value();
  const HostArray doubles = cast(integers, DType::kF64).value();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(floats.as<float>()[i], static_cast<float>(values[i])) << values[i];
    ASSERT_EQ(doubles.as<double>()[i], static_cast<double>(values[i])) << values[i];
  }
  // A tie of bf16 (8 bits) and one more is above it.
  const HostArray narrow =
      cast(array<uint64_t>(DType::kUI64, {(uint64_t{0x101} << 55) + 1, uint64_t{0x101} << 55}),
           DType::kBF16)
          .value();
  EXPECT_EQ(float_from_bits(DType::kBF16, narrow.as<uint16_t>()[0]), std::ldexp(0x102, 55));
  EXPECT_EQ(float_from_bits(DType::kBF16, narrow.as<uint16_t>()[1]), std::ldexp(0x100, 55));
}

TEST(Cast, IntegersMustFit) {
  const HostArray values = array<int32_t>(DType::kI32, {7, -8, 1});
  const HostArray small = cast(values, DType::kI4).value();
  EXPECT_EQ(small.as<int8_t>()[1], -8);
  EXPECT_EQ(cast(small, DType::kI64)->as<int64_t>()[1], -8);
  const Result<HostArray> none = cast(array<int32_t>(DType::kI32, {7, -9}), DType::kI4);
  EXPECT_EQ(none.status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(none.status().message(), "element 1 of i32[2] is -9, which i4 cannot hold");
  EXPECT_EQ(cast(values, DType::kUI64).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(cast(array<uint64_t>(DType::kUI64, {~uint64_t{0}}), DType::kI64).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(cast(array<int64_t>(DType::kI64, {std::numeric_limits<int64_t>::min()}), DType::kI64)
                ->as<int64_t>()[0],
            std::numeric_limits<int64_t>::min());
  const HostArray flags = array<uint8_t>(DType::kI1, {0, 1});
  EXPECT_EQ(cast(flags, DType::kF32)->as<float>()[1], 1.0f);
  EXPECT_EQ(cast(flags, DType::kI8)->as<int8_t>()[1], 1);
  EXPECT_TRUE(cast(array<int8_t>(DType::kI8, {0, 1}), DType::kI1).ok());
  EXPECT_FALSE(cast(array<int8_t>(DType::kI8, {2}), DType::kI1).ok());
}

TEST(Cast, ComplexNumbersAreCastByPart) {
  const HostArray values = array<float>(DType::kF32, {1.5f, -2.0f});
  const HostArray complex = cast(values, DType::kC128).value();
  ASSERT_EQ(complex.size(), 2);
  EXPECT_EQ(complex.as<double>()[2], -2.0);
  EXPECT_EQ(complex.as<double>()[3], 0.0);
  EXPECT_EQ(cast(complex, DType::kC64)->as<float>()[2], -2.0f);
  EXPECT_EQ(cast(array<int8_t>(DType::kI8, {-3}), DType::kC64)->as<float>()[0], -3.0f);
}

TEST(Cast, WhatLosesMeaningIsRefused) {
  EXPECT_FALSE(can_cast(DType::kF32, DType::kI32));
  EXPECT_FALSE(can_cast(DType::kC64, DType::kF32));
  EXPECT_FALSE(can_cast(DType::kF32, DType::kI1));
  EXPECT_FALSE(can_cast(DType::kInvalid, DType::kF32));
  EXPECT_EQ(cast(array<float>(DType::kF32, {1.0f}), DType::kI32).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hekla::checkpoint
