// SPDX-License-Identifier: Apache-2.0
// Constants of erf. Written by tools/fit_polynomials.py --erf, which says how; do not edit.
// For this folder only. Polynomials: lowest degree first.
#pragma once

namespace hekla::passes {

inline constexpr double kErfSplit = 0x1.6000000000000p+0;
inline constexpr double kErfEnd = 0x1.f800000000000p+1;
inline constexpr double kErfMiddle = 0x1.5400000000000p+1;

// erf(x) / x - 1 in x^2, 0 <= x <= kErfSplit; error 2^-27.74 of erf(x).
inline constexpr double kErfSmall[] = {
    0x1.06eba80000000p-3, -0x1.8127380000000p-2,  0x1.ce2c360000000p-4,  -0x1.b7f87a0000000p-6,
    0x1.54947e0000000p-8, -0x1.af46e00000000p-11, 0x1.9e218e0000000p-14, -0x1.bdcd380000000p-18};

// 1 - erf(x) in x - kErfMiddle, kErfSplit <= x <= kErfEnd; error 2^-23.79.
inline constexpr double kErfLarge[] = {
    0x1.69369a0000000p-13,  -0x1.fe1e320000000p-11, 0x1.5335ba0000000p-9,   -0x1.1704ca0000000p-8,
    0x1.386f540000000p-8,   -0x1.f1223c0000000p-9,  0x1.19bd6e0000000p-9,   -0x1.790de80000000p-11,
    -0x1.d2e0940000000p-15, 0x1.5874460000000p-13,  -0x1.4256aa0000000p-15, -0x1.321ab60000000p-18};

}  // namespace hekla::passes
