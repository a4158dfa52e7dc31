// SPDX-License-Identifier: Apache-2.0
// ScalarFunction: a region on scalars (the body of reduce, scatter, sort, map ...), applied to many
// elements at once. Kernels that take a region take one of these, so that they know nothing of `ir`
// and pay the cost of interpretation once per block of elements.
//
// Implementations are owned by whoever evaluates the op and borrowed by the kernel for one call.
// apply() may be called many times, from one thread. It fails only where evaluating the region
// fails; kernels pass that Status on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

namespace hekla::reference {

// Bodies that kernels may have a loop of their own for.
enum class BinaryBody : uint8_t { kAdd, kMultiply, kMinimum, kMaximum, kAnd, kOr, kXor };

class ScalarFunction {
 public:
  virtual ~ScalarFunction() = default;

  virtual const std::vector<DType>& input_dtypes() const = 0;
  virtual const std::vector<DType>& output_dtypes() const = 0;

  // Evaluates the region for `count` elements. inputs[i] and outputs[j] are dense arrays of `count`
  // elements of input_dtypes()[i] and output_dtypes()[j], with no overlap between the two.
  virtual Status apply(int64_t count, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outputs) = 0;

  // Set when the region is exactly one binary op on its two arguments, in either order, and returns
  // its result. Minimum and maximum propagate NaN as StableHLO says.
  virtual std::optional<BinaryBody> binary_body() const { return std::nullopt; }
};

}  // namespace hekla::reference
