// SPDX-License-Identifier: Apache-2.0
// The collectives through the memory of a group, as exchange.h has them through messages: with the
// same arguments, results to the bit and errors.
#pragma once

#include <vector>

#include "runtime/process_group/elements.h"
#include "runtime/process_group/shared_call.h"

namespace hekla::process_group {

Status shared_all_reduce(SharedCall& call, const Elements& out, const ConstElements& in,
                         const Reduction& by);
// `out` counts on the root alone.
Status shared_reduce(SharedCall& call, const Elements& out, const ConstElements& in, int root,
                     const Reduction& by);
Status shared_reduce_scatter(SharedCall& call, const Elements& out, const ConstElements& in,
                             const Reduction& by);
Status shared_moves(SharedCall& call, const std::vector<Elements>& out,
                    const std::vector<ConstElements>& in);
Status shared_barrier(SharedCall& call);

}  // namespace hekla::process_group
