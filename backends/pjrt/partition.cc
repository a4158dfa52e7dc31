// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/partition.h"

#include <utility>

#include "backends/compiler/spmd/partition_program.h"
#include "backends/pjrt/partitioners.h"
#include "runtime/program/ir/device_groups.h"

namespace hekla::pjrt {
namespace {

using sharding::HloSharding;
using Kind = HloSharding::Kind;

bool has_collectives(const ir::Module& module) {
  bool found = false;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      found = found || (ir::is_collective(op.code()) && !ir::is_host_transfer(op));
    });
  }
  return found;
}

}  // namespace

Result<PartitionedProgram> partition(std::shared_ptr<const ir::Module> module,
                                     const CompileOptions& options,
                                     const spmd::PartitionSchedule& schedule) {
  PartitionedProgram program;
  program.has_collectives = has_collectives(*module);
  program.host_channels = host_channels(*module);
  if (options.partition_count == 1 || !options.use_spmd_partitioning) {
    const ir::Function& entry = *module->entry();
    HloSharding all;
    all.kind = options.partition_count == 1 ? Kind::kReplicated : Kind::kManual;
    for (const ir::Type& type : entry.type.elements()) {
      program.parameters.resize(program.parameters.size() + spmd::array_count(type), all);
    }
    for (const ir::Type& type : entry.type.results()) {
      program.results.resize(program.results.size() + spmd::array_count(type), all);
    }
    program.module = std::move(module);
    return program;
  }
  HEKLA_ASSIGN_OR_RETURN(
      spmd::OneDeviceProgram made,
      spmd::partition_program(
          *module, {options.replica_count, options.partition_count, options.may_choose_parameters,
                    options.may_choose_results, schedule, nullptr, find_partitioner}));
  program.module = std::move(made.module);
  program.parameters = std::move(made.parameters);
  program.results = std::move(made.results);
  program.has_collectives = has_collectives(*program.module);
  program.has_custom_partitions = made.has_custom_partitions;
  return program;
}

PartitionedProgram partitioned_already(std::shared_ptr<const ir::Module> module) {
  PartitionedProgram program;
  program.has_collectives = has_collectives(*module);
  program.has_custom_partitions = true;
  program.host_channels = host_channels(*module);
  program.module = std::move(module);
  return program;
}

}  // namespace hekla::pjrt
