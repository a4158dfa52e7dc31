// SPDX-License-Identifier: Apache-2.0
// partition_program: what a program says about its arrays, read and held to its meshes, and the
// program of one device that it makes (one_device.h).
//
// Pure but for one_device.h's lines in the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/compiler/spmd/custom_partitioner.h"
#include "backends/compiler/spmd/partition_schedule.h"
#include "backends/compiler/spmd/sharding_trace.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

struct PartitionOptions {
  int64_t replicas = 1;
  int64_t partitions = 1;
  // Whether the shardings that the program leaves out are chosen here: per flat parameter and
  // result, or one for all; empty: no, these are replicated.
  std::vector<bool> may_choose_parameters, may_choose_results;
  PartitionSchedule schedule = {};
  // Filled where it is there: how arrays lie and why collectives are there. Nothing where nothing
  // is cut.
  ShardingTrace* trace = nullptr;
  // For custom calls that the client partitions; without one they are refused.
  FindCustomPartitioner custom = {};
};

struct OneDeviceProgram {
  std::shared_ptr<const ir::Module> module;
  // Of the flat parameters and results, in the shapes of the program over all partitions.
  std::vector<sharding::HloSharding> parameters, results;
  PartitionCounts counts;
  // Whether functions of the client's made a part of it: the program that it was made of does not
  // say all of what it is.
  bool has_custom_partitions = false;
};

// `module` is verified and has an entry. Where nothing is cut the program stays what it is. Else
// partition_id may stand in manual computations alone: elsewhere results that clients take for
// equal would differ. A transfer with the host may be one partition's (maximal): it tells the
// others what it receives. UNIMPLEMENTED: arrays on one partition alone, parts of tuples;
// INVALID_ARGUMENT: shardings that do not fit their meshes or tensors, groups by axes that there
// are not.
Result<OneDeviceProgram> partition_program(const ir::Module& module,
                                           const PartitionOptions& options);

// Groups by the axes of a mesh become lists of partitions: programs of one device have no mesh.
Status list_groups(ir::Module& module);

// How many flat parameters or results a type stands for.
size_t array_count(const ir::Type& type);

}  // namespace hekla::spmd
