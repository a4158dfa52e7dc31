// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/contraction_types.h"

#include <array>
#include <complex>
#include <vector>

#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/dispatch.h"
#include "backends/reference/kernels/matmul.h"

namespace hekla::reference {
namespace {

// Four real products of the parts: the textbook formula, without repair of infinities.
template <typename Part>
void complex_matmul_add(int64_t m, int64_t n, int64_t k, const std::complex<Part>* a,
                        const std::complex<Part>* b, std::complex<Part>* c) {
  const auto split = [](const std::complex<Part>* in, int64_t count) {
    std::array<std::vector<Part>, 3> parts;  // real, imaginary, negated imaginary
    for (std::vector<Part>& part : parts) part.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      parts[0][i] = in[i].real();
      parts[1][i] = in[i].imag();
      parts[2][i] = -in[i].imag();
    }
    return parts;
  };
  const auto pa = split(a, m * k);
  const auto pb = split(b, k * n);
  std::vector<Part> real(static_cast<size_t>(m * n), Part(0));
  std::vector<Part> imag(static_cast<size_t>(m * n), Part(0));
  matmul_add(m, n, k, pa[0].data(), pb[0].data(), real.data());
  matmul_add(m, n, k, pa[2].data(), pb[1].data(), real.data());
  matmul_add(m, n, k, pa[0].data(), pb[1].data(), imag.data());
  matmul_add(m, n, k, pa[1].data(), pb[0].data(), imag.data());
  for (int64_t i = 0; i < m * n; ++i) c[i] += std::complex<Part>(real[i], imag[i]);
}

template <typename T>
void run_batches(int64_t batch, int64_t m, int64_t n, int64_t k, const std::byte* a,
                 const std::byte* b, std::byte* c) {
  for (int64_t i = 0; i < batch; ++i) {
    const T* pa = reinterpret_cast<const T*>(a) + i * m * k;
    const T* pb = reinterpret_cast<const T*>(b) + i * k * n;
    T* pc = reinterpret_cast<T*>(c) + i * m * n;
    if constexpr (kIsComplex<T>) {
      complex_matmul_add(m, n, k, pa, pb, pc);
    } else {
      matmul_add(m, n, k, pa, pb, pc);
    }
  }
}

}  // namespace

DType sum_dtype(DType lhs, DType rhs, DType result) {
  bool any_complex = false;
  bool any_float = false;
  bool any_double = false;
  for (DType dtype : {lhs, rhs, result}) {
    any_complex = any_complex || is_complex(dtype);
    any_float = any_float || is_float(dtype);
    any_double = any_double || dtype == DType::kF64 || dtype == DType::kC128;
  }
  if (any_complex) return any_double ? DType::kC128 : DType::kC64;
  if (any_float) return any_double ? DType::kF64 : DType::kF32;
  return dtype_bits(result) > 32 ? DType::kUI64 : DType::kUI32;
}

Result<HostArray> widen_operand(const HostArray& operand, DType sum) {
  // Same width: only the sign's name differs.
  if (is_integer(sum) && is_integer(operand.dtype()) &&
      dtype_bytes(sum) == dtype_bytes(operand.dtype())) {
    return operand.with_shape(sum, operand.dims());
  }
  return convert_elements(operand, sum);
}

Result<HostArray> narrow_sums(const HostArray& sums, DType result) {
  if (is_integer(sums.dtype()) && is_integer(result) &&
      dtype_bytes(result) == dtype_bytes(sums.dtype())) {
    return sums.with_shape(result, sums.dims());
  }
  return convert_elements(sums, result);
}

Status batched_matmul_add(DType sum, int64_t batch, int64_t m, int64_t n, int64_t k,
                          const std::byte* a, const std::byte* b, std::byte* c) {
  switch (sum) {
    case DType::kF32:
      run_batches<float>(batch, m, n, k, a, b, c);
      break;
    case DType::kF64:
      run_batches<double>(batch, m, n, k, a, b, c);
      break;
    case DType::kUI32:
      run_batches<uint32_t>(batch, m, n, k, a, b, c);
      break;
    case DType::kUI64:
      run_batches<uint64_t>(batch, m, n, k, a, b, c);
      break;
    case DType::kC64:
      run_batches<std::complex<float>>(batch, m, n, k, a, b, c);
      break;
    case DType::kC128:
      run_batches<std::complex<double>>(batch, m, n, k, a, b, c);
      break;
    default:
      return internal_error("there is no matrix product that sums in {}", dtype_name(sum));
  }
  return ok_status();
}

}  // namespace hekla::reference
