// SPDX-License-Identifier: Apache-2.0
#include "tests/compiler/runnable.h"

#include <algorithm>

#include "backends/lapack/library.h"
#include "backends/reference/evaluator.h"

namespace hekla::testing {

const std::map<std::string_view, std::string_view>& not_run() {
  static const std::map<std::string_view, std::string_view> kReasons = [] {
    std::map<std::string_view, std::string_view> reasons = {
        {"callbacks_cpu", "calls Python back"},
        {"ffi_call", "calls a function of the sender"},
        {"rare_ops", "infeed, outfeed, send and receive"},
        {"rare_ops.v0.14.0", "infeed, outfeed, send and receive"},
        {"sdy_small_floats", "runs on several devices"},
        {"shard_map_collectives", "runs on several devices"},
        {"shard_map_partial", "runs on several devices"},
        {"symbolic_shapes", "has arguments of dynamic shape"},
    };
    // Where LAPACK is built in, lapack_test fails without it.
    if (lapack::table() == nullptr) reasons["linalg_cpu"] = "calls LAPACK, which is not here";
    return reasons;
  }();
  return kReasons;
}

bool can_run(const ir::Module& module) {
  if (!reference::check_supported(module).ok()) return false;
  const auto& inputs = module.entry()->type.elements();
  return std::all_of(inputs.begin(), inputs.end(),
                     [](const ir::Type& type) { return type.is_static_tensor(); });
}

}  // namespace hekla::testing
