// SPDX-License-Identifier: Apache-2.0
// Operations between a whole array and its parts, and from parts to other parts, put in front of an
// operation of the program that each device runs.
//
// One object a program; one thread. Operands must have the shapes that the cut or the tiling says.
// Padding of parts may hold anything, before and after.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "backends/compiler/spmd/cut.h"
#include "backends/compiler/spmd/halo.h"
#include "backends/compiler/spmd/reshard_plan.h"
#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

class Resharder {
 public:
  // `mesh` outlives it. Null where the program's shardings have no mesh in common: its arrays are
  // gathered and taken apart, and what speaks of tilings and axes may not be called.
  Resharder(int64_t replicas, int64_t partitions, const PrimeMesh* mesh = nullptr)
      : replicas_(replicas), partitions_(partitions), mesh_(mesh), planner_(mesh) {}

  // The array of shape `whole` whose parts the partitions hold: one all_gather for each dimension
  // that is cut, a slice where its last blocks are padded, an all_reduce of partial sums.
  ir::Value* gather(ir::GraphBuilder& g, ir::Value* part, const Cut& cut, const Dims& whole);
  // What this partition holds of an array that each has whole; zeros in the padding. Of partial
  // sums the first is the array, the others are zeros.
  ir::Value* take_part(ir::GraphBuilder& g, ir::Value* whole, const Cut& cut);

  // From a part to the part by another cut whose blocks are the same and lie on other partitions:
  // one collective_permute. Null where the blocks are others, or not on as many partitions.
  // Partitions that hold the same block must hold the same elements.
  ir::Value* permute(ir::GraphBuilder& g, ir::Value* part, const Cut& from, const Cut& to);

  // From a part of an array of shape `whole` to the part by another tiling, as ReshardPlanner says.
  ir::Value* reshard(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                     const Dims& whole);
  // What reshard would make each device send, in bytes on average.
  double reshard_bytes(const Tiling& from, const Tiling& to, const Dims& whole, DType dtype);

  // A part with what `read` says instead of its block (halo.h); outside of the array stands `fill`,
  // a scalar, or anything where that is null, as where nobody looks.
  ir::Value* read(ir::GraphBuilder& g, ir::Value* part, const HaloRead& read, ir::Value* fill);
  // The same of an array that the dimension does not cut: moves nothing.
  ir::Value* read_whole(ir::GraphBuilder& g, ir::Value* value, const HaloRead& read,
                        ir::Value* fill);
  // `fill`, a scalar, wherever what was read lies outside of the array.
  ir::Value* fill_outside(ir::GraphBuilder& g, ir::Value* value, const HaloRead& read,
                          ir::Value* fill) const;
  // What `read` would make each device send of a part of this shape, in bytes on average.
  static double read_bytes(const HaloRead& read, const Dims& local, DType dtype);

  // Each element of `value` folded by `code`, a binary operation, over the devices that differ in
  // `axes` alone: an all_reduce.
  ir::Value* combine(ir::GraphBuilder& g, ir::Value* value, const Axes& axes, ir::OpCode code);
  ir::Value* sum_over(ir::GraphBuilder& g, ir::Value* part, const Axes& axes) {
    return combine(g, part, axes, ir::OpCode::kAdd);
  }
  // What the partition with the next part along `axes` has, round about: a collective_permute.
  ir::Value* of_next_part(ir::GraphBuilder& g, ir::Value* value, const Axes& axes);
  // Where this partition's part begins along a dimension that `axes` cut into parts of `size`
  // elements: an i64 scalar.
  ir::Value* start_of_part(ir::GraphBuilder& g, const Axes& axes, int64_t size) const;

  // This partition's number of a list by part along `axes`: an i64 scalar.
  ir::Value* number_of_part(ir::GraphBuilder& g, const Axes& axes,
                            const std::vector<int64_t>& by_part) const;

  // This partition's number of a table by partition, an i64 scalar.
  ir::Value* own_number(ir::GraphBuilder& g, const std::vector<int64_t>& by_partition) const;

  // The collectives made here whose results nobody uses go; whether there were any.
  bool erase_unused();
  // Those that are left, in the order in which they were made.
  const std::vector<ir::Operation*>& collectives() const { return collectives_; }
  // Bytes that a device sends by those that are left, loops counted once.
  int64_t gathered_bytes() const;

 private:
  using Groups = std::vector<std::vector<int64_t>>;  // of partitions, in order

  // Zeros behind each dimension, up to `dims`; elements cut off behind each dimension.
  static ir::Value* pad_to(ir::GraphBuilder& g, ir::Value* value, const Dims& dims);
  static ir::Value* cut_to(ir::GraphBuilder& g, ir::Value* value, const Dims& dims);

  ir::Operation* collective(ir::GraphBuilder& g, ir::OpCode code, ir::Value* value,
                            const Groups& groups, const ir::Type& type, ir::AttributeMap attributes,
                            const ir::GraphBuilder::Body& body = {});
  ir::Value* all_gather(ir::GraphBuilder& g, ir::Value* value, const Groups& groups,
                        size_t dimension);
  ir::Value* all_to_all(ir::GraphBuilder& g, ir::Value* value, const Groups& groups, size_t split,
                        size_t concat);

  // Steps of a plan (reshard_steps.cc): from a part by `from` to the part by `to`.
  ir::Value* slice(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                   const Dims& whole);
  ir::Value* permute(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to);
  ir::Value* exchange(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                      const Dims& whole);
  ir::Value* gather_axes(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                         const Dims& whole);
  ir::Value* reduce_scatter(ir::GraphBuilder& g, ir::Value* part, const Tiling& from,
                            const Tiling& to, const Dims& whole);
  ir::Value* place(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to,
                   const Dims& whole);
  ir::Value* keep_first(ir::GraphBuilder& g, ir::Value* part, const Tiling& from, const Tiling& to);

  // Rounds of a halo's plan (reshard_halo.cc).
  ir::Value* receive(ir::GraphBuilder& g, ir::Value* part, const HaloRead& read,
                     const HaloPlan::Round& round);
  ir::Value* read_uniform(ir::GraphBuilder& g, ir::Value* part, const HaloRead& read,
                          const HaloPlan& plan);
  ir::Value* read_others(ir::GraphBuilder& g, ir::Value* part, const HaloRead& read,
                         const HaloPlan& plan);

  const int64_t replicas_, partitions_;
  const PrimeMesh* mesh_;
  ReshardPlanner planner_;
  int64_t next_channel_ = int64_t{1} << 32;  // above the numbers that clients give
  std::vector<ir::Operation*> collectives_;
  // What rounds brought: windows over one array may read the same borders. By array, dimension,
  // axes, and the round's length and transfers.
  using Received =
      std::tuple<const ir::Value*, size_t, Axes, int64_t, std::vector<std::array<int64_t, 3>>>;
  std::map<Received, std::vector<ir::Value*>> received_;
};

}  // namespace hekla::spmd
