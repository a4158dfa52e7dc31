// SPDX-License-Identifier: Apache-2.0
// read_program: a program in any form that a client sends, as IR.
//
// Takes portable artifacts (MLIR bytecode of VHLO), HLO protobufs and MLIR text and tells them
// apart by the magic number and by the outermost fields. The module that comes back owns
// everything; the bytes may go, except that large constants share them through `owner` when one is
// given. Bad input of any kind gives INVALID_ARGUMENT with the position and the reason, in time and
// memory bounded by the input's size. The result is not verified yet: see ir/verify.h.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::stablehlo {

// True for MLIR bytecode.
bool is_bytecode(std::string_view bytes);

// What the C API calls the form: "mlir", "hlo" or "hlo_with_config".
std::string_view program_format(std::string_view bytes);

Result<std::unique_ptr<ir::Module>> read_program(std::string_view bytes,
                                                 std::shared_ptr<const void> owner = nullptr);

}  // namespace hekla::stablehlo
