// SPDX-License-Identifier: Apache-2.0
// GSPMD's manual regions as Shardy's manual computations, so that the axes that they leave free cut
// them as they cut anything else.
//
// Of this folder alone. Pure; one thread a module.
#pragma once

#include <span>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

// Calls whose operands all come through SPMDFullToShardShape and whose results all leave through
// SPMDShardToFullShape, where some axes stay free: what JAX writes. `module` still has its calls;
// `shardings` are the entry's. Others stay what they are (their bodies are cut no further), as do
// all where the program's shardings have no mesh in common.
Status raise_manual_regions(ir::Module& module, std::span<const sharding::HloSharding> shardings,
                            int64_t partitions);

}  // namespace hekla::spmd
