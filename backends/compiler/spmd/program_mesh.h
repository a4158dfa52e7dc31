// SPDX-License-Identifier: Apache-2.0
// The mesh that a whole program is over. Of this folder alone; pure.
#pragma once

#include <optional>

#include "backends/compiler/spmd/one_device.h"
#include "backends/compiler/spmd/tiling.h"

namespace hekla::spmd {

// The module's where all shardings are by its axes, else one that they have in common; none where
// they have not. `module` has marks (marks.h) and no calls. Errors are manual_border's.
Result<std::optional<PrimeMesh>> mesh_of_program(const ir::Module& module, const Layout& layout);

}  // namespace hekla::spmd
