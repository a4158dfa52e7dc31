// SPDX-License-Identifier: Apache-2.0
// What a program asks of the products and sums of its contractions: from `precision_config`,
// `algorithm` (StableHLO's DotAlgorithm) and the client's wish to a kernel::Algorithm.
//
// Pure but for what rewrites a module in place; one thread a module.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "backends/compiler/kernel/algorithm.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::lower {

// The contractions of plain static tensors, which alone have algorithms here, in the regions of
// operations too.
std::vector<ir::Operation*> contractions_of(ir::Module& module);

// Of a dot_general or convolution of static tensors. An algorithm that is named is taken as it is.
// Without one elements keep their types, and precisions other than DEFAULT say how f32 may be
// multiplied: HIGHEST as a whole, HIGH as three products of bf16 pieces or better. DEFAULT is f32
// as a whole here: fewer digits are for those who ask. Sums: of floats up to 32 bits in f32, of all
// others in the type of the result. UNIMPLEMENTED, with both names: an algorithm of floats on
// operands that are none.
Result<kernel::Algorithm> algorithm_of(const ir::Operation& op);

// Whether the operands hold what the algorithm multiplies, so that nothing is left to be rounded.
bool has_rounded_operands(const ir::Operation& op, const kernel::Algorithm& algorithm);

// The names that `hekla_f32_algorithm` takes, as JAX spells its presets: "bf16_bf16_f32_x3" ...
// nullopt: none of them.
std::optional<ir::DotAlgorithm> f32_algorithm(std::string_view name);

// Gives contractions of f32 that name no algorithm and ask for the precision DEFAULT this one.
// Before others are made of operations that ask for nothing, such as factorisations.
void name_algorithms(ir::Module& module, const ir::DotAlgorithm& of_default);

// Rounds the operands of contractions whose algorithm says so, once, and takes sums in f64 where it
// asks for them. Operations keep their attributes. Contractions whose algorithm does not fit their
// types stay as they are: there is no kernel for them.
void apply_algorithms(ir::Module& module);

}  // namespace hekla::lower
