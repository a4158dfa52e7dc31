// SPDX-License-Identifier: Apache-2.0
// partition: from a client's program over all partitions to the program of one.
//
// Between reading and describing: what comes after sees parameters, results and operations of one
// device, and how the client's arrays are cut. compiler/spmd makes the one program of the other.
// Pure.
#pragma once

#include <memory>
#include <vector>

#include "backends/compiler/spmd/partition_schedule.h"
#include "backends/pjrt/compile_options.h"
#include "backends/pjrt/host_callbacks.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::pjrt {

struct PartitionedProgram {
  std::shared_ptr<const ir::Module> module;  // of one device
  // Devices send to each other, or groups of them meet.
  bool has_collectives = false;
  // Functions of the client's made a part of it: what it sent does not say all of what it is.
  bool has_custom_partitions = false;
  HostChannels host_channels;
  // Of the flat parameters and results, in the client's shapes.
  std::vector<sharding::HloSharding> parameters, results;
};

// `module` is verified and has an entry. With one partition it stays as it is. Without
// use_spmd_partitioning it is the program of one device already, whose arrays are nobody's parts
// (manual). Else spmd::partition_program makes it; its errors.
Result<PartitionedProgram> partition(std::shared_ptr<const ir::Module> module,
                                     const CompileOptions& options,
                                     const spmd::PartitionSchedule& schedule = {});
// Of a module that `partition` gave with custom partitions: all but its shardings.
PartitionedProgram partitioned_already(std::shared_ptr<const ir::Module> module);

}  // namespace hekla::pjrt
