// SPDX-License-Identifier: Apache-2.0
// Groups of devices by the axes of a mesh: StableHLO's replica_group_mesh_axes.
//
//   #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>
//
// Devices whose positions differ along the axes alone are one group, in the order of their index
// along the axes, the first axis being the major one. Pure; errors are INVALID_ARGUMENT.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/program/sharding/sharding.h"
#include "runtime/program/sharding/text.h"

namespace hekla::sharding {

struct MeshAxes {
  // The symbol of a mesh of the module, or the mesh itself.
  std::variant<std::string, Mesh> mesh;
  std::vector<AxisRef> axes;
  bool operator==(const MeshAxes&) const = default;
};

std::string to_text(const MeshAxes& axes);
// Time is linear and nothing recurses. Meaning is not checked.
Result<MeshAxes> parse_mesh_axes(std::string_view text, TextError* error = nullptr);

// `mesh` is what the axes' mesh stands for. Errors: those of the mesh, axes that it lacks or that
// overlap.
Result<std::vector<std::vector<int64_t>>> device_groups(const std::vector<AxisRef>& axes,
                                                        const Mesh& mesh);

}  // namespace hekla::sharding
