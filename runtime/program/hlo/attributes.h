// SPDX-License-Identifier: Apache-2.0
// Messages inside of instructions as attributes of operations. Errors are INVALID_ARGUMENT.
#pragma once

#include <vector>

#include "runtime/program/hlo/module.h"
#include "runtime/program/ir/attribute.h"

namespace hekla::hlo {

// xla.Window, an entry per dimension.
struct Window {
  std::vector<int64_t> size, stride, low, high, window_dilation, base_dilation;
  std::vector<bool> reversal;
  size_t rank() const { return size.size(); }
  bool is_reversed() const;
  bool is_dilated() const;
  // [rank, 2]: low and high.
  ir::Attribute padding() const;
};
Result<Window> read_window(const Message& instruction);

Result<ir::Attribute> gather_numbers(const Message& instruction);
Result<ir::Attribute> scatter_numbers(const Message& instruction);
Result<ir::Attribute> convolution_numbers(const Message& instruction);
// Of the message itself: xla.DotDimensionNumbers.
Result<ir::DotDimensionNumbers> dot_numbers(const Message& numbers);
// `precision_config` and `algorithm` of a contraction; absent ones stay absent.
struct Precision {
  ir::Attribute config;
  ir::Attribute algorithm;
};
Result<Precision> read_precision(const Message& instruction);
// `replica_groups`: lists, iotas or axes of a mesh.
Result<ir::Attribute> replica_groups(const Message& instruction);
// `source_target_pairs`.
Result<ir::Attribute> source_target_pairs(const Message& instruction);
// A dictionary as MLIR prints it, which HLO keeps as text.
Result<ir::Attribute> parse_dictionary(std::string_view text);
// A matrix of i64 with two or more columns from its rows, all as long.
Result<ir::Attribute> matrix(const std::vector<std::vector<int64_t>>& rows, int64_t columns);

}  // namespace hekla::hlo
