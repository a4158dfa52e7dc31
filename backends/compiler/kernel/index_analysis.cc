// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/index_analysis.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

namespace hekla::kernel {
namespace {

constexpr int kMostZeros = kMostLowZeros;

int zeros(int64_t number) { return low_zeros(number); }

int64_t clamped(__int128 x) {
  constexpr __int128 kMost = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(x, -kMost, kMost));
}

}  // namespace

Box whole_grid(const Kernel& kernel) {
  Box box;
  for (const int64_t size : kernel.grid) box.push_back({0, size});
  return box;
}

IndexAnalysis::IndexAnalysis(const Kernel& kernel, IndexBlocks blocks)
    : IndexAnalysis(kernel, whole_grid(kernel), blocks) {}

IndexAnalysis::IndexAnalysis(const Kernel& kernel, Box box, IndexBlocks blocks)
    : kernel_(&kernel), f_(&kernel.body), box_(std::move(box)), blocks_(blocks) {
  const Function& f = *f_;
  facts_.resize(f.size());
  terms_.reserve(2 * f.size());
  changes_.assign(f.region_count(), kNoValue);
  for (Value v = 0; v < static_cast<Value>(f.size()); ++v) {
    const Instruction& inst = f[v];
    Facts& here = facts(v);
    here.resolved = v;
    if (inst.op == Op::kStore) {
      const auto operand = static_cast<size_t>(unpack_access(inst.immediate).operand);
      if (operand >= is_written_.size()) is_written_.resize(operand + 1, false);
      is_written_[operand] = true;
    }
    if (inst.op != Op::kConstant) continue;
    if (is_float(inst.type)) {
      set_bounds(v, bounds_of(inst.type));
      continue;
    }
    const int64_t value = number(inst.type, inst.immediate);
    set_bounds(v, {value, value});
    here.constant = value;
    here.zeros = static_cast<uint8_t>(zeros(value));
  }
  analyse_parameters();
  analyse_region(0);
}

void IndexAnalysis::analyse_parameters() {
  const auto& parameters = f_->body().parameters;
  for (size_t d = 0; d < parameters.size(); ++d) {
    const Value v = parameters[d];
    const Range& range = box_[d];
    set_bounds(v, {range.begin, range.end - 1});
    facts(v).depends = bit(dimension(static_cast<int>(d)));
    const int64_t size = kernel_->grid[d];
    if (blocks_.dimension == static_cast<int>(d)) {
      AffineForm form;
      if (blocks_.size > 1) {
        index_in_block_ = new_term({0, std::min(size, blocks_.size) - 1}, facts(v).depends);
        form.add(index_in_block_, 1);
      }
      if (size > blocks_.size) {
        block_ = new_term({range.begin / blocks_.size, (range.end - 1) / blocks_.size},
                          bit(block_number()));
        form.add(block_, blocks_.size);
      }
      set_form(v, form);
    } else {
      be_term(v);
    }
  }
}

void IndexAnalysis::analyse_region(int32_t region) {
  for (const Value v : f_->region(region).instructions) analyse(v);
}

void IndexAnalysis::analyse(Value v) {
  const Instruction& inst = (*f_)[v];
  const auto& a = inst.arguments;
  uint64_t depends = 0;
  for (const Value x : a) depends |= facts(x).depends;
  facts(v) = Facts();
  facts(v).resolved = v;
  facts(v).depends = depends;
  switch (inst.op) {
    case Op::kFor:
      return analyse_loop(v);
    case Op::kForResult:
      return analyse_result(v);
    case Op::kStore:
    case Op::kTeamStore:
    case Op::kTeamAdd:
    case Op::kTeamStoreWide:
    case Op::kSumsClear:
    case Op::kSumsMultiply:
    case Op::kSumsScale:
    case Op::kSumsStore:
      return;
    case Op::kTeamLoad:
      // What other points have stored.
      facts(v).depends = ~uint64_t{0};
      set_bounds(v, bounds_of(inst.type));
      return be_term(v);
    case Op::kLoad: {
      const Access access = unpack_access(inst.immediate);
      // A point may change what it reads. No other point does, so where the address is the same
      // for several, nobody does.
      if (is_written(access.operand)) {
        for (int32_t r = inst.region; r > 0; r = f_->region(r).parent) {
          facts(v).depends |= bit(iteration(r));
        }
      }
      set_bounds(v, bounds_of(access, inst.type));
      if (is_integer(inst.type)) be_term(v);
      return;
    }
    case Op::kSelect:
      if (const int known_condition = known(a[0]); known_condition >= 0) {
        const Value chosen = resolved(a[known_condition == 1 ? 1 : 2]);
        facts(v) = facts(chosen);
        return;
      }
      break;
    default:
      break;
  }
  bound(v);
  if (is_float(inst.type)) return;
  if (inst.type == ScalarType::kBool) {
    analyse_condition(v);
  } else {
    analyse_integer(v);
  }
}

void IndexAnalysis::bound(Value v) {
  const Instruction& inst = (*f_)[v];
  const auto& a = inst.arguments;
  std::array<Bounds, 3> bounds_of_arguments;
  for (size_t i = 0; i < a.size(); ++i) bounds_of_arguments[i] = bounds(a[i]);
  const auto& b = bounds_of_arguments;
  set_bounds(v, bounds_of(inst.op, inst.type, {b.data(), a.size()}));
  if (inst.op != Op::kSelect || !is_integer(inst.type)) return;
  // The smaller or the larger of two.
  const Instruction& condition = (*f_)[resolved(a[0])];
  const bool is_signed = condition.op == Op::kLtS || condition.op == Op::kLeS;
  const bool is_unsigned = condition.op == Op::kLtU || condition.op == Op::kLeU;
  if (!is_signed && !(is_unsigned && b[1].low >= 0 && b[2].low >= 0)) return;
  const Value x = resolved(condition.arguments[0]), y = resolved(condition.arguments[1]);
  const Value first = resolved(a[1]), second = resolved(a[2]);
  if (first == x && second == y) {
    set_bounds(v, {std::min(b[1].low, b[2].low), std::min(b[1].high, b[2].high)});
  } else if (first == y && second == x) {
    set_bounds(v, {std::max(b[1].low, b[2].low), std::max(b[1].high, b[2].high)});
  }
}

// x < y is form < 0. A multiple m of all but some terms, whose sum lies in [0, m), has them below
// the next multiple: they do not matter where the constant is a multiple too.
void IndexAnalysis::analyse_condition(Value v) {
  const Instruction& inst = (*f_)[v];
  const auto decided = [&] {
    if (!bounds(v).is_one()) return false;
    facts(v).depends = 0;
    return true;
  };
  const bool is_unsigned = inst.op == Op::kLtU || inst.op == Op::kLeU;
  const bool is_order = is_unsigned || inst.op == Op::kLtS || inst.op == Op::kLeS;
  if (decided() || (!is_order && inst.op != Op::kEq && inst.op != Op::kNe)) return;
  const Value x = inst.arguments[0], y = inst.arguments[1];
  if (!is_integer(f_->type(x)) || !facts(x).is_linear || !facts(y).is_linear) return;
  if (is_unsigned && (facts(x).low < 0 || facts(y).low < 0)) return;
  AffineForm form;
  add(form, x, 1);
  add(form, y, -1);
  if (!form.fits) return;
  const WideRange range = range_of(form, facts_);
  const Bounds difference{clamped(range.low), clamped(range.high)};
  const std::array<Bounds, 2> sides{difference, Bounds{0, 0}};
  const Op op = inst.op == Op::kLtU ? Op::kLtS : inst.op == Op::kLeU ? Op::kLeS : inst.op;
  set_bounds(v, bounds_of(op, ScalarType::kBool, sides));
  facts(v).depends &= depends_of(form, facts_);
  if (decided() || !is_order) return;
  // sum < limit
  const int64_t limit = (op == Op::kLeS ? 1 : 0) - form.constant;
  form.constant = 0;
  const AffineParts parts =
      take_apart(form, limit == 0 ? int64_t{1} << kMostZeros : std::abs(limit), facts_);
  facts(v).depends &= depends_of(parts.whole, facts_) | depends_of(parts.high, facts_);
}

void IndexAnalysis::analyse_integer(Value v) {
  const Instruction& inst = (*f_)[v];
  const auto& a = inst.arguments;
  const auto scaled = [&](Value x, int64_t by) {
    AffineForm form;
    add(form, x, by);
    form.is_linear &= is_exact(v);
    set_form(v, form);
  };
  const auto is_natural = [&](Value x) { return facts(x).is_linear && facts(x).low >= 0; };
  // Of a shift or of a divisor: what it multiplies with, or divides by; 0 for none known.
  const auto power = [&](Value count) {
    const Bounds& b = bounds(count);
    return b.is_one() && b.low >= 0 && b.low < std::min(bit_width(inst.type), 59)
               ? int64_t{1} << b.low
               : int64_t{0};
  };
  switch (inst.op) {
    case Op::kAdd:
    case Op::kSub: {
      AffineForm form;
      add(form, a[0], 1);
      add(form, a[1], inst.op == Op::kAdd ? 1 : -1);
      form.is_linear &= is_exact(v);
      return set_form(v, form);
    }
    case Op::kMul:
      for (const size_t i : {size_t{1}, size_t{0}}) {
        if (bounds(a[i]).is_one()) return scaled(a[1 - i], facts(a[i]).low);
      }
      break;
    case Op::kShl:
      if (const int64_t by = power(a[1]); by > 0) return scaled(a[0], by);
      break;
    case Op::kSignExtend:
      if (facts(a[0]).is_linear) return scaled(a[0], 1);
      break;
    case Op::kZeroExtend:
      if (is_natural(a[0])) return scaled(a[0], 1);
      break;
    case Op::kTruncate:
      return scaled(a[0], 1);
    case Op::kDivS:
    case Op::kDivU:
      if (is_natural(a[0]) && bounds(a[1]).is_one()) return divide(v, facts(a[1]).low);
      break;
    case Op::kShrU:
      if (is_natural(a[0])) return divide(v, power(a[1]));
      break;
    case Op::kShrS:
      if (facts(a[0]).is_linear) return divide(v, power(a[1]));
      break;
    case Op::kRemS:
    case Op::kRemU:
      if (is_natural(a[0]) && bounds(a[1]).is_one())
        return take_remainder(v, a[0], facts(a[1]).low);
      break;
    case Op::kAnd:
      for (const size_t i : {size_t{1}, size_t{0}}) {
        const int64_t mask = facts(a[i]).low;
        const bool is_mask =
            bounds(a[i]).is_one() && mask > 0 && mask < kLargestFactor && (mask & (mask + 1)) == 0;
        // Whatever wraps is a multiple of this power of two.
        if (is_mask) return take_remainder(v, a[1 - i], mask + 1);
      }
      break;
    case Op::kOr:
    case Op::kXor:
      // A sum where no bit can be set in both.
      for (const size_t i : {size_t{0}, size_t{1}}) {
        const Facts &x = facts(a[i]), &y = facts(a[1 - i]);
        if (y.low < 0 || y.high >= int64_t{1} << x.zeros) continue;
        AffineForm form;
        add(form, a[i], 1);
        add(form, a[1 - i], 1);
        return set_form(v, form);
      }
      break;
    case Op::kSelect:
      return keep_common(v);
    default:
      break;
  }
  be_term(v);
}

// What both sides of a selection have, and a term between what is left of them.
void IndexAnalysis::keep_common(Value v) {
  const auto& a = (*f_)[v].arguments;
  const AffineForm x = form(a[1]), y = form(a[2]);
  AffineForm common = common_terms(x, y);
  if (common.count == 0) return be_term(v);
  AffineForm rest_of_x = x, rest_of_y = y;
  for (const Term& term : common.all()) {
    rest_of_x.add(term.term, -term.factor);
    rest_of_y.add(term.term, -term.factor);
  }
  const WideRange here = range_of(rest_of_x, facts_), there = range_of(rest_of_y, facts_);
  const Bounds rest{clamped(std::min(here.low, there.low)),
                    clamped(std::max(here.high, there.high))};
  const uint64_t depends =
      facts(a[0]).depends | depends_of(rest_of_x, facts_) | depends_of(rest_of_y, facts_);
  if (rest.is_one()) {
    common.add_constant(rest.low);
  } else {
    common.add(
        new_term(rest, depends, std::min(zeros_of(rest_of_x, facts_), zeros_of(rest_of_y, facts_))),
        1);
  }
  set_form(v, common);
}

void IndexAnalysis::divide(Value v, int64_t by) {
  const AffineForm x = form((*f_)[v].arguments[0]);
  if (by <= 0 || !is_small_factor(by)) return be_term(v);
  AffineParts parts = take_apart(x, by, facts_);
  if (parts.high.count > 0 || parts.high.constant != 0) {
    const WideRange range = range_of(parts.high, facts_);
    add_part(parts.whole, v,
             {clamped(floor_divide(range.low, by)), clamped(floor_divide(range.high, by))},
             depends_of(parts.high, facts_), 0);
  }
  set_form(v, parts.whole);
}

void IndexAnalysis::take_remainder(Value v, Value of, int64_t by) {
  const AffineForm x = form(of);
  if (by <= 0 || !is_small_factor(by)) return be_term(v);
  AffineParts parts = take_apart(x, by, facts_);
  parts.low.is_linear = true;
  if (parts.high.count > 0 || parts.high.constant != 0) {
    const int multiple = zeros(parts.multiple);
    add_part(parts.low, v, {0, by - parts.multiple}, depends_of(parts.high, facts_),
             std::max(multiple, std::min(zeros(by), zeros_of(parts.high, facts_))));
  }
  set_form(v, parts.low);
}

// A loop is analysed with the least that its carried values may depend on, then with what comes
// out, until that is all. A carried integer is what it starts with and a term that stands for what
// iterations have changed.
void IndexAnalysis::analyse_loop(Value v) {
  const Instruction& inst = (*f_)[v];
  const auto number_of_region = static_cast<int32_t>(inst.immediate);
  const RegionBody& region = f_->region(number_of_region);
  const uint64_t own = bit(iteration(number_of_region));
  const Facts count = facts(inst.arguments[0]);
  const Value index = region.parameters[0];
  facts(index).resolved = index;
  facts(index).depends = own;
  set_bounds(index, {0, std::max<int64_t>(count.high, 1) - 1});
  be_term(index);
  struct Carried {
    uint64_t depends;
    int zeros = kMostZeros;
  };
  const size_t carried_count = region.parameters.size() - 1;
  // Where trip counts differ, so do the iterations that values come from.
  std::vector<Carried> carried(carried_count, {own | count.depends});
  const size_t facts_before = facts_.size() + carried_count, terms_before = terms_.size();
  const Value first_change = static_cast<Value>(facts_.size());
  changes_[inst.immediate] = first_change;
  for (size_t i = 0; i < carried_count; ++i) {
    new_term({}, 0);
    const Value initial = inst.arguments[i + 1];
    if (!is_integer(f_->type(initial))) carried[i].depends |= facts(initial).depends;
  }
  for (bool is_new = true; is_new;) {
    is_new = false;
    facts_.resize(facts_before);
    terms_.resize(terms_before);
    for (size_t i = 0; i < carried_count; ++i) {
      be_carried(region.parameters[i + 1], inst.arguments[i + 1],
                 first_change + static_cast<Value>(i), carried[i].depends, carried[i].zeros);
    }
    analyse_region(number_of_region);
    for (size_t i = 0; i < carried_count; ++i) {
      const Value initial = inst.arguments[i + 1], yield = region.yields[i];
      Carried now = carried[i];
      if (is_integer(f_->type(initial))) {
        AffineForm change = form(yield);
        add(change, initial, -1);
        if (change.fits) {
          now.depends |= depends_of(change, facts_);
          now.zeros = std::min(now.zeros, zeros_of(change, facts_));
        } else {
          now.depends |= facts(yield).depends | facts(initial).depends;
          now.zeros = std::min<int>({now.zeros, facts(yield).zeros, facts(initial).zeros});
        }
      } else {
        now.depends |= facts(yield).depends;
      }
      is_new |= now.depends != carried[i].depends || now.zeros != carried[i].zeros;
      carried[i] = now;
    }
  }
}

void IndexAnalysis::be_carried(Value v, Value initial, Value change, uint64_t depends, int zeros) {
  const ScalarType type = f_->type(v);
  facts(v) = Facts();
  facts(v).resolved = v;
  facts(v).depends = depends;
  set_bounds(v, bounds_of(type));
  if (!is_integer(type)) return;
  set_bounds(change, bounds_of(ScalarType::kI64));
  facts(change).depends = depends;
  facts(change).zeros = static_cast<uint8_t>(zeros);
  AffineForm sum = form(initial);
  sum.add(change, 1);
  sum.is_linear = false;
  if (!sum.fits) facts(v).depends |= facts(initial).depends;
  set_form(v, sum);
}

// The iteration that the result is from is the last one.
void IndexAnalysis::analyse_result(Value v) {
  const Instruction& loop = (*f_)[(*f_)[v].arguments[0]];
  const auto region = static_cast<int32_t>(loop.immediate);
  const uint64_t which = (*f_)[v].immediate;
  const Value parameter = f_->region(region).parameters[which + 1];
  const Facts change = facts(changes_[loop.immediate] + static_cast<Value>(which));
  uint64_t own = bit(iteration(region));
  if (own == bit(kMostVariables)) own = 0;
  const bool is_sum = is_integer(f_->type(v));
  const uint64_t depends = (is_sum ? change.depends : facts(parameter).depends) & ~own;
  be_carried(v, loop.arguments[which + 1], is_sum ? new_term({}, 0) : kNoValue, depends,
             change.zeros);
}

void IndexAnalysis::set_bounds(Value v, const Bounds& bounds) {
  Facts& here = facts(v);
  here.low = bounds.low;
  here.high = bounds.high;
  here.is_exact = bounds.is_exact;
}

Value IndexAnalysis::new_term(const Bounds& bounds, uint64_t depends, int zeros) {
  const auto term = static_cast<Value>(facts_.size());
  Facts& here = facts_.emplace_back();
  here.low = bounds.low;
  here.high = bounds.high;
  here.depends = depends;
  here.zeros = static_cast<uint8_t>(zeros);
  return term;
}

// to += a part of v that has no form: v itself where it is all.
void IndexAnalysis::add_part(AffineForm& to, Value v, const Bounds& bounds, uint64_t depends,
                             int zeros) {
  if (to.count > 0 || to.constant != 0) return to.add(new_term(bounds, depends, zeros), 1);
  facts(v).depends = depends;
  facts(v).zeros = static_cast<uint8_t>(zeros);
  to.add(v, 1);
}

// A term of its own.
void IndexAnalysis::be_term(Value v) {
  const Instruction& inst = (*f_)[v];
  Facts& here = facts(v);
  AffineForm form;
  if (here.low == here.high && inst.op != Op::kParameter) {
    form.constant = here.low;
  } else {
    const auto zeros_of_argument = [&](size_t i) -> int { return facts(inst.arguments[i]).zeros; };
    int all = 0;
    switch (inst.op) {
      case Op::kAdd:
      case Op::kSub:
      case Op::kOr:
      case Op::kXor:
      case Op::kRemS:
      case Op::kRemU:
        all = std::min(zeros_of_argument(0), zeros_of_argument(1));
        break;
      case Op::kMul:
        all = std::min(zeros_of_argument(0) + zeros_of_argument(1), kMostZeros);
        break;
      case Op::kAnd:
        all = std::max(zeros_of_argument(0), zeros_of_argument(1));
        break;
      case Op::kShl:
      case Op::kSignExtend:
      case Op::kZeroExtend:
      case Op::kTruncate:
        all = zeros_of_argument(0);
        break;
      case Op::kSelect:
        all = std::min(zeros_of_argument(1), zeros_of_argument(2));
        break;
      default:
        break;
    }
    here.zeros = static_cast<uint8_t>(all);
    form.add(v, 1);
  }
  set_form(v, form);
}

void IndexAnalysis::set_form(Value v, const AffineForm& form) {
  if (!form.fits) return be_term(v);
  Facts& here = facts(v);
  here.is_linear = form.is_linear;
  here.first_term = static_cast<uint32_t>(terms_.size());
  here.term_count = 0;
  // What wraps is known up to multiples of 2^32.
  const bool is_narrow = !form.is_linear && f_->type(v) == ScalarType::kI32;
  const auto wrapped = [&](int64_t x) { return is_narrow ? static_cast<int32_t>(x) : x; };
  here.constant = wrapped(form.constant);
  int all_zeros = zeros(here.constant);
  uint64_t depends = 0;
  for (const Term& term : form.all()) {
    const int64_t factor = wrapped(term.factor);
    if (factor == 0) continue;
    terms_.push_back({term.term, factor});
    ++here.term_count;
    all_zeros = std::min(all_zeros, zeros(factor) + facts(term.term).zeros);
    depends |= facts(term.term).depends;
  }
  here.depends = depends;
  here.zeros = static_cast<uint8_t>(all_zeros);
}

AffineForm IndexAnalysis::form(Value v) const {
  AffineForm result;
  add(result, v, 1);
  return result;
}

void IndexAnalysis::add(AffineForm& to, Value v, int64_t times) const {
  const Facts& x = facts(v);
  to.is_linear &= x.is_linear;
  int64_t product = 0;
  to.fits &= !__builtin_mul_overflow(x.constant, times, &product);
  to.add_constant(product);
  for (const Term& term : terms(v)) {
    to.fits &= !__builtin_mul_overflow(term.factor, times, &product);
    if (!to.fits) return;
    to.add(term.term, product);
  }
}

std::span<const IndexAnalysis::Term> IndexAnalysis::terms(Value v) const {
  return {terms_.data() + facts(v).first_term, facts(v).term_count};
}

Value IndexAnalysis::term_of(Variable x) const {
  const int rank = static_cast<int>(box_.size());
  if (x == rank) return block_;
  if (x > rank) return f_->region(x - rank).parameters[0];
  return x == blocks_.dimension ? index_in_block_ : f_->body().parameters[static_cast<size_t>(x)];
}

bool IndexAnalysis::depends_on_dimension(Value v, int d) const {
  return depends(v, d) || (d == blocks_.dimension && depends(v, block_number()));
}

std::optional<int64_t> IndexAnalysis::slope(Value v, Variable x) const {
  if (!depends(v, x)) return 0;
  if (!is_integer(f_->type(v))) return std::nullopt;
  std::optional<int64_t> found = 0;
  const Value variable = term_of(x);
  for (const Term& term : terms(v)) {
    if (term.term == variable) {
      found = term.factor;
    } else if ((facts(term.term).depends & bit(x)) != 0) {
      return std::nullopt;
    }
  }
  return found;
}

std::optional<int64_t> IndexAnalysis::slope_of_dimension(Value v, int d) const {
  if (d != blocks_.dimension) return slope(v, d);
  const auto inside = slope(v, d), outside = slope(v, block_number());
  if (index_in_block_ == kNoValue) return outside;
  if (block_ == kNoValue || !inside || !outside) return block_ == kNoValue ? inside : std::nullopt;
  int64_t product = 0;
  const bool is_even =
      !__builtin_mul_overflow(*inside, blocks_.size, &product) && product == *outside;
  return is_even ? inside : std::nullopt;
}

std::optional<IndexAnalysis::Line> IndexAnalysis::line(Value v,
                                                       std::span<const Variable> variables) const {
  if (!facts(v).is_linear || !is_integer(f_->type(v))) return std::nullopt;
  Line line;
  uint64_t bits = 0;
  AffineForm rest = form(v);
  for (const Variable x : variables) {
    bits |= bit(x);
    int64_t slope = 0;
    for (const Term& term : terms(v)) {
      if (term.term == term_of(x)) slope = term.factor;
    }
    if (slope != 0) rest.add(term_of(x), -slope);
    line.slopes.push_back(slope);
  }
  const WideRange range = range_of(rest, facts_);
  line.low = range.low;
  line.high = range.high;
  line.is_flat = (depends_of(rest, facts_) & bits) == 0;
  return line;
}

int IndexAnalysis::known(Value v) const {
  if (f_->type(v) != ScalarType::kBool) return -1;
  return bounds(v).is_one() ? static_cast<int>(facts(v).low) : -1;
}

int64_t IndexAnalysis::factor(Value v, Variable x, int64_t multiple) const {
  const Value variable = x < 0 ? kNoValue : term_of(x);
  int all = zeros(facts(v).constant);
  for (const Term& term : terms(v)) {
    const int more = term.term == variable ? zeros(multiple) : facts(term.term).zeros;
    all = std::min(all, zeros(term.factor) + more);
  }
  return int64_t{1} << all;
}

int64_t IndexAnalysis::trips(Value loop) const {
  const Value count = resolved((*f_)[loop].arguments[0]);
  const Bounds all = bounds(count);
  const int64_t most = std::max<int64_t>(all.high, 0);
  // A selection is the smaller of two counts; other limits are those of widths and masks.
  const bool is_meant = (*f_)[count].op == Op::kSelect && most < bounds_of(ScalarType::kI32).high;
  return all.is_one() || is_meant ? most : std::min(most, kUnknownTrips);
}

}  // namespace hekla::kernel
