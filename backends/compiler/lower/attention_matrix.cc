// SPDX-License-Identifier: Apache-2.0
// The kernel of attention.h by matrix units: as that by tiles, with both products done by the
// subgroups of a team, each for rows of its own.
//
// Queries stay in shared memory as they are; keys, then values come there a block at a time. Scores
// leave the units in f32 and go through shared memory to the points that share a row, whose
// weights, rounded to the operands' type, go back to the units through shared memory too. What a
// row has of the result stays in the units: it is scaled down there when a greater logit comes.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>

#include "backends/compiler/lower/attention_tiles.h"

namespace hekla::lower {

using kernel::Op;
using kernel::ScalarType;

namespace {

// Elements of a unit that goes into shared memory at once: four words.
constexpr int64_t kUnit = 8;
constexpr int64_t kUnitWords = 4;
// What kernel::SumsAccess has room for, and what leaves registers for the result's sums.
constexpr int64_t kMostDepth = 256;
constexpr int64_t kMostWidth = 128;

int64_t up_to(int64_t size, int64_t part) { return blocks_of(size, part) * part; }

AttentionTile points_of(const AttentionMatrixTile& m) {
  AttentionTile tile;
  tile.across = m.across();
  tile.down = m.points() / tile.across;
  tile.rows = m.point_rows();
  tile.columns = m.keys / tile.across;
  tile.values = m.width / tile.across;
  return tile;
}

class MatrixAttention : private ScoreTiles {
 public:
  MatrixAttention(const Attention& attention, const InMemory& in_memory, int64_t largest)
      : ScoreTiles("attention_matrix",
                   {attention.weights_shape(), attention.batch, attention.rows, {attention.column}},
                   points_of(*attention.matrix_tile), value_width(attention), largest, in_memory),
        a_(attention),
        m_(*attention.matrix_tile),
        in_memory_(in_memory),
        queries_(k_.team_memory(team_dim(), m_.query_words())),
        block_(k_.team_memory(team_dim(), m_.block_words())),
        scores_(k_.team_memory(team_dim(), m_.score_words())),
        rounded_(k_.team_memory(team_dim(), m_.weight_words())),
        factors_(k_.team_memory(team_dim(), m_.rows() * m_.across())) {
    set_product(*a_.product, a_.weights_operand);
  }

  Result<LoweredSequence> run(const LowerOptions& options) {
    find_places();
    find_operands();
    point_ = k_.at(team_dim());
    const Value first_row = scaled(k_.at(space_.batch.size() + 1), m_.rows());
    put_units(queries_, score_units(query_, m_.rows(), [&](Value line) {
                return with(rows_[0], space_.outer,
                            k_.at_most(b().add(first_row, line), outer_count_ - 1));
              }));
    b().sums(Op::kSumsClear, result_sums(), {});
    const auto rows = static_cast<size_t>(t_.rows);
    Elements state;
    for (size_t i = 0; i < rows; ++i) state.push_back(number(-HUGE_VAL));
    for (size_t i = 0; i < rows; ++i) state.push_back(number(0));
    const auto mask = find_logit_mask(*a_.logits, a_.logits_dims);
    state = k_.loop(k_.index(inner_blocks()), std::vector<DType>(state.size(), DType::kF32), state,
                    [&](Value block, const Elements& carried) {
                      std::function<Value()> is_needed;
                      if (mask && std::isfinite(mask->low)) {
                        is_needed = [&] {
                          Value any = b().boolean(false);
                          for (size_t i = 0; i < rows; ++i) {
                            any = b().bit_or(any, stays(*mask, carried[i].re));
                          }
                          return any;
                        };
                      }
                      return over_block(block, carried, mask, is_needed, nullptr,
                                        [&](Value first, const Elements& before) {
                                          return add_block(first, before);
                                        });
                    });
    store(state);
    LoweredSequence sequence;
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k_.finish(options));
    sequence.kernels.push_back(std::move(made));
    return sequence;
  }

 private:
  enum : uint32_t { kResult = 0, kScores = 1 };

  // An operand of a product, whose units lie along one of its dimensions or are put together.
  struct Source {
    const ir::Value* value = nullptr;
    size_t side = 0;   // of the scores
    int64_t size = 0;  // along units
    // Where units are words of memory: that value, and the operand's dimension that each of its own
    // is.
    const ir::Value* memory = nullptr;
    WeightDims dims;
    size_t along = 0;  // the last of `memory` with a size
  };
  struct Unit {
    Value place = kernel::kNoValue;  // word of the array
    std::array<Value, 4> words{};
  };

  kernel::SumsAccess sums_access(uint32_t number, int64_t columns) const {
    kernel::SumsAccess a;
    a.dimension = queries_.dimension;
    a.number = number;
    a.rows = static_cast<uint32_t>(m_.rows());
    a.columns = static_cast<uint32_t>(columns);
    a.is_bf16 = m_.unit.operands == DType::kBF16;
    return a;
  }
  kernel::SumsAccess result_sums() const { return sums_access(kResult, m_.width); }
  kernel::SumsAccess score_sums() const { return sums_access(kScores, m_.keys); }
  static void set_left(kernel::SumsAccess& a, const kernel::TeamMemory& memory, int64_t pitch,
                       int64_t depth) {
    a.left = memory.array;
    a.left_pitch = static_cast<uint32_t>(pitch);
    a.depth = static_cast<uint32_t>(depth);
  }
  static void set_right(kernel::SumsAccess& a, const kernel::TeamMemory& memory, int64_t pitch) {
    a.right = memory.array;
    a.right_pitch = static_cast<uint32_t>(pitch);
  }
  Value zero_word() { return b().integer(ScalarType::kI32, 0); }

  // ---- operands, unit by unit

  void find_operands() {
    query_ = source(*a_.scores, 1 - a_.keys_operand, OperandDims::Kind::kDepth);
    key_ = source(*a_.scores, a_.keys_operand, OperandDims::Kind::kDepth);
    value_ = source(*a_.product, 1 - a_.weights_operand, OperandDims::Kind::kOwn);
  }

  Source source(const ir::Operation& product, size_t side, OperandDims::Kind kind) {
    const ir::Value& operand = *product.operand(side);
    const OperandDims dims = operand_dims(product, side);
    Source found;
    found.value = &operand;
    found.side = side;
    found.size = element_count(kind == OperandDims::Kind::kDepth ? dims.depth : dims.own);
    const Dims& shape = operand.type().dims();
    WeightDims at;
    int unit_dim = kSingle, unit_dims = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      at.push_back(shape[d] == 1 ? kSingle : static_cast<int>(d));
      if (shape[d] == 1 || dims.dims[d].kind != kind) continue;
      unit_dim = static_cast<int>(d);
      ++unit_dims;
    }
    if (unit_dims != 1 || found.size % kUnit != 0) return found;
    const ir::Value* value = &operand;
    while (value->defining_op() != nullptr && !in_memory_(*value)) {
      const auto moved = through_movement(*value->defining_op(), at, /*may_repeat=*/true);
      if (!moved) return found;
      at = *moved;
      value = value->defining_op()->operand(0);
    }
    const Dims& from = value->type().dims();
    size_t last = from.size();
    while (last > 0 && from[last - 1] == 1) --last;
    if (last == 0 || at[last - 1] != unit_dim) return found;
    found.memory = value;
    found.dims = at;
    found.along = last - 1;
    return found;
  }

  // A unit of the operand at a point, whose place along the units is `unit`: zeros behind the last.
  std::array<Value, 4> unit_words(const Source& from, const std::function<Point(Value)>& point_at,
                                  Value unit, int64_t padded, Value is_there) {
    const bool is_padded = padded != from.size;
    std::array<Value, 4> words{};
    if (from.memory != nullptr) {
      const int64_t units = from.size / kUnit;
      const Point point = point_at(k_.index(0));
      Dims shape = from.memory->type().dims();
      shape[from.along] = units;
      Point place;
      for (size_t d = 0; d < shape.size(); ++d) {
        place.dims.push_back(
            from.dims[d] == kSingle ? k_.index(0) : point.dims[static_cast<size_t>(from.dims[d])]);
      }
      place.dims[from.along] = is_padded ? k_.at_most(unit, units - 1) : unit;
      if (is_padded) is_there = b().bit_and(is_there, is_below(unit, units));
      const Value first = scaled(k_.emitter().linear_of(place, shape), kUnitWords);
      for (size_t i = 0; i < words.size(); ++i) {
        const Value word = k_.load_word(*from.memory, sum(first, static_cast<int64_t>(i)));
        words[i] = b().select(is_there, word, zero_word());
      }
      return words;
    }
    std::array<Value, kUnit> halves{};
    for (size_t j = 0; j < halves.size(); ++j) {
      const Value at = sum(scaled(unit, kUnit), static_cast<int64_t>(j));
      const bool may_be_behind = is_padded || from.size % kUnit != 0;
      const Point point = point_at(may_be_behind ? k_.at_most(at, from.size - 1) : at);
      const Value bits =
          kernel::element_bits(b(), m_.unit.operands, k_.emitter().emit(*from.value, point));
      const Value has = may_be_behind ? b().bit_and(is_there, is_below(at, from.size)) : is_there;
      halves[j] = b().select(has, bits, zero_word());
    }
    for (size_t i = 0; i < words.size(); ++i) words[i] = pair(halves[2 * i], halves[2 * i + 1]);
    return words;
  }

  Value pair(Value low, Value high) {
    return b().bit_or(low, b().binary(Op::kShl, high, b().integer(ScalarType::kI32, 16)));
  }

  // What this point brings of `lines` lines of `elements`, `pitch` words apart.
  std::vector<Unit> units(
      int64_t lines, int64_t elements, int64_t pitch,
      const std::function<std::array<Value, 4>(Value line, Value unit)>& words) {
    const int64_t per_line = elements / kUnit, all = lines * per_line, points = m_.points();
    std::vector<Unit> made;
    for (int64_t n = 0; n < blocks_of(all, points); ++n) {
      const bool is_uneven = (n + 1) * points > all;
      const Value mine = sum(point_, n * points);
      const Value at = is_uneven ? k_.at_most(mine, all - 1) : mine;
      const Value line = b().binary(Op::kDivU, at, k_.index(per_line));
      const Value unit = b().binary(Op::kRemU, at, k_.index(per_line));
      Value place = b().add(scaled(line, pitch), scaled(unit, kUnitWords));
      if (is_uneven) {
        place = b().select(is_below(mine, all), place,
                           sum(scaled(mine, kUnitWords), lines * pitch - all * kUnitWords));
      }
      made.push_back({place, words(line, unit)});
    }
    return made;
  }

  // Of queries or keys; `places_at`: the places of a line.
  std::vector<Unit> score_units(const Source& from, int64_t lines,
                                const std::function<Places(Value line)>& places_at) {
    return units(lines, m_.depth, m_.depth_pitch(), [&](Value line, Value unit) {
      const Places places = places_at(line);
      return unit_words(
          from, [&](Value at) { return score_point(a_.inner(), from.side, places, at); }, unit,
          m_.depth, b().boolean(true));
    });
  }

  std::vector<Unit> value_units(Value first) {
    const Value first_unit = scaled(k_.at(0), m_.width / kUnit);
    const int64_t padded = blocks_of(width_, m_.width) * m_.width;
    return units(m_.keys, m_.width, m_.width_pitch(), [&](Value line, Value unit) {
      const auto [inner, is_there] = inner_at(b().add(first, line));
      const Places places = with(rows_[0], space_.inner, inner);
      return unit_words(
          value_,
          [&](Value own) { return value_point(*a_.product, a_.weights_operand, places, own); },
          b().add(first_unit, unit), padded, is_there);
    });
  }

  void put_units(const kernel::TeamMemory& memory, const std::vector<Unit>& all) {
    for (const Unit& unit : all) b().team_store_wide(memory, word(unit.place), unit.words);
  }

  // ---- a block

  // Columns that a point has side by side, so that two weights fill a word.
  int64_t group() const { return std::gcd(kUnit, t_.columns); }
  // The row of this point's `i`-th, and the first column of its `j`-th group, in the block.
  Value block_row(size_t i) { return sum(y_, static_cast<int64_t>(i) * t_.down); }
  Value block_column(int64_t j, int64_t group) {
    return sum(scaled(x_, group), j * t_.across * group);
  }

  Elements add_block(Value first, const Elements& state) {
    const auto rows = static_cast<size_t>(t_.rows);
    put_units(block_, score_units(key_, m_.keys, [&](Value line) {
                return with(rows_[0], space_.inner, inner_at(b().add(first, line)).first);
              }));
    // On their way while scores are made.
    const std::vector<Unit> values = value_units(first);
    b().sums(Op::kSumsClear, score_sums(), {});
    kernel::SumsAccess products = score_sums();
    set_left(products, queries_, m_.depth_pitch(), m_.depth);
    set_right(products, block_, m_.depth_pitch());
    products.is_by_column = true;
    b().sums(Op::kSumsMultiply, products, {zero_word(), zero_word()});
    kernel::SumsAccess leave = score_sums();
    set_left(leave, scores_, m_.score_pitch(), m_.keys);
    b().sums(Op::kSumsStore, leave, {zero_word()});
    const Elements tile = logits(a_, stored_scores(), [&](int64_t j) {
      return b().add(first, sum(block_column(j / group(), group()), j % group()));
    });
    put_units(block_, values);

    Elements next = state;
    std::vector<std::vector<Value>> weights(rows);
    for (size_t i = 0; i < rows; ++i) {
      const Value fading =
          add_logits(i, tile, next, [&](size_t, Value weight) { weights[i].push_back(weight); });
      put(factors_, b().add(scaled(x_, m_.rows()), block_row(i)), {fading, kernel::kNoValue});
    }
    for (size_t i = 0; i < rows; ++i) put_weights(i, weights[i]);

    kernel::SumsAccess fade = result_sums();
    fade.left = factors_.array;
    b().sums(Op::kSumsScale, fade, {zero_word()});
    kernel::SumsAccess weighted = result_sums();
    set_left(weighted, rounded_, m_.weight_pitch(), m_.keys);
    set_right(weighted, block_, m_.width_pitch());
    b().sums(Op::kSumsMultiply, weighted, {zero_word(), zero_word()});
    return next;
  }

  // Of this point's rows and columns.
  Elements stored_scores() {
    Elements scores;
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (int64_t j = 0; j < t_.columns; ++j) {
        const Value place = b().add(scaled(block_row(i), m_.score_pitch()),
                                    sum(block_column(j / group(), group()), j % group()));
        scores.push_back({get(scores_, place), kernel::kNoValue});
      }
    }
    return scores;
  }

  void put_weights(size_t i, const std::vector<Value>& weights) {
    std::vector<Value> halves;
    for (const Value weight : weights) {
      const Element rounded =
          kernel::convert_element(b(), {weight, kernel::kNoValue}, DType::kF32, m_.unit.operands);
      halves.push_back(kernel::element_bits(b(), m_.unit.operands, rounded));
    }
    const Value row = scaled(block_row(i), m_.weight_pitch());
    for (int64_t j = 0; j < t_.columns / group(); ++j) {
      const Value place = b().add(row, sum(scaled(x_, group() / 2), j * t_.across * (group() / 2)));
      std::vector<Value> words;
      for (int64_t k = 0; k < group(); k += 2) {
        const auto at = static_cast<size_t>(j * group() + k);
        words.push_back(pair(halves[at], halves[at + 1]));
      }
      if (words.size() == 4) {
        b().team_store_wide(rounded_, word(place), {words[0], words[1], words[2], words[3]});
        continue;
      }
      for (size_t k = 0; k < words.size(); ++k) {
        b().team_store(rounded_, word(sum(place, static_cast<int64_t>(k))), words[k]);
      }
    }
  }

  // The sums leave through the memory of the scores, as many columns at a time as it has.
  void store(const Elements& state) {
    const auto rows = static_cast<size_t>(t_.rows);
    std::vector<Value> totals;
    for (size_t i = 0; i < rows; ++i) totals.push_back(total_of(i, state));
    const ir::Value& result = *a_.product->result();
    const Value first_value = scaled(k_.at(0), m_.width);
    for (int64_t first = 0; first < m_.width; first += m_.keys) {
      const int64_t count = std::min(m_.keys, m_.width - first);
      kernel::SumsAccess leave = result_sums();
      set_left(leave, scores_, m_.score_pitch(), count);
      leave.first = static_cast<uint32_t>(first);
      b().sums(Op::kSumsStore, leave, {zero_word()});
      const int64_t mine = count / t_.across, side_by_side = std::gcd(kUnit, mine);
      std::vector<Elements> quotients(rows);
      for (size_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < mine; ++j) {
          const Value place =
              b().add(scaled(block_row(i), m_.score_pitch()),
                      sum(block_column(j / side_by_side, side_by_side), j % side_by_side));
          quotients[i].push_back(kernel::convert_element(
              b(), {b().div(get(scores_, place), totals[i]), kernel::kNoValue}, DType::kF32,
              result.type().dtype()));
        }
      }
      for (size_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < mine; j += side_by_side) {
          const Value from =
              b().add(first_value, sum(block_column(j / side_by_side, side_by_side), first));
          store_group(i, from, {quotients[i].begin() + j, quotients[i].begin() + j + side_by_side});
        }
      }
    }
  }

  // Elements of the result side by side, as far as there are some.
  void store_group(size_t i, Value from, const Elements& elements) {
    const auto count = static_cast<int64_t>(elements.size());
    const ir::Value& result = *a_.product->result();
    const auto store_some = [&](Value has, int64_t begin, int64_t end) {
      const auto store_them = [&] {
        for (int64_t e = begin; e < end; ++e) {
          const Point point = result_point(*a_.product, a_.weights_operand, rows_[i], sum(from, e));
          k_.store(result, k_.emitter().linear_of(point, result.type().dims()),
                   elements[static_cast<size_t>(e)]);
        }
      };
      const uint64_t* always = b().constant(has);
      if (always != nullptr && *always != 0) {
        store_them();
      } else {
        k_.when(has, store_them);
      }
    };
    if (width_ % m_.width == 0) return store_some(has_row_[i], 0, count);
    if (width_ % count == 0) {
      return store_some(b().bit_and(has_row_[i], is_below(from, width_)), 0, count);
    }
    for (int64_t e = 0; e < count; ++e) {
      store_some(b().bit_and(has_row_[i], is_below(sum(from, e), width_)), e, e + 1);
    }
  }

  const Attention& a_;
  const AttentionMatrixTile& m_;
  const InMemory& in_memory_;
  const kernel::TeamMemory queries_, block_, scores_, rounded_, factors_;
  Source query_, key_, value_;
  Value point_ = kernel::kNoValue;
};

bool is_of(const ir::Operation& product, DType dtype) {
  return product.operand(0)->type().dtype() == dtype && product.operand(1)->type().dtype() == dtype;
}

}  // namespace

int64_t AttentionMatrixTile::array_words(int64_t lines, int64_t elements, int64_t pitch) const {
  const int64_t all = lines * (elements / kUnit);
  return lines * pitch + kUnitWords * (blocks_of(all, points()) * points() - all);
}

kernel::Refusal why_no_matrix_tile(const Attention& attention, const LowerOptions& options,
                                   AttentionMatrixTile& tile) {
  if (options.matrix_units.empty()) return "no matrix units with sums in f32";
  const kernel::MatrixUnit* unit = nullptr;
  for (const kernel::MatrixUnit& one : options.matrix_units) {
    if (is_of(*attention.scores, one.operands) && is_of(*attention.product, one.operands)) {
      unit = &one;
    }
  }
  if (unit == nullptr) {
    return fmt::format("no matrix units for products of {} and {}, {} and {}",
                       dtype_name(attention.scores->operand(0)->type().dtype()),
                       dtype_name(attention.scores->operand(1)->type().dtype()),
                       dtype_name(attention.product->operand(0)->type().dtype()),
                       dtype_name(attention.product->operand(1)->type().dtype()));
  }
  tile.unit = *unit;
  const int64_t depth = element_count(operand_dims(*attention.scores, 0).depth);
  tile.depth = up_to(depth, std::lcm(unit->depth, kUnit));
  if (tile.depth > kMostDepth) {
    return fmt::format("queries of {} elements, more than {}", depth, kMostDepth);
  }
  const int64_t key_part = std::lcm(std::lcm(unit->columns, unit->depth), kUnit);
  const int64_t width_part = std::lcm(unit->columns, kUnit);
  const int64_t width = up_to(value_width(attention), width_part);
  const auto fits = [&](const AttentionMatrixTile& t) {
    const AttentionTile p = points_of(t);
    return t.points() <= options.attention_points && t.points() > 1 && t.keys % key_part == 0 &&
           t.width % width_part == 0 && t.width <= kMostWidth && t.keys <= kMostDepth &&
           t.keys % (2 * p.across) == 0 && t.width % p.across == 0 && p.rows * p.down == t.rows() &&
           // Exchanges go through two arrays of a word a point, what points say of masks through
           // one.
           t.words() + 3 * t.points() <= options.attention_words;
  };
  if (options.attention_subgroups > 0) {
    tile.subgroups = options.attention_subgroups;
    tile.keys = options.attention_keys;
    tile.width = options.attention_width;
    if (fits(tile)) return {};
    return fmt::format("a team of {} subgroups with {} keys and {} values is none of this device",
                       tile.subgroups, tile.keys, tile.width);
  }
  // As many keys at once and subgroups as there is room for; in software, which compiles each
  // product of matrices for long, few.
  if (!options.small_limits) {
    for (const int64_t most : {kMostWidth, kMostWidth / 2, int64_t{32}, width_part}) {
      for (const int64_t keys : {int64_t{64}, int64_t{32}, int64_t{16}, key_part}) {
        for (const int64_t subgroups : {4, 2, 1}) {
          tile.subgroups = subgroups;
          tile.keys = up_to(keys, key_part);
          tile.width = std::min(width, up_to(most, width_part));
          if (tile.products() <= unit->most_products && fits(tile)) return {};
        }
      }
    }
  }
  // However long it takes; of several blocks of values where there are some.
  tile.keys = key_part;
  tile.width = std::min(width, 2 * width_part);
  for (const int64_t subgroups : {2, 1}) {
    tile.subgroups = subgroups;
    if (fits(tile)) return {};
  }
  return fmt::format("teams have {} points and {} words of shared memory", options.attention_points,
                     options.attention_words);
}

Result<LoweredSequence> lower_attention_by_matrices(const Attention& attention,
                                                    const InMemory& in_memory,
                                                    const LowerOptions& options) {
  const int64_t largest = largest_of_scores(
      {attention.product->operands().begin(), attention.product->operands().end()},
      element_count(attention.product->result()->type().dims()),
      {attention.members.begin(), attention.members.end()}, in_memory);
  return MatrixAttention(attention, in_memory, largest).run(options);
}

}  // namespace hekla::lower
