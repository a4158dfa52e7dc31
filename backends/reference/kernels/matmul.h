// SPDX-License-Identifier: Apache-2.0
// The dense matrix product under dot_general and convolution. One thread; every element of the
// result is summed in the same order whatever the sizes and the instruction set, so results do not
// depend on either.
#pragma once

#include <cstdint>

namespace hekla::reference {

// c[m x n] += a[m x k] * b[k x n], all dense row-major. T: float, double, uint32_t, uint64_t.
// Sums go through partial sums over 256 steps of k. Allocates at most 64 kB of scratch; aborts with
// std::bad_alloc as any container does.
template <typename T>
void matmul_add(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c);

extern template void matmul_add<float>(int64_t, int64_t, int64_t, const float*, const float*,
                                       float*);
extern template void matmul_add<double>(int64_t, int64_t, int64_t, const double*, const double*,
                                        double*);
extern template void matmul_add<uint32_t>(int64_t, int64_t, int64_t, const uint32_t*,
                                          const uint32_t*, uint32_t*);
extern template void matmul_add<uint64_t>(int64_t, int64_t, int64_t, const uint64_t*,
                                          const uint64_t*, uint64_t*);

}  // namespace hekla::reference
