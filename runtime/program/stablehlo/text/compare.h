// SPDX-License-Identifier: Apache-2.0
// first_difference: whether two modules are the same program.
//
// Compares names, meshes, functions in order, types, attributes, operations, operands by their
// place of definition, and regions. Locations and the identity of values do not count. Pure; linear
// in the size of the modules. Used to check that two readers agree and that a pass changes nothing.
#pragma once

#include <optional>
#include <string>

#include "runtime/program/ir/ir.h"

namespace hekla::stablehlo {

struct CompareOptions {
  // Constants count where they are used, by content: where they stand, how many equal ones there
  // are and whether some are unused makes no difference. (Serializers move and unify constants.)
  bool constants_by_value = false;
};

// The first difference as one line: the path to it, then what `left` and `right` have there, such
// as `@main, op 3 stablehlo.add, operand 1: value 4 | value 5`. nullopt when there is none.
std::optional<std::string> first_difference(const ir::Module& left, const ir::Module& right,
                                            const CompareOptions& options = {});

}  // namespace hekla::stablehlo
