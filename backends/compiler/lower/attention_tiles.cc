// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/attention_tiles.h"

#include <algorithm>
#include <cmath>

namespace hekla::lower {

using kernel::Op;

namespace {

int64_t count_in(const Dims& shape, const std::vector<size_t>& dims) {
  int64_t count = 1;
  for (const size_t d : dims) count *= shape[d];
  return count;
}

// Value blocks, batch, blocks of outer places, points of a team.
std::vector<int64_t> grid_of(const ScoreSpace& space, const AttentionTile& tile, int64_t width) {
  std::vector<int64_t> sizes{width == 0 ? 1 : blocks_of(width, tile.block_values())};
  for (const size_t d : space.batch) sizes.push_back(space.shape[d]);
  sizes.push_back(blocks_of(count_in(space.shape, space.outer), tile.block_rows()));
  sizes.push_back(tile.points());
  return sizes;
}

}  // namespace

ScoreTiles::ScoreTiles(std::string name, ScoreSpace space, const AttentionTile& tile, int64_t width,
                       int64_t largest, const InMemory& in_memory)
    : ScoreKernel(std::move(name), grid_of(space, tile, width),
                  std::max(largest, 2 * (count_in(space.shape, space.inner) +
                                         count_in(space.shape, space.outer) + tile.block_columns() +
                                         tile.block_rows())),
                  in_memory, space.shape),
      space_(std::move(space)),
      t_(tile),
      width_(width),
      outer_count_(count(space_.outer)),
      inner_count_(count(space_.inner)),
      operands_(k_.team_memory(team_dim(), t_.operand_words())),
      weights_(k_.team_memory(team_dim(), t_.weight_words())),
      flags_(k_.team_memory(team_dim(), t_.points())) {}

void ScoreTiles::find_places() {
  const Value point = k_.at(team_dim());
  x_ = b().bit_and(point, k_.index(t_.across - 1));
  y_ = b().binary(Op::kDivU, point, k_.index(t_.across));
  places_.assign(shape_.size(), k_.index(0));
  for (size_t i = 0; i < space_.batch.size(); ++i) places_[space_.batch[i]] = k_.at(1 + i);
  const Value first = scaled(k_.at(space_.batch.size() + 1), t_.block_rows());
  const bool is_uneven = outer_count_ % t_.block_rows() != 0;
  for (int64_t i = 0; i < t_.rows; ++i) {
    const Value row = b().add(sum(first, i * t_.down), y_);
    has_row_.push_back(is_uneven ? is_below(row, outer_count_) : b().boolean(true));
    rows_.push_back(
        with(places_, space_.outer, is_uneven ? k_.at_most(row, outer_count_ - 1) : row));
  }
  if (width_ == 0) return;
  const Value first_value = b().add(scaled(k_.at(0), t_.block_values()), x_);
  for (int64_t j = 0; j < t_.values; ++j) value_places_.push_back(sum(first_value, j * t_.across));
}

std::pair<Value, Value> ScoreTiles::inner_at(Value number) {
  if (inner_count_ % t_.block_columns() == 0) return {number, b().boolean(true)};
  return {k_.at_most(number, inner_count_ - 1), is_below(number, inner_count_)};
}

ScoreKernel::Places ScoreTiles::place_in_tile(size_t i, Value inner) {
  return with(rows_[i], space_.inner, inner);
}

void ScoreTiles::add_range(const std::vector<size_t>& dims, Value first, int64_t block,
                           BlockRange& range) {
  const Value last = k_.at_most(sum(first, block - 1), count(dims) - 1);
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    const int64_t size = shape_[dims[i]];
    Value low = b().binary(Op::kDivU, first, k_.index(stride));
    Value high = b().binary(Op::kDivU, last, k_.index(stride));
    if (i > 0) {
      // Of numbers that begin again all indices.
      const Value is_one = b().binary(Op::kEq, b().binary(Op::kDivU, low, k_.index(size)),
                                      b().binary(Op::kDivU, high, k_.index(size)));
      low = b().select(is_one, b().binary(Op::kRemU, low, k_.index(size)), k_.index(0));
      high = b().select(is_one, b().binary(Op::kRemU, high, k_.index(size)), k_.index(size - 1));
    }
    range.low[dims[i]] = low;
    range.high[dims[i]] = high;
    stride *= size;
  }
}

Elements ScoreTiles::over_block(Value block, const Elements& state,
                                const std::optional<LogitMask>& mask,
                                const std::function<Value()>& is_needed,
                                const std::function<Elements(const Elements&)>& skipped,
                                const std::function<Elements(Value first, const Elements&)>& body) {
  const Value first = scaled(block, t_.block_columns());
  if (!mask) return body(first, state);
  BlockRange range{places_, places_};
  add_range(space_.outer, scaled(k_.at(space_.batch.size() + 1), t_.block_rows()), t_.block_rows(),
            range);
  add_range(space_.inner, first, t_.block_columns(), range);
  const auto is_single = [this](size_t d) {
    return std::find(space_.outer.begin(), space_.outer.end(), d) == space_.outer.end() &&
           std::find(space_.inner.begin(), space_.inner.end(), d) == space_.inner.end();
  };
  Value needed = MaskEvaluator(k_, is_single).may_be_present(*mask, range);
  if (const uint64_t* known = b().constant(needed); known != nullptr && *known != 0) {
    return body(first, state);
  }
  if (is_needed) {
    const auto zero = b().integer(kernel::ScalarType::kI32, 0);
    const Value mine = b().convert(Op::kBoolToInt, kernel::ScalarType::kI32, is_needed());
    b().team_store(flags_, word(k_.at(team_dim())), zero);
    b().team_add(flags_, zero, mine);
    needed = b().bit_or(needed, b().binary(Op::kNe, b().team_load(flags_, zero), zero));
  }
  if (const uint64_t* known = b().constant(needed); known != nullptr && *known == 0) {
    return skipped ? skipped(state) : state;
  }
  // One trip or none, in which nothing is loaded either: all places are made of its number.
  const Value trips = b().convert(Op::kBoolToInt, b().index_type(), needed);
  const Elements made =
      k_.loop(trips, std::vector<DType>(state.size(), DType::kF32), state,
              [&](Value trip, const Elements& carried) {
                return body(scaled(b().add(block, trip), t_.block_columns()), carried);
              });
  return skipped ? k_.choose(needed, made, skipped(state)) : made;
}

Value ScoreTiles::stays(const LogitMask& mask, Value shift) {
  return b().logical_not(
      b().binary(Op::kLt, b().sub(number(mask.low).re, shift), number(kVanishing).re));
}

// What this point brings of the operands' blocks of the depth: outer ones, then inner ones.
Elements ScoreTiles::score_operands(const InnerProduct& product, size_t outer_side, Value first,
                                    Value block) {
  const bool is_uneven = element_count(operand_dims(*product.op, 0).depth) % t_.across != 0;
  const Value depth = b().add(scaled(block, t_.across), x_);
  Elements made;
  for (const Places& row : rows_) {
    made.push_back(score_operand(product, outer_side, row, depth, is_uneven));
  }
  for (int64_t j = 0; j < t_.block_columns(); j += t_.down) {
    const Places places = with(places_, space_.inner, inner_at(b().add(sum(first, j), y_)).first);
    made.push_back(score_operand(product, 1 - outer_side, places, depth, is_uneven));
  }
  return made;
}

// A loop over blocks of operands that points fetch for all. `body` has what lies in shared memory;
// the next block is on the way from memory meanwhile.
Elements ScoreTiles::fetching_loop(
    int64_t blocks, const Elements& initial, const Elements& fetched,
    const std::function<Elements(Value block)>& fetch,
    const std::function<void(const Elements& fetched)>& share,
    const std::function<Elements(Value block, const Elements& sums)>& body) {
  Elements state = initial;
  state.insert(state.end(), fetched.begin(), fetched.end());
  const auto sums = static_cast<ptrdiff_t>(initial.size());
  state = k_.loop(k_.index(blocks), std::vector<DType>(state.size(), DType::kF32), state,
                  [&](Value block, const Elements& carried) {
                    const Elements here(carried.begin() + sums, carried.end());
                    share(here);
                    const Elements next =
                        blocks == 1 ? here : fetch(k_.at_most(sum(block, 1), blocks - 1));
                    Elements made = body(block, {carried.begin(), carried.begin() + sums});
                    made.insert(made.end(), next.begin(), next.end());
                    return made;
                  });
  state.resize(initial.size());
  return state;
}

Elements ScoreTiles::scores(const InnerProduct& product, size_t outer_side, Value first) {
  const int64_t depth = element_count(operand_dims(*product.op, 0).depth);
  const int64_t pitch = t_.across + 1;
  const int64_t inner = t_.block_rows() * pitch;
  const auto fetch = [&](Value block) { return score_operands(product, outer_side, first, block); };
  const auto share = [&](const Elements& fetched) {
    const Value mine = b().add(scaled(y_, pitch), x_);
    for (size_t n = 0; n < fetched.size(); ++n) {
      const auto i = static_cast<int64_t>(n);
      const int64_t row =
          i < t_.rows ? i * t_.down * pitch : inner + (i - t_.rows) * t_.down * pitch;
      put(operands_, sum(mine, row), fetched[n]);
    }
  };
  const auto body = [&](Value, const Elements& carried) {
    Elements sums = carried;
    const Value row = scaled(y_, pitch), column = sum(scaled(x_, pitch), inner);
    for (int64_t d = 0; d < t_.across; ++d) {
      std::vector<Value> left, right;
      for (int64_t i = 0; i < t_.rows; ++i) {
        left.push_back(get(operands_, sum(row, i * t_.down * pitch + d)));
      }
      for (int64_t j = 0; j < t_.columns; ++j) {
        right.push_back(get(operands_, sum(column, j * t_.across * pitch + d)));
      }
      multiply_add(left, right, sums);
    }
    return sums;
  };
  const Elements zeros(static_cast<size_t>(t_.rows * t_.columns), number(0));
  return fetching_loop(blocks_of(depth, t_.across), zeros, fetch(k_.index(0)), fetch, share, body);
}

Element ScoreTiles::score(const InnerProduct& product, const Element& of_sums) {
  return kernel::convert_element(b(), of_sums, DType::kF32, product.op->result()->type().dtype());
}

void ScoreTiles::multiply_add(const std::vector<Value>& left, const std::vector<Value>& right,
                              Elements& sums) {
  for (size_t i = 0; i < left.size(); ++i) {
    for (size_t j = 0; j < right.size(); ++j) {
      Element& at = sums[i * right.size() + j];
      at.re = b().fma(left[i], right[j], at.re);
    }
  }
}

Elements ScoreTiles::logits(const Attention& attention, const Elements& scores,
                            const std::function<Value(int64_t j)>& column) {
  Elements made;
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (int64_t j = 0; j < t_.columns; ++j) {
      const auto [inner, is_there] = inner_at(column(j));
      const Point point = point_of(attention.logits_dims, place_in_tile(i, inner));
      k_.emitter().know(*attention.scores->result(), score(attention.inner(), scores[made.size()]));
      const Element logit = k_.emitter().emit(*attention.logits, point);
      made.push_back(kernel::select(b(), is_there, logit, number(-HUGE_VAL)));
    }
  }
  return made;
}

Value ScoreTiles::add_logits(size_t i, const Elements& logits, Elements& state,
                             const std::function<void(size_t j, Value weight)>& take) {
  const auto columns = static_cast<size_t>(t_.columns);
  Value greatest = logits[i * columns].re;
  for (size_t j = 1; j < columns; ++j) greatest = greater(greatest, logits[i * columns + j].re);
  for (int64_t distance = 1; distance < t_.across; distance *= 2) {
    greatest =
        greater(greatest, k_.from_team({greatest, kernel::kNoValue}, team_dim(), distance).re);
  }
  greatest = greater(state[i].re, greatest);
  const Value shift = shift_of(greatest);
  const Value fading = exponential(b().sub(state[i].re, shift));
  state[i].re = greatest;
  Value& total = state[rows_.size() + i].re;
  total = b().mul(total, fading);
  for (size_t j = 0; j < columns; ++j) {
    const Value weight = exponential(b().sub(logits[i * columns + j].re, shift));
    total = b().add(total, weight);
    take(j, weight);
  }
  return fading;
}

Value ScoreTiles::total_of(size_t i, const Elements& state) {
  Element total = state[rows_.size() + i];
  for (int64_t distance = 1; distance < t_.across; distance *= 2) {
    total.re = b().add(total.re, k_.from_team(total, team_dim(), distance).re);
  }
  return total.re;
}

void ScoreTiles::put_weight(size_t i, size_t j, const Element& weight) {
  const int64_t pitch = t_.block_columns() + 1;
  const Value mine = b().add(scaled(y_, pitch), x_);
  const int64_t offset =
      static_cast<int64_t>(i) * t_.down * pitch + static_cast<int64_t>(j) * t_.across;
  put(weights_, sum(mine, offset), weight);
}

// What this point brings of a block of values: rows of `across` inner places, `down` apart.
Elements ScoreTiles::value_operands(Value first, Value block) {
  const bool is_uneven = width_ % t_.block_values() != 0;
  Elements made;
  for (int64_t d = 0; d < t_.across; d += t_.down) {
    const auto [inner, is_there] =
        inner_at(b().add(b().add(first, scaled(block, t_.across)), sum(y_, d)));
    const Places places = with(places_, space_.inner, inner);
    for (const Value own : value_places_) {
      made.push_back(value_operand(*product_, weights_side_, places, own, is_uneven, is_there));
    }
  }
  return made;
}

Elements ScoreTiles::weighted_values(Value first, const Elements& initial,
                                     const Elements& fetched) {
  const int64_t deep = t_.across, pitch = t_.block_columns() + 1;
  const auto fetch = [&](Value block) { return value_operands(first, block); };
  const auto share = [&](const Elements& values) {
    const Value mine = b().add(scaled(y_, t_.block_values()), x_);
    for (size_t n = 0; n < values.size(); ++n) {
      const auto i = static_cast<int64_t>(n);
      put(operands_,
          sum(mine, i / t_.values * t_.down * t_.block_values() + i % t_.values * t_.across),
          values[n]);
    }
  };
  const auto body = [&](Value block, const Elements& carried) {
    Elements sums = carried;
    const Value row = b().add(scaled(y_, pitch), scaled(block, deep));
    for (int64_t d = 0; d < deep; ++d) {
      std::vector<Value> left, right;
      for (int64_t i = 0; i < t_.rows; ++i) {
        left.push_back(get(weights_, sum(row, i * t_.down * pitch + d)));
      }
      for (int64_t j = 0; j < t_.values; ++j) {
        right.push_back(get(operands_, sum(x_, d * t_.block_values() + j * t_.across)));
      }
      multiply_add(left, right, sums);
    }
    return sums;
  };
  return fetching_loop(t_.block_columns() / deep, initial, fetched, fetch, share, body);
}

void ScoreTiles::store_values(const Elements& values) {
  const ir::Value& result = *product_->result();
  const bool is_uneven = width_ % t_.block_values() != 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (size_t v = 0; v < value_places_.size(); ++v) {
      const Value place = value_places_[v];
      const Value has = is_uneven ? b().bit_and(has_row_[i], is_below(place, width_)) : has_row_[i];
      store_where(has, result, result_point(*product_, weights_side_, rows_[i], place),
                  kernel::convert_element(b(), values[i * value_places_.size() + v], DType::kF32,
                                          result.type().dtype()));
    }
  }
}

}  // namespace hekla::lower
