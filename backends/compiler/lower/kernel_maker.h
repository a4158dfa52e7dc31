// SPDX-License-Identifier: Apache-2.0
// KernelMaker: one kernel of a sequence, written by hand over values and temporaries.
//
// Operations that become several kernels (sequence.h) build each with one: a grid, places in the
// grid, loads and stores. Values that are not in memory are computed inside, as in any kernel. Used
// by one thread, and once: `finish` ends it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/compiler/lower/emitter.h"
#include "backends/compiler/lower/lower.h"

namespace hekla::lower {

using InMemory = std::function<bool(const ir::Value&)>;

// Temporary memory of a sequence: dense elements of one dtype.
struct Temporary {
  int32_t index = 0;
  DType dtype = DType::kF32;
  int64_t elements = 0;
};
// Adds one to the sequence.
Temporary add_temporary(LoweredSequence& sequence, DType dtype, int64_t elements);

// Constant memory of a sequence.
struct Table {
  int32_t index = 0;
  DType dtype = DType::kF32;
  int64_t elements = 0;
};
Table add_table(LoweredSequence& sequence, HostArray values);
// One number, for kernels that differ by it alone.
Table add_index_table(LoweredSequence& sequence, DType dtype, int64_t number);

class KernelMaker {
 public:
  // `grid`: outermost first, without zeros; dimensions of size 1 cost nothing. `largest`: an index
  // that nothing the kernel computes is above, which decides the type of indices.
  KernelMaker(std::string name, const std::vector<int64_t>& grid, int64_t largest,
              const InMemory& in_memory);
  KernelMaker(const KernelMaker&) = delete;
  KernelMaker& operator=(const KernelMaker&) = delete;

  Builder& b() { return b_; }
  Emitter& emitter() { return emitter_; }
  Value index(int64_t value) { return b_.index(value); }
  // The index in dimension `dim` of `grid`.
  Value at(size_t dim) const { return indices_[dim]; }
  size_t rank() const { return indices_.size(); }
  // The dtype that indices have as elements.
  DType index_dtype() const;

  // What the point of the team along `dim` has whose index there is this one's XOR `distance`.
  Element from_team(const Element& e, size_t dim, int64_t distance);
  // Memory that points of the team along `dim` share, which does not have size 1.
  kernel::TeamMemory team_memory(size_t dim, int64_t words) {
    return {dimensions_[dim], arrays_++, static_cast<uint32_t>(words)};
  }

  // The smaller of two indices, as signed numbers.
  Value smaller(Value x, Value y);
  Value at_most(Value x, int64_t limit) { return smaller(x, index(limit)); }
  // One of two lists of elements.
  Elements choose(Value condition, const Elements& if_true, const Elements& if_false);

  Element load(const Temporary& from, Value element);
  Element load(const Table& from, Value element);
  void store(const Temporary& to, Value element, const Element& value);
  // An element of the result, which the kernel need not write as a whole.
  void store(const ir::Value& to, Value element, const Element& value);
  // An element of `from` that this point alone reads and writes in `to`: both may be one memory.
  Element load_own(const ir::Value& from, Value element);

  // An element of the result as it is now: a load that stands where it is asked for and sees the
  // stores of this point before it.
  Element load_back(const ir::Value& from, Value element);

  // The memory of a value that is in memory, as 32-bit words: a kI32.
  Value load_word(const ir::Value& from, Value word);
  // The low bits of a kI32 as an element of 1, 2 or 4 bytes; of 8 bytes, as word `at`.
  void store_word(const ir::Value& to, Value at, Value bits, int64_t bytes);

  // A counted loop over elements; `count` has the index type.
  Elements loop(Value count, const std::vector<DType>& dtypes, const Elements& initial,
                const std::function<Elements(Value iteration, const Elements& carried)>& body) {
    return emitter_.loop(count, dtypes, initial, body);
  }
  // Runs `body` at points where `condition` holds; its stores are what it is for.
  void when(Value condition, const std::function<void()>& body);

  Result<LoweredKernel> finish(const LowerOptions& options);

 private:
  int operand(const BoundOperand& bound, int64_t bytes);
  std::optional<int> operand_of(const ir::Value& value);
  static std::vector<int64_t> without_ones(const std::vector<int64_t>& grid);

  std::string name_;
  std::vector<int64_t> grid_;
  const InMemory& in_memory_;
  Builder b_;
  Emitter emitter_;
  std::vector<Value> indices_;
  std::vector<int32_t> dimensions_;  // of the kernel's grid, without those of size 1
  uint32_t arrays_ = 0;              // of teams
  std::vector<BoundOperand> operands_;
  std::vector<int64_t> bytes_;
  std::vector<bool> is_own_;
  std::vector<bool> is_read_back_;
};

// Elements of the largest array that an index of a kernel goes into which computes `values` and
// what they are made of, up to what is in memory.
int64_t largest_inlined(const std::vector<const ir::Value*>& values, const InMemory& in_memory);
// The same of an operation's operands.
int64_t largest_inlined(const ir::Operation& op, const InMemory& in_memory);
// Whether indices up to `largest`, and a few times it, need 64 bits.
bool is_wide_index(int64_t largest);

}  // namespace hekla::lower
