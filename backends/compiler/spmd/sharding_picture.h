// SPDX-License-Identifier: Apache-2.0
// A picture of how arrays lie on the devices of a partitioned program, as an SVG document:
// `hekla compile PROGRAM --emit sharding-picture`.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "backends/compiler/spmd/sharding_trace.h"

namespace hekla::spmd {

// One panel for each array of the trace that is cut and lies otherwise than the one before it on
// its line: a grid of blocks with the devices that hold each, colored by the first of them. The
// last dimension that is cut runs to the right, the others, major to minor, downward. At most
// kMostPanels are drawn; a line says how many are not.
inline constexpr size_t kMostPanels = 200;
std::string to_svg(const ShardingTrace& trace);

}  // namespace hekla::spmd
