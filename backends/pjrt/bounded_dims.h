// SPDX-License-Identifier: Apache-2.0
// Dimensions that have a bound in a program's parameters and results, and a size in each launch.
//
// Backends know arrays of fixed sizes alone, so what is compiled takes and gives such arrays at
// their bounds, and the sizes as scalars of their own behind all others. What lies beyond a size is
// zero. Pure.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"

namespace hekla::pjrt {

// A scalar s32 of what is compiled: the size of a dimension of a parameter or result.
struct BoundedDim {
  size_t array = 0;
  size_t dim = 0;
  bool operator==(const BoundedDim&) const = default;
};

// In the order of arrays and dimensions. UNIMPLEMENTED: a dimension without a bound.
Result<std::vector<BoundedDim>> bounded_dims(const std::vector<ir::Type>& types,
                                             std::string_view what);

// The type with bounds for sizes.
ir::Type at_its_bounds(const ir::Type& type);

// Gives the entry parameters and results as backends know them; `module` has no tuples there.
void expose_sizes(ir::Module& module, const std::vector<BoundedDim>& parameters,
                  const std::vector<BoundedDim>& results);

}  // namespace hekla::pjrt
