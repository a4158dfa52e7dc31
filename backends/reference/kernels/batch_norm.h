// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over all dimensions but `feature_index`, for floats of any width. Statistics
// are computed in f64 and every result is rounded once. `epsilon` is StableHLO's f32 attribute.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::reference {

// {output, batch_mean, batch_var}; the variance is the biased one.
Result<std::vector<HostArray>> batch_norm_training(const HostArray& operand, const HostArray& scale,
                                                   const HostArray& offset, float epsilon,
                                                   int64_t feature_index);
Result<HostArray> batch_norm_inference(const HostArray& operand, const HostArray& scale,
                                       const HostArray& offset, const HostArray& mean,
                                       const HostArray& variance, float epsilon,
                                       int64_t feature_index);
// {grad_operand, grad_scale, grad_offset}
Result<std::vector<HostArray>> batch_norm_grad(const HostArray& operand, const HostArray& scale,
                                               const HostArray& mean, const HostArray& variance,
                                               const HostArray& grad_output, float epsilon,
                                               int64_t feature_index);

}  // namespace hekla::reference
