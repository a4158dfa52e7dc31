// SPDX-License-Identifier: Apache-2.0
// rng, fft, linear algebra and batch normalisation. Known answers are from jaxlib 0.10.2 on the
// CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "backends/reference/kernels/batch_norm.h"
#include "backends/reference/kernels/fft.h"
#include "backends/reference/kernels/linear_algebra.h"
#include "backends/reference/kernels/rng.h"
#include "backends/reference/kernels/test_arrays.h"

namespace hekla::reference {
namespace {

using C = std::complex<double>;

template <typename T>
HostArray array_of(DType dtype, Dims dims, const std::vector<T>& values) {
  return HostArray::from<T>(dtype, std::move(dims), values);
}

void expect_bits(const std::vector<uint64_t>& state, RngAlgorithm algorithm, const Dims& dims,
                 const std::vector<uint64_t>& new_state, const std::vector<uint32_t>& bits) {
  const HostArray initial = array_of(DType::kUI64, {static_cast<int64_t>(state.size())}, state);
  const RngBits result = rng_bit_generator(initial, algorithm, DType::kUI32, dims).value();
  EXPECT_TRUE(result.output_state.identical(
      array_of(DType::kUI64, {static_cast<int64_t>(state.size())}, new_state)));
  ASSERT_LE(static_cast<int64_t>(bits.size()), result.output.size());
  for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(result.output.as<uint32_t>()[i], bits[i]) << i;
}

TEST(RngBitGenerator, GivesTheBitsOfXlaOnTheCpu) {
  const uint64_t key = 0x0123456789abcdef;
  const uint64_t counter = 0xfedcba9876543210;
  expect_bits({key, counter}, RngAlgorithm::kThreeFry, {7}, {key, counter + 4},
              {0xaed4a37f, 0x1130d111, 0xc3cc4d02, 0x798e402e, 0xaee5264e, 0xb089da7a, 0x49b105a8});
  expect_bits({key, counter}, RngAlgorithm::kThreeFry, {3, 5}, {key, counter + 9},
              {0xaed4a37f, 0x1130d111, 0xc3cc4d02, 0x798e402e, 0xaee5264e, 0x49b105a8, 0xaf0a8d99,
               0xe8e52210, 0xdde94182, 0xf0a39a78, 0xe2a77238});
  expect_bits({key, counter}, RngAlgorithm::kThreeFry, {3, 4}, {key, counter + 6},
              {0xaed4a37f, 0x1130d111, 0xc3cc4d02, 0x798e402e, 0xaee5264e, 0xb089da7a, 0x49b105a8});
  expect_bits({key, counter}, RngAlgorithm::kThreeFry, {}, {key, counter + 1}, {0xaed4a37f});
  expect_bits({key, counter}, RngAlgorithm::kDefault, {7}, {key, counter + 2},
              {0x1ec53d42, 0xcfa390b5, 0xf2235702, 0xe71ff917, 0xcb472319, 0xd682777a, 0xa09c7b98});
  // The counter carries into its upper half.
  const uint64_t full = ~uint64_t{0};
  expect_bits({key, full}, RngAlgorithm::kPhilox, {6}, {key, 1},
              {0x41eb59f3, 0x307385e0, 0x5b8b3389, 0xa262f67c, 0x7006d264, 0xd71fd4de});
  expect_bits({key, full, 0x1122334455667788}, RngAlgorithm::kPhilox, {6},
              {key, 1, 0x1122334455667789},
              {0x4534f0b4, 0xf929763b, 0x11a48d97, 0xc659e407, 0xc88e5bc6, 0x76bf8a24});
}

TEST(RngBitGenerator, WideAndNarrowOutputs) {
  const HostArray state =
      array_of<uint64_t>(DType::kUI64, {2}, {0x0123456789abcdef, 0xfedcba9876543210});
  const RngBits wide = rng_bit_generator(state, RngAlgorithm::kThreeFry, DType::kUI64, {7}).value();
  EXPECT_EQ(wide.output.as<uint64_t>()[6], 0x403dbb94e2a77238u);
  EXPECT_EQ(wide.output_state.as<uint64_t>()[1], 0xfedcba9876543217u);
  const RngBits philox = rng_bit_generator(state, RngAlgorithm::kPhilox, DType::kUI64, {7}).value();
  EXPECT_EQ(philox.output.as<uint64_t>()[6], 0xb70bfd8a7a29becbu);
  EXPECT_EQ(philox.output_state.as<uint64_t>()[1], 0xfedcba9876543214u);
  const RngBits bytes = rng_bit_generator(state, RngAlgorithm::kPhilox, DType::kUI8, {16}).value();
  EXPECT_EQ(bytes.output.as<uint8_t>()[15], 0xf4);
}

TEST(Rng, StaysInRangeAndHasTheRightMoments) {
  const HostArray low = HostArray::scalar<int32_t>(DType::kI32, -3);
  const HostArray high = HostArray::scalar<int32_t>(DType::kI32, 4);
  const HostArray integers = rng(low, high, {7000}, RngDistribution::kUniform, 1).value();
  std::vector<int> counts(7, 0);
  for (int64_t i = 0; i < 7000; ++i) {
    const int32_t value = integers.as<int32_t>()[i];
    ASSERT_TRUE(value >= -3 && value < 4);
    ++counts[value + 3];
  }
  for (int count : counts) EXPECT_NEAR(count, 1000, 150);
  const HostArray mean = HostArray::scalar<float>(DType::kF32, 2);
  const HostArray deviation = HostArray::scalar<float>(DType::kF32, 3);
  const HostArray normal = rng(mean, deviation, {20000}, RngDistribution::kNormal, 1).value();
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 20000; ++i) {
    sum += normal.as<float>()[i] - 2;
    squares += (normal.as<float>()[i] - 2) * (normal.as<float>()[i] - 2);
  }
  EXPECT_NEAR(sum / 20000, 0, 0.1);
  EXPECT_NEAR(squares / 20000, 9, 0.4);
}

HostArray random_complex(Random& random, const Dims& dims) {
  HostArray array(DType::kC128, dims);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < array.size(); ++i)
    array.mutable_as<C>()[i] = C(normal(random), normal(random));
  return array;
}

TEST(Fft, AgreesWithTheDefinitionForAnyLength) {
  Random random(31);
  for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 30, 31, 36, 37, 64, 74, 97, 100, 121, 202, 360}) {
    const HostArray x = random_complex(random, {2, n});
    const HostArray forward = fft(x, FftType::kFft, Dims{n}).value();
    const HostArray back = fft(forward, FftType::kIfft, Dims{n}).value();
    for (int64_t i = 0; i < 2 * n; ++i) {
      C sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        sum += x.as<C>()[i / n * n + j] *
               std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i % n * j % n) /
                                   static_cast<double>(n));
      }
      ASSERT_LT(std::abs(forward.as<C>()[i] - sum), 1e-11) << n;
      ASSERT_LT(std::abs(back.as<C>()[i] - x.as<C>()[i]), 1e-12) << n;
    }
  }
}

TEST(Fft, RealTransformsMatchComplexOnesInSeveralDimensions) {
  Random random(32);
  for (int64_t n : {4, 5}) {
    HostArray x(DType::kF64, {2, 3, 6, n});
    HostArray as_complex(DType::kC128, x.dims());
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < x.size(); ++i) {
      as_complex.mutable_as<C>()[i] = x.mutable_as<double>()[i] = normal(random);
    }
    const Dims lengths = {3, 6, n};
    const HostArray half = fft(x, FftType::kRfft, lengths).value();
    const HostArray full = fft(as_complex, FftType::kFft, lengths).value();
    ASSERT_EQ(half.dims().back(), n / 2 + 1);
    for (const Dims& index : all_indices(half.dims())) {
      EXPECT_LT(
          std::abs(half.as<C>()[flat(half.dims(), index)] - full.as<C>()[flat(full.dims(), index)]),
          1e-12);
    }
    const HostArray back = fft(half, FftType::kIrfft, lengths).value();
    for (int64_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(back.as<double>()[i], x.as<double>()[i], 1e-13);
    }
  }
  EXPECT_FALSE(fft(HostArray(DType::kF32, {4}), FftType::kFft, Dims{4}).ok());
}

TEST(Cholesky, ReadsOneTriangleAndMarksIndefiniteMatrices) {
  Random random(33);
  const int64_t n = 4;
  const HostArray g = random_complex(random, {n, n});
  HostArray a(DType::kC128, {n, n});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      C sum = i == j ? 1.0 : 0.0;
      for (int64_t k = 0; k < n; ++k) sum += g.as<C>()[i * n + k] * std::conj(g.as<C>()[j * n + k]);
      a.mutable_as<C>()[i * n + j] = sum;
    }
  }
  for (const bool lower : {true, false}) {
    HostArray given = a;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j)
        given.mutable_as<C>()[lower ? i * n + j : j * n + i] = 1e9;
    }
    const HostArray f = cholesky(given, lower).value();
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        C sum = 0;
        for (int64_t k = 0; k < n; ++k) {
          sum += lower ? f.as<C>()[i * n + k] * std::conj(f.as<C>()[j * n + k])
                       : std::conj(f.as<C>()[k * n + i]) * f.as<C>()[k * n + j];
        }
        EXPECT_LT(std::abs(sum - a.as<C>()[i * n + j]), 1e-12);
      }
    }
  }
  const HostArray indefinite = array_of<double>(DType::kF64, {2, 2}, {1, 2, 2, 1});
  const HostArray marked = cholesky(indefinite, true).value();
  EXPECT_TRUE(std::isnan(marked.as<double>()[0]));
  EXPECT_EQ(marked.as<double>()[1], 0);
  EXPECT_TRUE(std::isnan(marked.as<double>()[3]));
}

TEST(TriangularSolve, SolvesForAllFlags) {
  Random random(34);
  const int64_t n = 4, m = 3;
  for (int flags = 0; flags < 24; ++flags) {
    TriangularSolveConfig c;
    c.left_side = (flags & 1) != 0;
    c.lower = (flags & 2) != 0;
    c.unit_diagonal = (flags & 4) != 0;
    c.transpose_a = static_cast<Transpose>(flags / 8);
    const HostArray a = random_complex(random, {2, n, n});
    const HostArray b = random_complex(random, c.left_side ? Dims{2, n, m} : Dims{2, m, n});
    const HostArray x = triangular_solve(a, b, c).value();
    const auto op = [&](int64_t batch, int64_t i, int64_t j) {
      const bool is_transposed = c.transpose_a != Transpose::kNoTranspose;
      const int64_t row = is_transposed ? j : i, column = is_transposed ? i : j;
      if (c.lower ? column > row : column < row) return C(0);
      if (row == column && c.unit_diagonal) return C(1);
      const C value = a.as<C>()[(batch * n + row) * n + column];
      return c.transpose_a == Transpose::kAdjoint ? std::conj(value) : value;
    };
    for (const Dims& index : all_indices(b.dims())) {
      C sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        sum += c.left_side
                   ? op(index[0], index[1], k) * x.as<C>()[flat(x.dims(), {index[0], k, index[2]})]
                   : x.as<C>()[flat(x.dims(), {index[0], index[1], k})] * op(index[0], k, index[2]);
      }
      EXPECT_LT(std::abs(sum - b.as<C>()[flat(b.dims(), index)]), 1e-9) << flags;
    }
  }
}

TEST(HouseholderQr, HasTheSignsOfLapack) {
  const HostArray a =
      array_of<double>(DType::kF64, {5, 3}, {1, 2, 0.5, -3, 4, 1, 2, 2, 2, 0, 1, -1, 1, 0, 3});
  const Qr qr = householder_qr(a).value();
  EXPECT_NEAR(qr.packed.as<double>()[0], -3.872983346207417, 1e-14);
  EXPECT_NEAR(qr.packed.as<double>()[2], -1.161895003862225, 1e-14);
  EXPECT_NEAR(qr.packed.as<double>()[13], -0.010243219334340263, 1e-14);
  EXPECT_NEAR(qr.packed.as<double>()[14], 0.74947385485936, 1e-14);
  EXPECT_NEAR(qr.taus.as<double>()[1], 1.8997861009855201, 1e-14);
  const HostArray z = array_of<C>(DType::kC128, {3, 2}, {{1, 2}, {2, -1}, {0, 3}, 1, 2, {0, -1}});
  const Qr complex_qr = householder_qr(z).value();
  const auto near = [](C a, C b) { return std::abs(a - b) < 1e-14; };
  EXPECT_TRUE(near(complex_qr.packed.as<C>()[1], {0, 2.3570226039551585}));
  EXPECT_TRUE(near(complex_qr.packed.as<C>()[5], {0.07785689215679199, -0.17700819342488808}));
  EXPECT_TRUE(near(complex_qr.taus.as<C>()[1], {1.880369485430261, 0.29898333684052997}));
}

TEST(HouseholderProduct, TimesRIsTheMatrix) {
  Random random(35);
  const int64_t m = 5, n = 3;
  const HostArray a = random_complex(random, {2, m, n});
  const Qr qr = householder_qr(a).value();
  const HostArray q = householder_product(qr.packed, qr.taus).value();
  for (const Dims& index : all_indices(a.dims())) {
    C sum = 0;
    for (int64_t k = 0; k <= index[2]; ++k) {
      sum += q.as<C>()[flat(a.dims(), {index[0], index[1], k})] *
             qr.packed.as<C>()[flat(a.dims(), {index[0], k, index[2]})];
    }
    EXPECT_LT(std::abs(sum - a.as<C>()[flat(a.dims(), index)]), 1e-12);
  }
}

TEST(BatchNorm, AgreesWithXlaOnTheCpu) {
  const HostArray x = array_of<float>(DType::kF32, {2, 3}, {1, 2, 3, 4, 6, -1});
  const HostArray scale = array_of<float>(DType::kF32, {3}, {1, 2, 0.5});
  const HostArray mean = array_of<float>(DType::kF32, {3}, {2.5, 4, 1});
  const HostArray variance = array_of<float>(DType::kF32, {3}, {2.25, 4, 4});
  const HostArray grad = array_of<float>(DType::kF32, {2, 3}, {.5, -1, 2, 1, 1, .25});
  const auto expect = [](const HostArray& array, const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(array.as<float>()[i], values[i], 2e-6 * std::abs(values[i]) + 5e-8);
    }
  };
  const auto gradients = batch_norm_grad(x, scale, mean, variance, grad, 0.001f, 1).value();
  expect(gradients[0], {7.40224568e-05f * -1, -2.49891047e-04f, 5.46636693e-05f, 7.40224568e-05f,
                        2.49891047e-04f, -5.46636693e-05f});
  expect(gradients[1], {0.49988893f, 1.99975014f, 1.74978137f});
  expect(gradients[2], {1.5f, 0, 2.25f});
  const auto training = batch_norm_training(x, scale, mean, 0.001f, 1).value();
  expect(training[0],
         {1.50022221f, 2.00024986f, 1.49993753f, 3.49977779f, 5.99975014f, 0.50006247f});
  expect(training[1], {2.5f, 4, 1});
  expect(training[2], {2.25f, 4, 4});
}

}  // namespace
}  // namespace hekla::reference
