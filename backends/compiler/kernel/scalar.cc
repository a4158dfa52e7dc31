// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>

#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {
namespace {

struct OpFacts {
  const char* name;
  int arity;
};
constexpr OpFacts kOps[] = {
#define HEKLA_SCALAR_OP_FACTS(op, name, arity) {name, arity},
    HEKLA_SCALAR_OPS(HEKLA_SCALAR_OP_FACTS)
#undef HEKLA_SCALAR_OP_FACTS
};

const OpFacts& facts(Op op) { return kOps[static_cast<size_t>(op)]; }

// Numbers values in the order of their appearance, so that the text does not depend on the order
// in which the builder made them.
class Printer {
 public:
  explicit Printer(const Function& function)
      : function_(function), names_(function.size(), kNoValue) {}

  std::string print() {
    print_region(0, 1);
    return std::move(out_);
  }

 private:
  std::string name(Value v) {
    const Instruction& inst = function_[v];
    if (inst.op == Op::kConstant) {
      return fmt::format("{}:{:#x}", scalar_type_name(inst.type), inst.immediate);
    }
    Value& number = names_[static_cast<size_t>(v)];
    if (number == kNoValue) number = next_++;
    return fmt::format("%{}", number);
  }

  std::string names(const std::vector<Value>& values) {
    std::string text;
    for (Value v : values) text += (text.empty() ? "" : ", ") + name(v);
    return text;
  }

  void print_region(int32_t number, int indent) {
    const RegionBody& region = function_.region(number);
    const std::string pad(static_cast<size_t>(indent) * 2, ' ');
    std::string parameters;
    for (Value v : region.parameters) {
      parameters += fmt::format("{}{}: {}", parameters.empty() ? "" : ", ", name(v),
                                scalar_type_name(function_.type(v)));
    }
    out_ += fmt::format("({}) {{\n", parameters);
    for (Value v : region.instructions) {
      const Instruction& inst = function_[v];
      out_ += pad;
      if (has_result(inst.op)) {
        const std::string arguments = names(inst.arguments);
        out_ += fmt::format("{} = {}", name(v), op_name(inst.op));
        if (inst.op != Op::kFor) out_ += fmt::format(" {}", scalar_type_name(inst.type));
        out_ += fmt::format("({})", arguments);
      } else {
        out_ += fmt::format("{}({})", op_name(inst.op), names(inst.arguments));
      }
      if (inst.op == Op::kLoad || inst.op == Op::kStore) {
        const Access access = unpack_access(inst.immediate);
        out_ += fmt::format(" [{} {}{}]", access.operand, access.is_signed ? "s" : "u",
                            access.bytes * 8);
      } else if (inst.op == Op::kFor) {
        out_ += " ";
        print_region(static_cast<int32_t>(inst.immediate), indent + 1);
        continue;
      } else if (inst.op == Op::kForResult) {
        out_ += fmt::format(" #{}", inst.immediate);
      } else if (inst.op == Op::kShuffleXor) {
        const Exchange exchange = unpack_exchange(inst.immediate);
        out_ += fmt::format(" [{} ^ {}]", exchange.dimension, exchange.distance);
      } else if (is_sums_op(inst.op)) {
        const SumsAccess a = unpack_sums(inst.immediate);
        out_ += fmt::format(" [{} sums {}: {} x {}", a.dimension, a.number, a.rows, a.columns);
        if (inst.op == Op::kSumsMultiply) {
          out_ += fmt::format(", #{} pitch {} * #{} pitch {}{}, depth {} {}", a.left, a.left_pitch,
                              a.right, a.right_pitch, a.is_by_column ? " by column" : "", a.depth,
                              a.is_bf16 ? "bf16" : "f16");
        } else if (inst.op == Op::kSumsScale) {
          out_ += fmt::format(", #{}", a.left);
        } else if (inst.op == Op::kSumsStore) {
          out_ +=
              fmt::format(", {} from {} to #{} pitch {}", a.depth, a.first, a.left, a.left_pitch);
        }
        out_ += "]";
      } else if (is_team_op(inst.op)) {
        const TeamMemory memory = unpack_team_memory(inst.immediate);
        out_ += fmt::format(" [{} #{}: {}]", memory.dimension, memory.array, memory.words);
      }
      out_ += "\n";
    }
    if (number != 0) out_ += fmt::format("{}yield({})\n", pad, names(region.yields));
    out_ += std::string(static_cast<size_t>(indent - 1) * 2, ' ') + "}\n";
  }

  const Function& function_;
  std::vector<Value> names_;
  Value next_ = 0;
  std::string out_;
};

class Verifier {
 public:
  explicit Verifier(const Function& f)
      : f_(f), seen_(f.size(), false), loops_(f.region_count(), kNoValue) {}

  Status run() { return check_region(0); }

 private:
  Status fail(Value v, const char* what) {
    return internal_error("scalar IR: %{} {}: {}", v, op_name(f_[v].op), what);
  }

  bool visible(Value v) const {
    return v >= 0 && static_cast<size_t>(v) < f_.size() &&
           (f_[v].op == Op::kConstant || seen_[static_cast<size_t>(v)]);
  }

  Status check_region(int32_t number) {
    const RegionBody& region = f_.region(number);
    std::vector<Value> made = region.parameters;
    for (Value v : region.parameters) seen_[static_cast<size_t>(v)] = true;
    for (Value v : region.instructions) {
      if (f_[v].region != number) return fail(v, "stands in a region that is not its own");
      HEKLA_RETURN_IF_ERROR(check(v));
      seen_[static_cast<size_t>(v)] = true;
      made.push_back(v);
    }
    for (Value v : region.yields) {
      if (!visible(v)) return internal_error("scalar IR: yield of %{} unseen", v);
    }
    // What a region makes is not seen after it.
    for (Value v : made) seen_[static_cast<size_t>(v)] = number == 0;
    return Status();
  }

  Status check(Value v) {
    const Instruction& inst = f_[v];
    const int arity = facts(inst.op).arity;
    if (arity >= 0 && inst.arguments.size() != static_cast<size_t>(arity)) {
      return fail(v, "wrong number of arguments");
    }
    for (Value a : inst.arguments) {
      if (!visible(a)) return fail(v, "argument is not defined here");
    }
    auto t = [&](size_t i) { return f_.type(inst.arguments[i]); };
    const ScalarType type = inst.type;
    const bool same2 = inst.arguments.size() == 2 && t(0) == t(1);
    switch (inst.op) {
      case Op::kConstant:
      case Op::kParameter:
        return fail(v, "stands in an instruction list");
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
        if (!same2 || t(0) != type || type == ScalarType::kBool) return fail(v, "types");
        break;
      case Op::kMulHighU:
      case Op::kDivS:
      case Op::kDivU:
      case Op::kRemS:
      case Op::kRemU:
      case Op::kShl:
      case Op::kShrU:
      case Op::kShrS:
        if (!same2 || t(0) != type || !is_integer(type)) return fail(v, "types");
        break;
      case Op::kDiv:
        if (!same2 || t(0) != type || !is_float(type)) return fail(v, "types");
        break;
      case Op::kNeg:
      case Op::kAbs:
      case Op::kSqrt:
      case Op::kFloor:
      case Op::kCeil:
      case Op::kTrunc:
      case Op::kRoundEven:
        if (t(0) != type || !is_float(type)) return fail(v, "types");
        break;
      case Op::kFma:
        if (t(0) != type || t(1) != type || t(2) != type || !is_float(type)) {
          return fail(v, "types");
        }
        break;
      case Op::kAnd:
      case Op::kOr:
      case Op::kXor:
        if (!same2 || t(0) != type || is_float(type)) return fail(v, "types");
        break;
      case Op::kEq:
      case Op::kNe:
        if (!same2 || type != ScalarType::kBool) return fail(v, "types");
        break;
      case Op::kLt:
      case Op::kLe:
        if (!same2 || !is_float(t(0)) || type != ScalarType::kBool) return fail(v, "types");
        break;
      case Op::kLtS:
      case Op::kLeS:
      case Op::kLtU:
      case Op::kLeU:
        if (!same2 || !is_integer(t(0)) || type != ScalarType::kBool) return fail(v, "types");
        break;
      case Op::kSelect:
        if (t(0) != ScalarType::kBool || t(1) != type || t(2) != type) return fail(v, "types");
        break;
      case Op::kSignExtend:
      case Op::kZeroExtend:
        if (t(0) != ScalarType::kI32 || type != ScalarType::kI64) return fail(v, "types");
        break;
      case Op::kTruncate:
        if (t(0) != ScalarType::kI64 || type != ScalarType::kI32) return fail(v, "types");
        break;
      case Op::kBoolToInt:
        if (t(0) != ScalarType::kBool || !is_integer(type)) return fail(v, "types");
        break;
      case Op::kSIntToFloat:
      case Op::kUIntToFloat:
        if (!is_integer(t(0)) || !is_float(type)) return fail(v, "types");
        break;
      case Op::kFloatToSInt:
      case Op::kFloatToUInt:
        if (!is_float(t(0)) || !is_integer(type)) return fail(v, "types");
        break;
      case Op::kFloatResize:
        if (!is_float(t(0)) || !is_float(type) || t(0) == type) return fail(v, "types");
        break;
      case Op::kHalfToFloat:
        if (t(0) != ScalarType::kI32 || type != ScalarType::kF32) return fail(v, "types");
        break;
      case Op::kFloatToHalf:
        if (t(0) != ScalarType::kF32 || type != ScalarType::kI32) return fail(v, "types");
        break;
      case Op::kBitcast:
        if (bit_width(t(0)) != bit_width(type) || is_float(t(0)) == is_float(type) ||
            type == ScalarType::kBool) {
          return fail(v, "types");
        }
        break;
      case Op::kLoad:
      case Op::kStore: {
        const Access access = unpack_access(inst.immediate);
        const ScalarType value = inst.op == Op::kLoad ? type : t(1);
        if (!is_integer(t(0))) return fail(v, "the index is no integer");
        const bool fits = access.bytes <= 2   ? value == ScalarType::kI32
                          : access.bytes == 4 ? bit_width(value) == 32
                                              : bit_width(value) == 64;
        if (!fits) return fail(v, "the value's type does not fit the access");
        break;
      }
      case Op::kFor: {
        if (inst.arguments.empty() || !is_integer(t(0))) return fail(v, "trip count");
        const auto number = static_cast<int32_t>(inst.immediate);
        if (number <= 0 || static_cast<size_t>(number) >= f_.region_count()) {
          return fail(v, "region");
        }
        const RegionBody& region = f_.region(number);
        const size_t carried = inst.arguments.size() - 1;
        if (region.parent != inst.region) return fail(v, "its region has another parent");
        loops_[static_cast<size_t>(number)] = v;
        if (region.parameters.size() != carried + 1 || region.yields.size() != carried ||
            f_.type(region.parameters[0]) != t(0)) {
          return fail(v, "parameters or yields do not match the carried values");
        }
        for (size_t i = 0; i < carried; ++i) {
          if (f_.type(region.parameters[i + 1]) != t(i + 1) ||
              f_.type(region.yields[i]) != t(i + 1)) {
            return fail(v, "a carried value changes its type");
          }
        }
        return check_region(number);
      }
      case Op::kForResult: {
        const Instruction& loop = f_[inst.arguments[0]];
        if (loop.op != Op::kFor || inst.immediate + 1 >= loop.arguments.size() ||
            f_.type(loop.arguments[inst.immediate + 1]) != type) {
          return fail(v, "no such carried value");
        }
        break;
      }
      case Op::kShuffleXor: {
        const Exchange exchange = unpack_exchange(inst.immediate);
        if (t(0) != type) return fail(v, "types");
        if (!std::has_single_bit(exchange.distance)) return fail(v, "no such team");
        return check_team(v, exchange.dimension);
      }
      case Op::kTeamStore:
      case Op::kTeamAdd:
      case Op::kTeamLoad: {
        const TeamMemory memory = unpack_team_memory(inst.immediate);
        const ScalarType value = inst.op == Op::kTeamLoad ? type : t(1);
        if (t(0) != ScalarType::kI32 || value != ScalarType::kI32) return fail(v, "types");
        const auto [known, is_new] = words_.try_emplace(memory.array, memory.words);
        if (memory.words == 0 || known->second != memory.words) return fail(v, "size of the array");
        return check_team(v, memory.dimension);
      }
      case Op::kTeamStoreWide: {
        const TeamMemory memory = unpack_team_memory(inst.immediate);
        for (size_t i = 0; i < inst.arguments.size(); ++i) {
          if (t(i) != ScalarType::kI32) return fail(v, "types");
        }
        const auto [known, is_new] = words_.try_emplace(memory.array, memory.words);
        if (memory.words == 0 || known->second != memory.words) return fail(v, "size of the array");
        return check_team(v, memory.dimension);
      }
      case Op::kSumsClear:
      case Op::kSumsMultiply:
      case Op::kSumsScale:
      case Op::kSumsStore: {
        const SumsAccess a = unpack_sums(inst.immediate);
        for (size_t i = 0; i < inst.arguments.size(); ++i) {
          if (t(i) != ScalarType::kI32) return fail(v, "types");
        }
        const auto [known, is_new] = sums_.try_emplace(a.number, a.rows, a.columns);
        if (a.rows == 0 || a.columns == 0 || known->second != std::pair(a.rows, a.columns)) {
          return fail(v, "size of the sums");
        }
        const bool has_depth = inst.op == Op::kSumsMultiply || inst.op == Op::kSumsStore;
        if (has_depth && (a.depth == 0 || a.left_pitch == 0)) return fail(v, "depth or pitch");
        if (inst.op == Op::kSumsStore && a.first + a.depth > a.columns) return fail(v, "columns");
        return check_team(v, a.dimension);
      }
    }
    return Status();
  }

  Status check_team(Value v, int dimension) {
    if (dimension != team_dimension(f_) || dimension < 0 ||
        static_cast<size_t>(dimension) >= f_.body().parameters.size()) {
      return fail(v, "no such team");
    }
    for (int32_t r = f_[v].region; r > 0; r = f_.region(r).parent) {
      const Value count = f_[loops_[static_cast<size_t>(r)]].arguments[0];
      if (f_[count].op == Op::kConstant && f_[count].immediate != 0) continue;
      if (uniform_.empty()) uniform_ = team_uniform_values(f_);
      if (f_[count].op == Op::kConstant || !uniform_[static_cast<size_t>(count)]) {
        return fail(v, "it is in a loop whose trips are no constant");
      }
    }
    return Status();
  }

  const Function& f_;
  std::vector<bool> seen_;
  std::vector<Value> loops_;                                // of each region
  std::map<uint32_t, uint32_t> words_;                      // of each array
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> sums_;  // rows and columns of each
  std::vector<bool> uniform_;                               // once it is asked for
};

}  // namespace

const char* op_name(Op op) { return facts(op).name; }

const char* scalar_type_name(ScalarType type) {
  constexpr const char* kNames[] = {"bool", "i32", "i64", "f32", "f64"};
  return kNames[static_cast<size_t>(type)];
}

int bit_width(ScalarType type) {
  switch (type) {
    case ScalarType::kBool:
      return 1;
    case ScalarType::kI32:
    case ScalarType::kF32:
      return 32;
    case ScalarType::kI64:
    case ScalarType::kF64:
      break;
  }
  return 64;
}

uint64_t pack(const Access& access) {
  return static_cast<uint32_t>(access.operand) | uint64_t{access.bytes} << 32 |
         uint64_t{access.is_signed} << 40;
}

Access unpack_access(uint64_t immediate) {
  return {static_cast<int32_t>(immediate & 0xffffffff),
          static_cast<uint8_t>(immediate >> 32 & 0xff), (immediate >> 40 & 1) != 0};
}

uint64_t pack_exchange(const Exchange& exchange) {
  return static_cast<uint32_t>(exchange.dimension) | uint64_t{exchange.distance} << 32;
}

Exchange unpack_exchange(uint64_t immediate) {
  return {static_cast<int32_t>(immediate & 0xffffffff), static_cast<uint32_t>(immediate >> 32)};
}

uint64_t pack_team_memory(const TeamMemory& memory) {
  return static_cast<uint32_t>(memory.dimension) | uint64_t{memory.words} << 32 |
         uint64_t{memory.array} << 56;
}

TeamMemory unpack_team_memory(uint64_t immediate) {
  return {static_cast<int32_t>(immediate & 0xffffffff), static_cast<uint32_t>(immediate >> 56),
          static_cast<uint32_t>(immediate >> 32 & 0xffffff)};
}

uint64_t pack_sums(const SumsAccess& a) {
  uint64_t packed = 0;
  int at = 0;
  const auto put = [&](uint64_t value, int bits) {
    packed |= value << at;
    at += bits;
  };
  put(static_cast<uint32_t>(a.dimension), 4);
  put(a.number, 2);
  put(a.rows / 8, 6);
  put(a.columns / 8, 6);
  put(a.is_bf16 ? 1 : 0, 1);
  put(a.is_by_column ? 1 : 0, 1);
  put(a.left, 4);
  put(a.right, 4);
  put(a.depth / 8, 6);
  put(a.left_pitch / 4, 10);
  put(a.right_pitch / 4, 10);
  put(a.first / 8, 6);
  return packed;
}

SumsAccess unpack_sums(uint64_t immediate) {
  const auto get = [&](int bits) {
    const auto value = static_cast<uint32_t>(immediate & ((uint64_t{1} << bits) - 1));
    immediate >>= bits;
    return value;
  };
  SumsAccess a;
  a.dimension = static_cast<int32_t>(get(4));
  a.number = get(2);
  a.rows = get(6) * 8;
  a.columns = get(6) * 8;
  a.is_bf16 = get(1) != 0;
  a.is_by_column = get(1) != 0;
  a.left = get(4);
  a.right = get(4);
  a.depth = get(6) * 8;
  a.left_pitch = get(10) * 4;
  a.right_pitch = get(10) * 4;
  a.first = get(6) * 8;
  return a;
}

bool has_sums(const Function& function) {
  return std::any_of(function.instructions().begin(), function.instructions().end(),
                     [](const Instruction& inst) { return is_sums_op(inst.op); });
}

int team_dimension(const Function& function) {
  for (const Instruction& inst : function.instructions()) {
    if (is_sums_op(inst.op)) return unpack_sums(inst.immediate).dimension;
    if (inst.op == Op::kShuffleXor) return unpack_exchange(inst.immediate).dimension;
    if (is_team_op(inst.op)) return unpack_team_memory(inst.immediate).dimension;
  }
  return -1;
}

std::vector<TeamMemory> team_memories(const Function& function) {
  std::map<uint32_t, TeamMemory> found;
  for (const Instruction& inst : function.instructions()) {
    if (!is_team_op(inst.op) || is_sums_op(inst.op) || inst.op == Op::kShuffleXor) continue;
    const TeamMemory memory = unpack_team_memory(inst.immediate);
    found.emplace(memory.array, memory);
  }
  std::vector<TeamMemory> all;
  for (const auto& [array, memory] : found) all.push_back(memory);
  return all;
}

std::vector<bool> team_uniform_values(const Function& function) {
  const int dimension = team_dimension(function);
  if (dimension < 0) return {};
  // All are, until something else shows.
  std::vector<bool> uniform(function.size(), true);
  const auto is = [&](Value v) { return uniform[static_cast<size_t>(v)]; };
  bool changes = true;
  const auto differs = [&](Value v) {
    if (!is(v)) return;
    uniform[static_cast<size_t>(v)] = false;
    changes = true;
  };
  differs(function.body().parameters[static_cast<size_t>(dimension)]);
  while (changes) {
    changes = false;
    for (size_t i = 0; i < function.size(); ++i) {
      const auto v = static_cast<Value>(i);
      const Instruction& inst = function[v];
      if (inst.op == Op::kForResult) {
        const Instruction& loop = function[inst.arguments[0]];
        const RegionBody& region = function.region(static_cast<int32_t>(loop.immediate));
        if (!is(loop.arguments[0]) || !is(loop.arguments[inst.immediate + 1]) ||
            !is(region.yields[inst.immediate])) {
          differs(v);
        }
      } else if (inst.op == Op::kFor) {
        const RegionBody& region = function.region(static_cast<int32_t>(inst.immediate));
        if (!is(inst.arguments[0])) differs(region.parameters[0]);
        for (size_t k = 1; k < inst.arguments.size(); ++k) {
          if (!is(inst.arguments[0]) || !is(inst.arguments[k]) || !is(region.yields[k - 1])) {
            differs(region.parameters[k]);
          }
        }
      } else if (!std::all_of(inst.arguments.begin(), inst.arguments.end(), is)) {
        differs(v);
      }
    }
  }
  return uniform;
}

bool has_uneven_exchanges(const Function& function) {
  const std::vector<bool> exchanges = regions_with_exchanges(function);
  for (const Instruction& inst : function.instructions()) {
    if (inst.op == Op::kFor && exchanges[inst.immediate] &&
        function[inst.arguments[0]].op != Op::kConstant) {
      return true;
    }
  }
  return false;
}

std::vector<bool> regions_with_exchanges(const Function& function) {
  std::vector<bool> found(function.region_count(), false);
  for (const Instruction& inst : function.instructions()) {
    if (!is_team_op(inst.op)) continue;
    for (int32_t r = inst.region; r >= 0; r = function.region(r).parent) {
      found[static_cast<size_t>(r)] = true;
    }
  }
  return found;
}

std::string to_string(const Function& function) { return Printer(function).print(); }

Status verify(const Function& function) { return Verifier(function).run(); }

int64_t Kernel::points() const {
  int64_t count = 1;
  for (int64_t size : grid) count *= size;
  return count;
}

std::string to_string(const Kernel& kernel) {
  std::string text = fmt::format("grid [{}] {}\n", fmt::join(kernel.grid, ", "),
                                 scalar_type_name(kernel.index_type));
  for (const KernelOperand& operand : kernel.operands) {
    text +=
        fmt::format("operand {} bytes{}{}{}\n", operand.bytes, operand.is_read ? " read" : "",
                    operand.is_written ? " written" : "", operand.is_pointwise ? " pointwise" : "");
  }
  return text + to_string(kernel.body);
}

}  // namespace hekla::kernel
