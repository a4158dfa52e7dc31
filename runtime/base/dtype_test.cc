// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace hekla {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 1; i < kDTypeCount; ++i) {
    DType dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_name("f33").has_value());
}

TEST(DType, EveryPatternOfSmallFloatsSurvivesARoundTrip) {
  for (int i = 1; i < kDTypeCount; ++i) {
    DType dtype = static_cast<DType>(i);
    if (!is_float(dtype) || dtype_bits(dtype) > 16) continue;
    for (uint64_t bits = 0; bits < (uint64_t{1} << dtype_bits(dtype)); ++bits) {
      double value = float_from_bits(dtype, bits);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(float_from_bits(dtype, float_to_bits(dtype, value))));
      } else {
        EXPECT_EQ(float_to_bits(dtype, value), bits) << dtype_name(dtype);
      }
    }
  }
}

// The patterns were printed by ml_dtypes 0.5 for the same twelve values.
TEST(DType, SpecialValuesAgreeWithMlDtypes) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const std::array<double, 12> values = {nan, -nan, inf,  -inf,  1e9,  -1e9,
                                         0.0, -0.0, 1e-9, -1e-9, -1.0, 3.0};
  struct Case {
    DType dtype;
    std::array<int, 12> bits;
  };
  const Case cases[] = {
      {DType::kF4E2M1FN, {0x8, 0x0, 0x7, 0xf, 0x7, 0xf, 0x0, 0x8, 0x0, 0x8, 0xa, 0x5}},
      {DType::kF6E2M3FN, {0x20, 0, 0x1f, 0x3f, 0x1f, 0x3f, 0, 0x20, 0, 0x20, 0x28, 0x14}},
      {DType::kF6E3M2FN, {0x20, 0, 0x1f, 0x3f, 0x1f, 0x3f, 0, 0x20, 0, 0x20, 0x2c, 0x12}},
      {DType::kF8E3M4, {0x78, 0xf8, 0x70, 0xf0, 0x70, 0xf0, 0, 0x80, 0, 0x80, 0xb0, 0x48}},
      {DType::kF8E4M3, {0x7c, 0xfc, 0x78, 0xf8, 0x78, 0xf8, 0, 0x80, 0, 0x80, 0xb8, 0x44}},
      {DType::kF8E4M3FN, {0x7f, 0xff, 0x7f, 0xff, 0x7f, 0xff, 0, 0x80, 0, 0x80, 0xb8, 0x44}},
      {DType::kF8E4M3FNUZ, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0xc0, 0x4c}},
      {DType::kF8E4M3B11FNUZ, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0xd8, 0x64}},
      {DType::kF8E5M2, {0x7e, 0xfe, 0x7c, 0xfc, 0x7c, 0xfc, 0, 0x80, 0, 0x80, 0xbc, 0x42}},
      {DType::kF8E5M2FNUZ, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0xc0, 0x46}},
      {DType::kF8E8M0FNU, {0xff, 0xff, 0xff, 0xff, 0x9d, 0xff, 0xff, 0xff, 0x61, 0xff, 0xff, 0x81}},
  };
  for (const Case& c : cases) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(float_to_bits(c.dtype, values[i]), static_cast<uint64_t>(c.bits[i]))
          << dtype_name(c.dtype) << " of " << values[i];
    }
  }
}

TEST(DType, RoundsHalfToEven) {
  EXPECT_EQ(float_to_bits(DType::kBF16, 1.0 + 1.0 / 256), 0x3f80u);
  EXPECT_EQ(float_to_bits(DType::kBF16, 1.0 + 3.0 / 256), 0x3f82u);
  EXPECT_EQ(float_to_bits(DType::kF16, 65519.9), 0x7bffu);
  EXPECT_EQ(float_to_bits(DType::kF16, 65520.0), 0x7c00u);
  EXPECT_EQ(float_to_bits(DType::kF16, std::ldexp(1.0, -25)), 0u);
  EXPECT_EQ(float_to_bits(DType::kTF32, 1.0), 0x3f800000u);
}

}  // namespace
}  // namespace hekla
