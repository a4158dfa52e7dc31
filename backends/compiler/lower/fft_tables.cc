// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/fft_tables.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <utility>

#include "backends/compiler/kernel/transform.h"

namespace hekla::lower {
namespace {

using Complex = std::complex<double>;

// The forward transform of values; their number has radices.
void transform(std::vector<Complex>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<Complex> roots, other(values.size());
  for (int64_t k = 0; k < n; ++k) roots.push_back(root_of_one(k, n));
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  int64_t stride = 1;
  for (const int64_t r : radices_of(n)) {
    const int64_t shares = n / r;
    for (int64_t share = 0; share < shares; ++share) {
      const int64_t block = share / stride, offset = share % stride;
      for (int64_t i = 0; i < r; ++i) {
        Complex sum = 0;
        for (int64_t j = 0; j < r; ++j) {
          sum += values[at(share + j * shares)] * roots[at(i * j % r * shares)];
        }
        other[at((block * r + i) * stride + offset)] = sum * roots[at(i * stride * block % n)];
      }
    }
    std::swap(values, other);
    stride *= r;
  }
}

// The length of at least `least` elements whose passes are the shortest.
int64_t convolution_size(int64_t least) {
  int64_t best = 0, best_cost = std::numeric_limits<int64_t>::max();
  for (const int64_t odd : {1, 3, 5, 9, 15}) {
    int64_t size = odd;
    while (size < least) size *= 2;
    const int64_t cost = size * static_cast<int64_t>(radices_of(size).size());
    if (cost < best_cost) std::tie(best, best_cost) = std::pair(size, cost);
  }
  return best;
}

}  // namespace

// The angle is brought into the first octant, where it is exact, and taken in more than f64 where
// there is more.
Complex root_of_one(int64_t k, int64_t n) {
  k %= n;
  const int64_t octant = 8 * k / n;
  const int64_t eighths = 8 * k - octant * n;  // above the octant's beginning, in 1 / (8 n) turns
  const bool is_odd = octant % 2 != 0;
  const long double angle = std::numbers::pi_v<long double> *
                            static_cast<long double>(is_odd ? n - eighths : eighths) /
                            static_cast<long double>(4 * n);
  auto c = static_cast<double>(std::cos(angle));
  auto s = static_cast<double>(std::sin(angle));
  // The octant's quarter, and which side of its middle.
  if (is_odd) std::swap(c, s);
  switch (octant / 2) {
    case 0:
      return {c, -s};
    case 1:
      return {-s, -c};
    case 2:
      return {-c, s};
    default:
      return {s, c};
  }
}

std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> radices;
  if (n < 1) return radices;
  for (int64_t r : {8, 4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61}) {
    for (; n % r == 0; n /= r) radices.push_back(r);
  }
  static_assert(kernel::kLargestRadix == 61);
  if (n > 1) return {};
  if (radices.empty()) radices.push_back(1);
  return radices;
}

Chirp chirp_of(int64_t n) {
  Chirp chirp;
  chirp.size = convolution_size(2 * n - 1);
  chirp.spectrum.resize(static_cast<size_t>(chirp.size));
  for (int64_t t = 0; t < n; ++t) {
    // t^2 modulo 2 n, without overflow.
    const auto square = static_cast<int64_t>(static_cast<__int128>(t) * t % (2 * n));
    chirp.values.push_back(root_of_one(square, 2 * n));
    const Complex c = std::conj(chirp.values.back());
    chirp.spectrum[static_cast<size_t>(t)] = c;
    if (t != 0) chirp.spectrum[static_cast<size_t>(chirp.size - t)] = c;
  }
  transform(chirp.spectrum);
  for (Complex& each : chirp.spectrum) each /= static_cast<double>(chirp.size);
  return chirp;
}

}  // namespace hekla::lower
