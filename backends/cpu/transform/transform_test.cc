// SPDX-License-Identifier: Apache-2.0
// Transforms against their definition in more than f64: every radix, layout of lines, direction and
// half, at each level of vectors, between pages that may not be touched.
#include "backends/cpu/transform/transform.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>

#include "backends/cpu/codegen/target.h"
#include "backends/cpu/testing/guarded_memory.h"

namespace hekla::cpu {
namespace {

using kernel::Transform;
using Complex = std::complex<long double>;

Complex root(int64_t k, int64_t n) {
  const long double angle = -2 * std::numbers::pi_v<long double> * static_cast<long double>(k % n) /
                            static_cast<long double>(n);
  return {std::cos(angle), std::sin(angle)};
}

// As kernel/transform.h has them.
std::vector<Complex> roots_of(const Transform& t) {
  std::vector<Complex> roots;
  const int64_t size = t.is_paired() ? t.size / 2 : t.size;
  int64_t stride = 1;
  for (size_t pass = 0; pass + 1 < t.radices.size(); ++pass) {
    const int64_t r = t.radices[pass], blocks = size / r / stride;
    for (int64_t i = 1; i < r; ++i) {
      for (int64_t block = 0; block < blocks; ++block) {
        roots.push_back(root(i * stride * block, size));
      }
    }
    stride *= r;
  }
  for (const int64_t r : t.radices) {
    if (r == 1 || r == 2 || r == 4) continue;
    const auto at = static_cast<size_t>(kernel::radix_roots_at(t, r));
    if (roots.size() > at) continue;
    for (int64_t i = 0; i < r; ++i) roots.push_back(root(i, r));
  }
  if (t.is_paired()) {
    for (int64_t k = 0; k <= size; ++k) roots.push_back(root(k, t.size));
  }
  if (roots.empty()) roots.emplace_back(1);
  return roots;
}

template <typename T>
Complex number(const T* data, int64_t at, bool is_real) {
  return is_real ? Complex(data[at]) : Complex(data[2 * at], data[2 * at + 1]);
}

template <typename T>
std::vector<T> random_source(const Transform& t) {
  std::mt19937 random(7);
  std::uniform_real_distribution<T> values(-1, 1);
  std::vector<T> source(static_cast<size_t>(kernel::from_bytes(t)) / sizeof(T));
  for (T& each : source) each = values(random);
  return source;
}

// By the definition, and the bound of each line's errors.
template <typename T>
std::vector<Complex> transformed(const Transform& t, const std::vector<T>& source,
                                 std::vector<long double>& bounds) {
  std::vector<Complex> roots;
  for (int64_t k = 0; k < t.size; ++k) {
    roots.push_back(t.is_inverse ? std::conj(root(k, t.size)) : root(k, t.size));
  }
  std::vector<Complex> results(static_cast<size_t>(t.lines() * t.to_size));
  for (int64_t line = 0; line < t.lines(); ++line) {
    const int64_t o = line / t.inner, k = line % t.inner;
    std::vector<Complex> x;
    long double norm = 0;
    for (int64_t i = 0; i < t.size; ++i) {
      x.push_back(i < t.from_size
                      ? number(source.data(), (o * t.from_size + i) * t.inner + k, t.is_from_real)
                      : std::conj(x[static_cast<size_t>(t.size - i)]));
      if (t.is_to_real && (i == 0 || 2 * i == t.size)) x.back().imag(0);
      norm += std::norm(x.back());
    }
    const auto size = static_cast<long double>(t.size);
    bounds.push_back(8 * std::numeric_limits<T>::epsilon() * std::sqrt(norm * size) /
                     (t.is_inverse ? size : 1));
    for (int64_t i = 0; i < t.to_size; ++i) {
      Complex sum = 0;
      for (int64_t j = 0; j < t.size; ++j) {
        const Complex& w = roots[static_cast<size_t>(i * j % t.size)];
        const Complex& a = x[static_cast<size_t>(j)];
        // std::complex asks each product for NaNs.
        sum += Complex(a.real() * w.real() - a.imag() * w.imag(),
                       a.real() * w.imag() + a.imag() * w.real());
      }
      if (t.is_inverse) sum /= size;
      results[static_cast<size_t>((o * t.to_size + i) * t.inner + k)] =
          t.is_to_real ? sum.real() : sum;
    }
  }
  return results;
}

template <typename T>
void check(const Transform& t) {
  SCOPED_TRACE(kernel::to_string(t) + (t.is_from_real ? " of reals" : "") +
               (t.is_to_real ? " to reals" : ""));
  ASSERT_EQ(kernel::why_not_a_transform(t), "");
  const std::vector<T> source = random_source<T>(t);
  std::vector<long double> bounds;
  const std::vector<Complex> want = transformed(t, source, bounds);
  const std::vector<Complex> all = roots_of(t);
  ASSERT_EQ(static_cast<int64_t>(all.size()), kernel::root_count(t));
  for (const char* level : {"sse2", "avx2", "avx512"}) {
    const Result<Target> target = make_target(level);
    if (!target.ok() || !target->is_native) continue;
    for (const bool is_parallel : {false, true}) {
      // Both ends, in turns.
      const GuardedMemory from(kernel::from_bytes(t), is_parallel);
      const GuardedMemory roots(kernel::root_bytes(t), is_parallel);
      const GuardedMemory to(kernel::to_bytes(t), is_parallel);
      std::memcpy(from.bytes().data(), source.data(), from.bytes().size());
      auto* const numbers = reinterpret_cast<T*>(roots.bytes().data());
      for (size_t i = 0; i < all.size(); ++i) {
        numbers[2 * i] = static_cast<T>(all[i].real());
        numbers[2 * i + 1] = static_cast<T>(all[i].imag());
      }
      PreparedTransform(t, target->vector_bits)
          .run(from.bytes().data(), roots.bytes().data(), to.bytes().data(), is_parallel, nullptr);
      const auto* const result = reinterpret_cast<const T*>(to.bytes().data());
      for (size_t i = 0; i < want.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t line = at / (t.to_size * t.inner) * t.inner + at % t.inner;
        const Complex got = number(result, at, t.is_to_real);
        ASSERT_LE(std::abs(got - want[i]), bounds[static_cast<size_t>(line)])
            << level << ", element " << i;
      }
    }
  }
}

void check_all_levels(const Transform& t) {
  t.part == DType::kF64 ? check<double>(t) : check<float>(t);
}

Transform transform_of(DType part, int64_t outer, int64_t inner, std::vector<int64_t> radices) {
  Transform t;
  t.part = part;
  t.outer = outer;
  t.inner = inner;
  for (const int64_t r : radices) t.size *= r;
  t.from_size = t.to_size = t.size;
  t.radices = std::move(radices);
  return t;
}

// Of real numbers to half a spectrum, and back. An even number of them, where `is_paired`, take the
// radices of half as many.
Transform real_transform_of(DType part, int64_t outer, std::vector<int64_t> radices, bool is_paired,
                            bool is_inverse) {
  Transform t = transform_of(part, outer, 1, std::move(radices));
  if (is_paired) t.size *= 2;
  t.is_inverse = t.is_to_real = is_inverse;
  t.is_from_real = !is_inverse;
  const int64_t half = t.size / 2 + 1;
  t.from_size = is_inverse ? half : t.size;
  t.to_size = is_inverse ? t.size : half;
  return t;
}

constexpr DType kParts[] = {DType::kF32, DType::kF64};

TEST(Transform, EveryRadix) {
  for (const DType part : kParts) {
    for (const int64_t r : {1, 2, 4, 8, 3, 5, 7, 11, 13, 17, 19, 23, 29, 37, 61}) {
      check_all_levels(transform_of(part, 17, 1, {r}));
      if (r > 1) check_all_levels(transform_of(part, 1, 18, {r, 2}));
      if (r > 1 && r < 8) check_all_levels(transform_of(part, 1, 17, {r, 2, r}));
    }
    check_all_levels(transform_of(part, 3, 16, {8, 4, 2, 3, 5}));
    check_all_levels(transform_of(part, 16, 1, {8, 3, 7}));
  }
}

// Lines that are too long for two buffers in a first level cache go through two passes at a time.
TEST(Transform, PassesInPairs) {
  for (const DType part : kParts) {
    for (const auto& [outer, inner] : {std::pair(17, 1), std::pair(1, 18), std::pair(1, 5)}) {
      for (const std::vector<int64_t>& radices :
           {std::vector<int64_t>{8, 8, 4}, {8, 8, 8}, {8, 8, 8, 2}}) {
        Transform t = transform_of(part, outer, inner, radices);
        check_all_levels(t);
        t.is_inverse = true;
        check_all_levels(t);
        if (inner != 1) continue;
        check_all_levels(real_transform_of(part, outer, radices, true, false));
        check_all_levels(real_transform_of(part, outer, radices, true, true));
      }
    }
  }
}

// Fewer lines than lanes, a few more, side by side, one after the other, and neither.
TEST(Transform, EveryLayoutOfLines) {
  for (const DType part : kParts) {
    for (const int64_t outer : {1, 2, 15, 16, 33}) {
      for (const int64_t inner : {1, 3, 4, 8, 15, 16, 19, 33}) {
        check_all_levels(transform_of(part, outer, inner, {8, 3}));
      }
    }
  }
}

TEST(Transform, Inverse) {
  for (const DType part : kParts) {
    for (const int64_t inner : {1, 5, 17}) {
      for (const std::vector<int64_t>& radices :
           {std::vector<int64_t>{1}, {2}, {3}, {8, 2}, {4, 2, 3}, {3, 5}, {8, 8}}) {
        Transform t = transform_of(part, 21, inner, radices);
        t.is_inverse = true;
        check_all_levels(t);
      }
    }
  }
}

// Fewer lines than lanes and more; pairs in an even and an odd number.
TEST(Transform, RealNumbers) {
  for (const DType part : kParts) {
    for (const int64_t lines : {1, 7, 16, 21}) {
      for (const bool is_inverse : {false, true}) {
        for (const std::vector<int64_t>& radices : {std::vector<int64_t>{1},
                                                    {2},
                                                    {3},
                                                    {8, 2},
                                                    {4, 2, 3},
                                                    {3, 5},
                                                    {8, 8},
                                                    {31},
                                                    {2, 61}}) {
          check_all_levels(real_transform_of(part, lines, radices, true, is_inverse));
        }
        for (const std::vector<int64_t>& radices :
             {std::vector<int64_t>{1}, {3}, {3, 5}, {31}, {3, 7, 11}}) {
          check_all_levels(real_transform_of(part, lines, radices, false, is_inverse));
        }
      }
    }
  }
}

// The first number of a spectrum of an even number of real ones, and the last one, are real: what
// they hold beside that is not read.
TEST(Transform, EndsOfHalfASpectrumAreReal) {
  const Transform t = real_transform_of(DType::kF32, 1, {2}, true, true);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> source = {4, nan, 0, 0, 8, nan};
  const std::vector<Complex> all = roots_of(t);
  std::vector<float> roots, to(4);
  for (const Complex& each : all) {
    roots.push_back(static_cast<float>(each.real()));
    roots.push_back(static_cast<float>(each.imag()));
  }
  PreparedTransform(t, 128).run(reinterpret_cast<const std::byte*>(source.data()),
                                reinterpret_cast<const std::byte*>(roots.data()),
                                reinterpret_cast<std::byte*>(to.data()), false, nullptr);
  EXPECT_EQ(to, (std::vector<float>{3, -1, 3, -1}));
}

// With and without the pool.
TEST(Transform, NothingIsDoneOnceItIsCalledOff) {
  const Transform t = transform_of(DType::kF32, 1, 4096, {8, 8});
  const std::vector<float> source = random_source<float>(t);
  const std::vector<std::byte> roots(static_cast<size_t>(kernel::root_bytes(t)));
  std::vector<std::byte> to(static_cast<size_t>(kernel::to_bytes(t)), std::byte{7});
  const std::vector<std::byte> before = to;
  const std::atomic<bool> cancelled = true;
  for (const bool is_parallel : {false, true}) {
    PreparedTransform(t, 128).run(reinterpret_cast<const std::byte*>(source.data()), roots.data(),
                                  to.data(), is_parallel, &cancelled);
    EXPECT_EQ(to, before);
  }
}

TEST(Transform, NumbersThatDoNotFit) {
  Transform t = transform_of(DType::kF32, 1, 1, {8, 2});
  t.to_size = 17;
  EXPECT_EQ(kernel::why_not_a_transform(t), "17 results of 16");
  t.to_size = 16;
  t.radices = {8, 3};
  EXPECT_EQ(kernel::why_not_a_transform(t), "radices 8 3 for 16");
  t.radices = {16};
  EXPECT_EQ(kernel::why_not_a_transform(t), "radices 16 for 16");
  t.radices = {8, 2};
  t.from_size = 9;
  EXPECT_EQ(kernel::why_not_a_transform(t), "9 elements for 16");
  t.is_to_real = true;
  EXPECT_EQ(kernel::why_not_a_transform(t), "real numbers on the wrong side");
  t.is_inverse = true;
  EXPECT_EQ(kernel::why_not_a_transform(t), "radices 8 2 for 8");
  t.radices = {8};
  EXPECT_EQ(kernel::why_not_a_transform(t), "");
  t.inner = 2;
  EXPECT_EQ(kernel::why_not_a_transform(t), "real numbers that are apart");
  t = transform_of(DType::kF32, int64_t{1} << 31, int64_t{1} << 31, {8, 2});
  EXPECT_EQ(kernel::why_not_a_transform(t),
            "complex<f32>[2147483648,16,2147483648] takes more than 2^62 bytes");
  t.outer = t.inner = 1;
  t.part = DType::kF16;
  EXPECT_EQ(kernel::why_not_a_transform(t), "its numbers are not f32 or f64");
}

}  // namespace
}  // namespace hekla::cpu
