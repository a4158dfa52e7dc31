// SPDX-License-Identifier: Apache-2.0
// has_plain_types: what passes that write an operation anew ask of it first. Pure.
#pragma once

#include <algorithm>

#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// Whether all operands and results are tensors of known shape that are not quantized.
inline bool has_plain_types(const ir::Operation& op) {
  const auto is_plain = [](const ir::Type& type) {
    return type.is_static_tensor() && type.quantization() == nullptr;
  };
  const std::vector<ir::Type> results = op.result_types();
  return std::all_of(results.begin(), results.end(), is_plain) &&
         std::all_of(op.operands().begin(), op.operands().end(),
                     [&](const ir::Value* value) { return is_plain(value->type()); });
}

}  // namespace hekla::passes
