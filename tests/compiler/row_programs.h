// SPDX-License-Identifier: Apache-2.0
// Programs of reductions along rows and elementwise work on the rows, as text, for the tests of row
// groups in the compiler and on the devices.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/host_array.h"

namespace hekla::testing {

struct RowProgram {
  std::string name;
  std::string text;
  // Whether there is something to group; nullopt: it depends on what products are.
  std::optional<bool> has_groups = true;
};

// exp(x - max) / sum over the last dimension. `rows`: the other dimensions.
std::string softmax(const std::string& dtype, const std::vector<int64_t>& rows, int64_t columns);
// (x - mean) / sqrt(mean((x - mean)^2) + 1) * scale, and the sums of its columns.
std::string layer_norm(const std::string& dtype, const std::vector<int64_t>& rows, int64_t columns);
// The place of the greatest element of x / sum, with what it is.
std::string arg_max(const std::string& dtype, int64_t rows, int64_t columns);

// softmax(x y^T) z by heads, with what is above the diagonal left out when `causal`.
std::string attention(int64_t heads, int64_t queries, int64_t keys, int64_t width, bool causal);

// The same for operands of batch x length x heads x width, over both dimensions of heads.
std::string interleaved_attention(int64_t batch, int64_t length, int64_t heads, int64_t width,
                                  bool causal);

// max(x y + b, 0) + r by the batch, with a bias for each column, and the sums of its rows where
// `is_summed`. `is_turned`: what is written is the transpose of the product.
std::string product(int64_t batch, int64_t rows, int64_t depth, int64_t columns, bool is_turned,
                    bool is_summed);

// exp(x - sum), and its rows in reverse order by the sums of its rows.
std::string other_rows(int64_t rows, int64_t columns);

// Odd shapes and many types, zero sizes among them.
std::vector<RowProgram> row_programs();
// Arguments of a program: moderate numbers, and now and then NaN, infinity and signed zeros.
std::vector<HostArray> row_inputs(const std::string& text);

}  // namespace hekla::testing
