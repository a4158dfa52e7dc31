// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/program_mesh.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/compiler/spmd/manual.h"
#include "backends/compiler/spmd/marks.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/convert.h"

namespace hekla::spmd {

using sharding::HloSharding;

namespace {

// Every sharding that the program says, but inside of manual computations.
Status collect_shardings(const ir::Region& region, const ir::Module& module,
                         std::vector<HloSharding>& found) {
  for (const auto& block : region.blocks()) {
    for (const auto& op : block->operations()) {
      if (const ir::Attribute& given = op->attribute(kBorder)) {
        HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, ir::hlo_sharding_of(given));
        found.push_back(std::move(sharding));
      }
      if (op->code() == ir::OpCode::kSdyManualComputation) {
        const auto add = [&](const char* name, size_t k, const ir::Type& type) -> Status {
          if (!type.is_static_tensor()) return ok_status();
          HEKLA_ASSIGN_OR_RETURN(ManualBorder border,
                                 manual_border(*op, name, k, type.dims().size(), module));
          found.push_back(std::move(border.own));
          return ok_status();
        };
        for (size_t k = 0; k < op->operand_count(); ++k) {
          HEKLA_RETURN_IF_ERROR(add("in_shardings", k, op->operand(k)->type()));
        }
        for (size_t k = 0; k < op->result_count(); ++k) {
          HEKLA_RETURN_IF_ERROR(add("out_shardings", k, op->result(k)->type()));
        }
        continue;
      }
      for (size_t r = 0; r < op->region_count(); ++r) {
        HEKLA_RETURN_IF_ERROR(collect_shardings(op->region(r), module, found));
      }
    }
  }
  return ok_status();
}

}  // namespace

Result<std::optional<PrimeMesh>> mesh_of_program(const ir::Module& module, const Layout& layout) {
  std::vector<HloSharding> shardings;
  for (const auto* list : {&layout.parameters, &layout.results}) {
    for (const std::optional<HloSharding>& one : *list) {
      if (one) shardings.push_back(*one);
    }
  }
  HEKLA_RETURN_IF_ERROR(collect_shardings(module.entry()->body(), module, shardings));
  std::erase_if(shardings, [](const HloSharding& sharding) {
    return sharding.kind != HloSharding::Kind::kTiled ||
           std::find(sharding.subgroups.begin(), sharding.subgroups.end(),
                     HloSharding::Kind::kManual) != sharding.subgroups.end();
  });
  for (const ir::Mesh& one : module.meshes) {
    if (one.value.is_maximal() || device_count(one.value) != layout.partitions) continue;
    PrimeMesh mesh(one.value);
    const bool fits = std::all_of(shardings.begin(), shardings.end(), [&](const HloSharding& s) {
      return mesh.tiling_of(s, s.tile_dims.size() - s.subgroups.size()).ok();
    });
    if (fits) return std::optional<PrimeMesh>(std::move(mesh));
  }
  Result<sharding::Mesh> common = sharding::common_mesh(shardings, layout.partitions);
  if (!common.ok()) return std::optional<PrimeMesh>();
  return std::optional<PrimeMesh>(PrimeMesh(*std::move(common)));
}

}  // namespace hekla::spmd
