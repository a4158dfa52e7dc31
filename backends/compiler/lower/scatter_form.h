// SPDX-License-Identifier: Apache-2.0
// ScatterForm: what a scatter's numbers say about where its updates go.
//
// The operand's dimensions are batch, free (a window covers them: no part of where an update goes)
// or keyed. An entry is an index vector with, where windows do not cover keyed dimensions, a place
// in the window; it stands for `free` updates side by side. Used by one thread while it builds a
// kernel; the operation must live as long.
#pragma once

#include <vector>

#include "backends/compiler/lower/kernel_maker.h"
#include "backends/compiler/lower/lower.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

class ScatterForm {
 public:
  // A dimension of the operand.
  struct Dim {
    int64_t update_dim = -1;  // of its window
    int64_t window = 1;
    bool is_free = false;
  };
  // One index vector and a place in its window.
  struct Entry {
    std::vector<Value> scatter;  // by scatter dimension of the updates
    std::vector<Value> offsets;  // by dimension of the operand
  };
  // Where an entry goes: by dimension of the operand, 0 in free ones; nowhere when not inside.
  struct Destination {
    std::vector<Value> dims;
    Value is_inside = kernel::kNoValue;
  };

  // `op`: a scatter of static tensors.
  // `in_memory` is asked while it is made.
  ScatterForm(const ir::Operation& op, const InMemory& in_memory);

  // How many operands are updated together.
  size_t count() const { return count_; }
  const Dims& shape() const { return shape_; }
  const std::vector<Dim>& dims() const { return dims_; }
  int64_t vectors() const { return vectors_; }  // index vectors, those of all batches
  int64_t offsets() const { return offsets_; }  // places in windows that move
  int64_t entries() const { return vectors_ * offsets_; }
  int64_t free() const { return free_; }  // elements of a window along free dimensions
  int64_t keys() const { return keys_; }  // places that an entry may go to
  // An index that none of a kernel's is above.
  int64_t largest() const { return largest_; }
  // By scatter dimension: how many index vectors there are along it, and whether each batch has
  // its own.
  std::vector<int64_t> scatter_sizes() const;
  std::vector<bool> scatter_batches() const;

  // Why no kernel does it; a scatter whose updates are of another dtype.
  Status check() const;
  // The place in windows of number `offset`, below offsets(), by dimension of the operand.
  std::vector<Value> offsets_at(KernelMaker& k, Value offset) const;
  // Place `number`, below free(), in the free dimensions; 0 in the others.
  std::vector<Value> free_at(KernelMaker& k, Value number) const;
  Destination destination_of(KernelMaker& k, const Entry& entry) const;
  // The update of an entry that is at `free`, see free_at.
  Point source_of(KernelMaker& k, const Entry& entry, const std::vector<Value>& free) const;
  // The reducer on what is there (`sums`) and the updates at `source`. The operation fails in the
  // emitter when it has no scalar form.
  Elements add(KernelMaker& k, const Elements& sums, const Point& source) const;

 private:
  // Where a window begins in a dimension of the operand; a place below 0 or beyond the end when it
  // is not inside. `where`: the component of the index vector.
  Value start_of(KernelMaker& k, const Point& where, size_t dim) const;

  const ir::Operation& op_;
  const ir::ScatterDimensionNumbers& n_;
  const size_t count_;
  const Dims& shape_;
  const ir::Value& indices_;
  const Dims& update_;
  std::vector<size_t> scatter_dims_;  // of the updates: those that count index vectors
  std::vector<size_t> index_dims_;    // of the indices: the ones they follow
  std::vector<Dim> dims_;
  int64_t vectors_ = 1;
  int64_t offsets_ = 1;
  int64_t free_ = 1;
  int64_t keys_ = 1;
  int64_t largest_ = 1;
};

// Splits `v` into parts below these sizes, the last one fastest.
std::vector<Value> split_index(KernelMaker& k, Value v, const std::vector<int64_t>& sizes);

}  // namespace hekla::lower
