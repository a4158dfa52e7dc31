// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/radix_sort.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "backends/compiler/lower/team_scan.h"

namespace hekla::lower {

using kernel::Op;
using kernel::ScalarType;

namespace {

// Bits that a block is sorted by at a time.
constexpr int kStep = 2;
// Elements of a point, at most.
constexpr int64_t kMostShare = 16;
// Words of shared memory of a point for exchanges, and an entry of a table.
constexpr int64_t kExchanged = 3;
// Bits of a digit, at most.
constexpr int kMostBits = 8;

// What sizes decide.
struct RadixLimits {
  int64_t least_line = 64;
  int64_t most_share = kMostShare;
  // Passes over memory: merges take fewer.
  int most_passes = 24;
};

RadixLimits radix_limits(const LowerOptions& options) {
  return options.small_limits ? RadixLimits{5, 4, 24} : RadixLimits{};
}

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
    return std::max(
        {(sort_.size + shape_.block()) * lines(), lines() * radix() * blocks_, sort_.largest});
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

  // Sorts the places of a block by digits of `bits`, stably: `digits` of those of this point,
  // striped. Gives what stands at each place, striped: where it comes from, below, and its digit.
  // Elements of places from `count` on are none, and stay where they are.
  std::vector<Value> order(KernelMaker& k, Team& team, const std::vector<Value>& digits, int bits,
                           Value count) const {
    Builder& b = k.b();
    std::vector<Elements> words;
    for (size_t j = 0; j < digits.size(); ++j) {
      const Value digit = b.binary(Op::kShl, digits[j], team.number(place_bits_));
      words.push_back({{b.bit_or(digit, team.striped(static_cast<int64_t>(j)))}});
    }
    words = team.move(words, {DType::kUI32}, team.striped_words(), team.blocked_words());
    const auto joined = [](const std::vector<Elements>& parts) {
      Elements all;
      for (const Elements& each : parts) all.push_back(each[0]);
      return all;
    };
    const auto cut = [](const Elements& all) {
      std::vector<Elements> parts;
      for (const Element& each : all) parts.push_back({each});
      return parts;
    };
    const int steps = (bits + kStep - 1) / kStep;
    const auto step = [&](Value t, const std::vector<Elements>& now,
                          const std::vector<Value>& places) {
      const Value shift = b.add(b.mul(t, team.number(kStep)), team.number(place_bits_));
      return split(k, team, shift, count, now, places);
    };
    // The last step puts them where they are wanted.
    if (steps > 1) {
      const std::vector<DType> types(words.size(), DType::kUI32);
      words =
          cut(k.loop(k.index(steps - 1), types, joined(words), [&](Value t, const Elements& now) {
            return joined(step(team.as_number(t), cut(now), team.blocked_words()));
          }));
    }
    std::vector<Value> result;
    for (const Elements& each : step(team.number(steps - 1), words, team.striped_words())) {
      result.push_back(each[0].re);
    }
    return result;
  }

  // Sorts words, blocked, by their kStep bits from `shift` on. Gives those at `places`.
  std::vector<Elements> split(KernelMaker& k, Team& team, Value shift, Value count,
                              const std::vector<Elements>& words,
                              const std::vector<Value>& places) const {
    Builder& b = k.b();
    const auto n = [&](int64_t value) { return team.number(value); };
    const auto shl = [&](Value v, int64_t by) { return b.binary(Op::kShl, v, n(by)); };
    const auto shr = [&](Value v, Value by) { return b.binary(Op::kShrU, v, by); };
    const auto low = [&](Value v) { return b.bit_and(v, n(0xffff)); };
    // A point has fewer than 256: how many of each kind in 8 bits each.
    static_assert(kMostShare < 256);
    std::vector<Value> kinds, ranks;
    Value mine = n(0);
    for (size_t j = 0; j < words.size(); ++j) {
      Value kind = b.bit_and(shr(words[j][0].re, shift), n(3));
      if (!is_whole()) {
        const Value exists = b.binary(Op::kLtS, team.blocked(static_cast<int64_t>(j)), count);
        kind = b.select(exists, kind, n(3));
      }
      kinds.push_back(kind);
      const Value offset = shl(kind, 3);
      ranks.push_back(b.bit_and(shr(mine, offset), n(0xff)));
      mine = b.add(mine, b.binary(Op::kShl, n(1), offset));
    }
    // In 16 bits each: of kinds 0 and 1, of 2 and 3.
    const auto halves = [&](Value bytes) {
      return b.bit_or(b.bit_and(bytes, n(0xff)), shl(b.bit_and(bytes, n(0xff00)), 8));
    };
    Value first = halves(mine), second = halves(shr(mine, n(16)));
    Value before_first = n(0), before_second = n(0);
    team.scan_sums({&first, &second}, {&before_first, &before_second});
    const Value two = b.add(low(first), shr(first, n(16)));
    const Value three = b.add(two, low(second));
    before_first = b.add(before_first, shl(first, 16));
    before_second = b.add(before_second, b.bit_or(shl(three, 16), two));
    std::vector<Value> to;
    for (size_t j = 0; j < words.size(); ++j) {
      const Value is_second = b.binary(Op::kLeU, n(2), kinds[j]);
      const Value offset = shl(b.bit_and(kinds[j], n(1)), 4);
      const Value start = low(shr(b.select(is_second, before_second, before_first), offset));
      to.push_back(team.word_of(b.add(start, ranks[j])));
    }
    return team.move(words, {DType::kUI32}, to, places);
  }

  // The elements that `order` names, of those at all places.
  std::vector<Elements> follow(KernelMaker& k, Team& team, const std::vector<Elements>& elements,
                               const std::vector<Value>& ordered) const {
    std::vector<Value> from;
    for (const Value word : ordered) {
      from.push_back(
          team.word_of(k.b().bit_and(word, team.number((int64_t{1} << place_bits_) - 1))));
    }
    return team.move(elements, sort_.dtypes, team.striped_words(), from);
  }

  // Lines of one block.
  Status sort_lines() const {
    KernelMaker k("sort_lines", {sort_.outer, 1, sort_.inner, shape_.points}, largest(),
                  sort_.in_memory);
    Builder& b = k.b();
    Team team(k, 3, shape_);
    const Value all = team.number(sort_.size);
    std::vector<Elements> elements = load(k, team, {});
    std::vector<DType> types;
    for (int64_t j = 0; j < shape_.share; ++j) {
      types.insert(types.end(), sort_.dtypes.begin(), sort_.dtypes.end());
    }
    const auto joined = [](const std::vector<Elements>& parts) {
      Elements together;
      for (const Elements& each : parts) {
        together.insert(together.end(), each.begin(), each.end());
      }
      return together;
    };
    const auto cut = [&](const Elements& together) {
      std::vector<Elements> parts;
      const auto width = static_cast<std::ptrdiff_t>(sort_.dtypes.size());
      for (auto at = together.begin(); at != together.end(); at += width) {
        parts.emplace_back(at, at + width);
      }
      return parts;
    };
    for (size_t i = sort_.keys.size(); i-- > 0;) {
      const SortKey& key = sort_.keys[i];
      const int width = dtype_bits(key.dtype);
      const int bits = std::min(kMostBits, width);
      const ScalarType type = number_type(key);
      elements =
          cut(k.loop(k.index((width + bits - 1) / bits), types, joined(elements),
                     [&](Value t, const Elements& now) {
                       Value number = team.as_number(t);
                       if (type == ScalarType::kI64)
                         number = b.convert(Op::kZeroExtend, type, number);
                       const Value shift = b.mul(number, b.integer(type, bits));
                       const std::vector<Elements> before = cut(now);
                       std::vector<Value> digits;
                       for (const Elements& each : before) {
                         digits.push_back(digit(k, key, each, shift, bits));
                       }
                       return joined(follow(k, team, before, order(k, team, digits, bits, all)));
                     }));
    }
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
    // Behind those of the digits one that counts what is none.
    const kernel::TeamMemory counts = team.array(std::max(radix() + 1, shape_.points));
    const Value point = team.point();
    const Value has_digit = b.binary(Op::kLtU, point, team.number(radix()));
    const std::vector<Elements> elements = load(k, team, from);
    const Value shift = k.load(level, k.index(0)).re;
    b.team_store(counts, point, team.number(0));
    const Value size = count(k, team);
    for (int64_t j = 0; j < shape_.share; ++j) {
      Value d = digit(k, *pass.key, elements[static_cast<size_t>(j)], shift, pass.bits);
      if (!is_whole()) {
        const Value exists = b.binary(Op::kLtS, team.striped(j), size);
        d = b.select(exists, d, team.number(radix()));
      }
      b.team_add(counts, d, team.number(1));
    }
    const Value found = b.team_load(counts, point);
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
    std::vector<Value> digits;
    for (const Elements& each : elements) {
      digits.push_back(digit(k, *pass.key, each, shift, pass.bits));
    }
    const std::vector<Value> ordered = order(k, team, digits, pass.bits, size);
    elements = follow(k, team, elements, ordered);
    for (int64_t j = 0; j < shape_.share; ++j) {
      const Elements& element = elements[static_cast<size_t>(j)];
      const Value place = team.striped(j);
      const Value value =
          b.binary(Op::kShrU, ordered[static_cast<size_t>(j)], team.number(place_bits_));
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
  // Of a place in a block.
  const int place_bits_ = std::countr_zero(static_cast<uint64_t>(shape_.block()));
  Temporaries counts_, sums_;
};

}  // namespace

kernel::Refusal why_no_radix_sort(const RadixSort& sort) {
  if (sort.options.team_words == 0) return "the device has no memory of teams";
  if (sort.options.team_points < 4) return "teams of fewer than 4 points";
  if (sort.keys.empty()) return "its comparator is no total order of keys";
  const RadixLimits limits = radix_limits(sort.options);
  if (sort.size < limits.least_line) {
    return fmt::format("lines of {} elements, fewer than {}", sort.size, limits.least_line);
  }
  // Counts are numbers of 32 bits.
  if (sort.size > std::numeric_limits<int32_t>::max() / 2) {
    return fmt::format("lines of {} elements are too long to be counted", sort.size);
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
