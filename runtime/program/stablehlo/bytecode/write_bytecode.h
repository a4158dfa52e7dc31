// SPDX-License-Identifier: Apache-2.0
// write_bytecode: a program as a portable artifact (VHLO in MLIR bytecode), for any PJRT plugin.
//
// The inverse of read_bytecode and vhlo_to_ir: reading what was written gives the same module
// (text/compare.h), locations included. Takes modules that the verifier takes. Pure; time and
// memory grow with the size of the module, constants are copied twice.
#pragma once

#include <compare>
#include <string>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::stablehlo {

// A version of VHLO, as `stablehlo_current_version` of a plugin's attributes states it.
struct VhloVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
  auto operator<=>(const VhloVersion&) const = default;
};

inline constexpr VhloVersion kOldestWrittenVhlo = {1, 0, 0};
inline constexpr VhloVersion kNewestVhlo = {1, 20, 0};

// `target`: the newest version that the reader of the bytes knows; a plugin newer than kNewestVhlo
// takes kNewestVhlo. INVALID_ARGUMENT: a target outside of the two above. UNIMPLEMENTED, with the
// operation: something that `target` has no form for (said with the version that has one), or that
// is not StableHLO or Shardy.
Result<std::string> write_bytecode(const ir::Module& module, VhloVersion target = kNewestVhlo);

}  // namespace hekla::stablehlo
