// SPDX-License-Identifier: Apache-2.0
#include "runtime/program/ir/verify_sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/text.h"

namespace hekla::ir {
namespace {

using sharding::HloSharding;
using sharding::ManualAxes;
using sharding::ShardingList;
using sharding::TensorSharding;

// The value of an attribute of Shardy's, if it is of type T.
template <typename T>
const T* shardy(const Attribute& attribute) {
  const auto* value = attribute.get<ShardingValue>();
  return value == nullptr ? nullptr : std::get_if<T>(&value->value);
}

// Errors: another rank than the type's. What is no ranked tensor has no dimension to cut.
Status check_rank(const HloSharding& sharding, const Type& type) {
  if (sharding.kind != HloSharding::Kind::kTiled || !type.is_tensor()) return ok_status();
  const size_t rank = sharding.tile_dims.size() - sharding.subgroups.size();
  if (rank == type.dims().size()) return ok_status();
  return invalid_argument("a sharding of {} dimensions for a tensor of {}", rank,
                          type.dims().size());
}

Status check_hlo(const Attribute& attribute, const std::vector<Type>& types) {
  Result<HloSharding> read = hlo_sharding_of(attribute);
  // What only newer writers make is for those to refuse who have to act on it.
  if (read.status().code() == StatusCode::kUnimplemented) return ok_status();
  HEKLA_RETURN_IF_ERROR(read.status());
  HEKLA_RETURN_IF_ERROR(sharding::check(*read));
  const std::vector<Type> leaves = flat_types(types);
  const bool is_tuple = read->kind == HloSharding::Kind::kTuple;
  if (is_tuple && read->elements.size() != leaves.size()) {
    return invalid_argument("{} shardings for {} arrays", read->elements.size(), leaves.size());
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    HEKLA_RETURN_IF_ERROR(check_rank(is_tuple ? read->elements[i] : *read, leaves[i]));
  }
  return ok_status();
}

// As it was read; in quotes where it could not be.
std::string hlo_text(const Attribute& attribute) {
  if (const auto* typed = attribute.get<HloShardingValue>()) return to_text(typed->value);
  const auto* text = attribute.get<StringValue>();
  return text == nullptr ? "" : sharding::quoted(text->value);
}

std::string problem(std::string_view name, const std::string& text, const Type& type,
                    const Status& status) {
  return fmt::format("{} {} does not fit {}: {}", name, text, type.to_string(), status.message());
}

}  // namespace

ShardingVerifier::ShardingVerifier(const Module& module) : module_(module) {
  for (const Mesh& mesh : module.meshes) meshes_.try_emplace(mesh.name, &mesh.value);
}

const sharding::Mesh* ShardingVerifier::mesh_of(const TensorSharding& sharding) const {
  const std::string* name = sharding.mesh_name();
  if (name == nullptr) return sharding.inline_mesh();
  const auto it = meshes_.find(*name);
  return it == meshes_.end() ? nullptr : it->second;
}

Status ShardingVerifier::check(const TensorSharding& sharding, const Type& type) const {
  const sharding::Mesh* mesh = mesh_of(sharding);
  if (mesh == nullptr) {
    return invalid_argument("the module has no mesh @{}", *sharding.mesh_name());
  }
  if (type.kind() == Type::Kind::kUnrankedTensor) {
    return sharding::check(sharding, *mesh, sharding.dimensions.size());
  }
  return sharding::check(sharding, *mesh, type.is_tensor() ? type.dims().size() : 0);
}

void ShardingVerifier::check_meshes(const Report& report) const {
  for (const Mesh& mesh : module_.meshes) {
    if (meshes_.at(mesh.name) != &mesh.value) {
      report(fmt::format("mesh @{} is defined twice", mesh.name));
    }
    if (const Status status = sharding::check(mesh.value); !status.ok()) {
      report(fmt::format("mesh @{}: {}", mesh.name, status.message()));
    }
  }
}

void ShardingVerifier::check_map(const AttributeMap& attributes, const Type& type,
                                 const std::string& what, const Report& report) const {
  if (const Attribute& attribute = attributes.get("sdy.sharding")) {
    const auto* sharding = shardy<TensorSharding>(attribute);
    if (sharding == nullptr) {
      report(what + ": its sdy.sharding is no tensor's");
    } else if (const Status status = check(*sharding, type); !status.ok()) {
      report(what + ": " + problem("sdy.sharding", to_text(*sharding), type, status));
    }
  }
  if (const Attribute& attribute = attributes.get("mhlo.sharding")) {
    if (const Status status = check_hlo(attribute, {type}); !status.ok()) {
      report(what + ": " + problem("mhlo.sharding", hlo_text(attribute), type, status));
    }
  }
}

void ShardingVerifier::check_function(const Function& function, const Report& report) const {
  const auto check_all = [&](const std::vector<AttributeMap>& maps, const std::vector<Type>& types,
                             std::string_view what) {
    for (size_t i = 0; i < std::min(maps.size(), types.size()); ++i) {
      if (maps[i].empty()) continue;
      check_map(maps[i], types[i], fmt::format("function @{}, {} {}", function.name(), what, i),
                report);
    }
  };
  check_all(function.argument_attributes, function.type.elements(), "argument");
  check_all(function.result_attributes, function.type.results(), "result");
}

void ShardingVerifier::check_list(const ShardingList& list, const std::vector<Type>& types,
                                  std::string_view name, std::string_view what,
                                  const Report& report) const {
  if (list.values.size() != types.size()) {
    report(fmt::format("{} has {} shardings for {} {}s", name, list.values.size(), types.size(),
                       what));
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (const Status status = check(list.values[i], types[i]); !status.ok()) {
      report(fmt::format("{} {}: ", what, i) +
             problem(name, to_text(list.values[i]), types[i], status));
    }
  }
}

void ShardingVerifier::check_manual(const Operation& op, const Report& report) const {
  const auto* axes = shardy<ManualAxes>(op.attribute("manual_axes"));
  const auto* in = shardy<ShardingList>(op.attribute("in_shardings"));
  const auto* out = shardy<ShardingList>(op.attribute("out_shardings"));
  if (axes == nullptr || in == nullptr || out == nullptr) {
    report("needs in_shardings, out_shardings and manual_axes");
    return;
  }
  // What one device has of a tensor inside: dimensions are cut by the manual axes alone.
  const auto check_local = [&](const TensorSharding& sharding, const Type& global,
                               const Type& local, std::string_view what, size_t i) {
    const sharding::Mesh* mesh = mesh_of(sharding);
    if (!check(sharding, global).ok()) return;  // is reported
    if (const Status status = sharding::check(*axes, *mesh);
        !status.ok() && !mesh->is_maximal() && !mesh->axes.empty()) {
      report(fmt::format("{} {}: {}", what, i, status.message()));
      return;
    }
    if (!global.is_tensor() || !local.is_tensor() || mesh->is_maximal()) return;
    bool fits = global.dims().size() == local.dims().size();
    for (size_t d = 0; fits && d < global.dims().size(); ++d) {
      if (global.dims()[d] == kDynamic || local.dims()[d] == kDynamic) continue;
      std::vector<sharding::AxisRef> manual = sharding.dimensions[d].axes;
      std::erase_if(manual, [&](const sharding::AxisRef& ref) {
        return std::find(axes->names.begin(), axes->names.end(), ref.name) == axes->names.end();
      });
      const int64_t parts = sharding::part_count(manual, *mesh);
      fits = local.dims()[d] == sharding::block_of(global.dims()[d], parts, 0).size;
    }
    if (!fits) {
      report(fmt::format("{} {} is {} inside, which is not {} cut by the manual axes {} of {}",
                         what, i, local.to_string(), global.to_string(), to_text(*axes),
                         to_text(sharding)));
    }
  };
  if (op.region_count() != 1 || op.region(0).empty()) return;  // is reported elsewhere
  const Block& body = op.region(0).front();
  if (body.argument_count() != op.operand_count()) {
    report(fmt::format("its region takes {} values, not {}", body.argument_count(),
                       op.operand_count()));
    return;
  }
  for (size_t i = 0; i < std::min(in->values.size(), op.operand_count()); ++i) {
    check_local(in->values[i], op.operand(i)->type(), body.argument(i)->type(), "operand", i);
  }
  const Operation* end = body.terminator();
  if (end == nullptr || end->operand_count() != op.result_count()) {
    report(fmt::format("its region must return {} values", op.result_count()));
    return;
  }
  for (size_t i = 0; i < std::min(out->values.size(), op.result_count()); ++i) {
    check_local(out->values[i], op.result(i)->type(), end->operand(i)->type(), "result", i);
  }
}

void ShardingVerifier::check_operation(const Operation& op, const Report& report) const {
  const bool is_manual = op.code() == OpCode::kSdyManualComputation;
  for (const auto& [name, attribute] : op.attributes()) {
    if (const auto* list = shardy<ShardingList>(attribute)) {
      // What gives nothing back may still be said to run on one device.
      if (op.result_count() == 0 && list->values.size() == 1 && check(list->values[0], {}).ok()) {
        continue;
      }
      const bool is_in = name == "in_shardings";
      std::vector<Type> types = op.result_types();
      if (is_in) {
        types.clear();
        for (const Value* operand : op.operands()) types.push_back(operand->type());
      }
      check_list(*list, types, name, is_in ? "operand" : "result", report);
    } else if (const auto* sharding = shardy<TensorSharding>(attribute)) {
      for (size_t i = 0; i < op.result_count(); ++i) {
        const Type& type = op.result(i)->type();
        if (const Status status = check(*sharding, type); !status.ok()) {
          report(problem(name, to_text(*sharding), type, status));
        }
      }
    } else if (name == "mhlo.sharding" && op.result_count() > 0) {
      if (const Status status = check_hlo(attribute, op.result_types()); !status.ok()) {
        report(problem(name, hlo_text(attribute), op.result()->type(), status));
      }
    }
  }
  if (is_manual) check_manual(op, report);
}

}  // namespace hekla::ir
