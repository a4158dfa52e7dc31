// SPDX-License-Identifier: Apache-2.0
// Batches of small matrices in lanes: factors multiplied out in long double, for all sizes, orders
// and letters, with the bits that each matrix has alone, bad ones among good ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/lapack/library.h"

namespace hekla::lapack {
namespace {

using Wide = std::complex<long double>;

template <typename T>
class LanesTest : public testing::Test {
 public:
  using R = decltype(std::real(T()));
  static constexpr Type kType = std::is_same_v<T, float>                 ? Type::kF32
                                : std::is_same_v<T, double>              ? Type::kF64
                                : std::is_same_v<T, std::complex<float>> ? Type::kC64
                                                                         : Type::kC128;
  static constexpr R kEpsilon = std::numeric_limits<R>::epsilon();
  static constexpr R kNan = std::numeric_limits<R>::quiet_NaN();
  static constexpr R kInfinity = std::numeric_limits<R>::infinity();
};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(LanesTest, Types);

// Matrices [m, n] that follow each other.
template <typename T>
struct Batch {
  int32_t m, n;
  bool by_rows;
  std::vector<T> numbers;

  Batch(int64_t count, int32_t rows, int32_t columns, bool rows_follow)
      : m(rows), n(columns), by_rows(rows_follow), numbers(static_cast<size_t>(count * m * n)) {}
  int64_t count() const { return static_cast<int64_t>(numbers.size()) / (m * n); }
  T& at(int64_t index, int32_t i, int32_t j) {
    return numbers[static_cast<size_t>(index * m * n + (by_rows ? i * n + j : i + j * m))];
  }
  Batch one(int64_t index) const {
    Batch result(1, m, n, by_rows);
    std::copy_n(numbers.begin() + index * m * n, m * n, result.numbers.begin());
    return result;
  }
  bool same_bits(const Batch& other, int64_t index) const {
    return std::memcmp(numbers.data() + index * m * n, other.numbers.data(),
                       sizeof(T) * static_cast<size_t>(m * n)) == 0;
  }
};

template <typename T>
void fill(Batch<T>& batch, unsigned seed = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  for (T& x : batch.numbers) {
    using R = decltype(std::real(T()));
    if constexpr (std::is_same_v<R, T>) {
      x = static_cast<T>(draw(engine));
    } else {
      const double re = draw(engine), im = draw(engine);
      x = T(static_cast<R>(re), static_cast<R>(im));
    }
  }
}

struct Exact {
  int32_t m, n;
  std::vector<Wide> numbers;
  Exact(int32_t rows, int32_t columns) : m(rows), n(columns), numbers(size_t(m) * n) {}
  Wide& at(int32_t i, int32_t j) { return numbers[size_t(i) * n + j]; }
  const Wide& at(int32_t i, int32_t j) const { return numbers[size_t(i) * n + j]; }
};
template <typename T>
Exact exact(Batch<T>& batch, int64_t index) {
  Exact result(batch.m, batch.n);
  for (int32_t i = 0; i < batch.m; ++i) {
    for (int32_t j = 0; j < batch.n; ++j) result.at(i, j) = Wide(batch.at(index, i, j));
  }
  return result;
}
Exact product(const Exact& a, const Exact& b) {
  Exact result(a.m, b.n);
  for (int32_t i = 0; i < a.m; ++i) {
    for (int32_t j = 0; j < b.n; ++j) {
      for (int32_t k = 0; k < a.n; ++k) result.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return result;
}
Exact adjoint(const Exact& a, bool conjugates = true) {
  Exact result(a.n, a.m);
  for (int32_t i = 0; i < a.m; ++i) {
    for (int32_t j = 0; j < a.n; ++j) {
      result.at(j, i) = conjugates ? std::conj(a.at(i, j)) : a.at(i, j);
    }
  }
  return result;
}
Exact identity(int32_t n) {
  Exact result(n, n);
  for (int32_t i = 0; i < n; ++i) result.at(i, i) = 1;
  return result;
}
long double distance(const Exact& a, const Exact& b) {
  long double worst = 0;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    const long double here = std::abs(a.numbers[i] - b.numbers[i]);
    if (!(here <= worst)) worst = here;  // NaN too
  }
  return worst;
}

// Around the lanes of a vector.
std::vector<int64_t> counts(Type type) {
  const int64_t lanes = table()->lanes(type);
  return {1, lanes - 1, lanes, lanes + 1, 2 * lanes + 3};
}

// a a^H + n, without what is not in the named triangle.
template <typename T>
Batch<T> positive(int64_t count, int32_t n, char uplo, std::vector<Exact>& all) {
  using R = decltype(std::real(T()));
  Batch<T> x(count, n, n, false), result = x;
  fill(x);
  for (int64_t b = 0; b < count; ++b) {
    Exact full = exact(x, b);
    full = product(full, adjoint(full));
    for (int32_t i = 0; i < n; ++i) {
      full.at(i, i) += n;
      for (int32_t j = 0; j < n; ++j) {
        T number(static_cast<R>(full.at(i, j).real()));
        if constexpr (!std::is_same_v<R, T>) number.imag(static_cast<R>(full.at(i, j).imag()));
        full.at(i, j) = Wide(number);
        const bool is_read = uplo == 'L' ? i >= j : i <= j;
        result.at(b, i, j) = is_read ? number : T(std::numeric_limits<R>::quiet_NaN());
      }
    }
    all.push_back(full);
  }
  return result;
}

TYPED_TEST(LanesTest, Cholesky) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  for (int32_t n = 1; n <= kMostLaneRows; ++n) {
    for (const int64_t count : counts(Test::kType)) {
      for (const char uplo : {'L', 'U'}) {
        std::vector<Exact> want;
        Batch<T> a = positive<T>(count, n, uplo, want);
        // Neither a zero nor a NaN as a pivot gives a factor.
        const int64_t bad = count / 2;
        const int32_t where = n / 2;
        if (count > 1) a.at(bad, where, where) = count % 2 == 0 ? T(-1) : T(Test::kNan);
        Batch<T> l = a;
        const auto run = [&](const Batch<T>& from, Batch<T>& to) {
          table()->cholesky_lanes(Test::kType, uplo, n, from.count(), from.numbers.data(),
                                  to.numbers.data());
        };
        run(a, l);
        for (int64_t b = 0; b < count; ++b) {
          Batch<T> alone = a.one(b);
          run(alone, alone);
          EXPECT_TRUE(l.same_bits(alone, b)) << n << " " << count << " " << b;
          for (int32_t i = 0; i < n; ++i) {
            for (int32_t j = 0; j < n; ++j) {
              if (uplo == 'L' ? i < j : i > j) {
                ASSERT_EQ(l.at(b, i, j), T(0));
              } else if (count > 1 && b == bad) {
                ASSERT_TRUE(std::isnan(std::real(l.at(b, i, j))));
              }
            }
          }
          if (count > 1 && b == bad) continue;
          const Exact factor = exact(l, b);
          EXPECT_LE(distance(uplo == 'L' ? product(factor, adjoint(factor))
                                         : product(adjoint(factor), factor),
                             want[b]),
                    8 * n * Test::kEpsilon)
              << n << " " << b << uplo;
        }
      }
    }
  }
}

TYPED_TEST(LanesTest, TriangularSolves) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  using R = typename Test::R;
  const int64_t count = table()->lanes(Test::kType) + 1;
  for (const int32_t m : {1, 2, 3, 5, 8, 15, 16}) {
    for (const int32_t n : {1, 3, 4, 9, 16}) {
      for (const char side : {'L', 'R'}) {
        for (const char uplo : {'L', 'U'}) {
          for (const char diag : {'N', 'U'}) {
            const int32_t size = side == 'L' ? m : n;
            Batch<T> a(count, size, size, false), stored = a, b(count, m, n, false);
            fill(a);
            fill(b, 2);
            stored = a;
            for (int64_t index = 0; index < count; ++index) {
              for (int32_t i = 0; i < size; ++i) {
                for (int32_t j = 0; j < size; ++j) {
                  T& x = a.at(index, i, j);
                  T& y = stored.at(index, i, j);
                  if (i == j) {
                    x = diag == 'U' ? T(1) : x + T(static_cast<R>(size));
                    y = diag == 'U' ? T(Test::kNan) : x;
                  } else if ((i > j) == (uplo == 'L')) {
                    x /= static_cast<R>(size);
                    y = x;
                  } else {
                    x = T(0);
                    y = T(Test::kNan);
                  }
                }
              }
            }
            for (const char trans : {'N', 'T', 'C'}) {
              const auto run = [&](const Batch<T>& factors, const Batch<T>& sides, Batch<T>& to) {
                table()->trsm_lanes(Test::kType, side, uplo, trans, diag, m, n, sides.count(),
                                    factors.numbers.data(), sides.numbers.data(),
                                    to.numbers.data());
              };
              Batch<T> x = b;
              run(stored, b, x);
              for (int64_t index = 0; index < count; ++index) {
                Batch<T> alone = b.one(index);
                run(stored.one(index), alone, alone);
                EXPECT_TRUE(x.same_bits(alone, index));
                Exact op = exact(a, index);
                if (trans != 'N') op = adjoint(op, trans == 'C');
                const Exact found = exact(x, index);
                EXPECT_LE(distance(side == 'L' ? product(op, found) : product(found, op),
                                   exact(b, index)),
                          8 * size * Test::kEpsilon)
                    << m << " " << n << side << uplo << trans << diag;
              }
            }
          }
        }
      }
    }
  }
}

// What has no finite inverse divides all the same; zeros give what dividing by them gives.
TYPED_TEST(LanesTest, SmallDiagonals) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  using R = typename Test::R;
  if constexpr (std::is_same_v<R, T>) {
    const R tiny = std::numeric_limits<R>::denorm_min();
    const std::vector<T> a = {tiny, 0, 3, Test::kInfinity}, b = {4 * tiny, 1, 1, 1};
    std::vector<T> x(4);
    table()->trsm_lanes(Test::kType, 'L', 'L', 'N', 'N', 1, 1, 4, a.data(), b.data(), x.data());
    EXPECT_EQ(x[0], 4);
    EXPECT_EQ(x[1], Test::kInfinity);
    EXPECT_EQ(x[2], 1 / T(3));
    EXPECT_EQ(x[3], 0);
  }
}

TYPED_TEST(LanesTest, LuWithPivots) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  for (int32_t m = 1; m <= kMostLaneRows; ++m) {
    for (const int32_t n : {m, std::max(1, m - 3), std::min(kMostLaneRows, m + 2)}) {
      for (const int64_t count : counts(Test::kType)) {
        for (const bool by_rows : {false, true}) {
          const int32_t most = std::min(m, n);
          Batch<T> a(count, m, n, by_rows);
          fill(a);
          const int64_t bad = count / 2, singular = count - 1;
          if (count > 1) a.at(bad, m / 2, n / 2) = T(Test::kNan);
          const int32_t zero = most / 2;
          for (int32_t i = 0; i < m; ++i) a.at(singular, i, zero) = T(0);
          Batch<T> lu = a;
          std::vector<int32_t> pivots(static_cast<size_t>(count * most)), infos(count);
          table()->getrf_lanes(Test::kType, by_rows, m, n, count, a.numbers.data(),
                               lu.numbers.data(), pivots.data(), infos.data());
          for (int64_t b = 0; b < count; ++b) {
            Batch<T> alone = a.one(b);
            std::vector<int32_t> places(most);
            int32_t info = 0;
            table()->getrf_lanes(Test::kType, by_rows, m, n, 1, alone.numbers.data(),
                                 alone.numbers.data(), places.data(), &info);
            EXPECT_TRUE(lu.same_bits(alone, b)) << m << " " << n << " " << b;
            EXPECT_TRUE(std::equal(places.begin(), places.end(), pivots.begin() + b * most));
            EXPECT_EQ(info, infos[b]);
            Exact l(m, most), u(most, n), permuted = exact(a, b);
            for (int32_t i = 0; i < m; ++i) {
              for (int32_t j = 0; j < n; ++j) {
                if (j < i && j < most) l.at(i, j) = Wide(lu.at(b, i, j));
                if (i <= j) u.at(i, j) = Wide(lu.at(b, i, j));
                if (i == j) l.at(i, j) = 1;
              }
            }
            for (int32_t i = 0; i < most; ++i) {
              const int32_t place = pivots[b * most + i] - 1;
              ASSERT_GE(place, i);
              ASSERT_LT(place, m);
              for (int32_t j = 0; j < n; ++j) std::swap(permuted.at(i, j), permuted.at(place, j));
            }
            if (count > 1 && b == bad) continue;
            EXPECT_EQ(infos[b], b == singular ? zero + 1 : 0);
            for (const Wide& x : l.numbers) EXPECT_LE(std::abs(x), 1.5);  // of |re| + |im|
            EXPECT_LE(distance(product(l, u), permuted), 16 * most * Test::kEpsilon)
                << m << " " << n;
          }
        }
      }
    }
  }
}

TYPED_TEST(LanesTest, LuTakesTheFirstOfTheLargest) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  std::vector<T> a = {T(1), T(-2), T(2), T(0), T(1), T(0), T(0), T(0), T(1)};
  std::vector<int32_t> pivots(3);
  int32_t info = 0;
  table()->getrf_lanes(Test::kType, false, 3, 3, 1, a.data(), a.data(), pivots.data(), &info);
  EXPECT_EQ(pivots[0], 2);
  EXPECT_EQ(info, 0);
}

TYPED_TEST(LanesTest, QrByReflectors) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  using R = typename Test::R;
  for (int32_t m = 1; m <= kMostLaneRows; ++m) {
    for (const int32_t n : {m, std::max(1, m - 3), std::min(kMostLaneRows, m + 2)}) {
      for (const int64_t count : counts(Test::kType)) {
        for (const bool by_rows : {false, true}) {
          const int32_t most = std::min(m, n);
          Batch<T> a(count, m, n, by_rows);
          fill(a);
          // Columns of zeros and numbers whose squares are none.
          const R large = std::numeric_limits<R>::max() / 64, small = std::numeric_limits<R>::min();
          std::vector<R> sizes(count, 1);
          for (int64_t b = 0; b < count; ++b) {
            if (b % 4 == 1) {
              for (int32_t i = 0; i < m; ++i) a.at(b, i, n / 2) = T(0);
            }
            if (b % 4 == 2) sizes[b] = large;
            if (b % 4 == 3) sizes[b] = small * 64;
            for (int32_t i = 0; i < m; ++i) {
              for (int32_t j = 0; j < n; ++j) a.at(b, i, j) *= sizes[b];
            }
          }
          const int64_t bad = count / 2;
          if (count > 1) a.at(bad, m - 1, 0) = T(Test::kNan);
          Batch<T> packed = a, q(count, m, most, by_rows), tau(count, most, 1, false);
          table()->geqrf_lanes(Test::kType, by_rows, m, n, count, a.numbers.data(),
                               packed.numbers.data(), tau.numbers.data());
          for (int64_t b = 0; b < count; ++b) {
            for (int32_t i = 0; i < m; ++i) {
              for (int32_t j = 0; j < most; ++j) q.at(b, i, j) = packed.at(b, i, j);
            }
          }
          const Batch<T> reflectors = q;
          table()->orgqr_lanes(Test::kType, by_rows, m, most, most, count,
                               reflectors.numbers.data(), tau.numbers.data(), q.numbers.data());
          for (int64_t b = 0; b < count; ++b) {
            Batch<T> alone = a.one(b), factor = tau.one(b), columns = reflectors.one(b);
            table()->geqrf_lanes(Test::kType, by_rows, m, n, 1, alone.numbers.data(),
                                 alone.numbers.data(), factor.numbers.data());
            table()->orgqr_lanes(Test::kType, by_rows, m, most, most, 1, columns.numbers.data(),
                                 factor.numbers.data(), columns.numbers.data());
            EXPECT_TRUE(packed.same_bits(alone, b));
            EXPECT_TRUE(tau.same_bits(factor, b));
            EXPECT_TRUE(q.same_bits(columns, b));
            if (count > 1 && b == bad) {
              EXPECT_TRUE(std::isnan(std::real(packed.at(b, 0, 0)))) << m << " " << n;
              continue;
            }
            Exact r(most, n), want = exact(a, b);
            for (int32_t i = 0; i < most; ++i) {
              EXPECT_EQ(std::imag(packed.at(b, i, i)), 0);
              for (int32_t j = i; j < n; ++j)
                r.at(i, j) = Wide(packed.at(b, i, j)) / (long double)sizes[b];
            }
            for (Wide& x : want.numbers) x /= (long double)sizes[b];
            const Exact vectors = exact(q, b);
            // Of the smallest normal numbers the last bits are not there.
            const R unit = sizes[b] < 1 ? 4 * Test::kEpsilon : Test::kEpsilon;
            EXPECT_LE(distance(product(vectors, r), want), 16 * m * unit)
                << m << " " << n << " " << b;
            EXPECT_LE(distance(product(adjoint(vectors), vectors), identity(most)),
                      16 * m * Test::kEpsilon)
                << m << " " << n << " " << b;
          }
        }
      }
    }
  }
}

// More columns than reflectors.
TYPED_TEST(LanesTest, QrVectorsOfFewReflectors) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  Batch<T> a(3, 9, 4, true), tau(3, 4, 1, false), q(3, 9, 9, true);
  fill(a);
  table()->geqrf_lanes(Test::kType, true, 9, 4, 3, a.numbers.data(), a.numbers.data(),
                       tau.numbers.data());
  for (int64_t b = 0; b < 3; ++b) {
    for (int32_t i = 0; i < 9; ++i) {
      for (int32_t j = 0; j < 9; ++j) q.at(b, i, j) = j < 4 ? a.at(b, i, j) : T(Test::kNan);
    }
  }
  table()->orgqr_lanes(Test::kType, true, 9, 9, 4, 3, q.numbers.data(), tau.numbers.data(),
                       q.numbers.data());
  for (int64_t b = 0; b < 3; ++b) {
    const Exact vectors = exact(q, b);
    EXPECT_LE(distance(product(adjoint(vectors), vectors), identity(9)), 64 * Test::kEpsilon);
  }
}

TYPED_TEST(LanesTest, EigenvectorsOfHermitianMatrices) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  using R = typename Test::R;
  for (int32_t n = 1; n <= kMostLaneRows; ++n) {
    for (const int64_t count : counts(Test::kType)) {
      for (const char uplo : {'L', 'U'}) {
        for (const bool by_rows : {false, true}) {
          Batch<T> a(count, n, n, by_rows), stored = a;
          fill(a);
          const R large = std::numeric_limits<R>::max() / 64, small = std::numeric_limits<R>::min();
          std::vector<R> sizes(count, 1);
          for (int64_t b = 0; b < count; ++b) {
            const int64_t kind = b % 8;
            if (kind == 2) sizes[b] = large;
            if (kind == 3) sizes[b] = small;
            for (int32_t i = 0; i < n; ++i) {
              for (int32_t j = 0; j <= i; ++j) {
                T x = a.at(b, i, j);
                if (i == j) x = T(std::real(x));
                if (kind == 4) x = T(0);
                if (kind == 5) x = T(i == j ? 1 : 0);
                if (kind == 6) x = T(1);                 // of rank 1
                if (kind == 7 && i != j) x *= R(1e-12);  // nearly diagonal
                if (kind == 0 && i - j > 1) x = T(0);    // tridiagonal
                x *= sizes[b];
                a.at(b, i, j) = x;
                if constexpr (std::is_same_v<R, T>) {
                  a.at(b, j, i) = x;
                } else {
                  a.at(b, j, i) = std::conj(x);
                }
              }
            }
          }
          stored = a;
          const int64_t bad = count / 2;
          for (int64_t b = 0; b < count; ++b) {
            for (int32_t i = 0; i < n; ++i) {
              for (int32_t j = 0; j < n; ++j) {
                if (uplo == 'L' ? j > i : j < i) stored.at(b, i, j) = T(Test::kNan);
              }
            }
          }
          if (count > 1)
            stored.at(bad, n / 2, n / 2) = T(count % 2 == 0 ? Test::kNan : Test::kInfinity);
          Batch<T> v = stored;
          std::vector<R> w(static_cast<size_t>(count * n));
          std::vector<int32_t> infos(count);
          table()->syevd_lanes(Test::kType, uplo, by_rows, n, count, stored.numbers.data(),
                               v.numbers.data(), w.data(), infos.data());
          for (int64_t b = 0; b < count; ++b) {
            Batch<T> alone = stored.one(b);
            std::vector<R> values(n);
            int32_t info = 0;
            table()->syevd_lanes(Test::kType, uplo, by_rows, n, 1, alone.numbers.data(),
                                 alone.numbers.data(), values.data(), &info);
            EXPECT_TRUE(v.same_bits(alone, b)) << n << " " << count << " " << b;
            EXPECT_EQ(std::memcmp(values.data(), w.data() + b * n, sizeof(R) * n), 0);
            EXPECT_EQ(info, infos[b]);
            if (count > 1 && b == bad) {
              EXPECT_EQ(info, -4);
              continue;
            }
            ASSERT_EQ(info, 0) << n << " " << b;
            EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
            const Exact vectors = exact(v, b);
            Exact scaled = vectors, want = exact(a, b);
            for (int32_t j = 0; j < n; ++j) {
              for (int32_t i = 0; i < n; ++i) {
                scaled.at(i, j) *= static_cast<long double>(values[j]) / sizes[b];
              }
            }
            for (Wide& x : want.numbers) x /= static_cast<long double>(sizes[b]);
            EXPECT_LE(distance(product(scaled, adjoint(vectors)), want), 8 * n * Test::kEpsilon)
                << n << " " << b << uplo << by_rows;
            EXPECT_LE(distance(product(adjoint(vectors), vectors), identity(n)),
                      8 * n * Test::kEpsilon)
                << n << " " << b;
          }
        }
      }
    }
  }
}

TYPED_TEST(LanesTest, SingularVectors) {
  using T = TypeParam;
  using Test = LanesTest<T>;
  using R = typename Test::R;
  for (int32_t m = 1; m <= kMostLaneRows; ++m) {
    for (const int32_t n : {m, std::max(1, m - 3), std::min(kMostLaneRows, m + 2), 1}) {
      for (const char mode : {'S', 'A'}) {
        for (const bool by_rows : {false, true}) {
          const int64_t count = 2 * table()->lanes(Test::kType) + 3;
          const int32_t most = std::min(m, n);
          Batch<T> a(count, m, n, by_rows);
          fill(a);
          std::vector<R> sizes(count, 1);
          for (int64_t b = 0; b < count; ++b) {
            const int64_t kind = b % 8;
            if (kind == 2) sizes[b] = std::numeric_limits<R>::max() / 64;
            if (kind == 3) sizes[b] = std::numeric_limits<R>::min() * 64;
            for (int32_t i = 0; i < m; ++i) {
              for (int32_t j = 0; j < n; ++j) {
                T& x = a.at(b, i, j);
                if (kind == 4) x = T(0);
                if (kind == 5) x = T(i == j ? -1 : 0);
                if (kind == 6) x = T(1);                     // of rank 1
                if (kind == 7) x = j < 2 ? x : x * R(1e-9);  // of rank 2, almost
                if (kind == 1 && j == n / 2) x = T(0);
                x *= sizes[b];
              }
            }
          }
          const int64_t bad = count / 2;
          a.at(bad, m / 2, n / 2) = T(by_rows ? Test::kNan : Test::kInfinity);
          Batch<T> u(count, m, mode == 'A' ? m : most, by_rows);
          Batch<T> vt(count, mode == 'A' ? n : most, n, by_rows);
          std::vector<R> s(static_cast<size_t>(count * most));
          std::vector<int32_t> infos(count);
          table()->gesdd_lanes(Test::kType, mode, by_rows, m, n, count, a.numbers.data(), s.data(),
                               u.numbers.data(), vt.numbers.data(), infos.data());
          for (int64_t b = 0; b < count; ++b) {
            const Batch<T> alone = a.one(b);
            Batch<T> left = u.one(b), right = vt.one(b);
            std::vector<R> values(most);
            int32_t info = 0;
            table()->gesdd_lanes(Test::kType, mode, by_rows, m, n, 1, alone.numbers.data(),
                                 values.data(), left.numbers.data(), right.numbers.data(), &info);
            EXPECT_TRUE(u.same_bits(left, b));
            EXPECT_TRUE(vt.same_bits(right, b));
            EXPECT_EQ(std::memcmp(values.data(), s.data() + b * most, sizeof(R) * most), 0);
            EXPECT_EQ(info, infos[b]);
            if (b == bad) {
              EXPECT_EQ(info, -4);
              continue;
            }
            ASSERT_EQ(info, 0) << m << " " << n << " " << b;
            EXPECT_TRUE(std::is_sorted(values.rbegin(), values.rend()));
            EXPECT_GE(values.back(), 0);
            const Exact l = exact(u, b), r = exact(vt, b);
            EXPECT_LE(distance(product(adjoint(l), l), identity(l.n)), 8 * m * Test::kEpsilon)
                << m << " " << n << " " << b;
            EXPECT_LE(distance(product(r, adjoint(r)), identity(r.m)), 8 * n * Test::kEpsilon)
                << m << " " << n << " " << b;
            Exact scaled(m, most), want = exact(a, b), rows(most, n);
            for (int32_t j = 0; j < most; ++j) {
              const long double value = static_cast<long double>(values[j]) / sizes[b];
              for (int32_t i = 0; i < m; ++i) scaled.at(i, j) = l.at(i, j) * value;
              for (int32_t i = 0; i < n; ++i) rows.at(j, i) = r.at(j, i);
            }
            for (Wide& x : want.numbers) x /= static_cast<long double>(sizes[b]);
            EXPECT_LE(distance(product(scaled, rows), want), 8 * std::max(m, n) * Test::kEpsilon)
                << m << " " << n << " " << b << mode;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hekla::lapack
