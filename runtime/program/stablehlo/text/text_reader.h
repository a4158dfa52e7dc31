// SPDX-License-Identifier: Apache-2.0
// read_text: StableHLO programs written as MLIR text, pretty or generic.
//
// Gives the same IR as the bytecode reader gives for the same program. Errors are INVALID_ARGUMENT
// with line and column, what was expected and what was found. Time and memory are bounded by the
// size of the text. Pure; the text is not needed afterwards.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::stablehlo {

// One module; a file without an explicit `module` is an implicit one.
Result<std::unique_ptr<ir::Module>> read_text(std::string_view text);

// The whole text as one attribute, without aliases: `{a = 1 : i64}`.
Result<ir::Attribute> read_attribute(std::string_view text);

// The parts of a test file between lines "// -----".
std::vector<std::string_view> split_modules(std::string_view text);

}  // namespace hekla::stablehlo
