// SPDX-License-Identifier: Apache-2.0
// What passes that write operations anew share: which ones there are, and what is asked of each
// first. Pure.
#pragma once

#include <algorithm>
#include <vector>

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

// All operations of the module that `is_wanted` says true of, in the regions of others too. None
// that is found may be inside of another one that is erased.
template <typename Wanted>
std::vector<ir::Operation*> operations_of(ir::Module& module, Wanted&& is_wanted) {
  std::vector<ir::Operation*> found;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](ir::Operation& op) {
      if (is_wanted(op)) found.push_back(&op);
    });
  }
  return found;
}

}  // namespace hekla::passes
