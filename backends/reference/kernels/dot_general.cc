// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "backends/reference/kernels/contraction.h"
#include "backends/reference/kernels/contraction_types.h"
#include "backends/reference/kernels/convert.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/strides.h"

namespace hekla::reference {
namespace {

// The dimensions of an operand that are neither batch nor contracting, in order.
Result<Dims> free_dims(const char* side, const HostArray& operand, const Dims& batching,
                       const Dims& contracting) {
  Dims used = batching;
  used.insert(used.end(), contracting.begin(), contracting.end());
  if (!are_unique_dims(used, operand.rank())) {
    return invalid_argument(
        "dot_general: batching [{}] and contracting [{}] are not unique dimensions of {} {}",
        fmt::join(batching, ","), fmt::join(contracting, ","), side, operand.shape());
  }
  Dims free;
  for (int64_t d = 0; d < operand.rank(); ++d) {
    if (std::find(used.begin(), used.end(), d) == used.end()) free.push_back(d);
  }
  return free;
}

int64_t product(const HostArray& array, const Dims& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= array.dims()[d];
  return count;
}

Result<HostArray> transposed(const HostArray& array, const Dims& first, const Dims& second,
                             const Dims& third) {
  Dims permutation = first;
  permutation.insert(permutation.end(), second.begin(), second.end());
  permutation.insert(permutation.end(), third.begin(), third.end());
  return transpose(array, permutation);
}

// `products`: more than one only approximate those of a wider type, which is used itself.
Result<HostArray> round_to(const HostArray& operand, DType precision, int64_t products) {
  if (products != 1) precision = DType::kF32;
  if (precision == DType::kInvalid || precision == operand.dtype() || !is_float(operand.dtype()) ||
      !is_float(precision)) {
    return operand;
  }
  return convert_elements(operand, precision);
}

}  // namespace

Result<HostArray> dot_general(const HostArray& lhs, const HostArray& rhs,
                              const DotGeneralConfig& config, DType result_dtype) {
  const Dims& lhs_batch = config.lhs_batching_dimensions;
  const Dims& rhs_batch = config.rhs_batching_dimensions;
  const Dims& lhs_contract = config.lhs_contracting_dimensions;
  const Dims& rhs_contract = config.rhs_contracting_dimensions;
  HEKLA_ASSIGN_OR_RETURN(const Dims lhs_free, free_dims("lhs", lhs, lhs_batch, lhs_contract));
  HEKLA_ASSIGN_OR_RETURN(const Dims rhs_free, free_dims("rhs", rhs, rhs_batch, rhs_contract));
  bool fits = lhs_batch.size() == rhs_batch.size() && lhs_contract.size() == rhs_contract.size();
  for (size_t i = 0; fits && i < lhs_batch.size(); ++i) {
    fits = lhs.dims()[lhs_batch[i]] == rhs.dims()[rhs_batch[i]];
  }
  for (size_t i = 0; fits && i < lhs_contract.size(); ++i) {
    fits = lhs.dims()[lhs_contract[i]] == rhs.dims()[rhs_contract[i]];
  }
  if (!fits) {
    return invalid_argument("dot_general of {} and {}: batching or contracting sizes differ",
                            lhs.shape(), rhs.shape());
  }
  HostArray a = lhs;
  HostArray b = rhs;
  DType sum = sum_dtype(lhs.dtype(), rhs.dtype(), result_dtype);
  if (config.algorithm.has_value()) {
    const DotAlgorithm& algorithm = *config.algorithm;
    HEKLA_ASSIGN_OR_RETURN(
        a, round_to(lhs, algorithm.lhs_precision_type, algorithm.num_primitive_operations));
    HEKLA_ASSIGN_OR_RETURN(
        b, round_to(rhs, algorithm.rhs_precision_type, algorithm.num_primitive_operations));
    // A wider sum than asked for is never wrong; a narrower one would be.
    if (algorithm.accumulation_type == DType::kF64 && sum == DType::kF32) sum = DType::kF64;
  }
  HEKLA_ASSIGN_OR_RETURN(a, transposed(a, lhs_batch, lhs_free, lhs_contract));
  HEKLA_ASSIGN_OR_RETURN(b, transposed(b, rhs_batch, rhs_contract, rhs_free));
  HEKLA_ASSIGN_OR_RETURN(a, widen_operand(a, sum));
  HEKLA_ASSIGN_OR_RETURN(b, widen_operand(b, sum));
  Dims dims;
  for (int64_t d : lhs_batch) dims.push_back(lhs.dims()[d]);
  for (int64_t d : lhs_free) dims.push_back(lhs.dims()[d]);
  for (int64_t d : rhs_free) dims.push_back(rhs.dims()[d]);
  HEKLA_ASSIGN_OR_RETURN(HostArray sums, HostArray::allocate(sum, dims));
  if (sums.size() > 0) {
    HEKLA_RETURN_IF_ERROR(batched_matmul_add(sum, product(lhs, lhs_batch), product(lhs, lhs_free),
                                             product(rhs, rhs_free), product(lhs, lhs_contract),
                                             a.data(), b.data(), sums.mutable_data()));
  }
  return narrow_sums(sums, result_dtype);
}

}  // namespace hekla::reference
