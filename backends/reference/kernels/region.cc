// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/kernels/region.h"

#include <algorithm>

#include "backends/reference/kernels/convert.h"

namespace hekla::reference {

Result<ReducerRegion> ReducerRegion::create(const char* op, ScalarFunction& body, size_t count) {
  const std::vector<DType>& in = body.input_dtypes();
  const std::vector<DType>& out = body.output_dtypes();
  bool fits = in.size() == 2 * count && out.size() == count && count > 0;
  for (size_t i = 0; fits && i < count; ++i) fits = in[i] == out[i] && in[count + i] == out[i];
  if (!fits) {
    return invalid_argument(
        "{}: for {} operands the region must take {} values and return {} of the same dtypes; it "
        "takes {} and returns {}",
        op, count, 2 * count, count, in.size(), out.size());
  }
  return ReducerRegion(body);
}

Result<std::vector<HostArray>> ReducerRegion::widen(std::span<const HostArray> arrays) const {
  std::vector<HostArray> result;
  for (size_t i = 0; i < arrays.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, convert_elements(arrays[i], dtype(i)));
    result.push_back(std::move(array));
  }
  return result;
}

Status ReducerRegion::combine(int64_t count, std::span<const std::byte* const> left,
                              std::span<const std::byte* const> right,
                              std::span<std::byte* const> out) const {
  const size_t n = this->count();
  std::vector<const std::byte*> inputs(2 * n);
  std::vector<std::byte*> outputs(n);
  for (int64_t start = 0; start < count; start += kRegionBlock) {
    for (size_t i = 0; i < n; ++i) {
      const int64_t offset = start * dtype_bytes(dtype(i));
      inputs[i] = left[i] + offset;
      inputs[n + i] = right[i] + offset;
      outputs[i] = out[i] + offset;
    }
    HEKLA_RETURN_IF_ERROR(body_->apply(std::min(kRegionBlock, count - start), inputs, outputs));
  }
  return ok_status();
}

}  // namespace hekla::reference
