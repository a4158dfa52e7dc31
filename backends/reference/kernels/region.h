// SPDX-License-Identifier: Apache-2.0
// Running a reducer region (n accumulators, n elements -> n accumulators) over whole arrays.
#pragma once

#include <span>
#include <vector>

#include "backends/reference/kernels/block_body.h"
#include "backends/reference/scalar_function.h"
#include "runtime/base/host_array.h"

namespace hekla::reference {

// Elements per call of a region: a few arrays of this length stay in the first-level cache.
inline constexpr int64_t kRegionBlock = 2048;

class ReducerRegion {
 public:
  // INVALID_ARGUMENT unless `body` takes 2 * count values and returns count of the same dtypes.
  static Result<ReducerRegion> create(const char* op, ScalarFunction& body, size_t count);

  size_t count() const { return body_->output_dtypes().size(); }
  DType dtype(size_t i) const { return body_->output_dtypes()[i]; }
  ScalarFunction& body() const { return *body_; }

  // The arrays in the region's dtypes.
  Result<std::vector<HostArray>> widen(std::span<const HostArray> arrays) const;

  // out = body(left, right) for `count` consecutive elements of each array, in blocks; pointers are
  // to the first element, and out must not overlap the others.
  Status combine(int64_t count, std::span<const std::byte* const> left,
                 std::span<const std::byte* const> right, std::span<std::byte* const> out) const;

 private:
  explicit ReducerRegion(ScalarFunction& body) : body_(body) {}
  BlockBody body_;
};

}  // namespace hekla::reference
