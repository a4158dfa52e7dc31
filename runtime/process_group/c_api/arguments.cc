// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/process_group/c_api/handles.h"

namespace hekla::process_group::c_api {

Timeout timeout_of(int64_t timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  // What does not fit into nanoseconds waits for a hundred years.
  constexpr int64_t kLongest = int64_t{1000} * 60 * 60 * 24 * 36500;
  return std::chrono::milliseconds(std::min(timeout_ms, kLongest));
}

Result<Elements> elements_of(const hekla_group_array* array,
                             const std::shared_ptr<const void>& owner, DType dtype) {
  if (array == nullptr) return Elements{nullptr, dtype, 0, owner};
  if (array->dtype <= 0 || array->dtype >= kDTypeCount) {
    return invalid_argument("dtype {} of an array of {}", array->dtype, array->count);
  }
  if (array->count < 0 || (array->count > 0 && array->data == nullptr)) {
    return invalid_argument("an array of {} elements{}", array->count,
                            array->data == nullptr ? " at no address" : "");
  }
  return Elements{array->data, static_cast<DType>(array->dtype), array->count, owner};
}

Result<Reduction> reduction_of(int32_t op, double factor) {
  if (op < 0 || op >= kReduceOpCount) return invalid_argument("there is no reduction {}", op);
  const auto known = static_cast<ReduceOp>(op);
  return known == ReduceOp::kPremulSum ? Reduction::premul_sum(factor) : Reduction(known);
}

}  // namespace hekla::process_group::c_api
