// SPDX-License-Identifier: Apache-2.0
// What the files infer_*.cc share: errors that name their op, and checked access to operands and
// attributes. Not for use outside this folder.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::ir::infer {

using Types = std::vector<Type>;

// INVALID_ARGUMENT "stablehlo.add (location): message".
Status op_error_text(const Operation& op, const std::string& message);

template <typename... Args>
Status op_error(const Operation& op, fmt::format_string<Args...> format, Args&&... args) {
  return op_error_text(op, fmt::format(format, std::forward<Args>(args)...));
}

Status expect_operands(const Operation& op, size_t count);
Status expect_regions(const Operation& op, size_t count);
// Operand i as a ranked tensor, buffer types excluded.
Result<Type> tensor_operand(const Operation& op, size_t i);
// All operands as ranked tensors.
Result<Types> tensor_operands(const Operation& op);

// A list of integers; `fallback` stands for an absent attribute.
Result<std::vector<int64_t>> int_list(const Operation& op, std::string_view name);
Result<std::vector<int64_t>> int_list_or(const Operation& op, std::string_view name, size_t size,
                                         int64_t fallback);
Result<int64_t> int_value(const Operation& op, std::string_view name);
// False when absent.
bool flag_value(const Operation& op, std::string_view name);
// An [n, 2] matrix of low and high paddings; all zero when absent.
Result<std::vector<std::pair<int64_t, int64_t>>> padding_or_zero(const Operation& op, size_t n);

// 0 <= dim < rank.
Status expect_dimension(const Operation& op, std::string_view what, int64_t dim, int64_t rank);
// Each within the rank, none twice; sorted ascending where asked.
Status expect_dimensions(const Operation& op, std::string_view what, std::span<const int64_t> dims,
                         int64_t rank, bool sorted = false);

// Sizes that would pass the largest int64 stay there: such shapes are refused when memory is asked
// for, and nothing overflows on the way.
int64_t add_sizes(int64_t a, int64_t b);
int64_t multiply_sizes(int64_t a, int64_t b);

// Equal, or one of them dynamic.
bool dims_agree(int64_t a, int64_t b);
bool shapes_agree(std::span<const int64_t> a, std::span<const int64_t> b);
// The dimensions that are known to either; the ranks are equal.
Dims merged(const Dims& a, const Dims& b);
bool same_element(const Type& a, const Type& b);
// Rank 0, any element type.
bool is_scalar_tensor(const Type& type);
// Rank 0 or [1] of an integer type.
bool is_integer_tensor(const Type& type);
bool is_quantized(const Type& type);

// The block of region i, whose terminator is stablehlo.return; error otherwise.
Result<const Block*> region_block(const Operation& op, size_t i);
// Region i takes `count` scalars and returns scalars of `results` types' elements.
Status expect_scalar_region(const Operation& op, size_t i, size_t argument_count,
                            size_t result_count);

// One function per family; each handles the ops that its file lists and returns nullopt-like
// `handled = false` for the rest.
struct Outcome {
  bool handled = true;
  Result<Types> types;
};
inline Outcome not_handled() { return {false, Types{}}; }

Outcome infer_elementwise(const Operation& op);
Outcome infer_movement(const Operation& op);
Outcome infer_indexing(const Operation& op);
Outcome infer_contraction(const Operation& op);
Outcome infer_reduction(const Operation& op);
Outcome infer_control(const Operation& op);
Outcome infer_algebra(const Operation& op);
Outcome infer_collective(const Operation& op);

}  // namespace hekla::ir::infer
