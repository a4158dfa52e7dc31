// SPDX-License-Identifier: Apache-2.0
// to_one_device: a program over all partitions becomes the one that each device runs.
//
// Operations outside of manual computations are computed in parts where their rules allow it and it
// moves no more bytes (op_cut.h), else whole on each device. Pure but for lines in the log; one
// thread a module.
#pragma once

#include <optional>
#include <vector>

#include "backends/compiler/spmd/custom_partitioner.h"
#include "backends/compiler/spmd/partition_schedule.h"
#include "backends/compiler/spmd/sharding_trace.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/ir.h"
#include "runtime/program/sharding/hlo_sharding.h"

namespace hekla::spmd {

struct Layout {
  int64_t replicas = 1;
  int64_t partitions = 1;
  // Of the entry's parameters and results; none: to be chosen here. Afterwards none is left.
  std::vector<std::optional<sharding::HloSharding>> parameters, results;
  FindCustomPartitioner custom;
  bool has_custom_partitions = false;  // afterwards: whether one was asked
  PartitionSchedule schedule;
  PartitionCounts counts;  // afterwards
  // Filled where it is there, which outlives the call.
  ShardingTrace* trace = nullptr;
};

// `module` is verified and over `layout.partitions` partitions, cut as `layout` says where that
// says something. Afterwards it is inlined, has no shardings, and its entry has the types of one
// device. Chosen shardings cut evenly. Errors leave a module that may only be destroyed:
// UNIMPLEMENTED, what arrays may not be (cut.h) and parts of tuples; INVALID_ARGUMENT, shardings
// that do not fit; passes::inline_calls' errors.
Status to_one_device(ir::Module& module, Layout& layout);

}  // namespace hekla::spmd
