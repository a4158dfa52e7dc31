// SPDX-License-Identifier: Apache-2.0
// trip_count: how often a counted loop runs. Pure.
#pragma once

#include <cstdint>

#include "runtime/program/ir/ir.h"

namespace hekla::passes {

// How often the body of a `while` runs when a carried integer scalar starts at a constant, is
// compared with one that stays constant and changes by a constant each time, as JAX's fori_loop and
// scan write it. -1: not of this form, or the counter wraps before the end.
int64_t trip_count(const ir::Operation& loop);

}  // namespace hekla::passes
