// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/team.h"

#include <algorithm>
#include <bit>

namespace hekla::lower {

using kernel::Op;
using kernel::ScalarType;

namespace {

// Shared memory has banks of a word each.
constexpr int kBankBits = 5;
constexpr int64_t kBanks = 1 << kBankBits;

// A part of an element as words, the lower one first; and back.
void append_words(Builder& b, Value part, std::vector<Value>& words) {
  const ScalarType type = b.type(part);
  if (type == ScalarType::kF64)
    return append_words(b, b.convert(Op::kBitcast, ScalarType::kI64, part), words);
  if (type == ScalarType::kI64) {
    words.push_back(b.convert(Op::kTruncate, ScalarType::kI32, part));
    const Value high = b.binary(Op::kShrU, part, b.integer(ScalarType::kI64, 32));
    words.push_back(b.convert(Op::kTruncate, ScalarType::kI32, high));
  } else if (type == ScalarType::kF32) {
    words.push_back(b.convert(Op::kBitcast, ScalarType::kI32, part));
  } else if (type == ScalarType::kBool) {
    words.push_back(b.convert(Op::kBoolToInt, ScalarType::kI32, part));
  } else {
    words.push_back(part);
  }
}

Value take_part(Builder& b, ScalarType type, const std::vector<Value>& words, size_t& next) {
  if (type == ScalarType::kF64) {
    return b.convert(Op::kBitcast, type, take_part(b, ScalarType::kI64, words, next));
  }
  if (type == ScalarType::kI64) {
    const Value low = b.convert(Op::kZeroExtend, type, words[next]);
    const Value high = b.convert(Op::kZeroExtend, type, words[next + 1]);
    next += 2;
    return b.bit_or(b.binary(Op::kShl, high, b.integer(type, 32)), low);
  }
  const Value word = words[next++];
  if (type == ScalarType::kF32) return b.convert(Op::kBitcast, type, word);
  if (type == ScalarType::kBool) return b.binary(Op::kNe, word, b.integer(ScalarType::kI32, 0));
  return word;
}

}  // namespace

int64_t team_words(const TeamShape& shape) {
  return shape.block() + (shape.block() + kBanks - 1) / kBanks;
}

TeamShape team_shape(int64_t length, int64_t most_share, int64_t exchanged,
                     const LowerOptions& options) {
  // A subgroup's worth of points, before a point gets several elements.
  const int64_t few = options.small_limits ? 2 : 32;
  TeamShape shape;
  const auto above = [](int64_t n) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
  };
  shape.share = std::clamp<int64_t>(above((length + few - 1) / few), 1, most_share);
  shape.points = std::clamp<int64_t>(above((length + shape.share - 1) / shape.share), 2,
                                     std::max<int64_t>(options.team_points, 2));
  const int64_t words = options.team_words - shape.points * exchanged;
  while (shape.share > 1 && team_words(shape) > words) shape.share /= 2;
  return shape;
}

Team::Team(KernelMaker& k, size_t dim, const TeamShape& shape)
    : k_(k),
      dim_(dim),
      shape_(shape),
      memory_(array(team_words(shape))),
      point_(as_number(k.at(dim))) {}

kernel::TeamMemory Team::array(int64_t words) { return k_.team_memory(dim_, words); }

Value Team::as_index(Value number) const {
  Builder& b = k_.b();
  if (b.index_type() == ScalarType::kI32) return number;
  return b.convert(Op::kSignExtend, ScalarType::kI64, number);
}

Value Team::as_number(Value index) const {
  Builder& b = k_.b();
  if (b.type(index) == ScalarType::kI32) return index;
  return b.convert(Op::kTruncate, ScalarType::kI32, index);
}

// Lanes that are `share` places apart meet different banks.
Value Team::word_of(Value place) const {
  return k_.b().add(place, k_.b().binary(Op::kShrU, place, number(kBankBits)));
}

std::vector<Value> Team::striped_words() const {
  std::vector<Value> words;
  const bool is_even = shape_.points % kBanks == 0;
  for (int64_t j = 0; j < shape_.share; ++j) {
    const int64_t first = j * shape_.points;
    words.push_back(is_even ? k_.b().add(word_of(point_), number(first + first / kBanks))
                            : word_of(striped(j)));
  }
  return words;
}

std::vector<Value> Team::blocked_words() const {
  std::vector<Value> words;
  // The places of a point are all before the same bank's end.
  const bool is_even = kBanks % shape_.share == 0;
  for (int64_t j = 0; j < shape_.share; ++j) {
    words.push_back(is_even ? k_.b().add(word_of(blocked(0)), number(j)) : word_of(blocked(j)));
  }
  return words;
}

std::vector<Elements> Team::move(const std::vector<Elements>& elements,
                                 const std::vector<DType>& dtypes, const std::vector<Value>& from,
                                 const std::vector<Value>& to) {
  Builder& b = k_.b();
  std::vector<std::vector<Value>> words;
  for (const Elements& each : elements) {
    words.emplace_back();
    for (const Element& e : each) {
      append_words(b, e.re, words.back());
      if (e.im != kernel::kNoValue) append_words(b, e.im, words.back());
    }
  }
  std::vector<std::vector<Value>> moved(elements.size());
  for (size_t w = 0; w < words.front().size(); ++w) {
    for (size_t j = 0; j < words.size(); ++j) b.team_store(memory_, from[j], words[j][w]);
    for (size_t j = 0; j < words.size(); ++j) moved[j].push_back(b.team_load(memory_, to[j]));
  }
  std::vector<Elements> result;
  for (size_t j = 0; j < moved.size(); ++j) {
    size_t next = 0;
    result.emplace_back();
    for (size_t e = 0; e < dtypes.size(); ++e) {
      const ScalarType type = kernel::scalar_type(dtypes[e]);
      Element element;
      element.re = take_part(b, type, moved[j], next);
      if (elements[j][e].im != kernel::kNoValue) element.im = take_part(b, type, moved[j], next);
      result.back().push_back(element);
    }
  }
  return result;
}

Team::Scan Team::scan(const Elements& mine, const Reduce& reduce) {
  Builder& b = k_.b();
  Scan result{mine, mine};
  for (int64_t distance = 1; distance < shape_.points; distance *= 2) {
    Elements other;
    for (const Element& e : result.total) other.push_back(k_.from_team(e, dim_, distance));
    const auto has = [&](int64_t bits) {
      return b.binary(Op::kNe, b.bit_and(point_, number(bits)), number(0));
    };
    const Value is_upper = has(distance);
    Elements before = other;
    if (distance > 1) before = k_.choose(has(distance - 1), reduce(other, result.before), other);
    result.before = k_.choose(is_upper, before, result.before);
    result.total =
        reduce(k_.choose(is_upper, other, result.total), k_.choose(is_upper, result.total, other));
  }
  return result;
}

void Team::scan_sums(const std::vector<Value*>& totals, const std::vector<Value*>& before) {
  Builder& b = k_.b();
  for (int64_t distance = 1; distance < shape_.points; distance *= 2) {
    const Value is_upper = b.binary(Op::kNe, b.bit_and(point_, number(distance)), number(0));
    for (size_t i = 0; i < totals.size(); ++i) {
      const Value other = k_.from_team({*totals[i]}, dim_, distance).re;
      *before[i] = b.add(*before[i], b.select(is_upper, other, number(0)));
      *totals[i] = b.add(*totals[i], other);
    }
  }
}

}  // namespace hekla::lower
