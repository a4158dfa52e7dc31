// SPDX-License-Identifier: Apache-2.0
// Builder: makes scalar functions, folding constants, sharing equal values and placing every pure
// instruction in the outermost region where its arguments exist.
//
// Pure instructions are thus out of loops that they do not depend on, and never computed twice in
// a region and those inside it. Loads count as pure: a kernel never reads what it writes, but for
// an operand updated in place at the same point, and for those of `set_updated`, whose loads stand
// where they are asked for. One thread; the arguments must have the types that
// scalar.h states (checked by assertions in debug builds, and by `verify`).
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/compiler/kernel/bounds.h"
#include "backends/compiler/kernel/scalar.h"

namespace hekla::kernel {

class Builder {
 public:
  // The body gets `grid_rank` parameters of `index_type`.
  Builder(int grid_rank, ScalarType index_type);

  Value grid_index(int dim) const;
  // States that a grid index is below `size`, as the grid promises; divisions of sums of indices
  // become what they are then.
  void set_grid_size(int dim, int64_t size);
  // States that points read what they wrote to this operand: its loads are neither shared nor
  // moved.
  void set_updated(int32_t operand) { updated_.insert(operand); }
  ScalarType index_type() const { return index_type_; }
  ScalarType type(Value v) const { return function_.type(v); }

  Value constant_bits(ScalarType type, uint64_t bits);
  Value boolean(bool value) { return constant_bits(ScalarType::kBool, value ? 1 : 0); }
  // Of an integer type (wrapped) or a float type (converted).
  Value integer(ScalarType type, int64_t value);
  Value real(ScalarType type, double value);  // rounded to the type
  Value index(int64_t value) { return integer(index_type_, value); }

  Value unary(Op op, Value a);
  Value binary(Op op, Value a, Value b);
  Value select(Value condition, Value if_true, Value if_false);
  // Conversions: kSignExtend ... kBitcast.
  Value convert(Op op, ScalarType to, Value a);
  // Rounded once. On a device without a fused instruction a generator may round twice, so an
  // expansion uses it for accuracy, never as an exact step of an algorithm.
  Value fma(Value a, Value b, Value c);

  Value add(Value a, Value b) { return binary(Op::kAdd, a, b); }
  Value sub(Value a, Value b) { return binary(Op::kSub, a, b); }
  Value mul(Value a, Value b) { return binary(Op::kMul, a, b); }
  Value div(Value a, Value b) { return binary(Op::kDiv, a, b); }
  Value neg(Value a) { return unary(Op::kNeg, a); }
  Value logical_not(Value a) { return binary(Op::kXor, a, boolean(true)); }
  Value bit_and(Value a, Value b) { return binary(Op::kAnd, a, b); }
  Value bit_or(Value a, Value b) { return binary(Op::kOr, a, b); }
  Value bit_xor(Value a, Value b) { return binary(Op::kXor, a, b); }

  // What the other point of the team has.
  Value shuffle_xor(Value v, const Exchange& exchange) {
    return emit(Op::kShuffleXor, type(v), {v}, pack_exchange(exchange));
  }

  // Memory of the team. Loads stand where they are asked for.
  void team_store(const TeamMemory& memory, Value place, Value value) {
    stand(Op::kTeamStore, ScalarType::kI32, {place, value}, pack_team_memory(memory));
  }
  void team_add(const TeamMemory& memory, Value place, Value value) {
    stand(Op::kTeamAdd, ScalarType::kI32, {place, value}, pack_team_memory(memory));
  }
  void team_store_wide(const TeamMemory& memory, Value place, const std::array<Value, 4>& words) {
    stand(Op::kTeamStoreWide, ScalarType::kI32, {place, words[0], words[1], words[2], words[3]},
          pack_team_memory(memory));
  }
  // Sums of products: an instruction of SumsAccess with its places.
  void sums(Op op, const SumsAccess& access, std::vector<Value> places) {
    stand(op, ScalarType::kI32, std::move(places), pack_sums(access));
  }
  Value team_load(const TeamMemory& memory, Value place) {
    return stand(Op::kTeamLoad, ScalarType::kI32, {place}, pack_team_memory(memory));
  }

  // `type` is the result's; see Access for what may be loaded as what.
  Value load(ScalarType type, const Access& access, Value element);
  void store(const Access& access, Value element, Value value);

  // A counted loop. `count` and the iteration have the index type. `body` gets the iteration and
  // the carried values and returns their next values. Returns the values after the last iteration.
  std::vector<Value> loop(
      Value count, const std::vector<Value>& initial,
      const std::function<std::vector<Value>(Value iteration, const std::vector<Value>&)>& body);

  // The bits of a constant; nullptr for any other value.
  const uint64_t* constant(Value v) const;
  // Instructions so far: what callers bound kernels by. A conversion from or to f16 counts as what
  // devices without it take.
  size_t size() const { return function_.size() + halves_ * kHalfInstructions; }
  // Ends building.
  Function finish() { return std::move(function_); }

 private:
  static constexpr size_t kHalfInstructions = 20;

  // What emit makes has three arguments at most.
  struct Key {
    Op op;
    ScalarType type;
    uint64_t immediate = 0;
    std::array<Value, 3> arguments{kNoValue, kNoValue, kNoValue};
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  // The least number known to be above an integer that is not negative; 0 when none is known.
  uint64_t bound(Value v) const;
  Bounds find_bounds(const Instruction& inst) const;
  // The quotient or the remainder of a sum of known terms, without a division: terms that are
  // multiples of the divisor on one side, the rest below it on the other. kNoValue when the sum
  // does not show that.
  Value divide_sum(Op op, Value v, uint64_t divisor);
  Value emit(Op op, ScalarType type, std::initializer_list<Value> arguments,
             uint64_t immediate = 0);
  Value append(Op op, ScalarType type, std::vector<Value> arguments, uint64_t immediate,
               int32_t region);
  // An instruction that is neither shared nor moved.
  Value stand(Op op, ScalarType type, std::vector<Value> arguments, uint64_t immediate);
  Value add_parameter(int32_t region, ScalarType type);
  int depth(int32_t region) const { return depth_[static_cast<size_t>(region)]; }

  Function function_;
  size_t halves_ = 0;
  ScalarType index_type_;
  std::vector<int> depth_;  // of each region
  int32_t current_ = 0;
  std::unordered_map<Key, Value, KeyHash> known_;
  std::vector<Bounds> bounds_;           // by Value
  std::unordered_set<int32_t> updated_;  // operands, see set_updated
};

}  // namespace hekla::kernel
