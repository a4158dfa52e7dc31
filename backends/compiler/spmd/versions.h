// SPDX-License-Identifier: Apache-2.0
// Versions: the values of the program over all partitions as the program of one device has them:
// whole, in parts, or both. What is asked for and not there is made where the value is at home, so
// once for all who use it, in front of a loop where the value comes from outside.
//
// One object a program; one thread. Operations are appended to blocks: the block of a value must
// still be growing when a version of it is asked for.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/compiler/spmd/reshard.h"
#include "backends/compiler/spmd/tiling.h"
#include "runtime/program/ir/ir.h"

namespace hekla::spmd {

// An array in parts. The tiling is there when axes of the program's mesh say what the cut does.
struct Parts {
  Cut cut;
  std::optional<Tiling> tiling;
  ir::Value* value = nullptr;
};

class Versions {
 public:
  // `mesh` may be null: no tilings then.
  Versions(Resharder& resharder, const PrimeMesh* mesh) : resharder_(resharder), mesh_(mesh) {}

  // Where the next operations come from.
  void set_location(ir::LocationRef location) { location_ = std::move(location); }

  // `value`, of type `whole` in the program over all partitions, is at hand in parts; what nothing
  // is said of is whole, as itself.
  void add(const ir::Value* value, const ir::Type& whole, Parts parts);
  // `value` is `other`.
  void set_whole(const ir::Value* value, const ir::Type& type, ir::Value* other);

  // `value` is whatever `other` is at hand as.
  void copy(const ir::Value* value, ir::Value* other) { entries_[value] = entry_of(other); }

  const ir::Type& type(const ir::Value* value) const;
  // Whether it is at hand whole.
  bool is_whole(const ir::Value* value) const;
  // Whether it comes from outside of the block: what is made of it alone is made there, once.
  bool is_from_outside(const ir::Value* value, const ir::Block& block) const;
  // The tilings that it is at hand in, a replicated one where it is whole.
  std::vector<Tiling> tilings(const ir::Value* value) const;

  // In whole; errors are the builder's.
  Result<ir::Value*> whole(ir::Value* value);
  Result<ir::Value*> part(ir::Value* value, const Tiling& tiling);
  // `copies_agree`: partitions that hold the same block hold the same elements, as they do outside
  // of manual computations, so that any of them may send it.
  Result<ir::Value*> part(ir::Value* value, const Cut& cut, bool copies_agree = false);

  // Bytes that a device sends to get one tiling of an array from another.
  double bytes(const Tiling& from, const Tiling& to, const ir::Type& whole);

 private:
  struct Entry {
    ir::Type type;
    ir::Value* whole = nullptr;
    std::vector<Parts> parts;
  };

  Entry& entry_of(ir::Value* value);
  // The same elements everywhere, or numbers along a dimension: made in parts as they are. Null for
  // other values.
  Result<ir::Value*> part_of_pattern(ir::Value* value, const Tiling& tiling);

  Resharder& resharder_;
  const PrimeMesh* mesh_;
  ir::LocationRef location_;
  std::unordered_map<const ir::Value*, Entry> entries_;
};

}  // namespace hekla::spmd
