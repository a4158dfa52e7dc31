// SPDX-License-Identifier: Apache-2.0
// Scalar IR: what a kernel does for one point of its grid, as typed SSA on single elements.
//
// A Function owns instructions in one array; a Value is the number of one. A region is an ordered
// list of instructions with parameters and yielded values; region 0 is the whole body and its
// parameters are the grid indices. The only control flow is the counted loop `kFor`. Everything
// numeric that a device may get wrong is spelled out in these ops before a generator sees it
// (math/): so all devices compute the same function, and a generator stays small. There are five
// types; narrower integers live in kI32, sign- or zero-extended as their dtype says, and 8- and
// 16-bit floats are bits in kI32 or rounded values in kF32. Complex values are pairs.
//
// Plain data: one thread builds, any number may read. Nothing fails; wrong use is a bug that
// `verify` (below) reports in words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::kernel {

enum class ScalarType : uint8_t { kBool, kI32, kI64, kF32, kF64 };

const char* scalar_type_name(ScalarType type);  // "bool", "i32" ...
inline bool is_float(ScalarType t) { return t == ScalarType::kF32 || t == ScalarType::kF64; }
inline bool is_integer(ScalarType t) { return t == ScalarType::kI32 || t == ScalarType::kI64; }
// Bits of a value: 1, 32 or 64.
int bit_width(ScalarType type);

// clang-format off
// op, spelling, number of arguments (-1: any)
#define HEKLA_SCALAR_OPS(X) \
  X(kConstant, "constant", 0)      /* immediate: the bits */ \
  X(kParameter, "parameter", 0)    /* immediate: which parameter of its region */ \
  X(kAdd, "add", 2)                /* integers wrap; floats round to nearest even */ \
  X(kSub, "sub", 2) \
  X(kMul, "mul", 2) \
  X(kMulHighU, "mul_high_u", 2)    /* upper half of the unsigned product */ \
  X(kDiv, "div", 2)                /* floats, correctly rounded */ \
  X(kDivS, "div_s", 2)             /* integers: divisor not 0, no overflow */ \
  X(kDivU, "div_u", 2) \
  X(kRemS, "rem_s", 2) \
  X(kRemU, "rem_u", 2) \
  X(kNeg, "neg", 1)                /* floats: flips the sign bit, of NaN too */ \
  X(kAbs, "abs", 1)                /* floats: clears the sign bit */ \
  X(kFma, "fma", 3)                /* floats: a * b + c rounded once; see Builder::fma */ \
  X(kSqrt, "sqrt", 1)              /* correctly rounded */ \
  X(kFloor, "floor", 1) \
  X(kCeil, "ceil", 1) \
  X(kTrunc, "trunc", 1) \
  X(kRoundEven, "round_even", 1) \
  X(kAnd, "and", 2)                /* bool and integers */ \
  X(kOr, "or", 2) \
  X(kXor, "xor", 2) \
  X(kShl, "shl", 2)                /* integers; the count is below the width */ \
  X(kShrU, "shr_u", 2) \
  X(kShrS, "shr_s", 2) \
  X(kEq, "eq", 2)                  /* any type; floats: false for NaN */ \
  X(kNe, "ne", 2)                  /* any type; floats: true for NaN */ \
  X(kLt, "lt", 2)                  /* floats: false for NaN */ \
  X(kLe, "le", 2) \
  X(kLtS, "lt_s", 2)               /* integers */ \
  X(kLeS, "le_s", 2) \
  X(kLtU, "lt_u", 2) \
  X(kLeU, "le_u", 2) \
  X(kSelect, "select", 3)          /* condition, if true, if false */ \
  X(kSignExtend, "sign_extend", 1) /* i32 to i64 */ \
  X(kZeroExtend, "zero_extend", 1) /* i32 to i64 */ \
  X(kTruncate, "truncate", 1)      /* i64 to i32 */ \
  X(kBoolToInt, "bool_to_int", 1)  /* bool to i32 or i64: 0 or 1 */ \
  X(kSIntToFloat, "s_to_float", 1) /* rounds to nearest even */ \
  X(kUIntToFloat, "u_to_float", 1) \
  X(kFloatToSInt, "float_to_s", 1) /* truncates; the value fits */ \
  X(kFloatToUInt, "float_to_u", 1) \
  X(kFloatResize, "float_resize", 1) /* f32 to f64 and back, to nearest even */ \
  X(kHalfToFloat, "half_to_float", 1) /* the bits of an f16 in an i32, whose upper ones are 0, to f32;
                                      NaNs become quiet */ \
  X(kFloatToHalf, "float_to_half", 1) /* f32 to the bits of an f16 in an i32, to nearest even; NaNs
                                      are quiet and keep the upper bits of their payload */ \
  X(kBitcast, "bitcast", 1)        /* i32 and f32, i64 and f64 */ \
  X(kLoad, "load", 1)              /* element index; immediate: Access */ \
  X(kStore, "store", 2)            /* element index, value; immediate: Access; has no result */ \
  X(kFor, "for", -1)               /* trip count, initial values; immediate: region; its parameters
                                      are the iteration and the carried values */ \
  X(kForResult, "for_result", 1)   /* the loop; immediate: which carried value */ \
  X(kShuffleXor, "shuffle_xor", 1) /* the value that another point of the team has; immediate:
                                      Exchange */ \
  X(kTeamStore, "team_store", 2)   /* i32 place, i32 value: into memory that the team shares;
                                      immediate: TeamMemory; has no result */ \
  X(kTeamAdd, "team_add", 2)       /* the same: adds to what is there, wrapping; has no result */ \
  X(kTeamLoad, "team_load", 1)     /* i32 place */ \
  X(kTeamStoreWide, "team_store_wide", 5) /* i32 place, a multiple of 4, and four words that go
                                      there, one after the other; has no result */ \
  X(kSumsClear, "sums_clear", 0)   /* immediate of these: SumsAccess; they have no results */ \
  X(kSumsMultiply, "sums_multiply", 2) /* i32 places of the left and the right operand */ \
  X(kSumsScale, "sums_scale", 1)   /* i32 place of a factor for each row, f32 */ \
  X(kSumsStore, "sums_store", 1)   /* i32 place: sums as f32 into memory of the team */
// clang-format on

enum class Op : uint8_t {
#define HEKLA_SCALAR_OP_ENUM(op, name, arity) op,
  HEKLA_SCALAR_OPS(HEKLA_SCALAR_OP_ENUM)
#undef HEKLA_SCALAR_OP_ENUM
};

const char* op_name(Op op);

using Value = int32_t;
inline constexpr Value kNoValue = -1;
// The last of the list above.
inline constexpr Op kLastOp = Op::kSumsStore;
inline bool is_team_op(Op op) { return op >= Op::kShuffleXor; }
inline bool is_sums_op(Op op) { return op >= Op::kSumsClear; }
inline bool has_result(Op op) {
  return op != Op::kStore && op != Op::kTeamStore && op != Op::kTeamAdd && op < Op::kTeamStoreWide;
}

// A load or store: which operand of the kernel, and how an element lies in memory. Elements of 8
// and 16 bits are loaded into kI32 and stored from its low bits; 32 bits are kI32 or kF32, 64 bits
// kI64 or kF64. The index counts elements of this width from the start of the operand.
struct Access {
  int32_t operand = 0;
  uint8_t bytes = 4;       // 1, 2, 4, 8
  bool is_signed = false;  // loads of 1 and 2 bytes: sign-extended
  bool operator==(const Access&) const = default;
};
uint64_t pack(const Access& access);
Access unpack_access(uint64_t immediate);

// Points that differ in one grid index alone are a team, which may exchange values: lanes of a
// subgroup or a workgroup. A kernel has teams along one dimension at most; its size is a power of
// two. Each point gets the value of the one whose index there is its own XOR `distance`, a power of
// two below the size. For devices whose plan::DeviceTraits has teams.
//
// The points of a team do what exchanges values in step, instruction by instruction. It stands in
// no loops but those with a constant number of trips, one at least, or a number that is the same
// for all of them (team_uniform_values).
struct Exchange {
  int32_t dimension = 0;
  uint32_t distance = 1;
};
uint64_t pack_exchange(const Exchange& exchange);
Exchange unpack_exchange(uint64_t immediate);
// Memory that the points of a team share: `words` of 32 bits, undefined at first. A load sees all
// stores and additions that stand before it. Several stores without a load or an addition between
// them write a word from one point alone; several additions may come from any.
struct TeamMemory {
  int32_t dimension = 0;
  uint32_t array = 0;  // which: small numbers
  uint32_t words = 0;  // the same wherever an array is named; below 2^24
};
uint64_t pack_team_memory(const TeamMemory& memory);
TeamMemory unpack_team_memory(uint64_t immediate);
// Sums of products that a team owns, `rows` times `columns` of f32, which matrix units compute: no
// point has one of them, and what they are is seen in memory alone. For devices whose
// plan::DeviceTraits has matrix units for the operands. Points of a team are whole subgroups then,
// each with rows of its own.
//
// kSumsMultiply adds left times right, blocks of bf16 or f16 in memory of the team, two in a word:
// `left` has rows along the depth, `left_pitch` words from one to the next; `right` has columns
// along the depth where it `is_by_column`, else rows along the columns. Products are added in the
// device's order. kSumsScale multiplies each row by a word of `left`, kSumsStore writes `depth`
// columns from `first` on into `left`, rows `left_pitch` words apart. Both read and write as
// team_load and team_store do.
struct SumsAccess {
  int32_t dimension = 0;           // of the team
  uint32_t number = 0;             // which sums: below 4
  uint32_t rows = 0, columns = 0;  // multiples of 8, below 512, as are `depth` and `first`
  bool is_bf16 = false;            // else f16
  bool is_by_column = false;
  uint32_t left = 0, right = 0;  // arrays, below 16
  uint32_t depth = 0;
  uint32_t left_pitch = 0, right_pitch = 0;  // multiples of 4, below 4096
  uint32_t first = 0;
};
uint64_t pack_sums(const SumsAccess& access);
SumsAccess unpack_sums(uint64_t immediate);
class Function;
// Whether a function has sums of products.
bool has_sums(const Function& function);
// The dimension of the teams; -1: points exchange nothing.
int team_dimension(const Function& function);
// The arrays that a function names, by their numbers.
std::vector<TeamMemory> team_memories(const Function& function);
// Of each value, whether all points of a team have the same one, as far as it shows: of constants,
// of the other indices of the grid, of words that all of them load. Empty: there are no teams.
std::vector<bool> team_uniform_values(const Function& function);
// Whether points exchange something in a loop whose number of trips is no constant: teams go
// through it on their own.
bool has_uneven_exchanges(const Function& function);
// Of each region, whether points of a team exchange something in it or in a loop inside of it.
std::vector<bool> regions_with_exchanges(const Function& function);

struct Instruction {
  Op op;
  ScalarType type;     // of the result; of those without one, kFor: no meaning
  int32_t region = 0;  // the region it stands in
  uint64_t immediate = 0;
  std::vector<Value> arguments;
};

struct RegionBody {
  int32_t parent = -1;              // region of the loop; -1 for the body
  std::vector<Value> parameters;    // kParameter instructions
  std::vector<Value> instructions;  // in order, without parameters and constants
  std::vector<Value> yields;        // kFor's regions: next carried values
};

// Constants stand in region 0 and in no instruction list: a generator materialises them on use.
class Function {
 public:
  Function() = default;
  // Of parts that `instructions` and `regions` gave.
  Function(std::vector<Instruction> instructions, std::vector<RegionBody> regions)
      : instructions_(std::move(instructions)), regions_(std::move(regions)) {}

  const Instruction& operator[](Value v) const { return instructions_[static_cast<size_t>(v)]; }
  ScalarType type(Value v) const { return (*this)[v].type; }
  const RegionBody& region(int32_t r) const { return regions_[static_cast<size_t>(r)]; }
  const RegionBody& body() const { return regions_.front(); }
  size_t size() const { return instructions_.size(); }
  size_t region_count() const { return regions_.size(); }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<RegionBody>& regions() const { return regions_; }

 private:
  friend class Builder;
  std::vector<Instruction> instructions_;
  std::vector<RegionBody> regions_;
};

// Canonical text: equal functions give equal text, which is what kernels are cached by.
std::string to_string(const Function& function);
// INTERNAL, with the instruction: an argument's type, a use before its definition or outside of its
// region, a loop whose yields do not match.
Status verify(const Function& function);

}  // namespace hekla::kernel
