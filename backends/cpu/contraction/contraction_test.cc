// SPDX-License-Identifier: Apache-2.0
// Every contraction gives, bit for bit, the sums in their order that a plain loop over its
// definition gives: at each level of vectors, on one thread and on the pool.
#include "backends/cpu/contraction/contraction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <map>
#include <random>

#include "backends/cpu/codegen/target.h"
#include "backends/cpu/threads/thread_pool.h"
#include "runtime/base/testing/instrumented.h"

namespace hekla::cpu {
namespace {

using kernel::Contraction;

float bf16_value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return static_cast<float>(fraction == 0 ? sign * INFINITY : NAN);
  return static_cast<float>(exponent == 0 ? sign * std::ldexp(fraction, -24)
                                          : sign * std::ldexp(fraction + 1024, exponent - 25));
}

template <typename Number>
constexpr bool kIsComplex = false;
template <typename Real>
constexpr bool kIsComplex<std::complex<Real>> = true;

// Exact for integers, of which sums are taken without rounding.
template <typename Real>
Real element(const std::vector<std::byte>& data, DType dtype, int64_t at) {
  if constexpr (kIsComplex<Real> || sizeof(Real) == sizeof(double)) {
    return reinterpret_cast<const Real*>(data.data())[at];
  }
  if (dtype == DType::kI8) return reinterpret_cast<const int8_t*>(data.data())[at];
  if (dtype == DType::kUI8) return reinterpret_cast<const uint8_t*>(data.data())[at];
  if (dtype == DType::kI16) return reinterpret_cast<const int16_t*>(data.data())[at];
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(data.data())[at];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(data.data())[at];
  return dtype == DType::kBF16 ? bf16_value(bits) : f16_value(bits);
}

std::vector<std::byte> random_data(DType dtype, int64_t elements, std::mt19937& random) {
  std::vector<std::byte> data(static_cast<size_t>(elements * dtype_bytes(dtype)));
  if (is_integer(dtype)) {
    // The limits often: their products are the largest.
    for (std::byte& byte : data) {
      const uint32_t bits = random();
      byte = static_cast<std::byte>(bits % 4 == 0 ? (bits >> 8) % 2 * 0x80 : bits >> 8);
    }
    return data;
  }
  if (is_complex(dtype)) return random_data(complex_part(dtype), 2 * elements, random);
  std::uniform_real_distribution<double> values(-1, 1);
  for (int64_t i = 0; i < elements; ++i) {
    const double value = values(random);
    if (dtype == DType::kF64) {
      reinterpret_cast<double*>(data.data())[i] = value;
    } else if (dtype == DType::kF32) {
      reinterpret_cast<float*>(data.data())[i] = static_cast<float>(value);
    } else {
      // Any bits are a number, but for those of NaN, whose payload is open.
      auto bits = static_cast<uint16_t>(random());
      const uint16_t exponent = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
      if ((bits & exponent) == exponent) bits &= static_cast<uint16_t>(~(exponent & -exponent));
      if (dtype == DType::kBF16) bits = (bits & 0x80ff) | 0x3f00;
      reinterpret_cast<uint16_t*>(data.data())[i] = bits;
    }
  }
  return data;
}

// Every index of a list of axes, one after the other.
std::vector<std::vector<int64_t>> indices(const std::vector<Contraction::Axis>& axes) {
  std::vector<std::vector<int64_t>> all(static_cast<size_t>(kernel::axes_size(axes)));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].resize(axes.size());
    auto number = static_cast<int64_t>(i);
    for (size_t a = axes.size(); a-- > 0; number /= axes[a].size) {
      all[i][a] = number % axes[a].size;
    }
  }
  return all;
}

int64_t offset(const std::vector<int64_t>& at, const std::vector<Contraction::Axis>& axes,
               int64_t Contraction::Axis::*stride) {
  int64_t sum = 0;
  for (size_t a = 0; a < at.size(); ++a) sum += at[a] * (axes[a].*stride);
  return sum;
}

// Where the chunk ends that begins at a place in the depth: where an index before the axis that is
// cut changes, or the axis gets to the next chunk.
size_t chunk_end(const Contraction& c, const std::vector<std::vector<int64_t>>& depths,
                 size_t begin) {
  if (c.chunks.axis < 0) return depths.size();
  const auto place = [&](size_t d) {
    std::vector<int64_t> at(depths[d].begin(), depths[d].begin() + c.chunks.axis + 1);
    at.back() = (c.chunks.first + at.back() * c.chunks.step) / c.chunks.length;
    return at;
  };
  size_t end = begin + 1;
  while (end < depths.size() && place(end) == place(begin)) ++end;
  return end;
}

template <typename Real>
Real plus_product(Real sum, Real x, Real y, const Contraction&, bool has_fma) {
  return has_fma ? std::fma(x, y, sum) : x * y + sum;
}

template <typename Real>
std::complex<Real> plus_product(std::complex<Real> sum, std::complex<Real> x, std::complex<Real> y,
                                const Contraction& c, bool has_fma) {
  if (c.rhs_first) std::swap(x, y);
  const auto plus = [&](Real s, Real a, Real b) { return plus_product(s, a, b, c, has_fma); };
  return {plus(plus(sum.real(), x.real(), y.real()), x.imag(), -y.imag()),
          plus(plus(sum.imag(), x.real(), y.imag()), x.imag(), y.real())};
}

template <typename Real>
Real sum_of(std::span<const Real> x, const Real* y, const Contraction& c, bool has_fma) {
  const auto chains = static_cast<size_t>(c.chains);
  std::vector<Real> sums(chains, 0);
  for (size_t d = 0; d < x.size(); ++d) {
    Real& sum = sums[d % chains];
    sum = plus_product(sum, x[d], y[d], c, has_fma);
  }
  for (size_t half = chains / 2; half > 0; half /= 2) {
    for (size_t k = 0; k < half; ++k) sums[k] += sums[half + k];
  }
  return sums[0];
}

// The definition, element by element.
template <typename Real>
std::vector<Real> expected(const Contraction& c, const std::vector<std::byte>& lhs,
                           const std::vector<std::byte>& rhs, bool has_fma) {
  using Axis = Contraction::Axis;
  std::vector<Real> out(static_cast<size_t>(c.out_elements), Real(NAN));
  const auto columns = indices(c.columns);
  const auto depths = indices(c.depth);
  std::vector<Real> x(depths.size());
  std::vector<Real> all_y(columns.size() * depths.size());
  for (const auto& batch : indices(c.batch)) {
    for (size_t column = 0; column < columns.size(); ++column) {
      const int64_t from = c.rhs_offset + offset(batch, c.batch, &Axis::rhs) +
                           offset(columns[column], c.columns, &Axis::rhs);
      for (size_t d = 0; d < depths.size(); ++d) {
        all_y[column * depths.size() + d] =
            element<Real>(rhs, c.rhs_dtype, from + offset(depths[d], c.depth, &Axis::rhs));
      }
    }
    for (const auto& row : indices(c.rows)) {
      for (size_t d = 0; d < depths.size(); ++d) {
        int64_t at = c.lhs_offset + offset(batch, c.batch, &Axis::lhs) +
                     offset(row, c.rows, &Axis::lhs) + offset(depths[d], c.depth, &Axis::lhs);
        bool inside = true;
        for (const Contraction::Window& w : c.windows) {
          const int64_t place = row[static_cast<size_t>(w.row)] * w.stride +
                                depths[d][static_cast<size_t>(w.depth)] * w.dilation - w.low;
          inside &=
              place >= 0 && place % w.base_dilation == 0 && place / w.base_dilation < w.extent;
          at += place / w.base_dilation * w.lhs;
        }
        x[d] = inside ? element<Real>(lhs, c.lhs_dtype, at) : 0;
      }
      for (size_t column = 0; column < columns.size(); ++column) {
        const Real* ys = all_y.data() + column * depths.size();
        Real total = 0;
        if constexpr (std::is_same_v<Real, float>) {
          uint32_t whole = 0;  // of integers; wraps
          for (size_t d = 0; c.has_integers() && d < depths.size(); ++d) {
            whole += static_cast<uint32_t>(static_cast<int32_t>(x[d])) *
                     static_cast<uint32_t>(static_cast<int32_t>(ys[d]));
          }
          total = std::bit_cast<float>(whole);
        }
        for (size_t begin = 0; !c.has_integers() && begin < depths.size();) {
          const size_t end = chunk_end(c, depths, begin);
          const Real sum =
              sum_of<Real>(std::span(x).subspan(begin, end - begin), ys + begin, c, has_fma);
          total = begin == 0 ? sum : total + sum;
          begin = end;
        }
        out[static_cast<size_t>(offset(batch, c.batch, &Axis::out) +
                                offset(row, c.rows, &Axis::out) +
                                offset(columns[column], c.columns, &Axis::out))] = total;
      }
    }
  }
  return out;
}

class ContractionTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string_view wanted = GetParam();
    has_unit_ = wanted == "matrix_unit";
    const Result<Target> target = make_target(has_unit_ ? "native" : wanted);
    if (!target.ok() || !target->is_native) GTEST_SKIP() << "this processor has no " << wanted;
    if (has_unit_ && (!target->has_amx || !may_use_amx())) {
      GTEST_SKIP() << "no matrix unit for 8-bit integers";
    }
    has_fours_ = (wanted == "native" || has_unit_) && target->has_vnni;
    kernels_ = &micro_kernels({target->vector_bits, target->has_fma, has_fours_, has_unit_});
    has_fma_ = target->has_fma;
    for (const std::string_view level : {"avx2", "avx512", "native", "matrix_unit"}) {
      if (GetParam() == level) break;
      ++number_;
    }
  }

  static kernel::SumChunks cut_depth(const Contraction& c, int64_t most) {
    std::vector<int64_t> sizes;
    for (const Contraction::Axis& axis : c.depth) sizes.push_back(axis.size);
    return kernel::cut_sum(sizes, most * c.chains);
  }

  // Instrumented, a level takes every fourth contraction, another level the next. Half of those of
  // floats become sums of chunks. One of f32 is checked in f64 or in complex numbers as well.
  void check(Contraction c) {
    if (number_++ % testing::sweep(1, 4) != 0) return;
    if (c.chunks.axis < 0 && !c.has_integers() && random_() % 2 == 0) {
      c.chunks = cut_depth(c, static_cast<int64_t>(8 + random_() % 120));
    }
    check_as<float>(c);
    if (c.lhs_dtype != DType::kF32 || c.rhs_dtype != DType::kF32 || c.chains != 1) return;
    const int kind = number_ / testing::sweep(1, 4) % 3;
    c.rhs_first = kind > 0 && random_() % 2 == 0;
    c.lhs_dtype = c.rhs_dtype = c.out_dtype = kind == 0   ? DType::kF64
                                              : kind == 1 ? DType::kC64
                                                          : DType::kC128;
    if (kind == 0) check_as<double>(c);
    if (kind == 1) check_as<std::complex<float>>(c);
    if (kind == 2) check_as<std::complex<double>>(c);
  }

  template <typename Real>
  void check_as(const Contraction& c) {
    SCOPED_TRACE(kernel::to_string(c));
    const std::vector<std::byte> lhs = random_data(c.lhs_dtype, c.lhs_elements, random_);
    const std::vector<std::byte> rhs = random_data(c.rhs_dtype, c.rhs_elements, random_);
    const std::vector<Real> want = expected<Real>(c, lhs, rhs, has_fma_);
    // As chosen, then as drawn.
    for (const uint64_t seed : {uint64_t{0}, random_() | uint64_t{1}, random_() | uint64_t{1}}) {
      const PreparedContraction prepared(c, *kernels_, seed);
      ++schedules_[prepared.schedule_name()];
      expect_taken(prepared);
      for (const bool is_parallel : {false, true}) run(prepared, lhs, rhs, want, is_parallel);
    }
  }

  // The loops that run are those that the list says were taken, and all others say why not.
  static void expect_taken(const PreparedContraction& prepared) {
    size_t taken = 0;
    for (const kernel::Implementation& each : prepared.implementations()) {
      taken += each.refusal.empty() ? 1 : 0;
      EXPECT_EQ(each.refusal.empty(), each.name == prepared.schedule_name()) << each.name;
    }
    EXPECT_EQ(taken, 1u);
    EXPECT_EQ(prepared.implementations().size(), PreparedContraction::schedule_names().size());
  }

  template <typename Real>
  static void run(const PreparedContraction& prepared, const std::vector<std::byte>& lhs,
                  const std::vector<std::byte>& rhs, const std::vector<Real>& want,
                  bool is_parallel) {
    std::vector<Real> got(want.size(), Real(NAN));
    ThreadPool::process_pool().run([&] {
      prepared.run(lhs.data(), rhs.data(), reinterpret_cast<std::byte*>(got.data()), is_parallel);
    });
    if (std::memcmp(want.data(), got.data(), want.size() * sizeof(Real)) == 0) return;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::memcmp(&want[i], &got[i], sizeof(Real)), 0)
          << "element " << i << ": " << want[i] << ", " << got[i];
    }
  }

  // A matrix product with its operands transposed or not, and the result by rows or columns.
  static Contraction product(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                             bool by_columns = false) {
    Contraction c;
    c.batch.push_back({batch, m * k, k * n, m * n});
    c.rows.push_back({m, ta ? 1 : k, 0, by_columns ? 1 : n});
    c.columns.push_back({n, 0, tb ? k : 1, by_columns ? m : 1});
    c.depth.push_back({k, ta ? m : 1, tb ? 1 : n, 0});
    c.lhs_elements = batch * m * k;
    c.rhs_elements = batch * k * n;
    c.out_elements = batch * m * n;
    return c;
  }

  // Of image, row, column and channel.
  static std::array<int64_t, 4> image_strides(int64_t extent, int64_t channels,
                                              bool channels_first) {
    const int64_t plane = extent * extent;
    if (channels_first) return {plane * channels, extent, 1, plane};
    return {plane * channels, extent * channels, channels, 1};
  }

  // Images of `size` x `size`, channels last (or first), windows of `taps` x `taps`.
  static Contraction convolution(int64_t images, int64_t size, int64_t in, int64_t out,
                                 int64_t taps, int64_t stride, int64_t dilation, int64_t base,
                                 int64_t low, int64_t high, bool channels_first, bool reversed) {
    const int64_t spread = (size - 1) * base + 1 + low + high;
    const int64_t to = (spread - (taps - 1) * dilation - 1) / stride + 1;
    Contraction c;
    const auto from = image_strides(size, in, channels_first);
    const auto result = image_strides(to, out, channels_first);
    c.rows = {{images, from[0], 0, result[0]}, {to, 0, 0, result[1]}, {to, 0, 0, result[2]}};
    c.columns = {{out, 0, channels_first ? in * taps * taps : 1, result[3]}};
    const int64_t tap = channels_first ? 1 : in * out;
    c.depth = {{taps, 0, taps * tap, 0},
               {taps, 0, reversed ? -tap : tap, 0},
               {in, from[3], channels_first ? taps * taps : out, 0}};
    if (reversed) c.rhs_offset = (taps - 1) * tap;
    for (int32_t s = 0; s < 2; ++s) {
      c.windows.push_back({s + 1, s, stride, dilation, low, size, base, from[s == 0 ? 1 : 2]});
    }
    c.lhs_elements = images * size * size * in;
    c.rhs_elements = taps * taps * in * out;
    c.out_elements = images * to * to * out;
    return c;
  }

  // The gradient of a convolution's kernel: rows are features and taps, the depth images and
  // positions, along which the taps slide. Images of `size` x `size`.
  static Contraction kernel_gradient(int64_t images, int64_t size, int64_t in, int64_t out,
                                     int64_t taps, int64_t stride, int64_t dilation, int64_t low,
                                     bool channels_first) {
    const int64_t to = (size + 2 * low - (taps - 1) * dilation - 1) / stride + 1;
    const auto from = image_strides(size, in, channels_first);
    const auto result = image_strides(to, out, channels_first);
    Contraction c;
    c.rows = {{in, from[3], 0, channels_first ? taps * taps : out},
              {taps, 0, 0, channels_first ? taps : taps * in * out},
              {taps, 0, 0, channels_first ? 1 : in * out}};
    c.columns = {{out, 0, result[3], channels_first ? in * taps * taps : 1}};
    c.depth = {{images, from[0], result[0], 0}, {to, 0, result[1], 0}, {to, 0, result[2], 0}};
    for (int32_t s = 0; s < 2; ++s) {
      c.windows.push_back({s + 1, s + 1, dilation, stride, low, size, 1, from[s == 0 ? 1 : 2]});
    }
    c.lhs_elements = images * size * size * in;
    c.rhs_elements = images * to * to * out;
    c.out_elements = taps * taps * in * out;
    return c;
  }

  std::map<std::string_view, int> schedules_;  // how many contractions ran by each
  const MicroKernels* kernels_ = nullptr;
  bool has_fma_ = false;
  bool has_unit_ = false;
  bool has_fours_ = false;
  std::mt19937 random_{7};
  int number_ = 0;  // of the next contraction
};

TEST_P(ContractionTest, ProductsOfEachForm) {
  for (int form = 0; form < 8; ++form) {
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 5},
                                                                     {1, 70, 33},
                                                                     {3, 600, 9},
                                                                     {70, 1, 33},
                                                                     {5, 33, 400},
                                                                     {13, 31, 17},
                                                                     {6, 16, 384},
                                                                     {96, 32, 385},
                                                                     {100, 65, 40},
                                                                     {130, 130, 130},
                                                                     {7, 300, 800},
                                                                     {2, 150, 67},
                                                                     {87, 2, 129}}) {
      check(product(1, m, n, k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0));
    }
  }
  check(product(5, 24, 40, 30, false, true));
  check(product(40, 30, 20, 70, true, false));
}

// In chunks as a CPU has them.
TEST_P(ContractionTest, LongSums) {
  const auto check_long = [&](Contraction c) {
    c.chunks = cut_depth(c, kernel::kMostOfChunk);
    ASSERT_GE(c.chunks.axis, 0);
    check(c);
  };
  for (const int64_t k : {513, 1021, 1024, 1536, 4099}) {
    check_long(product(1, 7, 40, k, false, false));
    check_long(product(1, 20, 33, k, true, false));
    check_long(product(1, 30, 3, k, false, true));
    check_long(product(1, 3, 70, k, false, false));
  }
  check_long(product(1, 9, 300, 1027, false, false));
  check_long(product(1, 9, 300, 1027, true, false));
  check_long(convolution(1, 6, 70, 9, 3, 1, 1, 1, 1, 1, false, false));
  check_long(convolution(1, 6, 70, 9, 3, 1, 1, 2, 1, 1, false, true));
  check_long(convolution(1, 5, 300, 9, 3, 1, 1, 2, 1, 1, true, false));
  check_long(kernel_gradient(3, 20, 4, 9, 3, 1, 1, 1, false));
  check_long(kernel_gradient(3, 20, 4, 9, 3, 1, 1, 1, true));
}

TEST_P(ContractionTest, SplitWork) {
  check(product(1, 260, 200, 400, false, false));
  check(product(1, 4, 4000, 100, false, false));
  check(product(1, 4, 900, 500, false, true));
  check(product(3, 200, 150, 100, true, true));
  check(product(1, 1, 700, 801, false, true));
  check(product(3, 601, 1, 500, false, false));
  check(product(1, 14, 3000, 400, true, false));  // many rectangles
}

// Columns that are packed, read in place by tiles, or streamed: by their number, distance and
// bytes.
TEST_P(ContractionTest, FewRows) {
  for (const int64_t m : {4, 5, 7, 8, 9, 12, 13, 16, 17}) {
    for (const int64_t n : {255, 256, 267, 1024}) {
      for (const int64_t k : {1, 64, 131}) check(product(1, m, n, k, false, false));
    }
    check(product(2, m, 300, 70, true, false));
    check(product(2, m, 300, 70, false, false, true));
  }
  check(product(1, 6, 2110, 1000, false, false));
  for (const std::string_view name : PreparedContraction::schedule_names()) {
    if (testing::sweep(1, 4) > 1) break;  // too few are left
    if (name != "partial sums" && name != "matrix unit" && name != "fours of bytes") {
      EXPECT_GT(schedules_[name], 0) << name;
    }
  }
}

// On both sides of a vector and of a panel, alone and after whole ones; blocks that few columns
// make deep.
TEST_P(ContractionTest, FewColumns) {
  for (const int64_t n : {4, 5, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 80}) {
    for (const auto& [m, k] : std::vector<std::pair<int64_t, int64_t>>{{61, 70}, {24, 513}}) {
      for (int form = 0; form < 4; ++form) {
        check(product(1, m, n, k, (form & 1) != 0, (form & 2) != 0));
      }
    }
  }
  check(product(1, 30, 8, 4200, false, false));
  check(product(1, 400, 12, 1100, false, false));
}

TEST_P(ContractionTest, VectorsHaveSeveralSums) {
  for (int form = 0; form < 8; ++form) {
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 64},
                                                                     {1, 7, 80},
                                                                     {1, 8, 67},
                                                                     {37, 1, 800},
                                                                     {1, 200, 79},
                                                                     {1, 511, 127},
                                                                     {513, 1, 129},
                                                                     {1, 701, 1024},
                                                                     {600, 1, 600},
                                                                     {1, 2100, 255},
                                                                     {1, 16, 15}}) {
      Contraction c = product(1, m, n, k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0);
      c.chains = kernel::kDotChains;
      check(c);
    }
  }
  for (const bool across : {false, true}) {
    Contraction c = product(5, 90, 1, 300, across, true);
    c.chains = kernel::kDotChains;
    check(c);
  }
  Contraction c;
  c.depth = {{300, 1, 1, 0}};
  c.columns = {{1, 0, 0, 1}};
  c.rhs_elements = 300;
  c.out_elements = 90;
  c.chains = kernel::kDotChains;
  // Rows of two dimensions, whose distances differ.
  c.rows = {{9, 3300, 0, 10}, {10, 310, 0, 1}};
  c.batch = {};
  c.lhs_elements = 8 * 3300 + 9 * 310 + 300;
  check(c);
}

TEST_P(ContractionTest, NarrowOperands) {
  for (const DType lhs : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType rhs : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{3, 50}, {70, 50}, {40, 3}}) {
        for (int form = 0; form < 4; ++form) {
          Contraction c = product(2, m, n, 61, (form & 1) != 0, (form & 2) != 0);
          c.lhs_dtype = lhs;
          c.rhs_dtype = rhs;
          check(c);
        }
      }
    }
  }
}

// On both sides of a pair, of four, of a tile, a panel, a block of the depth and a rectangle.
TEST_P(ContractionTest, Integers) {
  const std::pair<DType, DType> types[] = {{DType::kI8, DType::kI8},  {DType::kUI8, DType::kI8},
                                           {DType::kI8, DType::kUI8}, {DType::kUI8, DType::kUI8},
                                           {DType::kI16, DType::kI8}, {DType::kI16, DType::kI16}};
  for (const auto& [lhs, rhs] : types) {
    const auto check_as = [&, lhs = lhs, rhs = rhs](Contraction c) {
      c.lhs_dtype = lhs;
      c.rhs_dtype = rhs;
      check(c);
    };
    for (int form = 0; form < 8; ++form) {
      for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                       {1, 40, 2},
                                                                       {11, 15, 3},
                                                                       {12, 16, 127},
                                                                       {13, 17, 128},
                                                                       {5, 31, 129},
                                                                       {24, 32, 511},
                                                                       {25, 33, 513},
                                                                       {70, 1, 64},
                                                                       {13, 33, 64},
                                                                       {6, 16, 12},
                                                                       {97, 130, 66}}) {
        check_as(product(2, m, n, k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0));
      }
    }
    check_as(product(1, 100, 270, 1025, false, false));
    check_as(product(1, 14, 35, 4100, false, true));
    check_as(product(1, 14, 35, 8260, false, false));
    check_as(product(1, 3, 4, 0, false, false));
    for (const bool first : {false, true}) {
      for (const int64_t channels : {1, 3, 8, 40}) {
        check_as(convolution(2, 9, channels, 20, 3, 1, 1, 1, 1, 1, first, false));
        check_as(convolution(2, 9, channels, 9, 3, 2, 1, 2, 2, 1, first, true));
      }
    }
  }
  EXPECT_EQ(schedules_["matrix unit"] > 0, has_unit_);
  EXPECT_EQ(schedules_["fours of bytes"] > 0, has_fours_);
}

TEST_P(ContractionTest, Convolutions) {
  for (const bool first : {false, true}) {
    for (const bool reversed : {false, true}) {
      for (const int64_t channels : {1, 3, 16}) {
        check(convolution(2, 9, channels, 20, 3, 1, 1, 1, 1, 1, first, reversed));
        check(convolution(2, 9, channels, 20, 3, 2, 1, 1, 0, 1, first, reversed));
        check(convolution(2, 9, channels, 20, 3, 1, 2, 1, 2, 3, first, reversed));
        check(convolution(2, 9, channels, 20, 3, 1, 1, 2, 2, 1, first, reversed));
        check(convolution(2, 9, channels, 5, 2, 3, 2, 3, 1, 4, first, reversed));
      }
    }
  }
  check(convolution(2, 24, 40, 48, 3, 1, 1, 1, 1, 1, false, false));
  check(convolution(2, 24, 40, 48, 3, 1, 1, 1, 1, 1, true, false));
}

// Padding narrower and wider than a run of the depth, lines side by side and not, few columns.
TEST_P(ContractionTest, KernelGradients) {
  const std::pair<DType, DType> types[] = {{DType::kF32, DType::kF32},
                                           {DType::kBF16, DType::kF32},
                                           {DType::kI8, DType::kI8},
                                           {DType::kUI8, DType::kUI8}};
  for (const auto& [lhs, rhs] : types) {
    const auto check_as = [&, lhs = lhs, rhs = rhs](Contraction c) {
      c.lhs_dtype = lhs;
      c.rhs_dtype = rhs;
      check(c);
    };
    for (const bool first : {false, true}) {
      for (const int64_t in : {1, 3, 8}) {
        check_as(kernel_gradient(2, 9, in, 20, 3, 1, 1, 1, first));
        check_as(kernel_gradient(2, 12, in, 5, 3, 2, 1, 0, first));
        check_as(kernel_gradient(3, 8, in, 17, 2, 1, 3, 2, first));
        check_as(kernel_gradient(2, 4, in, 16, 5, 1, 1, 4, first));
      }
      check_as(kernel_gradient(1, 40, 2, 3, 3, 1, 1, 1, first));
    }
    // Taps that lie side by side.
    check_as(kernel_gradient(2, 20, 2, 6, 9, 1, 1, 4, true));
  }
}

// Two to four columns and rows that lie along the depth, or do not.
TEST_P(ContractionTest, VeryFewColumns) {
  for (const int64_t n : {2, 3, 4, 7}) {
    for (const int64_t k : {15, 16, 17, 130}) {
      for (int form = 0; form < 8; ++form) {
        check(product(1, 29, n, k, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0));
      }
    }
    check(convolution(2, 9, 24, n, 3, 1, 1, 1, 1, 1, false, false));
  }
}

// What is computed from `lhs` of ones and `rhs`.
template <typename Real>
std::vector<Real> from_ones(Contraction c, const std::vector<Real>& rhs,
                            const MicroKernels& kernels) {
  if constexpr (kIsComplex<Real>) {
    c.lhs_dtype = c.rhs_dtype = c.out_dtype = DType::kC64;
  } else if (sizeof(Real) == sizeof(double)) {
    c.lhs_dtype = c.rhs_dtype = c.out_dtype = DType::kF64;
  }
  const std::vector<Real> lhs(static_cast<size_t>(c.lhs_elements), 1);
  std::vector<Real> out(static_cast<size_t>(c.out_elements));
  PreparedContraction(c, kernels)
      .run(reinterpret_cast<const std::byte*>(lhs.data()),
           reinterpret_cast<const std::byte*>(rhs.data()), reinterpret_cast<std::byte*>(out.data()),
           false);
  return out;
}

template <typename Real>
void expect_padding_gives_nan(const Contraction& c, const MicroKernels& kernels) {
  const std::vector<Real> rhs(static_cast<size_t>(c.rhs_elements), INFINITY);
  const std::vector<Real> out = from_ones(c, rhs, kernels);
  EXPECT_TRUE(std::isnan(std::real(out.front())));                                // a corner
  EXPECT_TRUE(std::isinf(std::real(out[static_cast<size_t>((1 * 4 + 1) * 8)])));  // inside
}

TEST_P(ContractionTest, InfinityTimesPaddingIsNaN) {
  const Contraction c = convolution(1, 4, 8, 8, 3, 1, 1, 1, 1, 1, false, false);
  expect_padding_gives_nan<float>(c, *kernels_);
  expect_padding_gives_nan<double>(c, *kernels_);
  expect_padding_gives_nan<std::complex<float>>(c, *kernels_);
}

template <typename Real>
void expect_zeros_between_give_nan(const Contraction& c, const MicroKernels& kernels) {
  std::vector<Real> rhs(static_cast<size_t>(c.rhs_elements), 1);
  rhs.back() = INFINITY;
  const std::vector<Real> out = from_ones(c, rhs, kernels);
  // The last tap of the last feature: on an element of the input from the second pixel on.
  EXPECT_TRUE(std::isnan(std::real(out[7])));
  EXPECT_TRUE(std::isinf(std::real(out[static_cast<size_t>((1 * 7 + 1) * 8 + 7)])));
}

TEST_P(ContractionTest, InfinityTimesTheZerosOfADilatedInputIsNaN) {
  const Contraction c = convolution(1, 4, 8, 8, 3, 1, 1, 2, 1, 1, false, false);
  expect_zeros_between_give_nan<float>(c, *kernels_);
  expect_zeros_between_give_nan<double>(c, *kernels_);
  expect_zeros_between_give_nan<std::complex<float>>(c, *kernels_);
}

INSTANTIATE_TEST_SUITE_P(Levels, ContractionTest,
                         ::testing::Values("sse2", "avx2", "avx512", "native", "matrix_unit"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hekla::cpu
