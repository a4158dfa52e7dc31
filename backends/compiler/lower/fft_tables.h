// SPDX-License-Identifier: Apache-2.0
// What the lowering of Fourier transforms (fft.cc) computes beforehand, in f64: roots of unity, how
// a length is cut into passes, and what a length with a large prime factor is convolved with.
//
// Pure functions; any thread; nothing fails.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace hekla::lower {

// exp(-2 pi i k / n), correctly rounded but for rare cases; 0 <= k, 1 <= n < 2^58.
std::complex<double> root_of_one(int64_t k, int64_t n);

// Radices whose product is n, in the order of their passes; empty when one of them would be above
// kernel::kLargestRadix, or n is 0.
std::vector<int64_t> radices_of(int64_t n);

// Bluestein's transform of n elements, a convolution of `size` elements, which has radices:
//   X[k] = c[k] sum_j (x[j] c[j]) conj(c[k - j]) with c[t] = exp(-pi i t^2 / n)
struct Chirp {
  int64_t size = 0;
  std::vector<std::complex<double>> values;    // c, n of them
  std::vector<std::complex<double>> spectrum;  // of their conjugates both ways, divided by `size`
};
Chirp chirp_of(int64_t n);

}  // namespace hekla::lower
