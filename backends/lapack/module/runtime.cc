// SPDX-License-Identifier: Apache-2.0
// The few functions of other libraries that OpenBLAS calls, in a form that suits a plugin.
#include <algorithm>
#include <cstring>

#include "backends/lapack/module/fortran.h"

extern "C" {

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
