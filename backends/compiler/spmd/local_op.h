// SPDX-License-Identifier: Apache-2.0
// Local operations: an operation on arrays that are cut becomes the same on their parts, with
// attributes of the parts' sizes, and collectives behind it where parts of a sum are summed.
//
// One object a program; one thread. Errors are the builder's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/compiler/spmd/local_window.h"
#include "backends/compiler/spmd/op_cut.h"
#include "backends/compiler/spmd/partition_schedule.h"
#include "backends/compiler/spmd/reshard.h"
#include "backends/compiler/spmd/versions.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// Whether `op` can be computed in parts of a factor of its rule; `is_even`: parts of equal size.
bool may_cut(const ir::Operation& op, const sharding::ShardingRule& rule, int64_t factor,
             bool is_even);

// How operands come of which an operation reads more than its part: as moves fewer bytes; or always
// in parts, whose neighbours send what is needed; or always whole.
enum class Reading : uint8_t { kByBytes, kFromNeighbours, kWhole };

struct RunningDimension;

// What an operation takes as a sum of what partitions hold.
struct Addends {
  Axes axes;                   // that are summed over; none: everything comes summed
  std::vector<bool> operands;  // which of them
  bool is_wanted = false;      // the result is asked for in addends, too
};

class LocalOps {
 public:
  LocalOps(Resharder& resharder, Versions& versions, const PrimeMesh& mesh,
           Reading reading = Reading::kByBytes, const PartitionSchedule& schedule = {})
      : resharder_(resharder),
        versions_(versions),
        mesh_(mesh),
        reading_(reading),
        schedule_(schedule) {}

  // Products computed around rings so far.
  int64_t ring_count() const { return rings_; }

  // What a device sends for operand i to be as `cut` needs it, its neighbours' elements included;
  // infinite where the operation cannot be computed so.
  double operand_bytes(const ir::Operation& op, const sharding::ShardingRule& rule,
                       const OpCut& cut, size_t operand, const Addends& addends = {});

  // Appends what computes `op`, which stands in no block, in parts as `cut` says. Its results are
  // known by `versions` afterwards, as near to `wanted` as costs nothing more. Regions move from
  // `op` to what is made.
  Status compute(ir::Operation& op, const sharding::ShardingRule& rule, const OpCut& cut,
                 const std::vector<Tiling>& wanted, ir::Block& block, const Addends& addends = {});

  // The operands at hand in addends of which `op` makes addends of its result (linear.h), where
  // these are wanted over the axes `wanted`, or the operands wait for it alone.
  Addends addends_of(const ir::Operation& op, const Axes& wanted, const ir::Block& block) const;

 private:
  struct Job;  // one call of compute
  // How an operand comes: in parts of which neighbours are read, or whole along all the dimensions
  // of which something is read.
  struct OperandWay {
    Tiling tiling;
    bool is_exchanged = true;
    double bytes = 0;
  };
  OperandWay way_of(const ir::Value* operand, const Tiling& tiling, const WindowReads& reads,
                    size_t number);

  Status take_operands(Job& job);
  void fill_blocks(Job& job);
  void begin_folds(Job& job);
  ir::Value* add_totals_before(Job& job, const RunningDimension& along, ir::Value* value);
  void go_over_windows(Job& job);
  void select_and_scatter(Job& job);
  void slice_dynamically(Job& job);
  ir::Value* spread_window(Job& job, const WindowRead& read, ir::Value* value, ir::Value* fill);
  void adapt_attributes(Job& job) const;
  void shift_indices(Job& job);
  void finish(Job& job);
  Tiling sum_kept(const Job& job, const Tiling& sum, bool is_widened) const;
  // local_ring.cc
  void find_gather_ring(Job& job) const;
  void find_scatter_ring(Job& job, const Tiling& sum, const Tiling& kept) const;
  bool pays(const Job& job, const Dims& piece, double sent_elements, int64_t steps) const;
  ir::Value* product(Job& job, const std::vector<ir::Value*>& operands, const Dims& dims) const;
  ir::Value* gather_around_ring(Job& job);
  ir::Value* scatter_around_ring(Job& job);

  Resharder& resharder_;
  Versions& versions_;
  const PrimeMesh& mesh_;
  const Reading reading_;
  const PartitionSchedule schedule_;
  int64_t rings_ = 0;
};

}  // namespace hekla::spmd
