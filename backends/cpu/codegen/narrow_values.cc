// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/codegen/narrow_values.h"

#include <algorithm>
#include <bit>

namespace hekla::cpu {

using kernel::Access;
using kernel::Bounds;
using kernel::Instruction;
using kernel::kNoValue;
using kernel::Op;
using kernel::ScalarType;
using kernel::Value;

namespace {

constexpr int kWidths[] = {8, 16};

bool fits(const Bounds& b, int width, bool is_signed) {
  const int64_t size = int64_t{1} << width;
  return is_signed ? b.low >= -size / 2 && b.high < size / 2 : b.low >= 0 && b.high < size;
}

// Whether the low bits of the result are those of the operation on the low bits.
bool keeps_low_bits(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kSelect:
      return true;
    default:
      return false;
  }
}

}  // namespace

NarrowValues::NarrowValues(const kernel::Function& f, const LaneAnalysis& analysis)
    : f_(f), analysis_(analysis), facts_(f.size()) {
  for (size_t i = 0; i < f.size(); ++i) {
    facts_[i].bounds = analysis.index().bounds(static_cast<Value>(i));
  }
  find_bounds(0);
  find_cuts();
  find_needs(0);
  do {
    find_widths(0);
  } while (block_what_widens());
}

// The analysis of indices knows nothing of what loops carry but sums. Here a carried value that
// only ever becomes another one by selection, as a maximum does, lies where these lie.
void NarrowValues::find_bounds(int32_t region) {
  for (const Value v : f_.region(region).instructions) {
    const Instruction& inst = f_[v];
    if (inst.op == Op::kFor) {
      const auto number = static_cast<int32_t>(inst.immediate);
      const kernel::RegionBody& body = f_.region(number);
      for (size_t i = 0; i < body.yields.size(); ++i) {
        const Value carried = body.parameters[i + 1];
        if (f_.type(carried) != ScalarType::kI32) continue;
        Bounds all = bounds(inst.arguments[i + 1]);
        add_choices(body.yields[i], carried, all);
        at(carried).bounds = all;
      }
      find_bounds(number);
    } else if (inst.op == Op::kForResult) {
      const auto body = static_cast<int32_t>(f_[inst.arguments[0]].immediate);
      const Value carried = f_.region(body).parameters[inst.immediate + 1];
      if (f_.type(carried) == ScalarType::kI32) at(v).bounds = at(carried).bounds;
    } else if (inst.type == ScalarType::kI32 && !inst.arguments.empty() && inst.op != Op::kLoad &&
               !kernel::is_team_op(inst.op)) {
      std::vector<Bounds> arguments;
      for (const Value a : inst.arguments) arguments.push_back(bounds(a));
      const Bounds here = kernel::bounds_of(inst.op, inst.type, arguments);
      Bounds& known = at(v).bounds;
      known.low = std::max(known.low, here.low);
      known.high = std::min(known.high, here.high);
      if (const int64_t divisor = remainder_of(v); divisor != 0) {
        known.low = std::max(known.low, 1 - divisor);
        known.high = std::min(known.high, divisor - 1);
      }
    }
  }
}

// The divisor, a positive constant, where `v` is x - (x / divisor) * divisor; else 0.
int64_t NarrowValues::remainder_of(Value v) const {
  const Instruction& difference = f_[v];
  if (difference.op != Op::kSub) return 0;
  const Instruction& product = f_[analysis_.resolved(difference.arguments[1])];
  if (product.op != Op::kMul) return 0;
  const Instruction& quotient = f_[analysis_.resolved(product.arguments[0])];
  const Instruction& divisor = f_[analysis_.resolved(product.arguments[1])];
  const bool is_remainder =
      quotient.op == Op::kDivS && divisor.op == Op::kConstant &&
      analysis_.resolved(quotient.arguments[1]) == analysis_.resolved(product.arguments[1]) &&
      analysis_.resolved(quotient.arguments[0]) == analysis_.resolved(difference.arguments[0]);
  if (!is_remainder) return 0;
  return std::max<int64_t>(0, kernel::number(ScalarType::kI32, divisor.immediate));
}

// Adds to `all` where what is chosen beside `carried` lies: all values, where it is computed from
// what is carried.
void NarrowValues::add_choices(Value v, Value carried, Bounds& all) const {
  v = analysis_.resolved(v);
  if (v == carried) return;
  const Instruction& inst = f_[v];
  if (inst.op == Op::kSelect) {
    add_choices(inst.arguments[1], carried, all);
    add_choices(inst.arguments[2], carried, all);
    return;
  }
  all.low = std::min(all.low, at(v).bounds.low);
  all.high = std::max(all.high, at(v).bounds.high);
}

// shr_s(shl(x, n), n): the sign among the low bits fills the others.
void NarrowValues::find_cuts() {
  std::vector<int> uses(f_.size());
  for (const Instruction& inst : f_.instructions()) {
    for (const Value a : inst.arguments) ++uses[static_cast<size_t>(a)];
  }
  for (size_t region = 0; region < f_.region_count(); ++region) {
    for (const Value y : f_.region(static_cast<int32_t>(region)).yields) {
      ++uses[static_cast<size_t>(y)];
    }
  }
  for (size_t i = 0; i < f_.size(); ++i) {
    const Instruction& inst = f_[static_cast<Value>(i)];
    if (inst.op != Op::kShrS || inst.type != ScalarType::kI32) continue;
    const Instruction& up = f_[inst.arguments[0]];
    const Instruction& count = f_[inst.arguments[1]];
    if (up.op != Op::kShl || count.op != Op::kConstant || up.arguments[1] != inst.arguments[1] ||
        (count.immediate != 16 && count.immediate != 24)) {
      continue;
    }
    facts_[i].cut_from = analysis_.resolved(up.arguments[0]);
    if (uses[static_cast<size_t>(inst.arguments[0])] == 1) {
      at(inst.arguments[0]).only_cut = static_cast<Value>(i);
    }
  }
}

void NarrowValues::need(Value v, int bits) {
  Facts& facts = at(analysis_.resolved(v));
  facts.needed_bits = std::max(facts.needed_bits, bits);
}

// Users stand behind what they use, but for what loops carry: that is needed whole.
void NarrowValues::find_needs(int32_t region) {
  const std::vector<Value>& body = f_.region(region).instructions;
  for (const Value y : f_.region(region).yields) need(y, kWide);
  for (auto it = body.rbegin(); it != body.rend(); ++it) {
    const Instruction& inst = f_[*it];
    const int bits = at(*it).needed_bits;
    const auto constant = [&](size_t i) -> const uint64_t* {
      const Instruction& argument = f_[inst.arguments[i]];
      return argument.op == Op::kConstant ? &argument.immediate : nullptr;
    };
    if (inst.op == Op::kFor) find_needs(static_cast<int32_t>(inst.immediate));
    if (inst.op == Op::kStore) {
      need(inst.arguments[0], kWide);
      const int stored = kernel::unpack_access(inst.immediate).bytes * 8;
      need(inst.arguments[1], std::min(stored, kWide));
    } else if (inst.op == Op::kSelect) {
      need(inst.arguments[0], kWide);
      need(inst.arguments[1], bits);
      need(inst.arguments[2], bits);
    } else if (inst.op == Op::kAnd && inst.type == ScalarType::kI32 && constant(1) != nullptr) {
      need(inst.arguments[0], std::min<int>(bits, std::bit_width(*constant(1))));
    } else if (at(*it).cut_from != kNoValue) {
      need(at(*it).cut_from, std::min(bits, kWide - static_cast<int>(*constant(1))));
    } else if (inst.op == Op::kShl && constant(1) != nullptr) {
      // Whatever else uses it comes through here; cuts do not.
      need(inst.arguments[0], std::max(0, bits - static_cast<int>(*constant(1))));
    } else if (keeps_low_bits(inst.op) && inst.type == ScalarType::kI32) {
      for (const Value a : inst.arguments) need(a, bits);
    } else {
      for (const Value a : inst.arguments) need(a, kWide);
    }
  }
}

bool NarrowValues::is_narrow_or_uniform(Value v) const {
  v = analysis_.resolved(v);
  if (analysis_.is_varying(v)) return at(v).width < kWide;
  return analysis_.shape(v).kind == LaneKind::kUniform;
}

bool NarrowValues::is_whole(Value v, int width) const {
  const Bounds b = bounds(v);
  return fits(b, width, false) || fits(b, width, true);
}

bool NarrowValues::all_fit(const std::vector<Value>& values, int width, bool is_signed) const {
  return std::all_of(values.begin(), values.end(),
                     [&](Value v) { return fits(bounds(v), width, is_signed); });
}

int NarrowValues::common_width(const std::vector<Value>& values, int from) const {
  for (const int width : kWidths) {
    if (width < from) continue;
    if (all_fit(values, width, false) || all_fit(values, width, true)) return width;
  }
  return kWide;
}

int NarrowValues::argument_lanes(const Instruction& inst, size_t first) const {
  int width = 8;
  for (size_t i = first; i < inst.arguments.size(); ++i) {
    const Value a = analysis_.resolved(inst.arguments[i]);
    if (f_.type(a) != ScalarType::kI32 || !is_narrow_or_uniform(a)) return kWide;
    if (analysis_.is_varying(a)) width = std::max(width, at(a).width);
  }
  return width;
}

void NarrowValues::find_widths(int32_t region) {
  for (const Value v : f_.region(region).instructions) {
    Facts& facts = at(v);
    facts.width = facts.argument_width = kWide;
    if (!analysis_.is_needed(v) || analysis_.resolved(v) != v || analysis_.known(v) >= 0) continue;
    if (f_[v].op == Op::kFor) {
      find_loop(v);
    } else if (analysis_.is_varying(v) && !facts.is_blocked) {
      find_width(v);
    }
  }
}

void NarrowValues::find_width(Value v) {
  const Instruction& inst = f_[v];
  Facts& facts = at(v);
  const bool is_integer = inst.type == ScalarType::kI32;
  facts.is_signed = is_integer && bounds(v).low < 0;
  // Of arguments from the second one on, where the first is a condition.
  const auto arguments = [&](size_t first) {
    return std::vector<Value>(inst.arguments.begin() + static_cast<std::ptrdiff_t>(first),
                              inst.arguments.end());
  };
  const auto constant = [&](size_t i) {
    return f_[analysis_.resolved(inst.arguments[i])].op == Op::kConstant;
  };
  const auto set = [&](int width) {
    facts.width = is_integer ? width : kWide;
    facts.argument_width = width;
  };
  if (inst.op == Op::kLoad) {
    const Access access = kernel::unpack_access(inst.immediate);
    if (!is_integer || access.bytes > 2) return;
    facts.is_signed = access.is_signed;
    return set(access.bytes * 8);
  }
  if (inst.op == Op::kForResult) {
    const auto body = static_cast<int32_t>(f_[inst.arguments[0]].immediate);
    const Facts& carried = at(f_.region(body).parameters[inst.immediate + 1]);
    facts.is_signed = carried.is_signed;
    return set(carried.width);
  }
  if (inst.op == Op::kBoolToInt) return is_integer ? set(8) : void();
  if (facts.cut_from != kNoValue) {
    const int bits = kWide - static_cast<int>(f_[inst.arguments[1]].immediate);
    const int width = at(facts.cut_from).width;
    facts.is_signed = true;
    if (analysis_.is_varying(facts.cut_from) && width < kWide && width >= bits) set(bits);
    return;
  }
  const size_t first = inst.op == Op::kSelect ? 1 : 0;
  if (inst.arguments.size() != first + 2) return;
  const int lanes = argument_lanes(inst, first);
  if (lanes == kWide) return;
  if (keeps_low_bits(inst.op)) {
    for (const int width : kWidths) {
      if (width < lanes || (facts.needed_bits > width && !is_whole(v, width))) continue;
      return set(width);
    }
    return;
  }
  switch (inst.op) {
    case Op::kShl:
    case Op::kShrU:
    case Op::kShrS: {
      // The count is below the lanes' width.
      const Bounds count = bounds(inst.arguments[1]);
      for (const int width : kWidths) {
        if (width < lanes || count.low < 0 || count.high >= width) continue;
        const Bounds shifted = bounds(inst.arguments[0]);
        const bool is_right = inst.op == Op::kShl    ? is_whole(v, width)
                              : inst.op == Op::kShrU ? fits(shifted, width, false)
                                                     : fits(shifted, width, true);
        if (is_right) return set(width);
      }
      return;
    }
    case Op::kDivS:
    case Op::kRemS:
    case Op::kDivU:
    case Op::kRemU: {
      // By multiplications, which there are none of for bytes.
      if (!constant(1)) return;
      const bool is_signed = inst.op == Op::kDivS || inst.op == Op::kRemS;
      for (const int width : kWidths) {
        if (width < std::max(lanes, 16) || !is_whole(v, width)) continue;
        if (all_fit(arguments(0), width, is_signed)) return set(width);
      }
      return;
    }
    case Op::kEq:
    case Op::kNe:
    case Op::kLtS:
    case Op::kLeS:
    case Op::kLtU:
    case Op::kLeU:
      set(common_width(arguments(0), lanes));
      facts.is_signed = all_fit(arguments(0), facts.argument_width, true);
      return;
    default:
      return;
  }
}

void NarrowValues::find_loop(Value loop) {
  const Instruction& inst = f_[loop];
  const auto number = static_cast<int32_t>(inst.immediate);
  const kernel::RegionBody& region = f_.region(number);
  for (size_t i = 0; i < region.yields.size(); ++i) {
    const Value carried = region.parameters[i + 1];
    Facts& facts = at(carried);
    facts.width = kWide;
    if (f_.type(carried) != ScalarType::kI32 || !analysis_.is_varying(carried) ||
        facts.is_blocked || !is_narrow_or_uniform(inst.arguments[i + 1])) {
      continue;
    }
    facts.is_signed = bounds(carried).low < 0;
    facts.width = common_width({carried, inst.arguments[i + 1], region.yields[i]}, 8);
  }
  find_widths(number);
}

// Whether a user takes its i32 arguments as narrow as they are.
bool NarrowValues::is_narrow_use(Value user) const {
  const Instruction& inst = f_[user];
  if (inst.op == Op::kStore) return kernel::unpack_access(inst.immediate).bytes <= 2;
  return at(user).argument_width < kWide;
}

// Finds narrow values that would be widened for some user; whether there was one.
bool NarrowValues::block_what_widens() {
  std::vector<bool> widens(f_.size());
  const auto widen = [&](Value v) { widens[static_cast<size_t>(analysis_.resolved(v))] = true; };
  bool found = false;
  // Users stand behind what they use, so that a whole chain is found at once.
  for (size_t i = f_.size(); i-- > 0;) {
    const auto v = static_cast<Value>(i);
    const Instruction& inst = f_[v];
    if (!analysis_.is_needed(v) || analysis_.resolved(v) != v) continue;
    // Loads are widened as cheaply as ever, results of loops once.
    if (inst.op == Op::kLoad || inst.op == Op::kForResult) continue;
    if (widens[i] && at(v).width < kWide) {
      at(v).width = at(v).argument_width = kWide;
      at(v).is_blocked = true;
      found = true;
    }
    if (inst.op == Op::kFor) {
      const kernel::RegionBody& region = f_.region(static_cast<int32_t>(inst.immediate));
      for (size_t k = 0; k < region.yields.size(); ++k) {
        const Value carried = region.parameters[k + 1];
        if (at(carried).width == kWide) {
          widen(inst.arguments[k + 1]);
          widen(region.yields[k]);
        } else if (!is_narrow_or_uniform(region.yields[k])) {
          at(carried).width = kWide;
          at(carried).is_blocked = true;
          found = true;
        }
      }
      continue;
    }
    if (at(v).cut_from != kNoValue && at(v).width < kWide) continue;
    if (is_skipped(v) || is_narrow_use(v)) continue;
    for (const Value a : inst.arguments) widen(a);
  }
  return found;
}

// What is shifted up to be cut is not computed.
bool NarrowValues::is_skipped(Value v) const {
  const Value cut = at(v).only_cut;
  return cut != kNoValue && at(cut).width < kWide;
}

int NarrowValues::widest() const {
  int widest = 8;
  for (size_t i = 0; i < f_.size(); ++i) {
    const auto v = static_cast<Value>(i);
    const Instruction& inst = f_[v];
    if (inst.type == ScalarType::kBool || inst.op == Op::kConstant || inst.op == Op::kFor ||
        !kernel::has_result(inst.op) || !analysis_.is_needed(v) || analysis_.resolved(v) != v ||
        !analysis_.is_varying(v)) {
      continue;
    }
    if (!is_skipped(v)) widest = std::max(widest, facts_[i].width);
  }
  return widest;
}

}  // namespace hekla::cpu
