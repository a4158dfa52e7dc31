// SPDX-License-Identifier: Apache-2.0
// vhlo_to_ir: the conversion of a raw bytecode module to IR.
//
// Renames VHLO's versioned operations, regroups attributes as StableHLO has them, drops those that
// have their default value, reads casts between VHLO and builtin types as identity. Operations that
// the IR does not know become kUnknown with their name. Pure; the result owns everything, but for
// large constants, which share the file through `owner` when one is given.
#pragma once

#include <memory>

#include "runtime/program/ir/ir.h"
#include "runtime/program/stablehlo/bytecode/raw_module.h"

namespace hekla::stablehlo {

Result<std::unique_ptr<ir::Module>> vhlo_to_ir(const RawModule& raw,
                                               std::shared_ptr<const void> owner = nullptr);

}  // namespace hekla::stablehlo
