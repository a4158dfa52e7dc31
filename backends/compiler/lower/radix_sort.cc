// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/radix_sort.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "backends/compiler/lower/team_scan.h"

namespace hekla::lower {

using kernel::Op;
using kernel::ScalarType;

namespace {

// Bits that a block is sorted by at a time: four counts of 16 bits.
constexpr int kStep = 2;
// Words of shared memory of a point for exchanges, and an entry of a table.
constexpr int64_t kExchanged = 3;
// Bits of a digit, at most.
constexpr int kMostBits = 8;

// What sizes decide.
struct RadixLimits {
  int64_t least_line = 64;
  int64_t most_share = 16;
  // Passes over memory: merges take fewer.
  int most_passes = 24;
};

RadixLimits radix_limits(const LowerOptions& options) {
  return options.small_limits ? RadixLimits{5, 4, 24} : RadixLimits{};
}

// What points have of four kinds, as four numbers of 16 bits.
using Counts = std::array<Value, 2>;

class RadixLowering {
 public:
  explicit RadixLowering(const RadixSort& sort) : sort_(sort) {}

  Status run() {
    if (blocks_ == 1) return sort_lines();
    std::vector<Pass> passes;
    for (size_t i = sort_.keys.size(); i-- > 0;) {
      for (int shift = 0; shift < dtype_bits(sort_.keys[i].dtype); shift += digit_bits_) {
        const int bits = std::min(digit_bits_, dtype_bits(sort_.keys[i].dtype) - shift);
        passes.push_back({&sort_.keys[i], shift, bits});
      }
    }
    Temporaries from, to;
    for (size_t p = 0; p < passes.size(); ++p) {
      const bool is_last = p + 1 == passes.size();
      if (is_last) {
        to.clear();
      } else if (p < 2) {
        to = add(sort_.dtypes, sort_.outer * sort_.size * sort_.inner);
      }
      HEKLA_RETURN_IF_ERROR(sort_by_digit(passes[p], from, to));
      if (p == 0) {
        from = to;
      } else {
        std::swap(from, to);
      }
    }
    return ok_status();
  }

 private:
  using Temporaries = std::vector<Temporary>;
  // A digit of a key.
  struct Pass {
    const SortKey* key;
    int shift;
    int bits;
  };

  Temporaries add(const std::vector<DType>& dtypes, int64_t elements) const {
    Temporaries added;
    for (const DType dtype : dtypes)
      added.push_back(add_temporary(sort_.sequence, dtype, elements));
    return added;
  }
  Status finish(KernelMaker& k) const {
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k.finish(sort_.options));
    sort_.sequence.kernels.push_back(std::move(made));
    return ok_status();
  }
  bool is_whole() const { return sort_.size % shape_.block() == 0; }
  int64_t lines() const { return sort_.outer * sort_.inner; }
  int64_t radix() const { return int64_t{1} << digit_bits_; }
  int64_t largest() const {
    return std::max((sort_.size + shape_.block()) * lines(), lines() * radix() * blocks_);
  }
  void when(KernelMaker& k, bool is_always, Value condition,
            const std::function<void()>& body) const {
    if (is_always) {
      body();
    } else {
      k.when(condition, body);
    }
  }

  Value index_of(KernelMaker& k, Value i) const {
    Builder& b = k.b();
    const Value line = b.add(b.mul(k.at(0), k.index(sort_.size)), i);
    return b.add(b.mul(line, k.index(sort_.inner)), k.at(2));
  }
  // Elements of this point, striped; behind the end those of the last one, again.
  std::vector<Elements> load(KernelMaker& k, const Team& team, const Temporaries& from) const {
    std::vector<Elements> elements;
    for (int64_t j = 0; j < shape_.share; ++j) {
      Value i = place_in_line(k, team, j);
      if (!is_whole()) i = k.at_most(i, sort_.size - 1);
      if (from.empty()) {
        elements.push_back(sort_.load(k, i));
        continue;
      }
      elements.emplace_back();
      const Value at = index_of(k, i);
      for (const Temporary& each : from) elements.back().push_back(k.load(each, at));
    }
    return elements;
  }
  Value place_in_line(KernelMaker& k, const Team& team, int64_t j) const {
    const Value first = k.b().mul(k.at(1), k.index(shape_.block()));
    return k.b().add(first, team.as_index(team.striped(j)));
  }
  // How many elements the block has, as a number.
  Value count(KernelMaker& k, const Team& team) const {
    const Value first = k.b().mul(k.at(1), k.index(shape_.block()));
    return team.as_number(k.at_most(k.b().sub(k.index(sort_.size), first), shape_.block()));
  }

  // `bits` of a key from `shift` on, which has the key's type.
  Value digit(KernelMaker& k, const SortKey& key, const Elements& element, Value shift,
              int bits) const {
    Builder& b = k.b();
    Value number = b.binary(Op::kShrU, sort_.number(k, key, element), shift);
    if (b.type(number) == ScalarType::kI64)
      number = b.convert(Op::kTruncate, ScalarType::kI32, number);
    return b.bit_and(number, b.integer(ScalarType::kI32, (int64_t{1} << bits) - 1));
  }
  ScalarType number_type(const SortKey& key) const {
    return dtype_bits(key.dtype) == 64 ? ScalarType::kI64 : ScalarType::kI32;
  }

  // Sorts a block, blocked, by kStep bits of a key, stably. Elements of places from `count` on are
  // none, and stay where they are. Gives elements at `places`.
  std::vector<Elements> split(KernelMaker& k, Team& team, const SortKey& key, Value shift,
                              Value count, const std::vector<Elements>& elements,
                              const std::vector<Value>& places) const {
    Builder& b = k.b();
    const auto n = [&](int64_t value) { return team.number(value); };
    std::vector<Value> digits;
    for (size_t j = 0; j < elements.size(); ++j) {
      Value d = digit(k, key, elements[j], shift, kStep);
      if (!is_whole()) {
        const Value exists = b.binary(Op::kLtS, team.blocked(static_cast<int64_t>(j)), count);
        d = b.select(exists, d, n(3));
      }
      digits.push_back(d);
    }
    // Digits 0 and 1 are counted in the first word, 2 and 3 in the second.
    std::vector<Value> is_high, offset, one;
    Counts counts{n(0), n(0)};
    const auto added = [&](Counts to, size_t j) {
      to[0] = b.add(to[0], b.select(is_high[j], n(0), one[j]));
      to[1] = b.add(to[1], b.select(is_high[j], one[j], n(0)));
      return to;
    };
    for (size_t j = 0; j < elements.size(); ++j) {
      is_high.push_back(b.binary(Op::kLeU, n(2), digits[j]));
      offset.push_back(b.binary(Op::kShl, b.bit_and(digits[j], n(1)), n(4)));
      one.push_back(b.binary(Op::kShl, n(1), offset[j]));
      counts = added(counts, j);
    }
    Counts total = counts, before{n(0), n(0)};
    team.scan_sums({&total[0], &total[1]}, {&before[0], &before[1]});
    const auto low = [&](Value v) { return b.bit_and(v, n(0xffff)); };
    const auto high = [&](Value v) { return b.binary(Op::kShrU, v, n(16)); };
    const Value two = b.add(low(total[0]), high(total[0]));
    const Value three = b.add(two, low(total[1]));
    before[0] = b.add(before[0], b.binary(Op::kShl, total[0], n(16)));
    before[1] = b.add(before[1], b.bit_or(b.binary(Op::kShl, three, n(16)), two));
    std::vector<Value> places_to;
    for (size_t j = 0; j < elements.size(); ++j) {
      const Value word = b.select(is_high[j], before[1], before[0]);
      places_to.push_back(low(b.binary(Op::kShrU, word, offset[j])));
      before = added(before, j);
    }
    return team.move(elements, sort_.dtypes, places_to, places);
  }

  // Sorts a block, blocked, by `bits` of a key from `shift` on, a number of the key's type.
  std::vector<Elements> sort_block(KernelMaker& k, Team& team, const SortKey& key, Value shift,
                                   int bits, Value count, std::vector<Elements> elements) const {
    Builder& b = k.b();
    std::vector<DType> types;
    Elements initial;
    for (const Elements& each : elements) {
      types.insert(types.end(), sort_.dtypes.begin(), sort_.dtypes.end());
      initial.insert(initial.end(), each.begin(), each.end());
    }
    const auto cut = [&](const Elements& all) {
      std::vector<Elements> parts;
      const auto width = static_cast<std::ptrdiff_t>(sort_.dtypes.size());
      for (auto at = all.begin(); at != all.end(); at += width) parts.emplace_back(at, at + width);
      return parts;
    };
    const ScalarType type = number_type(key);
    const Elements sorted = k.loop(
        k.index((bits + kStep - 1) / kStep), types, initial, [&](Value t, const Elements& now) {
          Value step = team.as_number(t);
          if (type == ScalarType::kI64) step = b.convert(Op::kZeroExtend, type, step);
          const Value here = b.add(shift, b.mul(step, b.integer(type, kStep)));
          Elements all;
          for (const Elements& each :
               split(k, team, key, here, count, cut(now), team.blocked_places())) {
            all.insert(all.end(), each.begin(), each.end());
          }
          return all;
        });
    return cut(sorted);
  }

  // Lines of one block.
  Status sort_lines() const {
    KernelMaker k("sort_lines", {sort_.outer, 1, sort_.inner, shape_.points}, largest(),
                  sort_.in_memory);
    Builder& b = k.b();
    Team team(k, 3, shape_);
    const Value all = team.number(sort_.size);
    std::vector<Elements> elements = load(k, team, {});
    elements = team.move(elements, sort_.dtypes, team.striped_places(), team.blocked_places());
    for (size_t i = sort_.keys.size(); i-- > 0;) {
      const SortKey& key = sort_.keys[i];
      elements = sort_block(k, team, key, b.integer(number_type(key), 0), dtype_bits(key.dtype),
                            all, std::move(elements));
    }
    elements = team.move(elements, sort_.dtypes, team.blocked_places(), team.striped_places());
    for (int64_t j = 0; j < shape_.share; ++j) {
      const Value i = place_in_line(k, team, j);
      when(k, is_whole(), b.binary(Op::kLtS, i, k.index(sort_.size)),
           [&] { sort_.store(k, i, elements[static_cast<size_t>(j)]); });
    }
    return finish(k);
  }

  // One pass: from the operands, or `from`; to the results, or `to`.
  Status sort_by_digit(const Pass& pass, const Temporaries& from, const Temporaries& to) {
    const int64_t entries = radix() * blocks_;  // of the table of a line
    if (counts_.empty()) {
      counts_ = add({DType::kI32}, lines() * entries);
      sums_ = add({DType::kI32}, lines() * entries);
    }
    const DType shift_dtype =
        number_type(*pass.key) == ScalarType::kI64 ? DType::kI64 : DType::kI32;
    const Table level = add_index_table(sort_.sequence, shift_dtype, pass.shift);
    HEKLA_RETURN_IF_ERROR(count_digits(pass, level, from));
    TeamScan scan{sort_.sequence,
                  sort_.in_memory,
                  sort_.options,
                  lines(),
                  entries,
                  1,
                  {DType::kI32},
                  {},
                  {},
                  {}};
    scan.reduce = [](KernelMaker& k, const Elements& a, const Elements& b) {
      return Elements{{k.b().add(a[0].re, b[0].re)}};
    };
    const auto entry = [&](KernelMaker& k, Value i) {
      return k.b().add(k.b().mul(k.at(0), k.index(entries)), i);
    };
    scan.load = [&](KernelMaker& k, Value i) { return Elements{k.load(counts_[0], entry(k, i))}; };
    scan.store = [&](KernelMaker& k, Value i, const Elements& e) {
      k.store(sums_[0], entry(k, i), e[0]);
    };
    HEKLA_RETURN_IF_ERROR(scan_by_teams(scan));
    return move_by_digit(pass, level, from, to);
  }

  // In the table of counts: digit `d` of this block.
  Value entry_of(KernelMaker& k, Value d) const {
    Builder& b = k.b();
    const Value line = b.add(b.mul(k.at(0), k.index(sort_.inner)), k.at(2));
    return b.add(b.mul(b.add(b.mul(line, k.index(radix())), d), k.index(blocks_)), k.at(1));
  }

  Status count_digits(const Pass& pass, const Table& level, const Temporaries& from) const {
    KernelMaker k("sort_count", {sort_.outer, blocks_, sort_.inner, shape_.points}, largest(),
                  sort_.in_memory);
    Builder& b = k.b();
    Team team(k, 3, shape_);
    // The last entry counts what is none.
    const kernel::TeamMemory counts = team.array(radix() + 1);
    const Value point = team.point();
    const Value has_digit = b.binary(Op::kLtU, point, team.number(radix()));
    const Value mine = b.select(has_digit, point, team.number(radix()));
    const std::vector<Elements> elements = load(k, team, from);
    const Value shift = k.load(level, k.index(0)).re;
    b.team_store(counts, mine, team.number(0));
    const Value size = count(k, team);
    for (int64_t j = 0; j < shape_.share; ++j) {
      Value d = digit(k, *pass.key, elements[static_cast<size_t>(j)], shift, pass.bits);
      if (!is_whole()) {
        const Value exists = b.binary(Op::kLtS, team.striped(j), size);
        d = b.select(exists, d, team.number(radix()));
      }
      b.team_add(counts, d, team.number(1));
    }
    const Value found = b.team_load(counts, mine);
    when(k, radix() == shape_.points, has_digit,
         [&] { k.store(counts_[0], entry_of(k, team.as_index(point)), {found}); });
    return finish(k);
  }

  Status move_by_digit(const Pass& pass, const Table& level, const Temporaries& from,
                       const Temporaries& to) const {
    KernelMaker k("sort_move", {sort_.outer, blocks_, sort_.inner, shape_.points}, largest(),
                  sort_.in_memory);
    Builder& b = k.b();
    Team team(k, 3, shape_);
    const Value size = count(k, team);
    std::vector<Elements> elements = load(k, team, from);
    // Where the elements of a digit go, less where they begin in the sorted block; points without a
    // digit of their own write behind the others.
    const kernel::TeamMemory starts = team.array(shape_.points);
    const Value point = team.point();
    const Value d = team.as_index(
        b.select(b.binary(Op::kLtU, point, team.number(radix())), point, team.number(radix() - 1)));
    const Value found = k.load(counts_[0], entry_of(k, d)).re;
    const Value up_to = k.load(sums_[0], entry_of(k, d)).re;
    Value total = found, before = team.number(0);
    team.scan_sums({&total}, {&before});
    const Value start = b.sub(b.sub(up_to, found), before);
    b.team_store(starts, point, start);
    const Value shift = k.load(level, k.index(0)).re;
    elements = team.move(elements, sort_.dtypes, team.striped_places(), team.blocked_places());
    elements = sort_block(k, team, *pass.key, shift, pass.bits, size, std::move(elements));
    elements = team.move(elements, sort_.dtypes, team.blocked_places(), team.striped_places());
    for (int64_t j = 0; j < shape_.share; ++j) {
      const Elements& element = elements[static_cast<size_t>(j)];
      const Value place = team.striped(j);
      const Value value = digit(k, *pass.key, element, shift, pass.bits);
      const Value at = team.as_index(b.add(b.team_load(starts, value), place));
      when(k, is_whole(), b.binary(Op::kLtS, place, size), [&] {
        if (to.empty()) return sort_.store(k, at, element);
        const Value where = index_of(k, at);
        for (size_t e = 0; e < element.size(); ++e) k.store(to[e], where, element[e]);
      });
    }
    return finish(k);
  }

  const RadixSort& sort_;
  const TeamShape shape_ =
      team_shape(sort_.size, radix_limits(sort_.options).most_share, kExchanged, sort_.options);
  const int64_t blocks_ = (sort_.size - 1) / shape_.block() + 1;
  // As many digits as points, at most.
  const int digit_bits_ =
      std::min(kMostBits, std::countr_zero(static_cast<uint64_t>(shape_.points)) / kStep * kStep);
  Temporaries counts_, sums_;
};

}  // namespace

kernel::Refusal why_no_radix_sort(const RadixSort& sort) {
  if (sort.options.team_words == 0) return "the device has no memory of teams";
  if (sort.keys.empty()) return "its comparator is no total order of keys";
  const RadixLimits limits = radix_limits(sort.options);
  if (sort.size < limits.least_line) {
    return fmt::format("lines of {} elements, fewer than {}", sort.size, limits.least_line);
  }
  int bits = 0;
  for (const SortKey& key : sort.keys) bits += dtype_bits(key.dtype);
  if (bits > kMostBits * limits.most_passes) {
    return fmt::format("keys of {} bits", bits);
  }
  return {};
}

Status sort_by_radix(const RadixSort& sort) { return RadixLowering(sort).run(); }

}  // namespace hekla::lower
