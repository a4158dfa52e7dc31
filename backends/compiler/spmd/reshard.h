// SPDX-License-Identifier: Apache-2.0
// Operations between a whole array and its parts, put in front of an operation of the program that
// each device runs.
//
// One object a program; one thread. Operands must have the shapes that the cut says.
#pragma once

#include <vector>

#include "backends/compiler/spmd/cut.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

class Resharder {
 public:
  Resharder(int64_t replicas, int64_t partitions) : replicas_(replicas), partitions_(partitions) {}

  // The array of shape `whole` whose parts the partitions hold: one all_gather for each dimension
  // that is cut, a slice where its last blocks are padded, an all_reduce of partial sums.
  ir::Value* gather(ir::GraphBuilder& g, ir::Value* part, const Cut& cut, const Dims& whole);
  // What this partition holds of an array that each has whole; zeros in the padding. Of partial
  // sums the first is the array, the others are zeros.
  ir::Value* take_part(ir::GraphBuilder& g, ir::Value* whole, const Cut& cut);

  // The collectives made here whose results nobody uses go; whether there were any.
  bool erase_unused();
  // Bytes that a device receives by those that are left, loops counted once.
  int64_t gathered_bytes() const;

 private:
  ir::Operation* collective(ir::GraphBuilder& g, ir::OpCode code, ir::Value* value,
                            const Cut::Dimension& dimension, const ir::Type& type,
                            ir::AttributeMap attributes);

  const int64_t replicas_, partitions_;
  int64_t next_channel_ = int64_t{1} << 32;  // above the numbers that clients give
  std::vector<ir::Operation*> collectives_;
};

}  // namespace hekla::spmd
