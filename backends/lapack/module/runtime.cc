// SPDX-License-Identifier: Apache-2.0
// The few functions of other libraries that OpenBLAS calls, in a form that suits a plugin.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "backends/lapack/module/fortran.h"

namespace {

// What OpenBLAS's own allocator maps for each call on x86-64; kernels touch what they need of it.
constexpr size_t kBufferBytes = (size_t{32} << 22) + 4096;

// Buffers for packed blocks. Those of OpenBLAS without threads are found without a lock: two
// threads may get the same one, and did (4 % of the eigenvalue problems that eight threads solved).
class Buffers {
 public:
  void* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        void* const buffer = free_.back();
        free_.pop_back();
        return buffer;
      }
    }
    void* const mapped = mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      // The callers have no way to fail.
      std::fputs("hekla: no address space for a buffer of OpenBLAS\n", stderr);
      std::abort();
    }
    return mapped;
  }
  void give(void* buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_;
};

// Never destroyed: threads may still compute when the process ends.
Buffers& buffers() {
  static Buffers* const all = new Buffers;
  return *all;
}

}  // namespace

extern "C" {

void* __wrap_blas_memory_alloc(int) { return buffers().take(); }
void __wrap_blas_memory_free(void* buffer) { buffers().give(buffer); }

// Fortran's `a // b`, blank-padded: the only function of its runtime library that our routines
// call, so that the library need not be there.
void _gfortran_concat_string(size_t length, char* to, size_t first_length, const char* first,
                             size_t second_length, const char* second) {
  const size_t head = std::min(length, first_length);
  const size_t tail = std::min(length - head, second_length);
  std::memcpy(to, first, head);
  std::memcpy(to + head, second, tail);
  std::memset(to + head + tail, ' ', length - head - tail);
}

// LAPACK's report of an argument that is not allowed. `info` says the same to our caller.
void __wrap_xerbla_(const char*, const hekla::lapack::Int*, size_t) {}
}

extern "C" char* __real_getenv(const char* name);

// OpenBLAS 0.3.21 takes an Intel processor of a model that came after it (Emerald Rapids) for one
// without AVX: a tenth to a half of the speed. Where the user names no kind it is told one here by
// what the processor has.
extern "C" char* __wrap_getenv(const char* name) {
  char* const value = __real_getenv(name);
#if defined(__x86_64__)
  if (value != nullptr || std::strcmp(name, "OPENBLAS_CORETYPE") != 0) return value;
  __builtin_cpu_init();  // runs before constructors do
  if (!__builtin_cpu_is("intel")) return value;
  static char skylake[] = "SkylakeX";
  static char haswell[] = "Haswell";
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return skylake;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return haswell;
#endif
  return value;
}
