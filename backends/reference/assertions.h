// SPDX-License-Identifier: Apache-2.0
// StableHLO's own assertions, as operations of the `check` dialect or as custom calls of that name.
#pragma once

#include <string_view>
#include <vector>

#include "backends/reference/datum.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

// "check.expect_eq", "check.expect_eq_const", "check.expect_almost_eq",
// "check.expect_almost_eq_const", "check.expect_close", with or without the dialect's name.
bool is_assertion(std::string_view name);

// expect_eq: equal, NaN equals NaN; expect_almost_eq: |difference| <= tolerance (attribute
// `tolerance`, 1e-4 when absent), NaN and infinities must match; expect_close: at most
// `max_ulp_difference` (3 when absent) and at least `min_ulp_difference` units in the last place.
// The expected value is operand 1 or the attribute `value`. No results.
Result<std::vector<Datum>> run_assertion(std::string_view name, const ir::Operation& op,
                                         const std::vector<Datum>& operands);

}  // namespace hekla::reference
