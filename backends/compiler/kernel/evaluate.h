// SPDX-License-Identifier: Apache-2.0
// What each op of the scalar IR computes, in C++: the meaning that generators must match.
//
// Used to fold constants and by the interpreter that tests compare generated code with. Pure.
#pragma once

#include <cstdint>

#include "backends/compiler/kernel/scalar.h"

namespace hekla::kernel {

// The bits of `op` applied to the bits of its arguments. `type` is the result's and `from` the
// first argument's type (the second of a select). Unused bits above a type's width are zero, in and
// out. Not for constants, parameters, memory and loops. Integer division by zero and counts beyond
// the width, which scalar.h excludes, give 0.
uint64_t evaluate(Op op, ScalarType type, ScalarType from, uint64_t a, uint64_t b = 0,
                  uint64_t c = 0);

}  // namespace hekla::kernel
