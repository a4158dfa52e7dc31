// SPDX-License-Identifier: Apache-2.0
// Constants of the functions. Written by tools/fit_polynomials.py, which says how; do not edit.
// For this folder only. Polynomials: lowest degree first.
#pragma once

#include <cstdint>

namespace hekla::kernel {

// (e^r - 1 - r) / r^2 in r, |r| <= ln(2)/2.
// Error 2^-28.24.
inline constexpr double kExpF32[] = {0x1.0000000000000p-1, 0x1.55548e0000000p-3,
                                     0x1.55545c0000000p-5, 0x1.123bdc0000000p-7,
                                     0x1.6db5240000000p-10};

// Error 2^-58.0.
inline constexpr double kExpF64[] = {
    0x1.000000000000cp-1,  0x1.5555555555561p-3,  0x1.555555554ff93p-5,  0x1.111111110d5c5p-7,
    0x1.6c16c185ca937p-10, 0x1.a01a01bb07e4fp-13, 0x1.a01996317113cp-16, 0x1.71dddf7a14f15p-19,
    0x1.28b0a65cd594bp-22, 0x1.af8606ec1da1cp-26};

// (log(1+f) - f + f^2/2) / f^3 in f, sqrt(1/2) <= 1+f <= sqrt(2).
// Error 2^-27.35.
inline constexpr double kLogF32[] = {
    0x1.5555540000000p-2, -0x1.0002260000000p-2, 0x1.99a0080000000p-3, -0x1.54724e0000000p-3,
    0x1.22da1e0000000p-3, -0x1.0d84fa0000000p-3, 0x1.055b280000000p-3, -0x1.38b5fc0000000p-4};

// (log((1+s)/(1-s)) - 2s - 2/3 s^3) / s^5 in s^2, s = f/(2+f) with f as above.
// Error 2^-58.98.
inline constexpr double kLogRatioF64[] = {0x1.999999998fe6cp-2, 0x1.24924935ee948p-2,
                                          0x1.c71c5a9d565edp-3, 0x1.7464a92b62761p-3,
                                          0x1.39c72ec5382e6p-3, 0x1.2da78120ebcb5p-3};

// The same for the longer logarithm of pow.
// Error 2^-36.78.
inline constexpr double kPowLogF32[] = {0x1.999a000000000p-2, 0x1.24527a0000000p-2,
                                        0x1.dfa30a0000000p-3};

// Error 2^-73.46.
inline constexpr double kPowLogF64[] = {
    0x1.9999999999996p-2, 0x1.2492492492f56p-2, 0x1.c71c71c595943p-3, 0x1.745d1829f0872p-3,
    0x1.3b1364999eda7p-3, 0x1.1120771c6cfd5p-3, 0x1.de3c15cb12b2cp-4, 0x1.ead1aed464d3cp-4};

// (sin(r) - r) / r^3 in r^2, |r| <= pi/4.
// Error 2^-28.0.
inline constexpr double kSinF32[] = {-0x1.5555460000000p-3, 0x1.11077a0000000p-7,
                                     -0x1.9954a40000000p-13};

// Error 2^-57.98.
inline constexpr double kSinF64[] = {-0x1.5555555555549p-3,  0x1.111111110f892p-7,
                                     -0x1.a01a019c121c6p-13, 0x1.71de3576bf09bp-19,
                                     -0x1.ae5e64a9cb5a5p-26, 0x1.5d925dfee2b59p-33};

// (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4.
// Error 2^-33.13.
inline constexpr double kCosF32[] = {0x1.55554a0000000p-5, -0x1.6c0c1a0000000p-10,
                                     0x1.99e0ee0000000p-16};

// Error 2^-64.16.
inline constexpr double kCosF64[] = {0x1.555555555554cp-5,  -0x1.6c16c16c15210p-10,
                                     0x1.a01a019cbcd9cp-16, -0x1.27e4f8104665cp-22,
                                     0x1.1ee9ef537185bp-29, -0x1.8fb001f5fbfa4p-37};

// (atan(t) - t) / t^3 in t^2, |t| <= 1.
// Error 2^-28.51.
inline constexpr double kAtanF32[] = {
    -0x1.55553e0000000p-2, 0x1.9991e40000000p-3,  -0x1.2420840000000p-3,
    0x1.c08c1a0000000p-4,  -0x1.5808160000000p-4, 0x1.da24da0000000p-5,
    -0x1.fd6ff40000000p-6, 0x1.64113a0000000p-7,  -0x1.d32e760000000p-10};

// Error 2^-57.59.
inline constexpr double kAtanF64[] = {
    -0x1.5555555555526p-2, 0x1.99999999955b0p-3,  -0x1.249249237f463p-3,  0x1.c71c717fcb6eap-4,
    -0x1.745d11ae31c55p-4, 0x1.3b13669758e69p-4,  -0x1.110e5111e10fbp-4,  0x1.e1bba5859747ep-5,
    -0x1.ae5e6f103749ap-5, 0x1.82dacc0952f8dp-5,  -0x1.59a3e30385d45p-5,  0x1.2c2e276557812p-5,
    -0x1.e9f96f516f58dp-6, 0x1.683c13064f72ap-6,  -0x1.c78e89c0e939bp-7,  0x1.d7b77727f445fp-8,
    -0x1.7a37f54081c57p-9, 0x1.b3f896b61f32ep-11, -0x1.3f347bb868673p-13, 0x1.bbead8b748611p-17};

// cbrt(m) in m, 1 <= m <= 2, to 2^-13.74.
inline constexpr double kCbrtStart[] = {0x1.1b0c2c0000000p-1, 0x1.2c992c0000000p-1,
                                        -0x1.4dc0100000000p-3, 0x1.7a87dc0000000p-6};

// ln(2) in two parts; the product of the first with any exponent is exact.
inline constexpr double kLn2F32[] = {0x1.62e0000000000p-1, 0x1.0bfbe80000000p-15};

inline constexpr double kLn2F64[] = {0x1.62e42fefa2000p-1, 0x1.9ef35793c7673p-41};

// pi/2 in four parts; products of the first three with integers below 2^12 (f32) or 2^27
// (f64) are exact, and the first two end where a number near 1 does.
inline constexpr double kHalfPiF32[] = {0x1.9200000000000p+0, 0x1.fb40000000000p-12,
                                        0x1.4440000000000p-24, 0x1.68c2340000000p-39};

inline constexpr double kHalfPiF64[] = {0x1.921fb50000000p+0, 0x1.110b460000000p-26,
                                        0x1.1a62630000000p-54, 0x1.8a2e03707344ap-81};

// 2/3 in two parts.
inline constexpr double kTwoThirdsF32[] = {0x1.5555540000000p-1, 0x1.5555560000000p-25};

inline constexpr double kTwoThirdsF64[] = {0x1.5555555555555p-1, 0x1.5555555555555p-55};

// The bits of 2/pi behind the point, 32 a word, most significant first.
inline constexpr uint32_t kTwoOverPi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d};

}  // namespace hekla::kernel
