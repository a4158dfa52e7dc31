#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the constants of backends/compiler/kernel/math and writes its coefficients.h.

Usage: fit_polynomials.py backends/compiler/kernel/math/coefficients.h
       fit_polynomials.py --erf backends/compiler/passes/erf_coefficients.h   (needs mpmath; a minute)

Polynomials are minimax fits by Remez's exchange algorithm (a system of n + 2 equations for equal
errors of alternating sign, then new extrema, until they agree), on a fine Chebyshev grid and with 60
digits. The lowest coefficients are rounded to the format one by one and the rest is fitted again, so
that their rounding does not cost accuracy. The smallest degree that meets the bound is taken.
"""

import sys

from mpmath import mp, mpf

mp.dps = 60


def solve(function, weight, points, count, fixed, step):
    """Coefficients number len(fixed).. count-1 of least maximal weighted error on `points`."""
    first = len(fixed)
    free = count - first
    values = []
    for x in points:
        known = sum((c * x**(i * step) for i, c in enumerate(fixed)), mpf(0))
        values.append((x, function(x) - known, weight(x)))
    chosen = [round(i * (len(points) - 1) / free) for i in range(free + 1)]
    best, best_error = [], mp.inf
    for _ in range(30):
        rows = []
        for sign, index in enumerate(chosen):
            x, y, w = values[index]
            rows.append([x**((first + k) * step) for k in range(free)] + [(-1)**sign / w])
        right = [values[i][1] for i in chosen]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix(right))
        coefficients = [solution[k] for k in range(free)]
        errors = []
        for x, y, w in values:
            p = mpf(0)
            for c in reversed(coefficients):
                p = p * x**step + c
            errors.append((p * x**(first * step) - y) * w)
        # The largest error of each run of equal sign, then the best alternating free + 1 of them.
        extrema = []
        for i, e in enumerate(errors):
            if extrema and (errors[extrema[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > free + 1:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        worst = max(abs(e) for e in errors)
        if worst < best_error:
            best, best_error = coefficients, worst
        if len(extrema) < free + 1:
            break
        least = min(abs(errors[i]) for i in extrema)
        chosen = extrema
        if worst <= least * mpf("1.001"):
            break
    return best, best_error


def rounded(x, bits):
    """`x` to so many bits, to nearest."""
    if x == 0:
        return mpf(0)
    mantissa, exponent = mp.frexp(x)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), exponent - bits)


def fit(function, weight, low, high, bound, bits, refits=3):
    low, high, bound = mpf(low), mpf(high), mpf(bound)
    for count in range(2, 30):
        points = []
        grid = 30 * (count + 2)
        for i in range(grid):
            x = (low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (i + mpf(1) / 2) / grid)
            if x != 0:
                points.append(x)
        coefficients, error = solve(function, weight, points, count, [], 1)
        if error > bound:
            continue
        if refits == 0:
            return [rounded(c, bits) for c in coefficients], error
        fixed = []
        for _ in range(min(refits, count - 1)):
            coefficients, error = solve(function, weight, points, count, fixed, 1)
            fixed.append(rounded(coefficients[0], bits))
        coefficients, error = solve(function, weight, points, count, fixed, 1)
        fixed += [rounded(c, bits) for c in coefficients]
        return fixed, error
    raise RuntimeError("no degree is enough")


def root(z):
    return mp.sqrt(z)


HALF_LN2 = mp.log(2) / 2 * mpf("1.001")
QUARTER_PI = mp.pi / 4 * mpf("1.001")
LOG_S = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1))**2 * mpf("1.001")

# name, comment, function of the polynomial's variable, weight that makes the error relative to the
# result, interval, least and most format ("f32", "f64")
FITS = [
    ("Exp", "(e^r - 1 - r) / r^2 in r, |r| <= ln(2)/2",
     lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2, -HALF_LN2, HALF_LN2, ("f32", "f64")),
    ("Log", "(log(1+f) - f + f^2/2) / f^3 in f, sqrt(1/2) <= 1+f <= sqrt(2)",
     lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, lambda f: f**3 / mp.log1p(f),
     mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(2) - 1, ("f32",)),
    ("LogRatio", "(log((1+s)/(1-s)) - 2s - 2/3 s^3) / s^5 in s^2, s = f/(2+f) with f as above",
     lambda z: (2 * mp.atanh(root(z)) / root(z) - 2 - 2 * z / 3) / z**2,
     lambda z: z**2 / 2, 0, LOG_S, ("f64",)),
    ("PowLog", "The same for the longer logarithm of pow",
     lambda z: (2 * mp.atanh(root(z)) / root(z) - 2 - 2 * z / 3) / z**2,
     lambda z: z**2 / 2, 0, LOG_S, ("f32 long", "f64 long")),
    ("Sin", "(sin(r) - r) / r^3 in r^2, |r| <= pi/4",
     lambda z: (mp.sin(root(z)) / root(z) - 1) / z, lambda z: z, 0, QUARTER_PI**2,
     ("f32", "f64")),
    ("Cos", "(cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4",
     lambda z: (mp.cos(root(z)) - 1 + z / 2) / z**2, lambda z: z**2, 0, QUARTER_PI**2,
     ("f32", "f64")),
    ("Atan", "(atan(t) - t) / t^3 in t^2, |t| <= 1",
     lambda z: (mp.atan(root(z)) / root(z) - 1) / z, lambda z: z * root(z) / mp.atan(root(z)), 0, 1,
     ("f32", "f64")),
]
# Digits of the coefficients, and the bound of the error.
FORMATS = {"f32": (24, mpf(2)**-27), "f64": (53, mpf(2)**-57),
           "f32 long": (24, mpf(2)**-36), "f64 long": (53, mpf(2)**-67)}


def hexfloat(x):
    return float(x).hex()


def array(name, values):
    lines = ",\n    ".join(hexfloat(v) for v in values)
    return f"inline constexpr double {name}[] = {{\n    {lines}}};\n"


def pieces(x, bits, count):
    """x as a sum of `count` numbers of so many bits each, the last one rounded to `bits[-1]`."""
    result = []
    for i in range(count):
        width = bits[min(i, len(bits) - 1)]
        if i + 1 < count:
            mantissa, exponent = mp.frexp(x)
            part = mp.ldexp(mp.floor(mp.ldexp(mantissa, width)), exponent - width)
        else:
            part = rounded(x, width)
        result.append(part)
        x -= part
    return result


# erf of f32: where the two polynomials meet, from where on it is 1, what the second one's
# variable counts from. Binary fractions, so that |x| - ERF_MIDDLE is exact near it.
ERF_SPLIT, ERF_END, ERF_MIDDLE = mpf("1.375"), mpf("3.9375"), mpf("2.65625")


def write_erf(path):
    small, small_error = fit(lambda z: mp.erf(root(z)) / root(z) - 1, lambda z: root(z) / mp.erf(root(z)),
                             0, ERF_SPLIT**2, mpf(2)**-26, 24)
    large, large_error = fit(lambda v: mp.erfc(v + ERF_MIDDLE), lambda v: 1, ERF_SPLIT - ERF_MIDDLE,
                             ERF_END - ERF_MIDDLE, mpf(2)**mpf("-23.7"), 24, refits=0)
    print("erf:", len(small), "and", len(large), "coefficients")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"""// SPDX-License-Identifier: Apache-2.0
// Constants of erf. Written by tools/fit_polynomials.py --erf, which says how; do not edit.
// For this folder only. Polynomials: lowest degree first.
#pragma once

namespace hekla::passes {{

inline constexpr double kErfSplit = {hexfloat(ERF_SPLIT)};
inline constexpr double kErfEnd = {hexfloat(ERF_END)};
inline constexpr double kErfMiddle = {hexfloat(ERF_MIDDLE)};

// erf(x) / x - 1 in x^2, 0 <= x <= kErfSplit; error 2^{mp.nstr(mp.log(small_error, 2), 4)} of erf(x).
{array("kErfSmall", small)}
// 1 - erf(x) in x - kErfMiddle, kErfSplit <= x <= kErfEnd; error 2^{mp.nstr(mp.log(large_error, 2), 4)}.
{array("kErfLarge", large)}
}}  // namespace hekla::passes
""")


def main():
    if sys.argv[1] == "--erf":
        write_erf(sys.argv[2])
        return
    out = ["""// SPDX-License-Identifier: Apache-2.0
// Constants of the functions. Written by tools/fit_polynomials.py, which says how; do not edit.
// For this folder only. Polynomials: lowest degree first.
#pragma once

#include <cstdint>

namespace hekla::kernel {
"""]
    for name, comment, function, weight, low, high, formats in FITS:
        out.append(f"// {comment}.")
        for format_name in formats:
            bits, bound = FORMATS[format_name]
            # With 0 inside of the interval the powers without the first do not determine a fit.
            values, error = fit(function, weight, low, high, bound, bits, refits=0 if low < 0 else 3)
            print(name, format_name, len(values), "coefficients, error 2 ^",
                  mp.nstr(mp.log(error, 2), 5), flush=True)
            out.append(f"// Error 2^{mp.nstr(mp.log(error, 2), 4)}.")
            out.append(array(f"k{name}{format_name[:3].upper()}", values))
    # A start for the cube root: of m in [1, 2), relative error about 2^-11.
    values, error = fit(lambda m: mp.cbrt(m), lambda m: 1 / mp.cbrt(m), 1, 2, mpf(2)**-11, 24)
    out.append("// cbrt(m) in m, 1 <= m <= 2, to " + f"2^{mp.nstr(mp.log(error, 2), 4)}.")
    out.append(array("kCbrtStart", values))

    # Constants in parts: products with integers of the spare bits are exact.
    out.append("// ln(2) in two parts; the product of the first with any exponent is exact.")
    out.append(array("kLn2F32", pieces(mp.log(2), [13, 24], 2)))
    out.append(array("kLn2F64", pieces(mp.log(2), [40, 53], 2)))
    out.append("// pi/2 in four parts; products of the first three with integers below 2^12 (f32) or 2^27"
               "\n// (f64) are exact, and the first two end where a number near 1 does.")
    out.append(array("kHalfPiF32", pieces(mp.pi / 2, [12, 12, 12, 24], 4)))
    out.append(array("kHalfPiF64", pieces(mp.pi / 2, [26, 26, 26, 53], 4)))
    out.append("// 2/3 in two parts.")
    out.append(array("kTwoThirdsF32", pieces(mpf(2) / 3, [24, 24], 2)))
    out.append(array("kTwoThirdsF64", pieces(mpf(2) / 3, [53, 53], 2)))
    # The bits of 2/pi behind the point; f64 needs 1024 - 53 + 3 * 64 of them.
    words = []
    mp.dps = 500
    x = 2 / mp.pi
    for _ in range(40):
        x *= mpf(2)**32
        word = int(mp.floor(x))
        words.append(word)
        x -= word
    mp.dps = 60
    lines = []
    for i in range(0, len(words), 6):
        lines.append(", ".join(f"0x{w:08x}" for w in words[i:i + 6]))
    out.append("// The bits of 2/pi behind the point, 32 a word, most significant first.")
    out.append("inline constexpr uint32_t kTwoOverPi[] = {\n    " + ",\n    ".join(lines) + "};\n")
    out.append("}  // namespace hekla::kernel")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
