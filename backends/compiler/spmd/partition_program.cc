// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/partition_program.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "backends/compiler/spmd/arrange_collectives.h"
#include "backends/compiler/spmd/one_device.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/ir/verify.h"
#include "runtime/program/sharding/convert.h"
#include "runtime/program/sharding/text.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::HloSharding;
using sharding::TensorSharding;
using Kind = HloSharding::Kind;

namespace {

// The partition that alone meets the host; none: each does.
Result<std::optional<int64_t>> host_partition(const ir::Operation& op, const ir::Module& module) {
  constexpr std::optional<int64_t> kEach;
  if (const ir::Attribute& given = op.attribute("mhlo.sharding")) {
    HEKLA_ASSIGN_OR_RETURN(HloSharding sharding, ir::hlo_sharding_of(given));
    if (sharding.kind == Kind::kTuple && !sharding.elements.empty()) {
      sharding = HloSharding(sharding.elements.front());
    }
    HEKLA_RETURN_IF_ERROR(sharding::check(sharding));
    if (sharding.kind == Kind::kMaximal) return std::optional(sharding.devices.front());
    if (sharding.kind == Kind::kReplicated || sharding.kind == Kind::kManual) return kEach;
    return unimplemented("a transfer with the host that is cut: {}", to_text(sharding));
  }
  const auto* value = op.attribute("sdy.sharding").get<ir::ShardingValue>();
  if (value == nullptr) return kEach;
  const auto* list = std::get_if<sharding::ShardingList>(&value->value);
  const auto* one = std::get_if<TensorSharding>(&value->value);
  if (list != nullptr && !list->values.empty()) one = &list->values.front();
  if (one == nullptr) return kEach;
  const sharding::Mesh* mesh = ir::mesh_of(*one, module);
  if (mesh != nullptr && mesh->is_maximal()) return std::optional(mesh->device_ids.front());
  for (const sharding::DimensionSharding& dimension : one->dimensions) {
    if (!dimension.axes.empty()) {
      return unimplemented("a transfer with the host that is cut: {}", to_text(*one));
    }
  }
  return kEach;
}

// Transfers of one partition alone say which (kHostPartition); what it receives goes to all.
Status place_host_transfers(ir::Region& region, const ir::Module& module, int64_t partitions) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block->operations()) operations.push_back(op.get());
    for (size_t i = 0; i < operations.size(); ++i) {
      ir::Operation& op = *operations[i];
      for (size_t r = 0; r < op.region_count(); ++r) {
        HEKLA_RETURN_IF_ERROR(place_host_transfers(op.region(r), module, partitions));
      }
      if (!ir::is_host_transfer(op)) continue;
      HEKLA_ASSIGN_OR_RETURN(const std::optional<int64_t> only, host_partition(op, module));
      op.attributes().erase("mhlo.sharding");
      op.attributes().erase("sdy.sharding");
      if (!only) continue;
      op.attributes().set(ir::kHostPartition,
                          ir::IntegerValue{ir::Type::scalar(DType::kI64), *only});
      HostArray group(DType::kI64, {1, partitions});
      int64_t* ids = group.mutable_as<int64_t>();
      *ids++ = *only;
      for (int64_t partition = 0; partition < partitions; ++partition) {
        if (partition != *only) *ids++ = partition;
      }
      for (size_t r = 0; r + 1 < op.result_count(); ++r) {
        ir::AttributeMap attributes;
        attributes.set("replica_groups",
                       ir::make_dense(ir::Type::tensor(DType::kI64, {1, partitions}), group));
        const auto* channel = op.attribute("channel_handle").get<ir::ChannelHandle>();
        attributes.set("channel_handle", ir::ChannelHandle{channel->handle, 0});
        auto broadcast = std::make_unique<ir::Operation>(
            OpCode::kCollectiveBroadcast, std::vector<ir::Value*>{},
            std::vector<ir::Type>{op.result(r)->type()}, std::move(attributes), op.location());
        ir::Operation* placed = block->insert_before(operations[i + 1], std::move(broadcast));
        op.result(r)->replace_all_uses_with(placed->result());
        placed->set_operands({op.result(r)});
      }
    }
  }
  return ok_status();
}

// What a program says about its arrays, read and held to its meshes.
class ProgramShardings {
 public:
  ProgramShardings(const ir::Module& module, int64_t partitions)
      : module_(module), partitions_(partitions) {
    for (const auto& function : module.functions) {
      ir::walk(function->body(), [&](const ir::Operation& op) {
        const std::string target = ir::text_value(op, "call_target_name");
        // A region without operands has an end alone.
        has_gspmd_regions_ |= target == "SPMDFullToShardShape" || target == "SPMDShardToFullShape";
        has_custom_calls_ |= target == kCustomPartitioning;
      });
    }
  }

  // One for each flat array; none where nothing is said.
  Result<std::vector<std::optional<HloSharding>>> read(
      const std::vector<ir::Type>& types, const std::vector<ir::AttributeMap>& attributes,
      std::string_view what) {
    std::vector<std::optional<HloSharding>> flat;
    for (size_t i = 0; i < types.size(); ++i) {
      const std::string name = fmt::format("{} {}", what, i);
      std::vector<HloSharding> shardings;
      if (i < attributes.size()) {
        Result<std::vector<HloSharding>> given = read(attributes[i], types[i], name);
        HEKLA_RETURN_IF_ERROR(given.status());
        shardings = *std::move(given);
      }
      const size_t leaves = array_count(types[i]);
      if (shardings.size() == 1) shardings.resize(leaves, shardings.front());
      if (!shardings.empty() && shardings.size() != leaves) {
        return invalid_argument("{} has {} shardings for {} arrays", name, shardings.size(),
                                leaves);
      }
      flat.insert(flat.end(), shardings.begin(), shardings.end());
      if (shardings.empty()) flat.resize(flat.size() + leaves);
    }
    return flat;
  }

  // Everything that runs when `function` does.
  Status check(const ir::Function& function, bool is_manual) {
    if (!visited_.emplace(&function, is_manual).second) return ok_status();
    return check(function.body(), is_manual);
  }

  // Of all that was read: whether any array is anything but replicated.
  bool cut_something() const { return cut_something_; }
  // Operations that the client partitions itself.
  bool has_custom_calls() const { return has_custom_calls_; }

 private:
  // Nothing for an attribute that is not there; one for each element of a tuple.
  Result<std::vector<HloSharding>> read(const ir::AttributeMap& attributes, const ir::Type& type,
                                        const std::string& what) {
    std::vector<HloSharding> found;
    if (const auto* value = attributes.get("sdy.sharding").get<ir::ShardingValue>()) {
      const auto* tensor = std::get_if<TensorSharding>(&value->value);
      if (tensor == nullptr) return invalid_argument("{}: its sdy.sharding is no tensor's", what);
      const size_t rank = type.is_static_tensor() ? type.dims().size() : 0;
      Result<HloSharding> converted = read(*tensor, rank, what);
      HEKLA_RETURN_IF_ERROR(converted.status());
      found.push_back(*std::move(converted));
    }
    if (const ir::Attribute& given = attributes.get("mhlo.sharding")) {
      Result<HloSharding> read = ir::hlo_sharding_of(given);
      if (!read.ok()) return read.status().with_context(what);
      HloSharding& whole = *read;
      if (whole.kind == Kind::kTuple) {
        found = whole.elements;
      } else {
        found = {std::move(whole)};
      }
      for (HloSharding& one : found) {
        HEKLA_RETURN_IF_ERROR(sharding::check(one).with_context(what));
        one = sharding::canonical(std::move(one));
        cut_something_ |= one.kind != Kind::kReplicated;
      }
    }
    return found;
  }

  Result<HloSharding> read(const TensorSharding& given, size_t rank, const std::string& what) {
    const sharding::Mesh* mesh = ir::mesh_of(given, module_);
    if (mesh == nullptr) {
      return invalid_argument("{}: the sharding {} names a mesh that there is not", what,
                              to_text(given));
    }
    Result<HloSharding> hlo = sharding::to_hlo(given, *mesh, rank);
    if (!hlo.ok()) return hlo.status().with_context(what);
    cut_something_ |= hlo->kind != Kind::kReplicated;
    return hlo;
  }

  Status check(const ir::Region& region, bool is_manual) {
    for (const auto& block : region.blocks()) {
      for (const auto& op : block->operations()) {
        if (Status status = check(*op, is_manual); !status.ok()) return status;
      }
    }
    return ok_status();
  }

  Status check(const ir::Operation& op, bool is_manual) {
    const auto what = [&] {
      return fmt::format("{} at {}", op.name(), ir::location_string(op.location()));
    };
    if (ir::is_host_transfer(op)) {
      const Result<std::optional<int64_t>> partition = host_partition(op, module_);
      HEKLA_RETURN_IF_ERROR(partition.status().with_context(what()));
      if (*partition && **partition >= partitions_) {
        return invalid_argument("{} is partition {}'s, of {}", what(), **partition, partitions_);
      }
      return ok_status();
    }
    if (op.code() == OpCode::kPartitionId && !is_manual && !has_gspmd_regions_) {
      return unimplemented(
          "{}: outside of a manual computation the partitions' results would differ where clients "
          "take them for equal. A program of one device, sent with use_spmd_partitioning off, may "
          "use it anywhere",
          what());
    }
    // Constraints in manual computations stand in the bodies of scalars too and mean nothing there.
    for (const auto& [name, attribute] : op.attributes()) {
      if (const auto* value = attribute.get<ir::ShardingValue>()) {
        if (const auto* one = std::get_if<TensorSharding>(&value->value)) {
          HEKLA_RETURN_IF_ERROR(read(*one, one->dimensions.size(), what()).status());
        } else if (const auto* list = std::get_if<sharding::ShardingList>(&value->value)) {
          for (const TensorSharding& each : list->values) {
            HEKLA_RETURN_IF_ERROR(read(each, each.dimensions.size(), what()).status());
          }
        }
      } else if (name == "mhlo.sharding") {
        HEKLA_RETURN_IF_ERROR(read(op.attributes(), ir::Type(), what()).status());
      } else if (const auto* symbol = attribute.get<ir::SymbolValue>()) {
        const ir::Function* called = module_.find(symbol->root);
        if (called != nullptr) HEKLA_RETURN_IF_ERROR(check(*called, is_manual));
      }
    }
    const bool inner = is_manual || op.code() == OpCode::kSdyManualComputation;
    for (size_t i = 0; i < op.region_count(); ++i) {
      HEKLA_RETURN_IF_ERROR(check(op.region(i), inner));
    }
    return ok_status();
  }

  const ir::Module& module_;
  const int64_t partitions_;
  bool has_gspmd_regions_ = false;  // where partition_id may stand is then not known by regions
  bool has_custom_calls_ = false;
  bool cut_something_ = false;
  std::set<std::pair<const ir::Function*, bool>> visited_;
};

// The same program over meshes of one device: what is cut by no axis stays what it is.
Result<std::shared_ptr<const ir::Module>> on_one_device(const ir::Module& module,
                                                        const PartitionOptions& options,
                                                        PartitionCounts& counts) {
  std::unique_ptr<ir::Module> local = ir::clone_module(module);
  HEKLA_RETURN_IF_ERROR(list_groups(*local));
  for (const auto& function : local->functions) {
    HEKLA_RETURN_IF_ERROR(place_host_transfers(function->body(), *local, options.partitions));
  }
  for (ir::Mesh& mesh : local->meshes) {
    for (sharding::Axis& axis : mesh.value.axes) axis.size = 1;
    if (!mesh.value.is_maximal()) mesh.value.device_ids.clear();
  }
  arrange_collectives(*local, options.schedule, counts);
  return std::shared_ptr<const ir::Module>(std::move(local));
}

// What the client left out and does not leave to the compiler is replicated.
void settle(std::vector<std::optional<HloSharding>>& shardings,
            const std::vector<bool>& may_choose) {
  for (size_t i = 0; i < shardings.size(); ++i) {
    const bool is_open =
        may_choose.size() == 1 ? may_choose[0] : i < may_choose.size() && may_choose[i];
    if (!shardings[i] && !is_open) shardings[i] = HloSharding();
  }
}

Result<std::shared_ptr<const ir::Module>> cut_arrays(const ir::Module& module, Layout& layout) {
  const ir::Function& entry = *module.entry();
  if (layout.parameters.size() != entry.type.elements().size() ||
      layout.results.size() != entry.type.results().size()) {
    return unimplemented(
        "the entry @{} of a program over {} partitions whose arrays are cut has tuples as "
        "parameters or results; send their elements one by one",
        entry.name(), layout.partitions);
  }
  std::unique_ptr<ir::Module> local = ir::clone_module(module);
  HEKLA_RETURN_IF_ERROR(list_groups(*local));
  for (const auto& function : local->functions) {
    HEKLA_RETURN_IF_ERROR(place_host_transfers(function->body(), *local, layout.partitions));
  }
  HEKLA_RETURN_IF_ERROR(to_one_device(*local, layout));
  arrange_collectives(*local, layout.schedule, layout.counts);
  // Its programs are those of one device.
  local->meshes.clear();
  local->attributes.erase("mhlo.num_partitions");
  if (const Status status = ir::verify(*local); !status.ok()) {
    return internal_error("the program of one device is wrong: {}", status.message());
  }
  return std::shared_ptr<const ir::Module>(std::move(local));
}

}  // namespace

Status list_groups(ir::Module& module) {
  Status status;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](ir::Operation& op) {
      const auto* axes = op.attribute("replica_groups").get<ir::MeshAxesValue>();
      if (axes == nullptr || !status.ok()) return;
      Result<ir::Attribute> groups = ir::groups_as_matrix(axes->value, module.meshes);
      if (!groups.ok()) {
        const std::string where = ir::location_string(op.location());
        status =
            groups.status().with_context(fmt::format("{} at {}: replica_groups", op.name(), where));
        return;
      }
      op.attributes().set("replica_groups", *std::move(groups));
    });
  }
  return status;
}

size_t array_count(const ir::Type& type) {
  if (!type.is_tuple()) return 1;
  size_t count = 0;
  for (const ir::Type& element : type.elements()) count += array_count(element);
  return count;
}

Result<OneDeviceProgram> partition_program(const ir::Module& module,
                                           const PartitionOptions& options) {
  const ir::Function& entry = *module.entry();
  ProgramShardings shardings(module, options.partitions);
  Layout layout;
  layout.replicas = options.replicas;
  layout.partitions = options.partitions;
  layout.schedule = options.schedule;
  layout.trace = options.trace;
  layout.custom = options.custom;
  HEKLA_ASSIGN_OR_RETURN(layout.parameters, shardings.read(entry.type.elements(),
                                                           entry.argument_attributes, "parameter"));
  HEKLA_ASSIGN_OR_RETURN(layout.results,
                         shardings.read(entry.type.results(), entry.result_attributes, "result"));
  HEKLA_RETURN_IF_ERROR(shardings.check(entry, /*is_manual=*/false));
  OneDeviceProgram program;
  if (shardings.cut_something() || shardings.has_custom_calls()) {
    settle(layout.parameters, options.may_choose_parameters);
    settle(layout.results, options.may_choose_results);
    HEKLA_ASSIGN_OR_RETURN(program.module, cut_arrays(module, layout));
  } else {
    HEKLA_ASSIGN_OR_RETURN(program.module, on_one_device(module, options, layout.counts));
  }
  const auto whole = [](const std::optional<HloSharding>& one) {
    return one.value_or(HloSharding());
  };
  std::transform(layout.parameters.begin(), layout.parameters.end(),
                 std::back_inserter(program.parameters), whole);
  std::transform(layout.results.begin(), layout.results.end(), std::back_inserter(program.results),
                 whole);
  program.counts = layout.counts;
  program.has_custom_partitions = layout.has_custom_partitions;
  return program;
}

}  // namespace hekla::spmd
