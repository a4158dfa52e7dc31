// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/manual.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/text.h"

namespace hekla::spmd {

using sharding::TensorSharding;

namespace {

const sharding::Attribute* attribute_of(const ir::Operation& op, const char* name) {
  const auto* value = op.attribute(name).get<ir::ShardingValue>();
  return value == nullptr ? nullptr : &value->value;
}

const sharding::ManualAxes* manual_axes(const ir::Operation& op) {
  const sharding::Attribute* axes = attribute_of(op, "manual_axes");
  return axes == nullptr ? nullptr : std::get_if<sharding::ManualAxes>(axes);
}

// The manual axes by the mesh's numbers: those that cut the dimensions of an array with one
// dimension an axis. None where the operation has no arrays or the mesh other axes.
Result<std::optional<Axes>> axes_of(const ir::Operation& op, const PrimeMesh& mesh,
                                    const ir::Module& module) {
  const std::optional<Axes> unknown;
  const sharding::ManualAxes* manual = manual_axes(op);
  if (manual == nullptr) return unknown;
  for (const char* name : {"in_shardings", "out_shardings"}) {
    const auto* list = std::get_if<sharding::ShardingList>(attribute_of(op, name));
    if (list == nullptr || list->values.empty()) continue;
    TensorSharding sample;
    sample.mesh = list->values.front().mesh;
    for (const std::string& axis : manual->names) {
      sample.dimensions.push_back({{{axis, {}}}, false, {}});
    }
    const sharding::Mesh* own = ir::mesh_of(sample, module);
    if (own == nullptr || own->is_maximal()) return unknown;
    const size_t rank = sample.dimensions.size();
    HEKLA_ASSIGN_OR_RETURN(const sharding::HloSharding all, sharding::to_hlo(sample, *own, rank));
    const Result<Tiling> tiling = mesh.tiling_of(all, rank);
    if (!tiling.ok()) return unknown;
    Axes axes;
    for (const Axes& one : tiling->dims) axes.insert(axes.end(), one.begin(), one.end());
    return std::optional<Axes>(std::move(axes));
  }
  return unknown;
}

}  // namespace

Result<ManualBorder> manual_border(const ir::Operation& op, const char* name, size_t k, size_t rank,
                                   const ir::Module& module) {
  const sharding::Attribute* shardings = attribute_of(op, name);
  const sharding::ManualAxes* axes = manual_axes(op);
  const auto* list =
      shardings == nullptr ? nullptr : std::get_if<sharding::ShardingList>(shardings);
  if (list == nullptr || axes == nullptr || k >= list->values.size()) {
    return invalid_argument("{} has no {} for array {}", where(op), name, k);
  }
  TensorSharding given = list->values[k];
  const sharding::Mesh* mesh = ir::mesh_of(given, module);
  if (mesh == nullptr) return invalid_argument("{}: {} names no mesh", where(op), to_text(given));
  if (mesh->is_maximal()) {
    return unimplemented("{}: {} {}: arrays on one partition alone are not there", where(op), name,
                         to_text(given));
  }
  const auto is_free = [&](const sharding::AxisRef& axis) {
    return !contains(axes->names, axis.name);
  };
  ManualBorder border;
  given.replicated.clear();
  std::erase_if(given.unreduced, is_free);
  for (sharding::DimensionSharding& dimension : given.dimensions) {
    border.open.push_back(dimension.is_open);
    dimension.is_open = false;
    dimension.priority.reset();
  }
  border.open.resize(rank, false);
  HEKLA_ASSIGN_OR_RETURN(border.all, sharding::to_hlo(given, *mesh, rank));
  for (sharding::DimensionSharding& dimension : given.dimensions) {
    std::erase_if(dimension.axes, is_free);
  }
  HEKLA_ASSIGN_OR_RETURN(border.own, sharding::to_hlo(given, *mesh, rank));
  return border;
}

Result<std::optional<Manual>> manual_of(const ir::Operation& op, const PrimeMesh& mesh,
                                        const ir::Module& module) {
  const std::optional<Manual> unknown;
  Manual manual;
  const auto add = [&](const char* name, size_t k, const ir::Type& type,
                       std::vector<Tiling>& tilings) -> Result<bool> {
    tilings.emplace_back();
    if (!type.is_static_tensor()) return true;
    const size_t rank = type.dims().size();
    HEKLA_ASSIGN_OR_RETURN(const ManualBorder border, manual_border(op, name, k, rank, module));
    Result<Tiling> own = mesh.tiling_of(border.own, rank);
    const Result<Tiling> all = mesh.tiling_of(border.all, rank);
    // Blocks inside of blocks that are padded are no blocks of the whole.
    if (!own.ok() || !all.ok() || !tiling_inside(*own, *all) || !is_even(mesh, *own, type.dims())) {
      return false;
    }
    tilings.back() = *std::move(own);
    return true;
  };
  for (size_t k = 0; k < op.operand_count(); ++k) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_known,
                           add("in_shardings", k, op.operand(k)->type(), manual.in));
    if (!is_known) return unknown;
  }
  for (size_t k = 0; k < op.result_count(); ++k) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_known,
                           add("out_shardings", k, op.result(k)->type(), manual.out));
    if (!is_known) return unknown;
  }
  Result<std::optional<Axes>> axes = axes_of(op, mesh, module);
  HEKLA_RETURN_IF_ERROR(axes.status());
  if (!*axes) return unknown;
  manual.axes = **std::move(axes);
  return std::optional<Manual>(std::move(manual));
}

Tiling joined_tiling(const Tiling& border, const Tiling& inside) {
  Tiling joined = border;
  for (size_t d = 0; d < joined.dims.size(); ++d) {
    joined.dims[d].insert(joined.dims[d].end(), inside.dims[d].begin(), inside.dims[d].end());
  }
  joined.partial.insert(joined.partial.end(), inside.partial.begin(), inside.partial.end());
  std::sort(joined.partial.begin(), joined.partial.end());
  return joined;
}

std::optional<Tiling> tiling_inside(const Tiling& border, const Tiling& outside) {
  Tiling inside = outside;
  for (size_t d = 0; d < inside.dims.size(); ++d) {
    const Axes& begin = border.dims[d];
    Axes& axes = inside.dims[d];
    if (axes.size() < begin.size() || !std::equal(begin.begin(), begin.end(), axes.begin())) {
      return std::nullopt;
    }
    axes.erase(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(begin.size()));
  }
  for (int axis : border.partial) {
    if (!contains(inside.partial, axis)) return std::nullopt;
    std::erase(inside.partial, axis);
  }
  return inside;
}

}  // namespace hekla::spmd
