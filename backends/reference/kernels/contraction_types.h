// SPDX-License-Identifier: Apache-2.0
// What dot_general and convolution share: which type a sum is taken in, getting operands into it
// and results out of it, and a matrix product that also serves complex numbers and i1.
#pragma once

#include "runtime/base/host_array.h"

namespace hekla::reference {

// The dtype that sums are taken in: c128, c64, f64 or f32 when any of the three dtypes asks for it,
// else an unsigned integer as wide as the result (ui32 or ui64), whose wrap-around serves signed
// types too. i1 also counts in ui32; narrow_sums turns counts into or-of-ands.
DType sum_dtype(DType lhs, DType rhs, DType result);

// The operand in the sum's dtype; integers keep their value modulo 2^width.
Result<HostArray> widen_operand(const HostArray& operand, DType sum);

Result<HostArray> narrow_sums(const HostArray& sums, DType result);

// For each batch: c[m x n] += a[m x k] * b[k x n] in the sum's dtype, all dense. May fail to find
// memory for the parts of complex matrices.
Status batched_matmul_add(DType sum, int64_t batch, int64_t m, int64_t n, int64_t k,
                          const std::byte* a, const std::byte* b, std::byte* c);

}  // namespace hekla::reference
