// SPDX-License-Identifier: Apache-2.0
// The library through its table: factors multiplied out again, at sizes on both sides of what it
// cuts into pieces and blocks, with the same bits whoever runs the pieces.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "backends/lapack/library.h"

namespace hekla::lapack {
namespace {

template <typename T>
constexpr Type kType = std::is_same_v<T, float>                 ? Type::kF32
                       : std::is_same_v<T, double>              ? Type::kF64
                       : std::is_same_v<T, std::complex<float>> ? Type::kC64
                                                                : Type::kC128;
template <typename T>
using RealOf = decltype(std::real(T()));

double conjugate(double x) { return x; }
float conjugate(float x) { return x; }
template <typename R>
std::complex<R> conjugate(std::complex<R> x) {
  return std::conj(x);
}

// Column-major.
template <typename T>
struct Matrix {
  int32_t rows, columns;
  std::vector<T> values;
  Matrix(int32_t m, int32_t n) : rows(m), columns(n), values(static_cast<size_t>(m) * n) {}
  T& at(int32_t i, int32_t j) { return values[static_cast<size_t>(j) * rows + i]; }
  const T& at(int32_t i, int32_t j) const { return values[static_cast<size_t>(j) * rows + i]; }
  bool operator==(const Matrix& other) const {
    return std::memcmp(values.data(), other.values.data(), values.size() * sizeof(T)) == 0;
  }
};

template <typename T>
Matrix<T> random_matrix(int32_t m, int32_t n, unsigned seed = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  Matrix<T> a(m, n);
  for (T& x : a.values) {
    if constexpr (std::is_floating_point_v<T>) {
      x = static_cast<T>(draw(engine));
    } else {
      const double re = draw(engine), im = draw(engine);
      x = T(static_cast<RealOf<T>>(re), static_cast<RealOf<T>>(im));
    }
  }
  return a;
}

template <typename T>
Matrix<T> adjoint(const Matrix<T>& a) {
  Matrix<T> result(a.columns, a.rows);
  for (int32_t j = 0; j < a.columns; ++j) {
    for (int32_t i = 0; i < a.rows; ++i) result.at(j, i) = conjugate(a.at(i, j));
  }
  return result;
}

// By the definition.
template <typename T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> c(a.rows, b.columns);
  for (int32_t j = 0; j < b.columns; ++j) {
    for (int32_t k = 0; k < a.columns; ++k) {
      const T factor = b.at(k, j);
      for (int32_t i = 0; i < a.rows; ++i) c.at(i, j) += a.at(i, k) * factor;
    }
  }
  return c;
}

template <typename T>
void expect_near(const Matrix<T>& a, const Matrix<T>& b, double size) {
  double worst = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(a.values[i] - b.values[i])));
  }
  EXPECT_LE(worst, 50 * std::numeric_limits<RealOf<T>>::epsilon() * std::max(1.0, size));
}

// Every piece on a thread of its own, the last one first. Memory is lent full of NaN.
const Parallel* threads() {
  static const Parallel parallel = {
      nullptr,
      [](void*, int32_t count, void (*body)(void*, int32_t), void* state) {
        std::vector<std::thread> all;
        for (int32_t i = count; i-- > 0;) all.emplace_back([=] { body(state, i); });
        for (std::thread& thread : all) thread.join();
      },
      [](void*, int64_t bytes, void** block) {
        *block = std::malloc(static_cast<size_t>(bytes));
        return std::memset(*block, 0xff, static_cast<size_t>(bytes));
      },
      [](void*, void* block) { std::free(block); }};
  return &parallel;
}

template <typename T>
class LapackTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(LapackTest, Types);

// On both sides of the blocks of LAPACK and of what is cut into pieces; sanitized products by
// definition take their time.
#ifdef HEKLA_SANITIZED
constexpr bool kSanitized = true;
constexpr int32_t kSizes[] = {1, 2, 5, 33, 130};
#else
constexpr bool kSanitized = false;
constexpr int32_t kSizes[] = {1, 2, 5, 33, 64, 65, 130, 257, 400};
#endif

// OpenBLAS takes processors that are newer than it for old ones; runtime.cc tells it better.
TEST(Lapack, HasVectorsOfTheProcessor) {
#if defined(__x86_64__)
  if (table() == nullptr) GTEST_SKIP() << why_missing();
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) GTEST_SKIP() << "OPENBLAS_CORETYPE is set";
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    GTEST_SKIP() << "this processor has no AVX2 and FMA";
  }
  const std::string description = table()->description();
  EXPECT_EQ(description.find("Prescott"), std::string::npos) << description;
#endif
}

TYPED_TEST(LapackTest, Cholesky) {
  using T = TypeParam;
  for (const int32_t n : kSizes) {
    const Matrix<T> x = random_matrix<T>(n, n);
    Matrix<T> a = product(x, adjoint(x));
    for (int32_t i = 0; i < n; ++i) a.at(i, i) += T(static_cast<RealOf<T>>(n));
    for (const char uplo : {'L', 'U'}) {
      Matrix<T> l = a, again = a;
      ASSERT_EQ(table()->potrf(nullptr, kType<T>, uplo, n, l.values.data()), 0);
      ASSERT_EQ(table()->potrf(threads(), kType<T>, uplo, n, again.values.data()), 0);
      EXPECT_TRUE(l == again) << n;
      for (int32_t j = 0; j < n; ++j) {
        for (int32_t i = 0; i < n; ++i) {
          if (uplo == 'L' ? i < j : i > j) l.at(i, j) = T(0);
        }
      }
      expect_near(uplo == 'L' ? product(l, adjoint(l)) : product(adjoint(l), l), a, 2.0 * n);
    }
    Matrix<T> bad = a;
    bad.at(n - 1, n - 1) = T(-1);
    EXPECT_EQ(table()->potrf(nullptr, kType<T>, 'L', n, bad.values.data()), n);
  }
}

TYPED_TEST(LapackTest, LuWithPivots) {
  using T = TypeParam;
  std::vector<int32_t> sizes(std::begin(kSizes), std::end(kSizes));
  if (!kSanitized) sizes.push_back(800);  // panels are wider
  for (const int32_t size : sizes) {
    for (const auto& [m, n] : {std::pair{size, size}, {size, size + 40}, {size + 40, size}}) {
      const int32_t count = std::min(m, n);
      const Matrix<T> a = random_matrix<T>(m, n);
      Matrix<T> lu = a, again = a;
      std::vector<int32_t> pivots(count), pivots_again(count);
      ASSERT_EQ(table()->getrf(nullptr, kType<T>, m, n, lu.values.data(), pivots.data()), 0);
      ASSERT_EQ(table()->getrf(threads(), kType<T>, m, n, again.values.data(), pivots_again.data()),
                0);
      EXPECT_TRUE(lu == again && pivots == pivots_again) << m << " " << n;
      Matrix<T> l(m, count), u(count, n), permuted = a;
      for (int32_t i = 0; i < m; ++i) {
        for (int32_t j = 0; j < n; ++j) {
          if (i > j) l.at(i, j) = lu.at(i, j);
          if (i <= j) u.at(i, j) = lu.at(i, j);
          if (i == j) l.at(i, j) = T(1);
        }
      }
      for (int32_t i = 0; i < count; ++i) {
        ASSERT_GE(pivots[i], i + 1);
        ASSERT_LE(pivots[i], m);
        for (int32_t j = 0; j < n; ++j) std::swap(permuted.at(i, j), permuted.at(pivots[i] - 1, j));
      }
      const Matrix<T> x = random_matrix<T>(n, 3, 2);
      expect_near(product(l, product(u, x)), product(permuted, x), 4.0 * count);
    }
  }
  // A column of zeros: the first one is told, the factors are there.
  Matrix<T> singular = random_matrix<T>(500, 500);
  for (const int32_t j : {200, 300}) {
    for (int32_t i = 0; i < 500; ++i) singular.at(i, j) = T(0);
  }
  std::vector<int32_t> pivots(500);
  EXPECT_EQ(table()->getrf(nullptr, kType<T>, 500, 500, singular.values.data(), pivots.data()),
            201);
}

TYPED_TEST(LapackTest, EigenvectorsOfHermitianMatrices) {
  using T = TypeParam;
  for (const int32_t n : kSizes) {
    Matrix<T> a = random_matrix<T>(n, n);
    const Matrix<T> b = adjoint(a);
    for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
    Matrix<T> v = a, again = a;
    std::vector<RealOf<T>> w(n), w_again(n);
    ASSERT_EQ(table()->syevd(nullptr, kType<T>, 'V', 'L', n, v.values.data(), w.data()), 0);
    ASSERT_EQ(table()->syevd(threads(), kType<T>, 'V', 'L', n, again.values.data(), w_again.data()),
              0);
    EXPECT_TRUE(v == again && w == w_again) << n;
    EXPECT_TRUE(std::is_sorted(w.begin(), w.end()));
    Matrix<T> scaled = v;
    for (int32_t j = 0; j < n; ++j) {
      for (int32_t i = 0; i < n; ++i) scaled.at(i, j) *= w[j];
    }
    expect_near(product(scaled, adjoint(v)), a, n);
  }
}

TYPED_TEST(LapackTest, SingularValues) {
  using T = TypeParam;
  for (const int32_t size : kSizes) {
    if (size > 300) continue;  // the products by definition take their time
    for (const auto& [m, n] : {std::pair{size, size}, {size, size + 40}, {size + 40, size}}) {
      const int32_t count = std::min(m, n);
      for (const bool by_qr : {false, true}) {
        const auto function = by_qr ? table()->gesvd : table()->gesdd;
        const Matrix<T> a = random_matrix<T>(m, n);
        Matrix<T> copy = a, copy_again = a, u(m, count), u_again = u, vt(count, n), vt_again = vt;
        std::vector<RealOf<T>> s(count), s_again(count);
        ASSERT_EQ(function(nullptr, kType<T>, 'S', m, n, copy.values.data(), s.data(),
                           u.values.data(), vt.values.data()),
                  0);
        ASSERT_EQ(function(threads(), kType<T>, 'S', m, n, copy_again.values.data(), s_again.data(),
                           u_again.values.data(), vt_again.values.data()),
                  0);
        EXPECT_TRUE(s == s_again && u == u_again && vt == vt_again) << m << " " << n;
        for (int32_t j = 0; j < count; ++j) {
          for (int32_t i = 0; i < m; ++i) u.at(i, j) *= s[j];
        }
        expect_near(product(u, vt), a, std::max(m, n));
      }
    }
  }
}

template <typename T>
Matrix<T> transpose(const Matrix<T>& a) {
  Matrix<T> result = adjoint(a);
  for (T& x : result.values) x = conjugate(x);
  return result;
}

// Sizes on both sides of what triangles are halved to (64) and of vectors; what may not be read of
// the triangle is not a number.
TYPED_TEST(LapackTest, TriangularSolves) {
  using T = TypeParam;
  using R = RealOf<T>;
  const T nan(std::numeric_limits<R>::quiet_NaN());
  for (const int32_t n : {1, 5, 63, 64, 65, 130, 257}) {
    for (const int32_t columns : {1, 8, 33, 300}) {
      const bool is_large = n * columns > 130 * 33;
      if (is_large && (kSanitized || (n != 257 && columns != 300))) continue;
      for (const char uplo : {'L', 'U'}) {
        for (const char diag : {'N', 'U'}) {
          if (is_large && diag == 'U') continue;
          // Unknowns do not grow: what is beside the diagonal is small where that is 1.
          Matrix<T> a = random_matrix<T>(n, n), stored = a;
          for (int32_t j = 0; j < n; ++j) {
            for (int32_t i = 0; i < n; ++i) {
              T& x = a.at(i, j);
              if (i == j) {
                x = diag == 'U' ? T(1) : x + T(static_cast<R>(n));
                stored.at(i, j) = diag == 'U' ? nan : x;
              } else if ((i > j) == (uplo == 'L')) {
                if (diag == 'U') x /= static_cast<R>(n);
                stored.at(i, j) = x;
              } else {
                x = T(0);
                stored.at(i, j) = nan;
              }
            }
          }
          for (const char side : {'L', 'R'}) {
            for (const char trans : {'N', 'T', 'C'}) {
              const Matrix<T> b =
                  side == 'L' ? random_matrix<T>(n, columns, 2) : random_matrix<T>(columns, n, 2);
              Matrix<T> x = b, again = b;
              const auto solve = [&](const Parallel* p, Matrix<T>& in_place) {
                table()->trsm(p, kType<T>, side, uplo, trans, diag, b.rows, b.columns,
                              stored.values.data(), in_place.values.data());
              };
              solve(nullptr, x);
              solve(threads(), again);
              EXPECT_TRUE(x == again);
              const Matrix<T> op = trans == 'N' ? a : trans == 'T' ? transpose(a) : adjoint(a);
              expect_near(side == 'L' ? product(op, x) : product(x, op), b, 4);
            }
          }
        }
      }
    }
  }
}

// Where nothing is divided nothing is multiplied either: infinities and signs of zero stay.
TYPED_TEST(LapackTest, UnitTrianglesScaleNothing) {
  using T = TypeParam;
  using R = RealOf<T>;
  constexpr int32_t kSides = 20;
  Matrix<T> one(1, 1), row(1, kSides);
  for (int32_t c = 0; c < kSides; ++c) {
    row.at(0, c) = T(c % 2 == 0 ? std::numeric_limits<R>::infinity() : -R(0));
  }
  const Matrix<T> want = row;
  table()->trsm(nullptr, kType<T>, 'L', 'L', 'N', 'U', 1, kSides, one.values.data(),
                row.values.data());
  EXPECT_TRUE(row == want);
}

// Of what is solved without gemm.
TYPED_TEST(LapackTest, RightHandSidesDoNotKnowOfEachOther) {
  using T = TypeParam;
  constexpr int32_t kUnknowns = 61, kSides = 37;
  Matrix<T> a = random_matrix<T>(kUnknowns, kUnknowns);
  for (int32_t i = 0; i < kUnknowns; ++i) a.at(i, i) += T(kUnknowns);
  const Matrix<T> b = random_matrix<T>(kUnknowns, kSides, 2);
  Matrix<T> all = b;
  table()->trsm(nullptr, kType<T>, 'L', 'L', 'N', 'N', kUnknowns, kSides, a.values.data(),
                all.values.data());
  // Both of a number that kernels of vectors take.
  for (const auto& [first, count] : {std::pair{0, 9}, {5, 16}, {20, 17}}) {
    Matrix<T> some(kUnknowns, count);
    const auto columns = [&, first = first, count = count](const Matrix<T>& of) {
      return std::vector<T>(of.values.begin() + first * kUnknowns,
                            of.values.begin() + (first + count) * kUnknowns);
    };
    some.values = columns(b);
    table()->trsm(nullptr, kType<T>, 'L', 'L', 'N', 'N', kUnknowns, count, a.values.data(),
                  some.values.data());
    Matrix<T> want(kUnknowns, count);
    want.values = columns(all);
    EXPECT_TRUE(some == want) << first << " " << count;
  }
}

TYPED_TEST(LapackTest, EigenvectorsOfGeneralMatrices) {
  using T = TypeParam;
  using C = std::complex<RealOf<T>>;
  for (const int32_t n : {1, 2, 5, 33, 129}) {
    const Matrix<T> a = random_matrix<T>(n, n);
    Matrix<T> copy = a;
    std::vector<T> values(n), imaginary(n);
    Matrix<C> left(n, n), right(n, n), wide(n, n);
    for (size_t i = 0; i < a.values.size(); ++i) wide.values[i] = a.values[i];
    ASSERT_EQ(table()->geev(nullptr, kType<T>, 'V', 'V', n, copy.values.data(), values.data(),
                            imaginary.data(), left.values.data(), right.values.data()),
              0);
    Matrix<C> scaled = right, scaled_left = left;
    for (int32_t j = 0; j < n; ++j) {
      C w(0);
      if constexpr (std::is_floating_point_v<T>) {
        w = C(values[j], imaginary[j]);
      } else {
        w = values[j];
      }
      for (int32_t i = 0; i < n; ++i) {
        scaled.at(i, j) *= w;
        scaled_left.at(i, j) *= std::conj(w);
      }
    }
    expect_near(product(wide, right), scaled, n);
    expect_near(product(adjoint(wide), left), scaled_left, n);
  }
}

// n elements of T between pages that may not be touched: at the end of what may, or at its begin.
template <typename T>
class Guarded {
 public:
  Guarded(int32_t n, bool at_end) : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    inner_ = (bytes + page_ - 1) / page_ * page_;
    void* const all =
        mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(all);
    if (inner_ > 0 && mprotect(base_ + page_, inner_, PROT_READ | PROT_WRITE) != 0)
      throw std::bad_alloc();
    data_ = base_ + page_ + (at_end ? inner_ - bytes : 0);
  }
  Guarded(const std::vector<T>& values, bool at_end)
      : Guarded(static_cast<int32_t>(values.size()), at_end) {
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(data_));
  }
  ~Guarded() { munmap(base_, inner_ + 2 * page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  operator T*() const { return reinterpret_cast<T*>(data_); }

 private:
  size_t page_, inner_;
  char *base_, *data_;
};

// Kernels that read an element too many do so at some remainders of their unrolled loops only.
TYPED_TEST(LapackTest, TouchesNothingOutsideItsOperands) {
  using T = TypeParam;
  using R = RealOf<T>;
  using C = std::complex<R>;
  constexpr Type kT = kType<T>;
  const Table& t = *table();
  std::vector<int32_t> sizes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 34, 66, 70};
  if (kSanitized) sizes = {1, 2, 3, 5, 6, 7, 10, 66};
  for (const int32_t m : sizes) {
    for (const int32_t n : sizes) {
      for (const bool end : {true, false}) {
        const int32_t count = std::min(m, n);
        const std::vector<T> values = random_matrix<T>(m, n).values;
        const Guarded<T> u(m * m, end), vt(n * n, end);
        const Guarded<R> s(count, end);
        for (const char mode : {'A', 'S', 'N'}) {
          const Guarded<T> a(values, end), b(values, end);
          EXPECT_EQ(t.gesvd(nullptr, kT, mode, m, n, a, s, u, vt), 0);
          EXPECT_EQ(t.gesdd(nullptr, kT, mode, m, n, b, s, u, vt), 0);
        }
        const Guarded<int32_t> pivots(count, end), columns(std::vector<int32_t>(n, 0), end);
        const Guarded<T> tau(count, end), lu(values, end), qr(values, end), qrp(values, end);
        EXPECT_EQ(t.getrf(nullptr, kT, m, n, lu, pivots), 0);
        EXPECT_EQ(t.geqp3(nullptr, kT, m, n, qrp, columns, tau), 0);
        EXPECT_EQ(t.geqrf(nullptr, kT, m, n, qr, tau), 0);
        const Guarded<T> c(values, end);
        if (m >= n) {
          const char adjoint_letter = std::is_floating_point_v<T> ? 'T' : 'C';
          EXPECT_EQ(t.ormqr(nullptr, kT, 'L', adjoint_letter, m, n, n, qr, tau, c), 0);
          EXPECT_EQ(t.orgqr(nullptr, kT, m, n, n, qr, tau), 0);
        }
        Matrix<T> triangle = random_matrix<T>(m, m);
        for (int32_t i = 0; i < m; ++i) triangle.at(i, i) += T(static_cast<R>(m));
        const Guarded<T> l(triangle.values, end);
        for (const char uplo : {'L', 'U'}) {
          for (const char trans : {'N', 'C'}) {
            const Guarded<T> right(values, end);
            EXPECT_EQ(t.trsm(nullptr, kT, 'L', uplo, trans, 'N', m, n, l, c), 0);
            EXPECT_EQ(t.trsm(nullptr, kT, 'R', uplo, trans, 'N', n, m, l, right), 0);
          }
        }
        if (m != n) continue;
        const Matrix<T> x = random_matrix<T>(n, n);
        Matrix<T> hermitian = product(x, adjoint(x));
        for (int32_t i = 0; i < n; ++i) hermitian.at(i, i) += T(static_cast<R>(n));
        const Guarded<R> w(n, end), e(n - 1, end);
        const Guarded<T> tau_e(n - 1, end);
        for (const char uplo : {'L', 'U'}) {
          const Guarded<T> p(hermitian.values, end), h(hermitian.values, end),
              d(hermitian.values, end);
          EXPECT_EQ(t.potrf(nullptr, kT, uplo, n, p), 0);
          EXPECT_EQ(t.syevd(nullptr, kT, 'V', uplo, n, h, w), 0);
          EXPECT_EQ(t.sytrd(nullptr, kT, uplo, n, d, w, e, tau_e), 0);
        }
        const Guarded<T> g(values, end), f(values, end), k(values, end), vectors(n * n, end);
        const Guarded<T> real(n, end), imaginary(n, end);
        const Guarded<C> left(n * n, end), right(n * n, end);
        EXPECT_EQ(t.geev(nullptr, kT, 'V', 'V', n, g, real, imaginary, left, right), 0);
        EXPECT_EQ(t.gees(nullptr, kT, 'V', n, f, real, imaginary, vectors), 0);
        EXPECT_EQ(t.gehrd(nullptr, kT, n, 1, n, k, tau_e), 0);
      }
    }
  }
}

// Many small problems at once, as a batch is: they share nothing.
TEST(Lapack, ManyThreadsAtOnce) {
  constexpr int32_t kSize = 65;
  Matrix<double> a = random_matrix<double>(kSize, kSize);
  for (int32_t j = 0; j < kSize; ++j) {
    for (int32_t i = 0; i < j; ++i) a.at(i, j) = a.at(j, i);
  }
  const auto vectors = [&] {
    Matrix<double> v = a;
    std::vector<double> w(kSize);
    table()->syevd(nullptr, Type::kF64, 'V', 'L', kSize, v.values.data(), w.data());
    return v;
  };
  const Matrix<double> want = vectors();
  std::vector<std::thread> all;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 8; ++i) {
    all.emplace_back([&] {
      for (int k = 0; k < (kSanitized ? 30 : 300); ++k) wrong += vectors() == want ? 0 : 1;
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Lapack, Empty) {
  float unused[4] = {};
  int32_t pivots[1] = {};
  EXPECT_EQ(table()->potrf(nullptr, Type::kF32, 'L', 0, unused), 0);
  EXPECT_EQ(table()->getrf(nullptr, Type::kF32, 0, 3, unused, pivots), 0);
  EXPECT_EQ(table()->geqrf(nullptr, Type::kF32, 3, 0, unused, unused), 0);
  EXPECT_EQ(table()->trsm(nullptr, Type::kF32, 'L', 'L', 'N', 'N', 0, 2, unused, unused), 0);
}

}  // namespace
}  // namespace hekla::lapack
