// SPDX-License-Identifier: Apache-2.0
// Custom calls that the user's own functions compute, through backends/ffi: their arrays in the
// memory order that the call asks for, and results in the memory of operands. Internal.
#pragma once

#include <vector>

#include "backends/reference/datum.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

// UNIMPLEMENTED, INVALID_ARGUMENT: as ffi::check_call, and layouts or aliases that do not fit.
Status check_user_call(const ir::Operation& op);

// The call passed check_user_call. Operands and results are handed over as they are, contiguous and
// row-major, but for those with another layout, which are transposed before and after. A result
// that is an operand's alias begins with a copy of it, or in its memory where nobody else reads it.
// FAILED_PRECONDITION: options.calls is null.
Result<std::vector<Datum>> execute_user_call(const ir::Operation& op, std::vector<Datum>& operands,
                                             const EvaluateOptions& options);

}  // namespace hekla::reference
