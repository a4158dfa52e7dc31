// SPDX-License-Identifier: Apache-2.0
// dot_general and convolution. Operands are widened before they are multiplied; sums are taken in
// f32 for floats up to 32 bits, f64 for f64, the complex type of the same width, in the integer
// type of the result with wrap-around, and as or-of-ands for i1; then they are rounded once to the
// result dtype. Any mix of operand and result dtypes is computed in the widest of the three.
//
// Names and meanings of the fields are those of StableHLO's attributes. precision_config is not
// here: all precisions are computed as HIGHEST.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::reference {

struct DotAlgorithm {
  DType lhs_precision_type = DType::kInvalid;
  DType rhs_precision_type = DType::kInvalid;
  DType accumulation_type = DType::kInvalid;
  int64_t lhs_component_count = 1;
  int64_t rhs_component_count = 1;
  int64_t num_primitive_operations = 1;
  bool allow_imprecise_accumulation = false;
};

struct DotGeneralConfig {
  Dims lhs_batching_dimensions;
  Dims rhs_batching_dimensions;
  Dims lhs_contracting_dimensions;
  Dims rhs_contracting_dimensions;
  // Operands are rounded to the precision types where one product makes one. Several
  // (bf16_bf16_f32_x3 and so on) only approximate f32, which is used itself.
  std::optional<DotAlgorithm> algorithm;
};
// Result dimensions: batch, lhs free, rhs free. An empty contraction gives zeros.
Result<HostArray> dot_general(const HostArray& lhs, const HostArray& rhs,
                              const DotGeneralConfig& config, DType result_dtype);

struct ConvolutionConfig {
  Dims window_strides;                          // empty: all 1
  std::vector<std::array<int64_t, 2>> padding;  // low, high; may be negative; empty: all 0
  Dims lhs_dilation;                            // empty: all 1
  Dims rhs_dilation;                            // empty: all 1
  std::vector<bool> window_reversal;            // empty: all false
  int64_t input_batch_dimension = 0;
  int64_t input_feature_dimension = 0;
  Dims input_spatial_dimensions;
  int64_t kernel_input_feature_dimension = 0;
  int64_t kernel_output_feature_dimension = 0;
  Dims kernel_spatial_dimensions;
  int64_t output_batch_dimension = 0;
  int64_t output_feature_dimension = 0;
  Dims output_spatial_dimensions;
  int64_t feature_group_count = 1;
  int64_t batch_group_count = 1;
};
Result<HostArray> convolution(const HostArray& lhs, const HostArray& rhs,
                              const ConvolutionConfig& config, DType result_dtype);

}  // namespace hekla::reference
