// SPDX-License-Identifier: Apache-2.0
// Collectives of a group of several hosts with several ranks on each, so that a byte crosses from
// host to host once and not once for each pair of ranks.
//
// Reductions: elements are cut into lanes, which the ranks of each host share among them. A lane is
// folded on the first host, goes on to the next one as partials (reduction.h), and so on; the last
// host has the result, which goes back the same way or to whom it is for. So ranks are folded from
// the left as everywhere, which is why the ranks of a host must follow each other. Lanes go in
// pieces, so all hosts are at work at once; over each link go the partials one way and the results
// the other, as many bytes as a ring of hosts would move.
// Broadcasts and gathers: a rank sends what all get to one rank of each other host, its proxy
// there, which passes it on.
//
// Bits and errors are those of the direct ways (exchange.h). Used by the thread of the member that
// runs the call.
#pragma once

#include <vector>

#include "runtime/process_group/elements.h"
#include "runtime/process_group/exchange.h"

namespace hekla::process_group {

// The group's layout has levels; that of reductions is in rows.
Status hierarchical_all_reduce(Exchange& exchange, const Elements& out, const ConstElements& in,
                               const Reduction& by);
// `out` counts on the root alone.
Status hierarchical_reduce(Exchange& exchange, const Elements& out, const ConstElements& in,
                           int root, const Reduction& by);
Status hierarchical_reduce_scatter(Exchange& exchange, const Elements& out, const ConstElements& in,
                                   const Reduction& by);
// What rank p has for all comes into out[p], which is empty where that is nothing or is not wanted
// (the rank's own).
Status hierarchical_spread(Exchange& exchange, const std::vector<Elements>& out,
                           const ConstElements& in);

}  // namespace hekla::process_group
