// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/builder.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/compiler/kernel/evaluate.h"

namespace hekla::kernel {
namespace {

bool is_commutative(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kMulHighU:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kEq:
    case Op::kNe:
      return true;
    default:
      return false;
  }
}

// Products of two bounds do not overflow, and a 32-bit index below it is not negative.
constexpr int64_t kLargestBound = int64_t{1} << 31;

bool is_comparison(Op op) { return op >= Op::kEq && op <= Op::kLeU; }

uint64_t all_ones(ScalarType type) {
  const int width = bit_width(type);
  return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}

}  // namespace

size_t Builder::KeyHash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint64_t>(key.op) * 8 + static_cast<uint64_t>(key.type);
  auto mix = [&](uint64_t v) {
    hash = (hash ^ v) * 0x9e3779b97f4a7c15;  // golden ratio
    hash ^= hash >> 29;
  };
  mix(key.immediate);
  for (Value v : key.arguments) mix(static_cast<uint64_t>(v));
  return hash;
}

Builder::Builder(int grid_rank, ScalarType index_type) : index_type_(index_type), depth_{0} {
  function_.regions_.emplace_back();
  for (int i = 0; i < grid_rank; ++i) add_parameter(0, index_type);
}

Value Builder::grid_index(int dim) const {
  return function_.body().parameters[static_cast<size_t>(dim)];
}

Value Builder::append(Op op, ScalarType type, std::vector<Value> arguments, uint64_t immediate,
                      int32_t region) {
  const auto v = static_cast<Value>(function_.instructions_.size());
  function_.instructions_.push_back({op, type, region, immediate, std::move(arguments)});
  bounds_.push_back(find_bounds(function_.instructions_.back()));
  return v;
}

Value Builder::add_parameter(int32_t region, ScalarType type) {
  auto& parameters = function_.regions_[static_cast<size_t>(region)].parameters;
  const Value v = append(Op::kParameter, type, {}, parameters.size(), region);
  parameters.push_back(v);
  return v;
}

Value Builder::emit(Op op, ScalarType type, std::initializer_list<Value> arguments,
                    uint64_t immediate) {
  Key key{op, type, immediate};
  std::copy(arguments.begin(), arguments.end(), key.arguments.begin());
  const auto [it, is_new] = known_.try_emplace(key, kNoValue);
  if (!is_new) return it->second;
  int32_t region = 0;
  for (Value a : arguments) {
    const int32_t theirs = function_[a].region;
    if (depth(theirs) > depth(region)) region = theirs;
  }
  const Value v = append(op, type, arguments, immediate, region);
  if (op != Op::kConstant) {
    function_.regions_[static_cast<size_t>(region)].instructions.push_back(v);
  }
  it->second = v;
  return v;
}

void Builder::set_grid_size(int dim, int64_t size) {
  bounds_[static_cast<size_t>(grid_index(dim))] = {0, std::max<int64_t>(size, 1) - 1};
}

uint64_t Builder::bound(Value v) const {
  const Bounds& b = bounds_[static_cast<size_t>(v)];
  return b.low >= 0 && b.high < kLargestBound ? static_cast<uint64_t>(b.high) + 1 : 0;
}

Bounds Builder::find_bounds(const Instruction& inst) const {
  switch (inst.op) {
    case Op::kConstant:
      if (is_float(inst.type)) break;
      return {number(inst.type, inst.immediate), number(inst.type, inst.immediate)};
    case Op::kLoad:
      return bounds_of(unpack_access(inst.immediate), inst.type);
    case Op::kParameter:
    case Op::kStore:
    case Op::kFor:
    case Op::kForResult:
    case Op::kShuffleXor:
    case Op::kTeamStore:
    case Op::kTeamAdd:
    case Op::kTeamLoad:
    case Op::kTeamStoreWide:
    case Op::kSumsClear:
    case Op::kSumsMultiply:
    case Op::kSumsScale:
    case Op::kSumsStore:
      break;
    default: {
      std::array<Bounds, 3> arguments;
      for (size_t i = 0; i < inst.arguments.size(); ++i) {
        arguments[i] = bounds_[static_cast<size_t>(inst.arguments[i])];
      }
      return bounds_of(inst.op, inst.type, {arguments.data(), inst.arguments.size()});
    }
  }
  return bounds_of(inst.type);
}

Value Builder::divide_sum(Op op, Value v, uint64_t divisor) {
  if (bound(v) == 0) return kNoValue;
  const ScalarType t = type(v);
  Value quotient = constant_bits(t, 0);
  Value rest = constant_bits(t, 0);
  bool found = false;
  std::vector<Value> terms{v};
  while (!terms.empty()) {
    const Value term = terms.back();
    terms.pop_back();
    const Op term_op = function_[term].op;
    const std::vector<Value> arguments = function_[term].arguments;
    if (term_op == Op::kAdd) {
      terms.insert(terms.end(), arguments.begin(), arguments.end());
      continue;
    }
    if (bound(term) == 0) return kNoValue;
    const bool is_product =
        term_op == Op::kMul && bound(arguments[0]) != 0 && bound(arguments[1]) != 0;
    const uint64_t* factor = is_product ? constant(arguments[1]) : nullptr;
    if (factor != nullptr && *factor % divisor == 0) {
      quotient = add(quotient, mul(arguments[0], constant_bits(t, *factor / divisor)));
      found = true;
    } else if (const uint64_t* c = constant(term)) {
      quotient = add(quotient, constant_bits(t, *c / divisor));
      rest = add(rest, constant_bits(t, *c % divisor));
    } else {
      rest = add(rest, term);
    }
  }
  const uint64_t b = bound(rest);
  if (b == 0 || b > divisor) {
    if (!found || op != Op::kRemU) return kNoValue;
    return emit(op, t, {rest, constant_bits(t, divisor)});
  }
  return op == Op::kDivU ? quotient : rest;
}

const uint64_t* Builder::constant(Value v) const {
  const Instruction& inst = function_[v];
  return inst.op == Op::kConstant ? &inst.immediate : nullptr;
}

Value Builder::constant_bits(ScalarType type, uint64_t bits) {
  return emit(Op::kConstant, type, {}, bits & all_ones(type));
}

Value Builder::integer(ScalarType type, int64_t value) {
  if (is_float(type)) return real(type, static_cast<double>(value));
  return constant_bits(type, static_cast<uint64_t>(value));
}

Value Builder::real(ScalarType type, double value) {
  if (type == ScalarType::kF64) return constant_bits(type, std::bit_cast<uint64_t>(value));
  return constant_bits(type, std::bit_cast<uint32_t>(static_cast<float>(value)));
}

Value Builder::unary(Op op, Value a) {
  const ScalarType t = type(a);
  if (const uint64_t* bits = constant(a)) return constant_bits(t, evaluate(op, t, t, *bits));
  return emit(op, t, {a});
}

Value Builder::binary(Op op, Value a, Value b) {
  const ScalarType from = type(a);
  const ScalarType to = is_comparison(op) ? ScalarType::kBool : from;
  const uint64_t* ca = constant(a);
  const uint64_t* cb = constant(b);
  if (ca != nullptr && cb != nullptr) return constant_bits(to, evaluate(op, to, from, *ca, *cb));
  if (is_commutative(op) && (ca != nullptr || (cb == nullptr && b < a))) {
    std::swap(a, b);
    std::swap(ca, cb);
  }
  // Identities of integers only: those of floats are not exact for NaN and signed zero.
  if (!is_float(from) && cb != nullptr) {
    const uint64_t c = *cb;
    switch (op) {
      case Op::kAdd:
      case Op::kSub:
      case Op::kShl:
      case Op::kShrU:
      case Op::kShrS:
      case Op::kOr:
      case Op::kXor:
        if (c == 0) return a;
        if (op == Op::kOr && c == all_ones(from)) return b;
        break;
      case Op::kMul:
        if (c == 1) return a;
        if (c == 0) return b;
        break;
      case Op::kAnd:
        if (c == all_ones(from)) return a;
        if (c == 0) return b;
        break;
      case Op::kDivS:
      case Op::kDivU:
        if (c == 1) return a;
        break;
      case Op::kRemS:
      case Op::kRemU:
        if (c == 1) return constant_bits(from, 0);
        break;
      default:
        break;
    }
  }
  if ((op == Op::kDivU || op == Op::kRemU) && cb != nullptr && *cb > 1) {
    const Value divided = divide_sum(op, a, *cb);
    if (divided != kNoValue) return divided;
  }
  // (x + c1) + c2, as sums of offsets make it.
  if (op == Op::kAdd && !is_float(from) && cb != nullptr && function_[a].op == Op::kAdd) {
    const std::vector<Value> inner = function_[a].arguments;
    if (const uint64_t* c = constant(inner[1])) {
      return binary(Op::kAdd, inner[0], constant_bits(from, *c + *cb));
    }
  }
  // A mask of bits above which there are none.
  if (op == Op::kAnd && !is_float(from) && cb != nullptr && (*cb & (*cb + 1)) == 0 &&
      bound(a) != 0 && bound(a) - 1 <= *cb) {
    return a;
  }
  // Bits moved up and back, as those of bf16 and of narrow integers are.
  if ((op == Op::kShrU || op == Op::kShrS) && cb != nullptr && function_[a].op == Op::kShl &&
      function_[a].arguments[1] == b) {
    const Value low = function_[a].arguments[0];
    const auto bits = static_cast<uint64_t>(bit_width(from)) - *cb;
    if (op == Op::kShrU && bound(low) != 0 && bound(low) <= uint64_t{1} << bits) return low;
    const Bounds& known = bounds_[static_cast<size_t>(low)];
    const int64_t half = int64_t{1} << (bits - 1);
    if (op == Op::kShrS && bits < 64 && known.low >= -half && known.high < half) return low;
    if (op == Op::kShrS && function_[low].op == Op::kLoad && from == ScalarType::kI32) {
      Access access = unpack_access(function_[low].immediate);
      if (access.bytes * uint64_t{8} == bits && !updated_.contains(access.operand)) {
        access.is_signed = true;
        return load(from, access, function_[low].arguments[0]);
      }
    }
  }
  if (a == b && !is_float(from)) {
    switch (op) {
      case Op::kSub:
      case Op::kXor:
        return constant_bits(from, 0);
      case Op::kAnd:
      case Op::kOr:
        return a;
      case Op::kEq:
      case Op::kLeS:
      case Op::kLeU:
        return boolean(true);
      case Op::kNe:
      case Op::kLtS:
      case Op::kLtU:
        return boolean(false);
      default:
        break;
    }
  }
  return emit(op, to, {a, b});
}

Value Builder::select(Value condition, Value if_true, Value if_false) {
  if (const uint64_t* c = constant(condition)) return *c != 0 ? if_true : if_false;
  if (if_true == if_false) return if_true;
  const uint64_t *t = constant(if_true), *f = constant(if_false);
  if (type(if_true) == ScalarType::kBool && t != nullptr && f != nullptr && *t != 0 && *f == 0) {
    return condition;
  }
  return emit(Op::kSelect, type(if_true), {condition, if_true, if_false});
}

Value Builder::convert(Op op, ScalarType to, Value a) {
  const ScalarType from = type(a);
  if (const uint64_t* bits = constant(a)) return constant_bits(to, evaluate(op, to, from, *bits));
  const Instruction& inst = function_[a];
  if (op == Op::kBitcast && inst.op == Op::kBitcast && type(inst.arguments[0]) == to) {
    return inst.arguments[0];
  }
  // What is only moved stays as it is.
  if (op == Op::kFloatToHalf && inst.op == Op::kHalfToFloat) return inst.arguments[0];
  if (op == Op::kTruncate && (inst.op == Op::kSignExtend || inst.op == Op::kZeroExtend)) {
    return inst.arguments[0];
  }
  if (op == Op::kHalfToFloat || op == Op::kFloatToHalf) ++halves_;
  return emit(op, to, {a});
}

Value Builder::fma(Value a, Value b, Value c) {
  const ScalarType t = type(a);
  const uint64_t *ca = constant(a), *cb = constant(b), *cc = constant(c);
  if (ca != nullptr && cb != nullptr && cc != nullptr) {
    // Folded, it must be what any device makes of it (interpreter.h's Fma).
    const uint64_t fused = evaluate(Op::kFma, t, t, *ca, *cb, *cc);
    const uint64_t product = evaluate(Op::kMul, t, t, *ca, *cb);
    if (fused == evaluate(Op::kAdd, t, t, product, *cc)) return constant_bits(t, fused);
  }
  return emit(Op::kFma, t, {a, b, c});
}

Value Builder::load(ScalarType type, const Access& access, Value element) {
  if (!updated_.contains(access.operand)) return emit(Op::kLoad, type, {element}, pack(access));
  return stand(Op::kLoad, type, {element}, pack(access));
}

void Builder::store(const Access& access, Value element, Value value) {
  stand(Op::kStore, type(value), {element, value}, pack(access));
}

Value Builder::stand(Op op, ScalarType type, std::vector<Value> arguments, uint64_t immediate) {
  const Value v = append(op, type, std::move(arguments), immediate, current_);
  function_.regions_[static_cast<size_t>(current_)].instructions.push_back(v);
  return v;
}

std::vector<Value> Builder::loop(
    Value count, const std::vector<Value>& initial,
    const std::function<std::vector<Value>(Value, const std::vector<Value>&)>& body) {
  const int32_t outer = current_;
  const auto region = static_cast<int32_t>(function_.regions_.size());
  function_.regions_.emplace_back();
  function_.regions_.back().parent = outer;
  depth_.push_back(depth(outer) + 1);
  const Value iteration = add_parameter(region, index_type_);
  const uint64_t* trips = constant(count);
  if (trips != nullptr && *trips > 0 && *trips <= uint64_t{kLargestBound}) {
    bounds_[static_cast<size_t>(iteration)] = {0, static_cast<int64_t>(*trips) - 1};
  }
  std::vector<Value> carried;
  for (Value v : initial) carried.push_back(add_parameter(region, type(v)));
  current_ = region;
  std::vector<Value> yields = body(iteration, carried);
  current_ = outer;
  function_.regions_[static_cast<size_t>(region)].yields = std::move(yields);

  std::vector<Value> arguments{count};
  arguments.insert(arguments.end(), initial.begin(), initial.end());
  const Value loop =
      append(Op::kFor, index_type_, std::move(arguments), static_cast<uint64_t>(region), outer);
  function_.regions_[static_cast<size_t>(outer)].instructions.push_back(loop);
  std::vector<Value> results;
  for (size_t i = 0; i < initial.size(); ++i) {
    const Value v = append(Op::kForResult, type(initial[i]), {loop}, i, outer);
    function_.regions_[static_cast<size_t>(outer)].instructions.push_back(v);
    results.push_back(v);
  }
  return results;
}

}  // namespace hekla::kernel
