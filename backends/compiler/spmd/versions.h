// SPDX-License-Identifier: Apache-2.0
// Versions: the values of the program over all partitions as the program of one device has them:
// whole, in parts, or both. What is asked for and not there is made where the value is at home, so
// once for all who use it, in front of a loop where the value comes from outside.
//
// One object a program; one thread. Operations are appended to blocks: the block of a value must
// still be growing when a version of it is asked for.
#pragma once

#include <memory>
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

// Computes values once more, from their operands.
class Recomputer {
 public:
  virtual ~Recomputer() = default;
  // Bytes that a device sends to compute the operation's result in such parts, all of them whole
  // among these; infinite where it cannot be.
  virtual double bytes(ir::Operation& op, const Tiling& tiling) = 0;
  // Appends what does so; the result's versions have it afterwards.
  virtual Status compute(ir::Operation& op, const Tiling& tiling, ir::Block& block) = 0;
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

  // `value` is `other`: whatever one is at hand as, the other is, now and later.
  void alias(const ir::Value* value, ir::Value* other) { entries_[value] = known_entry(other); }

  // Parts of values that set_maker names are computed once more where this sends less than getting
  // them of other parts; null: none is.
  void set_recomputer(Recomputer* recomputer) { recomputer_ = recomputer; }
  // `op`, whose result `value` is, gives the same bits in any parts. It keeps its operands.
  void set_maker(const ir::Value* value, ir::Operation& op) { entries_.at(value)->maker = &op; }

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
  // And to have the value so, in the cheapest way that there is; infinite where it is not at hand
  // in any tiling.
  double bytes(const ir::Value* value, const Tiling& to);

 private:
  struct Entry {
    ir::Type type;
    ir::Value* whole = nullptr;
    std::vector<Parts> parts;
    ir::Operation* maker = nullptr;
  };
  using EntryRef = std::shared_ptr<Entry>;

  const EntryRef& known_entry(ir::Value* value);
  Entry& entry_of(ir::Value* value) { return *known_entry(value); }
  // The entry that `value` has or gets.
  Entry& own_entry(const ir::Value* value);
  // Of all that is at hand.
  double reshard_bytes(const Entry& entry, const Tiling& to);
  // What computing it once more sends; infinite where it cannot be.
  double recompute_bytes(const Entry& entry, const Tiling& to);
  // Computes it once more if this sends less than `bytes`, or as much: what operands are sent for
  // may serve others. Whether it did.
  Result<bool> recompute(Entry& entry, const Tiling& tiling, double bytes);
  // The same elements everywhere, or numbers along a dimension: made in parts as they are. Null for
  // other values.
  Result<ir::Value*> part_of_pattern(ir::Value* value, const Tiling& tiling);

  Resharder& resharder_;
  const PrimeMesh* mesh_;
  Recomputer* recomputer_ = nullptr;
  // Of one question for bytes: operations that it goes back over, and those that it asked.
  int depth_ = 0, asked_ = 0;
  int computing_ = 0;  // operations once more, each for the one before
  ir::LocationRef location_;
  std::unordered_map<const ir::Value*, EntryRef> entries_;
};

}  // namespace hekla::spmd
