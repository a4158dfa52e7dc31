// SPDX-License-Identifier: Apache-2.0
// read_hlo: programs as HloModuleProto (xla/service/hlo.proto), the form that PyTorch/XLA sends.
//
// Tuples are flattened, parameters and results of the entry too. Donations become
// `tf.aliasing_output` and `jax.buffer_donor` on the parameters, shardings `mhlo.sharding`. Layouts
// of parameters and results are not taken over: arrays are row-major, and clients that read a
// result give the layout that they want. Opcodes without an operation here are kept as unknown
// ones, "hlo.name", which devices refuse in words.
//
// The module owns everything. Bad bytes give INVALID_ARGUMENT that names the instruction and its
// computation, forms that are not offered UNIMPLEMENTED; time and memory are bounded by the size of
// the input. The result is not verified yet: see ir/verify.h.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::hlo {

// Whether the bytes can be one of the two: their outermost fields are.
bool is_hlo_module(std::string_view bytes);
bool is_hlo_with_config(std::string_view bytes);

// The HloModuleProto that the bytes are or that is in them, where they are one with its
// configuration. INVALID_ARGUMENT for anything else.
Result<std::string_view> module_of(std::string_view bytes);

// An HloModuleProto, or an HloModuleProtoWithConfig that holds one.
Result<std::unique_ptr<ir::Module>> read_hlo(std::string_view bytes);

// An HloModuleProtoWithConfig of this module whose entry has the layout that the module says:
// clients read results' shapes there.
Result<std::string> with_config(std::string_view module);

}  // namespace hekla::hlo
