// SPDX-License-Identifier: Apache-2.0
// The kernels of attention.h for few rows of queries: keys are cut into parts, a team each, so that
// a device is full however few rows there are ("Flash-Decoding", Dao et al., 2023). Each key and
// value is read once, by points that lie along its depth or width, and used for all rows. What
// teams have of greatest logits, sums and weighted values is put together by a second kernel, in
// the order of the parts.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/compiler/lower/attention_parts.h"

namespace hekla::lower {

using kernel::Op;

namespace {

struct KeyLimits {
  // Elements that a point reads side by side, and of how many keys at once.
  int64_t elements = 8, keys = 4;
  int64_t most_rows = 4;  // of a team: code is as long as they are many
  int64_t most_depth_lanes = 32;
  int64_t many_teams = 512;  // that fill a device
  int64_t most_parts = 64;   // that the second kernel goes through
};

KeyLimits key_limits(const LowerOptions& options) {
  return options.small_limits ? KeyLimits{2, 2, 2, 2, 12, 3} : KeyLimits{};
}

int64_t lanes_for(int64_t size, int64_t elements, int64_t most) {
  const auto blocks = static_cast<uint64_t>(blocks_of(size, elements));
  return std::min(static_cast<int64_t>(std::bit_ceil(blocks)), most);
}

}  // namespace

std::optional<KeyParts> key_parts_of(const Attention& attention, const LowerOptions& options) {
  const KeyLimits limits = key_limits(options);
  const OperandDims keys = operand_dims(*attention.scores, attention.keys_operand);
  const OperandDims values = operand_dims(*attention.product, 1 - attention.weights_operand);
  const int64_t depth = element_count(keys.depth), width = element_count(values.own);
  KeyParts p;
  p.points = options.small_limits ? std::min<int64_t>(options.attention_points, 4)
                                  : options.attention_points;
  p.elements = limits.elements;
  p.depth_lanes = lanes_for(depth, p.elements, std::min(limits.most_depth_lanes, p.points));
  p.width_lanes = lanes_for(width, p.elements, p.points);
  p.keys_at_once = std::min(limits.keys, p.depth_lanes);
  p.values_at_once = std::min(limits.keys, p.width_lanes);
  const int64_t rows = attention.row_count();
  p.rows = std::min(limits.most_rows, rows);
  // Exchanges go through two arrays of a word a point.
  const int64_t most = options.attention_words - 2 * p.points;
  while (p.weight_words() + p.value_words() > most) {
    if (p.rows == 1) return std::nullopt;
    p.rows /= 2;
  }
  p.row_blocks = blocks_of(rows, p.rows);
  p.rows = blocks_of(rows, p.row_blocks);
  p.value_blocks = blocks_of(width, p.block_values());
  const int64_t teams = attention.batch_count() * p.row_blocks * p.value_blocks;
  const int64_t blocks = blocks_of(attention.columns(), p.points);
  p.parts = std::min({blocks_of(limits.many_teams, teams), blocks, limits.most_parts});
  p.blocks = blocks_of(blocks, p.parts);
  p.parts = blocks_of(blocks, p.blocks);
  return p;
}

namespace {

// Groups of points with parts of a sum that are added without a loop.
constexpr int64_t kUnrolledGroups = 32;

// What the teams of all parts leave, in f32: of each row of the padded ones, part by part.
struct PartResults {
  Temporary greatest, totals, values;
};

int64_t largest_index(const Attention& a, const KeyParts& p, const InMemory& in_memory) {
  const int64_t here = a.batch_count() * p.row_blocks * p.rows * p.parts *
                       std::max(p.value_blocks * p.block_values(), p.points) * p.value_blocks;
  return largest_of_scores({a.product->operands().begin(), a.product->operands().end()},
                           std::max(here, 2 * (a.columns() + p.parts * p.blocks * p.points)),
                           {a.members.begin(), a.members.end()}, in_memory);
}

class PartLowering : private ScoreKernel {
 public:
  PartLowering(const Attention& attention, const KeyParts& parts, const InMemory& in_memory)
      : ScoreKernel("attention_part", grid(attention, parts),
                    largest_index(attention, parts, in_memory), in_memory,
                    attention.weights_shape()),
        a_(attention),
        p_(parts),
        width_(element_count(operand_dims(*a_.product, 1 - a_.weights_operand).own)),
        depth_(element_count(operand_dims(*a_.scores, 0).depth)),
        weights_(k_.team_memory(team_dim(), p_.weight_words())),
        values_(k_.team_memory(team_dim(), p_.value_words())) {}

  Result<LoweredKernel> run(const PartResults& to, const LowerOptions& options) {
    point_ = k_.at(team_dim());
    places_.assign(shape_.size(), k_.index(0));
    for (size_t i = 0; i < a_.batch.size(); ++i) places_[a_.batch[i]] = k_.at(1 + i);
    const Value first_row = scaled(k_.at(a_.batch.size() + 1), p_.rows);
    for (int64_t r = 0; r < p_.rows; ++r) {
      const Value row = sum(first_row, r);
      const bool is_uneven = p_.rows * p_.row_blocks != a_.row_count();
      rows_.push_back(
          with(places_, a_.rows, is_uneven ? k_.at_most(row, a_.row_count() - 1) : row));
    }
    const auto rows = static_cast<size_t>(p_.rows);
    Elements state(rows, number(-HUGE_VAL));
    state.resize(rows * static_cast<size_t>(2 + p_.elements), number(0));
    const auto add = [&](Value block, const Elements& carried) {
      return add_block(block, carried);
    };
    const Value first = scaled(k_.at(a_.batch.size() + 2), p_.blocks);
    if (p_.blocks == 1) {
      state = add(first, state);
    } else {
      state = k_.loop(k_.index(p_.blocks), std::vector<DType>(state.size(), DType::kF32), state,
                      [&](Value block, const Elements& carried) {
                        return add(b().add(first, block), carried);
                      });
    }
    store(state, to);
    return k_.finish(options);
  }

 private:
  static std::vector<int64_t> grid(const Attention& a, const KeyParts& p) {
    std::vector<int64_t> sizes{p.value_blocks};
    for (const size_t d : a.batch) sizes.push_back(a.weights_shape()[d]);
    sizes.insert(sizes.end(), {p.row_blocks, p.parts, p.points});
    return sizes;
  }
  size_t team_dim() const { return a_.batch.size() + 3; }

  // The column at a number, and whether there is one.
  std::pair<Value, Value> column_at(Value number) {
    if (a_.columns() % (p_.points * p_.blocks * p_.parts) == 0) return {number, b().boolean(true)};
    return {k_.at_most(number, a_.columns() - 1), is_below(number, a_.columns())};
  }
  Places at_column(const Places& places, Value column) {
    Places made = places;
    made[a_.column] = column;
    return made;
  }

  Element over_team(Element e, int64_t first, int64_t end,
                    const std::function<Value(Value, Value)>& combine) {
    for (int64_t distance = first; distance < end; distance *= 2) {
      e.re = combine(e.re, k_.from_team(e, team_dim(), distance).re);
    }
    return e;
  }

  // Scores of all rows and the columns of a block, in shared memory: points lie along the depth.
  void make_scores(Value first) {
    const int64_t lanes = p_.depth_lanes, apart = p_.points / lanes;
    const Value x = b().bit_and(point_, k_.index(lanes - 1));
    const Value y = b().binary(Op::kDivU, point_, k_.index(lanes));
    const int64_t chunk = lanes * p_.elements, chunks = blocks_of(depth_, chunk);
    const bool is_uneven = depth_ % chunk != 0;
    const auto keys = static_cast<size_t>(p_.keys_at_once);
    const auto place = [&](Value step, size_t u) {
      return b().add(
          b().add(scaled(step, p_.keys_at_once * apart), k_.index(static_cast<int64_t>(u) * apart)),
          y);
    };
    k_.loop(k_.index(lanes / p_.keys_at_once), {}, {}, [&](Value step, const Elements&) {
      const auto add_chunk = [&](Value at, const Elements& carried) {
        const Value depth = b().add(scaled(at, chunk), scaled(x, p_.elements));
        std::vector<Elements> key(keys);
        for (size_t u = 0; u < keys; ++u) {
          const Places places = at_column(places_, column_at(b().add(first, place(step, u))).first);
          for (int64_t e = 0; e < p_.elements; ++e) {
            key[u].push_back(
                score_operand(a_.inner(), a_.keys_operand, places, sum(depth, e), is_uneven));
          }
        }
        Elements sums = carried;
        for (size_t r = 0; r < rows_.size(); ++r) {
          for (int64_t e = 0; e < p_.elements; ++e) {
            const Value query =
                score_operand(a_.inner(), 1 - a_.keys_operand, rows_[r], sum(depth, e), is_uneven)
                    .re;
            for (size_t u = 0; u < keys; ++u) {
              Element& at_row = sums[r * keys + u];
              at_row.re = b().fma(query, key[u][static_cast<size_t>(e)].re, at_row.re);
            }
          }
        }
        return sums;
      };
      Elements sums(rows_.size() * keys, number(0));
      if (chunks == 1) {
        sums = add_chunk(k_.index(0), sums);
      } else {
        sums = k_.loop(k_.index(chunks), std::vector<DType>(sums.size(), DType::kF32), sums,
                       add_chunk);
      }
      // All lanes have the sum, one stores it; the others write where nobody reads.
      const Value is_first = b().binary(Op::kEq, x, k_.index(0));
      for (size_t r = 0; r < rows_.size(); ++r) {
        for (size_t u = 0; u < keys; ++u) {
          const Element total = over_team(sums[r * keys + u], 1, lanes,
                                          [&](Value p, Value q) { return b().add(p, q); });
          const Value mine = sum(place(step, u), static_cast<int64_t>(r) * p_.points);
          put(weights_,
              lanes == 1 ? mine : b().select(is_first, mine, sum(point_, p_.rows * p_.points)),
              total);
        }
      }
      return Elements();
    });
  }

  // `state`: the greatest logit of each row, the sums of weights, both the same for all points, and
  // what this point has of the weighted values.
  Elements add_block(Value block, const Elements& state) {
    const Value first = scaled(block, p_.points);
    make_scores(first);
    const size_t rows = rows_.size();
    const auto [column, is_there] = column_at(b().add(first, point_));
    Elements logits, next = state;
    for (size_t r = 0; r < rows; ++r) {
      const Element score{get(weights_, sum(point_, static_cast<int64_t>(r) * p_.points)),
                          kernel::kNoValue};
      const Point point = point_of(a_.logits_dims, at_column(rows_[r], column));
      k_.emitter().know(
          *a_.scores->result(),
          kernel::convert_element(b(), score, DType::kF32, a_.scores->result()->type().dtype()));
      logits.push_back(
          kernel::select(b(), is_there, k_.emitter().emit(*a_.logits, point), number(-HUGE_VAL)));
    }
    std::vector<Value> fading(rows);
    for (size_t r = 0; r < rows; ++r) {
      const auto larger = [&](Value p, Value q) { return greater(p, q); };
      const Element greatest = over_team(logits[r], 1, p_.points, larger);
      next[r].re = greater(state[r].re, greatest.re);
      const Value shift = shift_of(next[r].re);
      fading[r] = exponential(b().sub(state[r].re, shift));
      const Element weight{exponential(b().sub(logits[r].re, shift)), kernel::kNoValue};
      const Element total =
          over_team(weight, 1, p_.points, [&](Value p, Value q) { return b().add(p, q); });
      next[rows + r].re = b().add(b().mul(state[rows + r].re, fading[r]), total.re);
      put(weights_, sum(point_, static_cast<int64_t>(r) * p_.points), weight);
    }
    const auto elements = static_cast<size_t>(p_.elements);
    Elements sums;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t e = 0; e < elements; ++e) {
        sums.push_back(
            {b().mul(state[2 * rows + r * elements + e].re, fading[r]), kernel::kNoValue});
      }
    }
    next.resize(2 * rows);
    for (const Element& each : weighted_values(first, sums)) next.push_back(each);
    return next;
  }

  // Points lie along the width, and each goes through some columns of the block.
  Elements weighted_values(Value first, const Elements& initial) {
    const int64_t lanes = p_.width_lanes, apart = p_.points / lanes;
    const bool is_uneven = width_ % p_.block_values() != 0;
    const Value y = b().binary(Op::kDivU, point_, k_.index(lanes));
    const Value own = own_value();
    const auto elements = static_cast<size_t>(p_.elements);
    return k_.loop(
        k_.index(lanes / p_.values_at_once), std::vector<DType>(initial.size(), DType::kF32),
        initial, [&](Value step, const Elements& carried) {
          std::vector<Value> places;
          std::vector<Elements> values(static_cast<size_t>(p_.values_at_once));
          for (int64_t u = 0; u < p_.values_at_once; ++u) {
            places.push_back(b().add(sum(scaled(step, p_.values_at_once * apart), u * apart), y));
            const auto [column, is_there] = column_at(b().add(first, places.back()));
            for (int64_t e = 0; e < p_.elements; ++e) {
              values[static_cast<size_t>(u)].push_back(
                  value_operand(*a_.product, a_.weights_operand, at_column(places_, column),
                                sum(own, e), is_uneven, is_there));
            }
          }
          Elements sums = carried;
          for (size_t u = 0; u < values.size(); ++u) {
            for (size_t r = 0; r < rows_.size(); ++r) {
              const Value weight =
                  get(weights_, sum(places[u], static_cast<int64_t>(r) * p_.points));
              for (size_t e = 0; e < elements; ++e) {
                Value& at = sums[r * elements + e].re;
                at = b().fma(weight, values[u][e].re, at);
              }
            }
          }
          return sums;
        });
  }

  // The first of this point's elements of the width.
  Value own_value() {
    const Value x = b().bit_and(point_, k_.index(p_.width_lanes - 1));
    return b().add(scaled(k_.at(0), p_.block_values()), scaled(x, p_.elements));
  }

  void store(const Elements& state, const PartResults& to) {
    Value team = k_.index(0);
    for (size_t i = 0; i < a_.batch.size(); ++i) {
      team = b().add(scaled(team, shape_[a_.batch[i]]), k_.at(1 + i));
    }
    team = scaled(b().add(scaled(team, p_.row_blocks), k_.at(a_.batch.size() + 1)), p_.rows);
    const Value part = k_.at(a_.batch.size() + 2);
    const size_t rows = rows_.size();
    const auto elements = static_cast<size_t>(p_.elements);
    std::vector<Value> numbers;
    for (size_t r = 0; r < rows; ++r) {
      numbers.push_back(b().add(scaled(sum(team, static_cast<int64_t>(r)), p_.parts), part));
    }
    const int64_t lanes = p_.width_lanes, groups = p_.points / lanes, width = p_.block_values();
    const Value x = b().bit_and(point_, k_.index(lanes - 1));
    const Value y = b().binary(Op::kDivU, point_, k_.index(lanes));
    for (size_t r = 0; r < rows; ++r) {
      for (size_t e = 0; e < elements; ++e) {
        const Value place = b().add(b().add(scaled(y, width), scaled(x, p_.elements)),
                                    k_.index(static_cast<int64_t>(e)));
        put(values_, place, state[2 * rows + r * elements + e]);
      }
      for (int64_t at = 0; at < width; at += p_.points) {
        // Points behind the last add up what another one does, too, and do not store it.
        const Value mine = sum(point_, at);
        const bool is_uneven = width - at < p_.points;
        const Value place = is_uneven ? b().binary(Op::kRemU, mine, k_.index(width)) : mine;
        Element total{get(values_, place), kernel::kNoValue};
        const auto add_group = [&](const Element& before, Value group) {
          const Value word = b().add(place, scaled(group, width));
          return Element{b().add(before.re, get(values_, word)), kernel::kNoValue};
        };
        if (groups <= kUnrolledGroups) {
          for (int64_t g = 1; g < groups; ++g) total = add_group(total, k_.index(g));
        } else {
          total = k_.loop(k_.index(groups - 1), {DType::kF32}, {total},
                          [&](Value g, const Elements& carried) {
                            return Elements{add_group(carried[0], sum(g, 1))};
                          })[0];
        }
        const Value number = b().add(scaled(numbers[r], p_.value_blocks * width),
                                     b().add(scaled(k_.at(0), width), place));
        const auto store_it = [&] { k_.store(to.values, number, total); };
        if (is_uneven) {
          k_.when(is_below(mine, width), store_it);
        } else {
          store_it();
        }
      }
    }
    const Value is_first = b().bit_and(b().binary(Op::kEq, point_, k_.index(0)),
                                       b().binary(Op::kEq, k_.at(0), k_.index(0)));
    k_.when(is_first, [&] {
      for (size_t r = 0; r < rows; ++r) {
        k_.store(to.greatest, numbers[r], state[r]);
        k_.store(to.totals, numbers[r], state[rows + r]);
      }
    });
  }

  const Attention& a_;
  const KeyParts& p_;
  const int64_t width_, depth_;
  const kernel::TeamMemory weights_, values_;
  Value point_ = kernel::kNoValue;
  Places places_;             // of the batch
  std::vector<Places> rows_;  // with the rows of this team
};

// One point for each element of the result.
class CombineLowering : private ScoreKernel {
 public:
  CombineLowering(const Attention& attention, const KeyParts& parts, const InMemory& in_memory)
      : ScoreKernel("attention_combine", grid(attention),
                    std::max(largest_index(attention, parts, in_memory),
                             element_count(attention.product->result()->type().dims())),
                    in_memory, attention.weights_shape()),
        a_(attention),
        p_(parts) {}

  Result<LoweredKernel> run(const PartResults& from, const LowerOptions& options) {
    Places places(shape_.size(), k_.index(0));
    Value row = k_.index(0);
    for (size_t i = 0; i < a_.batch.size(); ++i) {
      places[a_.batch[i]] = k_.at(i);
      row = b().add(scaled(row, shape_[a_.batch[i]]), k_.at(i));
    }
    const size_t dim = a_.batch.size();
    row = b().add(scaled(row, p_.row_blocks * p_.rows), k_.at(dim));
    places = with(places, a_.rows, k_.at(dim));
    const Value first = scaled(row, p_.parts),
                width = k_.index(p_.value_blocks * p_.block_values());
    const auto each = [&](const Elements& initial,
                          const std::function<Elements(Value part, const Elements&)>& body) {
      return k_.loop(
          k_.index(p_.parts), std::vector<DType>(initial.size(), DType::kF32), initial,
          [&](Value part, const Elements& carried) { return body(b().add(first, part), carried); });
    };
    const Elements greatest = each({number(-HUGE_VAL)}, [&](Value part, const Elements& carried) {
      return Elements{{greater(carried[0].re, k_.load(from.greatest, part).re), kernel::kNoValue}};
    });
    const Value shift = shift_of(greatest[0].re);
    const Elements sums = each({number(0), number(0)}, [&](Value part, const Elements& carried) {
      const Value fading = exponential(b().sub(k_.load(from.greatest, part).re, shift));
      const Value place = b().add(b().mul(part, width), k_.at(dim + 1));
      return Elements{
          {b().fma(k_.load(from.totals, part).re, fading, carried[0].re), kernel::kNoValue},
          {b().fma(k_.load(from.values, place).re, fading, carried[1].re), kernel::kNoValue}};
    });
    const ir::Value& result = *a_.product->result();
    const Element quotient{b().div(sums[1].re, sums[0].re), kernel::kNoValue};
    const Point point = result_point(*a_.product, a_.weights_operand, places, k_.at(dim + 1));
    k_.store(result, k_.emitter().linear_of(point, result.type().dims()),
             kernel::convert_element(b(), quotient, DType::kF32, result.type().dtype()));
    return k_.finish(options);
  }

 private:
  static std::vector<int64_t> grid(const Attention& a) {
    std::vector<int64_t> sizes;
    for (const size_t d : a.batch) sizes.push_back(a.weights_shape()[d]);
    sizes.push_back(a.row_count());
    sizes.push_back(element_count(operand_dims(*a.product, 1 - a.weights_operand).own));
    return sizes;
  }

  const Attention& a_;
  const KeyParts& p_;
};

}  // namespace

Result<LoweredSequence> lower_attention_by_keys(const Attention& attention, const KeyParts& parts,
                                                const InMemory& in_memory,
                                                const LowerOptions& options) {
  LoweredSequence sequence;
  const int64_t rows = attention.batch_count() * parts.row_blocks * parts.rows * parts.parts;
  const PartResults results{
      add_temporary(sequence, DType::kF32, rows), add_temporary(sequence, DType::kF32, rows),
      add_temporary(sequence, DType::kF32, rows * parts.value_blocks * parts.block_values())};
  HEKLA_ASSIGN_OR_RETURN(LoweredKernel part,
                         PartLowering(attention, parts, in_memory).run(results, options));
  HEKLA_ASSIGN_OR_RETURN(LoweredKernel combine,
                         CombineLowering(attention, parts, in_memory).run(results, options));
  sequence.kernels.push_back(std::move(part));
  sequence.kernels.push_back(std::move(combine));
  return sequence;
}

}  // namespace hekla::lower
