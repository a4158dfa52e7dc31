// SPDX-License-Identifier: Apache-2.0
// Reduction: how elements of all ranks become one, and the loop that does it.
//
// Ranks are folded from the left in the order of their numbers, each element by itself: the bits do
// not depend on how an array is cut into pieces or who folds it. Floats below 32 bits are folded in
// f32 and rounded once, f32 in f32, f64 in f64, complex numbers by their parts. Integers wrap
// around; their average is the sum, in 128 bits, divided towards zero. Sums of booleans are "or",
// products and minima "and", maxima "or". A NaN makes minimum and maximum a NaN, which of two equal
// ones (-0 and 0) is kept is the lower rank's.
//
// Pure and thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

namespace hekla::process_group {

enum class ReduceOp : uint8_t {
  kSum,
  kAvg,
  kProduct,
  kMin,
  kMax,
  kBitAnd,
  kBitOr,
  kBitXor,
  kPremulSum,  // of each rank's elements times one factor
};
inline constexpr int kReduceOpCount = static_cast<int>(ReduceOp::kPremulSum) + 1;

// "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum".
std::string_view reduce_op_name(ReduceOp op);
std::optional<ReduceOp> reduce_op_from_name(std::string_view name);

struct Reduction {
  Reduction(ReduceOp which) : op(which) {}
  static Reduction premul_sum(double by) {
    Reduction reduction(ReduceOp::kPremulSum);
    reduction.factor = by;
    return reduction;
  }

  ReduceOp op;
  // Of kPremulSum; rounded to the type in which the sum is taken. The same on all ranks.
  double factor = 1;

  std::string to_string() const;
};

// INVALID_ARGUMENT where an operation makes no sense for a type: bits of floats, order of complex
// numbers, averages of booleans, factors of integers.
Status check_reduction(const Reduction& reduction, DType dtype);

// out[i] = fold of inputs[rank][i] for i < count. `out` may be one of the inputs. The reduction has
// been checked; there is one input at least.
void reduce(const Reduction& reduction, DType dtype, int64_t count,
            std::span<const std::byte* const> inputs, std::byte* out);

// The same bits in steps, from the lowest ranks to the highest: what has been folded of some goes
// on to the next as partials, which are not rounded: f32 of floats below 32 bits, 16 bytes of
// averages of integers, else the type itself. `before`: partials of all ranks below the inputs';
// null: there are none, and one input at least.
int64_t partial_bytes(const Reduction& reduction, DType dtype);  // of an element
void reduce_partly(const Reduction& reduction, DType dtype, int64_t count, const std::byte* before,
                   std::span<const std::byte* const> inputs, std::byte* partials);
// The last step; `ranks` in all.
void reduce_rest(const Reduction& reduction, DType dtype, int64_t count, const std::byte* before,
                 std::span<const std::byte* const> inputs, int ranks, std::byte* out);

}  // namespace hekla::process_group
