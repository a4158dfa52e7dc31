// SPDX-License-Identifier: Apache-2.0
// Cutting a stored box into tiles, so that a later mesh that cuts other dimensions reads parts of
// it instead of all. Pure functions; a piece of save planning.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::checkpoint {

// '*' matches any characters, '?' one; time is the product of the lengths at worst.
bool matches(std::string_view name, std::string_view pattern);

// The largest size of a tile in each dimension (0: not cut); empty: no tiles. From the first hint
// that matches; else, with options.tile_by_spec, for tensors cut in another dimension than the
// first one that is not 1: their longest dimensions are halved until a tile has less than twice
// options.min_tile_bytes.
Dims choose_tile(const TensorInfo& info, const HeldBoxes& boxes, const SaveOptions& options);

// The box cut into a grid of equal tiles (but for rounding) of at most `tile` elements in each
// dimension, or fewer and larger ones so that none is below `min_bytes` but for rounding. Row
// major. The box alone where nothing is to be cut.
std::vector<Box> cut_into_tiles(const Box& box, const Dims& tile, DType dtype, int64_t min_bytes);

}  // namespace hekla::checkpoint
