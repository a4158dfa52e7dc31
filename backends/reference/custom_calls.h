// SPDX-License-Identifier: Apache-2.0
// Custom calls that the evaluator knows by name, and StableHLO's own assertions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/reference/datum.h"
#include "backends/reference/evaluator.h"
#include "runtime/program/ir/ir.h"

namespace hekla::reference {

// Whether execute_custom_call runs this call; UNIMPLEMENTED in words when not.
Status check_custom_call(const ir::Operation& op);

// Whether it is one that a function of the user's must compute: user_calls.h. No function takes a
// name that the evaluator knows itself.
bool is_user_call(const ir::Operation& op);

// The custom call ApproxTopK, which needs a comparator function and so runs in the interpreter:
// n inputs and n values for padding; the n results hold the best along `dimension`.
struct ApproxTopK {
  std::string comparator;
  int64_t dimension = -1;
};
bool is_approx_top_k(const ir::Operation& op);
// The call passed check_custom_call.
ApproxTopK approx_top_k_of(const ir::Operation& op);

// Annotations (Sharding, annotate_device_placement ...) are identity; Qr and
// ProductOfElementaryHouseholderReflectors, mhlo.erf and its kin, mhlo.topk,
// shape_assertion and check.* are computed. FAILED_PRECONDITION: an assertion does not hold.
// Calls of LAPACK's kind: lapack_calls.h, with options.for_each. The user's: user_calls.h.
Result<std::vector<Datum>> execute_custom_call(const ir::Operation& op,
                                               std::vector<Datum>& operands,
                                               const EvaluateOptions& options);

// Whether the evaluator computes this composite itself, with the C library in double, and not by
// its decomposition, which would be the same formula for the oracle as for the sender: chlo.erf of
// floats. Then execute_composite does.
bool is_known_composite(const ir::Operation& op);
Result<std::vector<Datum>> execute_composite(const ir::Operation& op,
                                             const std::vector<Datum>& operands);

// The `check` dialect: expect_eq, expect_eq_const, expect_almost_eq, expect_almost_eq_const,
// expect_close. FAILED_PRECONDITION with the first differing element, both values and the place.
Result<std::vector<Datum>> execute_check(const ir::Operation& op, std::vector<Datum>& operands);

}  // namespace hekla::reference
