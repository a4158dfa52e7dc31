// SPDX-License-Identifier: Apache-2.0
// ToOneDevice: the pass behind to_one_device (one_device.h). Of one_device*.cc alone.
//
// One object a module; one thread. one_device.cc: parameters, results and the order of things;
// one_device_given.cc: what the program says of its arrays; one_device_ops.cc: operations in parts
// or whole; one_device_manual.cc: manual computations; one_device_custom.cc: calls that clients
// partition.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/compiler/spmd/custom_partitioner.h"
#include "backends/compiler/spmd/cut.h"
#include "backends/compiler/spmd/local_op.h"
#include "backends/compiler/spmd/manual.h"
#include "backends/compiler/spmd/one_device.h"
#include "backends/compiler/spmd/propagate.h"
#include "backends/compiler/spmd/recompute.h"
#include "backends/compiler/spmd/reshard.h"
#include "backends/compiler/spmd/trace_lines.h"
#include "backends/compiler/spmd/versions.h"

namespace hekla::spmd {

using sharding::HloSharding;
using Operations = std::vector<std::unique_ptr<ir::Operation>>;

inline bool is_control_flow(const ir::Operation& op) {
  return op.code() == ir::OpCode::kWhile || op.code() == ir::OpCode::kCase ||
         op.code() == ir::OpCode::kIf;
}

// How an array is cut where a manual computation begins or ends.
struct Border {
  HloSharding sharding;
  Cut cut;
  std::optional<Tiling> tiling;
};

class ToOneDevice {
 public:
  ToOneDevice(ir::Module& module, Layout& layout, const PrimeMesh* mesh)
      : module_(module),
        layout_(layout),
        mesh_(mesh),
        resharder_(layout.replicas, layout.partitions, mesh),
        versions_(resharder_, mesh),
        trace_(layout.trace, resharder_, versions_, mesh) {
    if (mesh == nullptr) return;
    local_ops_.emplace(resharder_, versions_, *mesh, Reading::kByBytes, layout.schedule);
    recomputer_.emplace(*local_ops_, versions_, *mesh);
    if (layout.schedule.recompute) versions_.set_recomputer(&*recomputer_);
  }

  Status run();

 private:
  void log_wholes() const;
  // Users before what they use.
  void drop_replaced();
  // The sharding as the mesh says it and as a table.
  Result<Border> border(HloSharding sharding, size_t rank, const std::string& what) const;
  Result<ir::Value*> part(ir::Value* value, const Border& border);
  Tiling tiling_of(const ir::Value* value) const;
  // What may be told to clients of an array that they left open: whole axes, even parts.
  HloSharding choice(const Tiling& given, const Dims& dims) const;
  Status refuse_type(const std::string& what, const ir::Type& type,
                     const HloSharding& sharding) const;
  Status cut_parameters(ir::Block& block);
  Status cut_results(ir::Operation& end);
  // What propagation says of a value, also where it has become an array in parts.
  Tiling wanted_tiling(const ir::Value* value) const;
  void finish_attributes(ir::Function& entry) const;

  // --- one_device_given.cc ---

  // Where an array has to be cut in a way, a constraint in front says so: of given results and of
  // what manual computations take.
  Status mark_ends(ir::Block& block);
  Status mark_operands(ir::Block& block);
  Status mark_manual(ir::Operation& op);
  Status propagate_given(const ir::Block& block);
  // Nothing in the block may be cut by `manual_axes`.
  Status collect_given(const ir::Block& block, std::unordered_map<const ir::Value*, Given>& given,
                       const Axes& manual_axes) const;
  Status collect_given_of_manual(const ir::Operation& op,
                                 std::unordered_map<const ir::Value*, Given>& given,
                                 Axes manual_axes) const;

  // --- one_device_ops.cc ---

  // All operations of `from` but its end, which the caller gets with the operands that it had, are
  // appended to `to`, which may be the same.
  Result<std::unique_ptr<ir::Operation>> convert_block(ir::Block& from, ir::Block& to,
                                                       bool is_nested);
  // A block whose values stay whole.
  Status convert_whole(ir::Block& block);
  Status append_whole(std::unique_ptr<ir::Operation> op, ir::Block& block);
  Status convert_op(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested);
  Status convert_roll(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested);
  // Whether the operation is computed in parts; it is taken then.
  Result<bool> compute_in_parts(std::unique_ptr<ir::Operation>& op, ir::Block& block);
  // False. What is gathered for the operation is told with the reason.
  bool note_whole(const ir::Operation& op, const char* reason);
  // Whether the devices that a collective joins have the same part of its arrays, however those are
  // at hand or wanted.
  bool meets_own_parts(const ir::Operation& op, std::vector<Tiling> tilings) const;
  // The axes that a sum is left partial over, where all who use it are constraints that say so.
  Axes wanted_addends(const ir::Value& value) const;
  // The axes that a constraint leaves the value a partial sum over.
  Axes given_addends(const ir::Value* value) const;
  // An array that control flow carries: its parts have its place.
  void carry(ir::Value* value, const Tiling& tiling);
  Result<ir::Value*> carried(ir::Value* value, const Tiling& tiling);
  Status convert_control_flow(std::unique_ptr<ir::Operation> op, ir::Block& block);
  // In manual computations constraints stand in the bodies of scalars too and mean nothing.
  Status follow_constraint(std::unique_ptr<ir::Operation> op, bool is_nested);

  // --- one_device_manual.cc ---

  // The body takes the place of the operation.
  Status open_manual(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested);
  Result<Border> own_border(const ir::Operation& op, const char* name, size_t k,
                            const ir::Type& type) const;
  // `inside` is what `operand` is to a partition that has what `border` cuts for itself: at hand as
  // the operand is, as it is wanted inside, and not cut any further where this moves nothing.
  Status enter(const ir::Operation& op, ir::Value* operand, ir::Value* inside,
               const Tiling& border);
  // `result` is the array outside that the partitions' `inside` are parts of: at hand as that is.
  Status leave(const ir::Operation& op, ir::Value* inside, const ir::Value* result,
               const Tiling& border);
  // Copies of an array within a manual computation differ; which of them belong together, a mesh in
  // another order does not tell by their numbers.
  Status check_nested(const ir::Operation& op) const;
  static Status expect_type(const ir::Operation& op, const ir::Value& value, const ir::Type& type);
  static Status expect_type(const ir::Operation& op, const ir::Type& made, const ir::Type& type);
  // GSPMD's form: dimensions whose size changes are cut by what the array is cut by outside.
  Result<Border> border_between(const ir::Operation& op, const ir::Type& outer,
                                const ir::Type& local) const;
  Status cross_border(std::unique_ptr<ir::Operation> op, bool is_entry);

  // --- one_device_custom.cc ---

  // Whether the client partitions the operation itself.
  bool is_custom(const ir::Operation& op) const;
  // What its partitioner makes of it takes the place of the operation.
  Status convert_custom(std::unique_ptr<ir::Operation> op, ir::Block& block, bool is_nested);
  Result<CustomPartition> ask_partitioner(const ir::Operation& op, bool is_nested) const;
  // How an array of the operation should lie, in whole axes and even parts.
  Result<HloSharding> proposal(const ir::Operation& op, const ir::Value& value,
                               bool is_nested) const;
  Result<Border> border_of_custom(const ir::Operation& op, HloSharding sharding, size_t rank,
                                  bool is_nested) const;

  ir::Module& module_;
  Layout& layout_;
  const PrimeMesh* mesh_;
  Resharder resharder_;
  Versions versions_;
  std::optional<LocalOps> local_ops_;
  std::optional<OpRecomputer> recomputer_;
  TraceLines trace_;
  std::vector<std::string> wholes_;  // operations that gather their operands, and why
  Axes manual_axes_;                 // of the manual computations around
  Manuals manuals_;                  // those whose bodies are cut by the axes that are left free
  Tilings tilings_;
  // Operations whose results stand for what `versions_` knows, until nothing names them any more.
  Operations replaced_;
};

}  // namespace hekla::spmd
