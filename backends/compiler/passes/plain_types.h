// SPDX-License-Identifier: Apache-2.0
// What passes that write operations anew share: which ones there are, and what is asked of each
// first. Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/base/status.h"
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

// Calls visit(block), which gives a Status, for all blocks of the region, those in the regions of
// an operation before the one around them, until one fails.
template <typename Visit>
Status for_each_block(const ir::Region& region, Visit&& visit) {
  for (const auto& block : region.blocks()) {
    for (const auto& op : block->operations()) {
      for (size_t i = 0; i < op->region_count(); ++i) {
        HEKLA_RETURN_IF_ERROR(for_each_block(op->region(i), visit));
      }
    }
    HEKLA_RETURN_IF_ERROR(visit(*block));
  }
  return ok_status();
}

template <typename Visit>
Status for_each_block(const ir::Module& module, Visit&& visit) {
  for (const auto& function : module.functions) {
    HEKLA_RETURN_IF_ERROR(for_each_block(function->body(), visit));
  }
  return ok_status();
}

}  // namespace hekla::passes
