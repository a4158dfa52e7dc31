// SPDX-License-Identifier: Apache-2.0
// The table of abi.h: workspaces, limits of 32-bit integers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>

#include "backends/lapack/abi.h"
#include "backends/lapack/module/factor.h"
#include "backends/lapack/module/fortran.h"
#include "backends/lapack/module/lanes.h"
#include "backends/lapack/module/split.h"

namespace hekla::lapack {
namespace {

// Calls f with a null pointer of the type's elements.
template <typename F>
Int with_type(Type type, F&& f) {
  switch (type) {
    case Type::kF32:
      return f(static_cast<float*>(nullptr));
    case Type::kF64:
      return f(static_cast<double*>(nullptr));
    case Type::kC64:
      return f(static_cast<C64*>(nullptr));
    case Type::kC128:
      break;
  }
  return f(static_cast<C128*>(nullptr));
}

// Uninitialized.
template <typename T>
class Workspace {
 public:
  explicit Workspace(int64_t size) : size_(std::max<int64_t>(size, 1)), lender_(lender()) {
    if (size_ > kMost) return;
    const int64_t bytes = size_ * static_cast<int64_t>(sizeof(T));
    if (bytes <= kSmall) {
      data_ = reinterpret_cast<T*>(small_);
      return;
    }
    data_ = static_cast<T*>(lends() ? lender_->take(lender_->context, bytes, &block_)
                                    : std::malloc(static_cast<size_t>(bytes)));
  }
  ~Workspace() {
    if (data_ == nullptr || data_ == reinterpret_cast<T*>(small_)) return;
    if (lends()) {
      lender_->give(lender_->context, block_);
    } else {
      std::free(data_);
    }
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  explicit operator bool() const { return data_ != nullptr; }
  Int error() const { return size_ > kMost ? kTooLarge : kNoMemory; }
  T* data() { return data_; }
  Int length() const { return static_cast<Int>(size_); }

 private:
  static constexpr int64_t kMost = std::numeric_limits<Int>::max();
  static constexpr int64_t kSmall = 2048;  // bytes that cost no call: for batches of small matrices
  bool lends() const { return lender_ != nullptr && lender_->take != nullptr; }

  const int64_t size_;
  const Parallel* const lender_;
  T* data_ = nullptr;
  void* block_ = nullptr;
  alignas(64) std::byte small_[kSmall];
};

// What a query for the workspace's size answered, of at least `least`. An f32 may have been rounded
// down.
template <typename T>
int64_t queried(T answer, int64_t least) {
  const double size = std::real(answer);
  const double slack = sizeof(std::real(answer)) == 4 && size > 16e6 ? size * 0x1p-22 : 0;
  return std::max<int64_t>(static_cast<int64_t>(std::ceil(size + slack)), least);
}

// What the size of a routine's workspace depends on: modes and sizes.
using Shape = std::array<Int, 5>;

// A routine that takes its workspace last: `call(work, length, info)`, called with -1 first where
// this thread's last matrix for it was of another shape: of small ones that is a third of the time.
template <typename T, typename F>
Int with_workspace(const Shape& shape, int64_t least, F&& call) {
  // Of each routine and type, as `call` is of a type of its own.
  thread_local Shape known{};
  thread_local int64_t size = 0;
  Int info = 0;
  if (size == 0 || known != shape) {
    T answer(0);
    const Int query = -1;
    call(&answer, &query, &info);
    if (info != 0) return info;
    known = shape;
    size = queried(answer, least);
  }
  Workspace<T> work(size);
  if (!work) return work.error();
  const Int length = work.length();
  call(work.data(), &length, &info);
  return info;
}

// The same for routines that take `reals` real numbers behind it where T is complex:
// call(info, work, length) or call(info, work, length, real).
template <typename T, typename F>
Int with_workspaces(const Shape& shape, int64_t least, int64_t reals, F&& call) {
  if constexpr (kIsComplex<T>) {
    Workspace<typename Fortran<T>::Real> real(reals);
    if (!real) return real.error();
    return with_workspace<T>(shape, least, [&](T* work, const Int* length, Int* info) {
      call(info, work, length, real.data());
    });
  } else {
    return with_workspace<T>(
        shape, least, [&](T* work, const Int* length, Int* info) { call(info, work, length); });
  }
}

Int leading(Int rows) { return std::max<Int>(rows, 1); }

// Real eigenvectors as geev packs them: of a pair of conjugate values the real and imaginary parts.
template <typename R>
void unpack_vectors(Int n, const R* imaginary, const R* packed, std::complex<R>* vectors) {
  for (Int j = 0; j < n; ++j) {
    const R* re = packed + static_cast<int64_t>(j) * n;
    std::complex<R>* to = vectors + static_cast<int64_t>(j) * n;
    if (imaginary[j] == 0 || j + 1 == n) {
      for (Int i = 0; i < n; ++i) to[i] = re[i];
      continue;
    }
    const R* im = re + n;
    for (Int i = 0; i < n; ++i) {
      to[i] = {re[i], im[i]};
      to[n + i] = {re[i], -im[i]};
    }
    ++j;
  }
}

Int potrf(const Parallel* p, Type type, char uplo, Int n, void* a) {
  const ParallelScope scope(p);
  return with_type(type,
                   [&](auto* t) { return factor_cholesky(uplo, n, static_cast<decltype(t)>(a)); });
}

Int trsm(const Parallel* p, Type type, char side, char uplo, char trans, char diag, Int m, Int n,
         const void* a, void* b) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const T one(1);
    const Int lda = leading(side == 'L' ? m : n), ldb = leading(m);
    Fortran<T>::trsm(&side, &uplo, &trans, &diag, &m, &n, &one, static_cast<const T*>(a), &lda,
                     static_cast<T*>(b), &ldb, 1, 1, 1, 1);
    return 0;
  });
}

Int getrf(const Parallel* p, Type type, Int m, Int n, void* a, Int* pivots) {
  const ParallelScope scope(p);
  return with_type(type,
                   [&](auto* t) { return factor_lu(m, n, static_cast<decltype(t)>(a), pivots); });
}

Int geqrf(const Parallel* p, Type type, Int m, Int n, void* a, void* tau) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const Int lda = leading(m);
    return with_workspace<T>({m, n}, n, [&](T* work, const Int* length, Int* info) {
      Fortran<T>::geqrf(&m, &n, static_cast<T*>(a), &lda, static_cast<T*>(tau), work, length, info);
    });
  });
}

Int geqp3(const Parallel* p, Type type, Int m, Int n, void* a, Int* columns, void* tau) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using F = Fortran<T>;
    const Int lda = leading(m);
    return with_workspaces<T>(
        {m, n}, 3 * int64_t{n} + 1, 2 * int64_t{n}, [&](Int* info, auto... work) {
          F::geqp3(&m, &n, static_cast<T*>(a), &lda, columns, static_cast<T*>(tau), work..., info);
        });
  });
}

Int orgqr(const Parallel* p, Type type, Int m, Int n, Int k, void* a, const void* tau) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const Int lda = leading(m);
    return with_workspace<T>({m, n, k}, n, [&](T* work, const Int* length, Int* info) {
      Fortran<T>::orgqr(&m, &n, &k, static_cast<T*>(a), &lda, static_cast<const T*>(tau), work,
                        length, info);
    });
  });
}

Int ormqr(const Parallel* p, Type type, char side, char trans, Int m, Int n, Int k, const void* a,
          const void* tau, void* c) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const Int lda = leading(side == 'L' ? m : n), ldc = leading(m);
    return with_workspace<T>(
        {side, trans, m, n, k}, side == 'L' ? n : m, [&](T* work, const Int* length, Int* info) {
          Fortran<T>::ormqr(&side, &trans, &m, &n, &k, static_cast<const T*>(a), &lda,
                            static_cast<const T*>(tau), static_cast<T*>(c), &ldc, work, length,
                            info, 1, 1);
        });
  });
}

// heevd hands what is left of its workspace to unmtr, which takes single reflectors where that is
// not enough for blocks of them: what ormqr asks for with its largest blocks.
constexpr int64_t kReflectorColumns = 64, kReflectorBlock = 65 * 64;

Int syevd(const Parallel* p, Type type, char mode, char uplo, Int n, void* a, void* values) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using F = Fortran<T>;
    using R = typename F::Real;
    const Int lda = leading(n);
    const int64_t wide = n;
    const bool vectors = mode == 'V';
    Workspace<Int> integers(vectors ? 3 + 5 * wide : 1);
    if (!integers) return integers.error();
    const Int integer_length = integers.length();
    if constexpr (kIsComplex<T>) {
      Workspace<R> real(vectors ? 1 + 5 * wide + 2 * wide * wide : wide);
      if (!real) return real.error();
      const Int real_length = real.length();
      return with_workspace<T>(
          {mode, uplo, n},
          vectors ? 2 * wide + wide * wide + kReflectorColumns * wide + kReflectorBlock
                  : wide * (1 + kReflectorColumns),
          [&](T* work, const Int* length, Int* info) {
            R unused = 0;
            Int unused_integer = 0;
            const bool asks = *length == -1;
            F::syevd(&mode, &uplo, &n, static_cast<T*>(a), &lda, static_cast<R*>(values), work,
                     length, asks ? &unused : real.data(), &real_length,
                     asks ? &unused_integer : integers.data(), &integer_length, info, 1, 1);
          });
    } else {
      return with_workspace<T>(
          {mode, uplo, n}, vectors ? 1 + 6 * wide + 2 * wide * wide : 2 * wide + 1,
          [&](T* work, const Int* length, Int* info) {
            F::syevd(&mode, &uplo, &n, static_cast<T*>(a), &lda, static_cast<R*>(values), work,
                     length, integers.data(), &integer_length, info, 1, 1);
          });
    }
  });
}

// What gesdd wants of the real workspace of complex types, by its documentation.
int64_t gesdd_reals(char mode, int64_t m, int64_t n) {
  const int64_t least = std::min(m, n), most = std::max(m, n);
  if (mode == 'N') return 7 * least;
  return std::max(5 * least * least + 5 * least, 2 * most * least + 2 * least * least + least);
}

Int gesdd(const Parallel* p, Type type, char mode, Int m, Int n, void* a, void* s, void* u,
          void* vt) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using F = Fortran<T>;
    using R = typename F::Real;
    const Int lda = leading(m), ldu = leading(m), count = std::min(m, n);
    const Int ldvt = leading(mode == 'S' ? count : n);
    Workspace<Int> integers(8 * int64_t{count});
    if (!integers) return integers.error();
    return with_workspaces<T>(
        {mode, m, n}, 1, gesdd_reals(mode, m, n), [&](Int* info, auto... work) {
          F::gesdd(&mode, &m, &n, static_cast<T*>(a), &lda, static_cast<R*>(s), static_cast<T*>(u),
                   &ldu, static_cast<T*>(vt), &ldvt, work..., integers.data(), info, 1);
        });
  });
}

Int gesvd(const Parallel* p, Type type, char mode, Int m, Int n, void* a, void* s, void* u,
          void* vt) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using F = Fortran<T>;
    using R = typename F::Real;
    const Int lda = leading(m), ldu = leading(m), count = std::min(m, n);
    const Int ldvt = leading(mode == 'S' ? count : n);
    return with_workspaces<T>({mode, m, n}, 1, 5 * int64_t{count}, [&](Int* info, auto... work) {
      F::gesvd(&mode, &mode, &m, &n, static_cast<T*>(a), &lda, static_cast<R*>(s),
               static_cast<T*>(u), &ldu, static_cast<T*>(vt), &ldvt, work..., info, 1, 1);
    });
  });
}

Int geev(const Parallel* p, Type type, char left_mode, char right_mode, Int n, void* a,
         void* values, void* imaginary, void* left, void* right) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using F = Fortran<T>;
    const Int lda = leading(n);
    if constexpr (kIsComplex<T>) {
      return with_workspaces<T>(
          {left_mode, right_mode, n}, 2 * int64_t{n}, 2 * int64_t{n}, [&](Int* info, auto... work) {
            F::geev(&left_mode, &right_mode, &n, static_cast<T*>(a), &lda, static_cast<T*>(values),
                    static_cast<T*>(left), &lda, static_cast<T*>(right), &lda, work..., info, 1, 1);
          });
    } else {
      Workspace<T> packed_left(left_mode == 'V' ? int64_t{n} * n : 1);
      Workspace<T> packed_right(right_mode == 'V' ? int64_t{n} * n : 1);
      if (!packed_left) return packed_left.error();
      if (!packed_right) return packed_right.error();
      T* im = static_cast<T*>(imaginary);
      const Int result = with_workspace<T>(
          {left_mode, right_mode, n}, 4 * int64_t{n}, [&](T* work, const Int* length, Int* info) {
            F::geev(&left_mode, &right_mode, &n, static_cast<T*>(a), &lda, static_cast<T*>(values),
                    im, packed_left.data(), &lda, packed_right.data(), &lda, work, length, info, 1,
                    1);
          });
      if (result != 0) return result;
      using C = std::complex<T>;
      if (left_mode == 'V') unpack_vectors(n, im, packed_left.data(), static_cast<C*>(left));
      if (right_mode == 'V') unpack_vectors(n, im, packed_right.data(), static_cast<C*>(right));
      return 0;
    }
  });
}

Int gees(const Parallel* p, Type type, char mode, Int n, void* a, void* values, void* imaginary,
         void* vectors) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using F = Fortran<T>;
    const Int lda = leading(n);
    Int selected = 0, unused = 0;
    return with_workspaces<T>({mode, n}, 3 * int64_t{n}, n, [&](Int* info, auto... work) {
      T* const to = static_cast<T*>(vectors);
      if constexpr (kIsComplex<T>) {
        F::gees(&mode, "N", nullptr, &n, static_cast<T*>(a), &lda, &selected,
                static_cast<T*>(values), to, &lda, work..., &unused, info, 1, 1);
      } else {
        F::gees(&mode, "N", nullptr, &n, static_cast<T*>(a), &lda, &selected,
                static_cast<T*>(values), static_cast<T*>(imaginary), to, &lda, work..., &unused,
                info, 1, 1);
      }
    });
  });
}

Int gehrd(const Parallel* p, Type type, Int n, Int low, Int high, void* a, void* tau) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const Int lda = leading(n);
    return with_workspace<T>({n, low, high}, n, [&](T* work, const Int* length, Int* info) {
      Fortran<T>::gehrd(&n, &low, &high, static_cast<T*>(a), &lda, static_cast<T*>(tau), work,
                        length, info);
    });
  });
}

Int sytrd(const Parallel* p, Type type, char uplo, Int n, void* a, void* d, void* e, void* tau) {
  const ParallelScope scope(p);
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    using R = typename Fortran<T>::Real;
    const Int lda = leading(n);
    return with_workspace<T>({uplo, n}, 1, [&](T* work, const Int* length, Int* info) {
      Fortran<T>::sytrd(&uplo, &n, static_cast<T*>(a), &lda, static_cast<R*>(d), static_cast<R*>(e),
                        static_cast<T*>(tau), work, length, info, 1);
    });
  });
}

Int gtsv(Type type, Int n, Int columns, void* lower, void* diagonal, void* upper, void* b) {
  return with_type(type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const Int ldb = leading(n);
    Int info = 0;
    Fortran<T>::gtsv(&n, &columns, static_cast<T*>(lower), static_cast<T*>(diagonal),
                     static_cast<T*>(upper), static_cast<T*>(b), &ldb, &info);
    return info;
  });
}

const char* description() {
  static const std::string text =
      std::string(openblas_get_config()) + ", code for " + openblas_get_corename();
  return text.c_str();
}

constexpr Table kTable = {
    kTableVersion, description, potrf,       trsm,        getrf,          geqrf,      geqp3,
    orgqr,         ormqr,       syevd,       gesdd,       gesvd,          geev,       gees,
    gehrd,         sytrd,       gtsv,        lane_count,  cholesky_lanes, trsm_lanes, getrf_lanes,
    geqrf_lanes,   orgqr_lanes, syevd_lanes, gesdd_lanes,
};

}  // namespace
}  // namespace hekla::lapack

extern "C" __attribute__((visibility("default"))) const hekla::lapack::Table* hekla_lapack_table() {
  return &hekla::lapack::kTable;
}
