// SPDX-License-Identifier: Apache-2.0
// The kernel of attention.h. A block of scores is a tile of registers for each point, made from
// blocks of queries and keys in shared memory, a few elements of their depth at a time; the weights
// then go through shared memory to the points that have the result's elements, which go through the
// block's values in the same way. What comes next is on its way from memory meanwhile. Rows and
// columns behind the last are that one again, with weight 0; depth behind the last is zeros.
#include <algorithm>
#include <cmath>
#include <functional>

#include "backends/compiler/lower/attention.h"
#include "backends/compiler/lower/dimensions.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;
using kernel::Op;
using kernel::ScalarType;

namespace {

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

// One operand of a product: what each of its dimensions is.
struct OperandDims {
  enum class Kind : uint8_t { kWeights, kDepth, kOwn };
  struct Dim {
    Kind kind = Kind::kOwn;
    size_t number = 0;  // of the result's dimension, or of the contracting or free ones
  };
  std::vector<Dim> dims;
  Dims depth, own;  // sizes of the contracting dimensions, and of the free ones
};

// Of operand `side`: dimensions of the result that it has, those that are summed over, and, as such
// of its own, its free ones too.
OperandDims operand_dims(const ir::Operation& op, size_t side) {
  const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
  const auto& batching = side == 0 ? n->lhs_batching_dimensions : n->rhs_batching_dimensions;
  const auto& contracting =
      side == 0 ? n->lhs_contracting_dimensions : n->rhs_contracting_dimensions;
  const Dims& shape = op.operand(side)->type().dims();
  OperandDims made;
  made.dims.resize(shape.size());
  for (const int64_t d : contracting) made.depth.push_back(shape[static_cast<size_t>(d)]);
  size_t next = batching.size();
  if (side == 1) {
    next += op.operand(0)->type().rank() - batching.size() - contracting.size();
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (contains(batching, d)) {
      made.dims[d] = {OperandDims::Kind::kWeights, position(batching, d)};
    } else if (contains(contracting, d)) {
      made.dims[d] = {OperandDims::Kind::kDepth, position(contracting, d)};
    } else {
      made.dims[d] = {OperandDims::Kind::kOwn, next++};
      made.own.push_back(shape[d]);
    }
  }
  return made;
}

// The largest number of an element that the kernel computes: of what it loads, and of what is not
// only moved. Scores themselves have none.
int64_t largest_element(const Attention& attention, const InMemory& in_memory) {
  const std::unordered_set<const ir::Operation*> members(attention.members.begin(),
                                                         attention.members.end());
  std::unordered_set<const ir::Value*> seen;
  int64_t largest = element_count(attention.product->result()->type().dims());
  std::vector<const ir::Value*> open(attention.product->operands().begin(),
                                     attention.product->operands().end());
  while (!open.empty()) {
    const ir::Value& value = *open.back();
    open.pop_back();
    if (!seen.insert(&value).second) continue;
    const ir::Operation* op = value.defining_op();
    const bool is_loaded = op == nullptr || in_memory(value);
    if (!is_loaded) open.insert(open.end(), op->operands().begin(), op->operands().end());
    const bool has_number = is_loaded || (op->code() != OpCode::kBroadcastInDim &&
                                          op->code() != OpCode::kConstant && !members.contains(op));
    if (has_number) largest = std::max(largest, element_count(value.type().dims()));
  }
  return largest;
}

class AttentionLowering {
 public:
  AttentionLowering(const Attention& attention, const AttentionTile& tile, int64_t width,
                    const InMemory& in_memory, const LowerOptions& options)
      : a_(attention),
        t_(tile),
        width_(width),
        options_(options),
        shape_(attention.weights_shape()),
        queries_(operand_dims(*a_.scores, 1 - a_.keys_operand)),
        keys_(operand_dims(*a_.scores, a_.keys_operand)),
        values_(operand_dims(*a_.product, 1 - a_.weights_operand)),
        depth_(element_count(queries_.depth)),
        row_count_(a_.row_count()),
        columns_(a_.columns()),
        k_("attention", grid(),
           std::max(largest_element(attention, in_memory),
                    2 * (columns_ + row_count_ + t_.block_columns() + t_.block_rows())),
           in_memory),
        operands_(k_.team_memory(team_dim(), t_.operand_words())),
        weights_(k_.team_memory(team_dim(), t_.weight_words())) {}

  Result<LoweredSequence> run() {
    find_places();
    const auto rows = static_cast<size_t>(t_.rows), values = static_cast<size_t>(t_.values);
    Elements state;
    for (size_t i = 0; i < rows; ++i) state.push_back(number(-HUGE_VAL));
    while (state.size() < rows * (2 + values)) state.push_back(number(0));
    const std::vector<DType> dtypes(state.size(), DType::kF32);
    state =
        k_.loop(k_.index(blocks_of(columns_, t_.block_columns())), dtypes, state,
                [&](Value block, const Elements& carried) { return add_block(block, carried); });
    store(state);
    LoweredSequence sequence;
    HEKLA_ASSIGN_OR_RETURN(LoweredKernel made, k_.finish(options_));
    sequence.kernels.push_back(std::move(made));
    return sequence;
  }

 private:
  // Values' blocks, batch, blocks of rows, points of a team.
  std::vector<int64_t> grid() const {
    std::vector<int64_t> sizes{blocks_of(width_, t_.block_values())};
    for (const size_t d : a_.batch) sizes.push_back(shape_[d]);
    sizes.push_back(blocks_of(row_count_, t_.block_rows()));
    sizes.push_back(t_.points());
    return sizes;
  }
  size_t team_dim() const { return a_.batch.size() + 2; }

  Builder& b() { return k_.b(); }
  Element number(double value) { return {b().real(ScalarType::kF32, value), kernel::kNoValue}; }
  Value sum(Value base, int64_t offset) { return b().add(base, k_.index(offset)); }
  Value scaled(Value index, int64_t factor) { return b().mul(index, k_.index(factor)); }
  Value is_below(Value index, int64_t size) { return b().binary(Op::kLtS, index, k_.index(size)); }

  // Places of this point's team, and of its rows; what it is in the tile.
  void find_places() {
    const Value point = k_.at(team_dim());
    x_ = b().bit_and(point, k_.index(t_.across - 1));
    y_ = b().binary(Op::kDivU, point, k_.index(t_.across));
    places_.assign(shape_.size(), k_.index(0));
    for (size_t i = 0; i < a_.batch.size(); ++i) places_[a_.batch[i]] = k_.at(1 + i);
    const Value first = scaled(k_.at(a_.batch.size() + 1), t_.block_rows());
    const bool is_uneven = row_count_ % t_.block_rows() != 0;
    for (int64_t i = 0; i < t_.rows; ++i) {
      const Value row = b().add(sum(first, i * t_.down), y_);
      has_row_.push_back(is_uneven ? is_below(row, row_count_) : b().boolean(true));
      rows_.push_back(row_places(is_uneven ? k_.at_most(row, row_count_ - 1) : row));
    }
    const Value first_value = b().add(scaled(k_.at(0), t_.block_values()), x_);
    for (int64_t j = 0; j < t_.values; ++j)
      value_places_.push_back(sum(first_value, j * t_.across));
  }

  // The weights' dimensions, those of rows from the number of the row.
  std::vector<Value> row_places(Value row) {
    std::vector<Value> places = places_;
    for (size_t i = a_.rows.size(); i-- > 0;) {
      const Value size = k_.index(shape_[a_.rows[i]]);
      places[a_.rows[i]] = i == 0 ? row : b().binary(Op::kRemU, row, size);
      if (i > 0) row = b().binary(Op::kDivU, row, size);
    }
    return places;
  }

  // Dimension numbers from one row-major number.
  std::vector<Value> split(Value index, const Dims& sizes) {
    std::vector<Value> parts(sizes.size(), k_.index(0));
    for (size_t d = sizes.size(); d-- > 0;) {
      const Value size = k_.index(sizes[d]);
      parts[d] = d == 0 ? index : b().binary(Op::kRemU, index, size);
      if (d > 0) index = b().binary(Op::kDivU, index, size);
    }
    return parts;
  }

  static Value place_of(int dim, const std::vector<Value>& places, Value single) {
    return dim == kSingle ? single : places[static_cast<size_t>(dim)];
  }

  // An element of queries or keys in f32, zero behind the last product of the depth.
  Element score_operand(size_t side, const std::vector<Value>& places, Value depth) {
    const OperandDims& dims = side == a_.keys_operand ? keys_ : queries_;
    const bool is_uneven = depth_ % t_.across != 0;
    const std::vector<Value> parts =
        split(is_uneven ? k_.at_most(depth, depth_ - 1) : depth, dims.depth);
    Point point;
    for (const OperandDims::Dim& dim : dims.dims) {
      point.dims.push_back(dim.kind == OperandDims::Kind::kDepth
                               ? parts[dim.number]
                               : place_of(a_.scores_dims[dim.number], places, k_.index(0)));
    }
    return f32(*a_.scores->operand(side), point,
               is_uneven ? is_below(depth, depth_) : b().boolean(true));
  }

  Element f32(const ir::Value& value, const Point& point, Value is_there) {
    const Element made = kernel::convert_element(b(), k_.emitter().emit(value, point),
                                                 value.type().dtype(), DType::kF32);
    return kernel::select(b(), is_there, made, number(0));
  }

  // The value at a column, which is one of the values' depth, and at a place of its width.
  Element value_at(Value column, Value is_there, Value place) {
    const bool is_uneven = width_ % t_.block_values() != 0;
    const std::vector<Value> own =
        split(is_uneven ? k_.at_most(place, width_ - 1) : place, values_.own);
    Point point;
    size_t next = 0;
    for (const OperandDims::Dim& dim : values_.dims) {
      switch (dim.kind) {
        case OperandDims::Kind::kDepth:
          point.dims.push_back(column);
          break;
        case OperandDims::Kind::kOwn:
          point.dims.push_back(own[next++]);
          break;
        case OperandDims::Kind::kWeights:
          point.dims.push_back(places_[weights_batch(dim.number)]);
          break;
      }
    }
    return f32(*a_.product->operand(1 - a_.weights_operand), point, is_there);
  }

  // The weights' dimension that is batch dimension `number` of the product.
  size_t weights_batch(size_t number) const {
    const auto* n = a_.product->attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
    const auto& batching =
        a_.weights_operand == 0 ? n->lhs_batching_dimensions : n->rhs_batching_dimensions;
    return static_cast<size_t>(batching[number]);
  }

  void put(const kernel::TeamMemory& memory, Value place, const Element& element) {
    b().team_store(memory, word(place), b().convert(Op::kBitcast, ScalarType::kI32, element.re));
  }
  Value get(const kernel::TeamMemory& memory, Value place) {
    return b().convert(Op::kBitcast, ScalarType::kF32, b().team_load(memory, word(place)));
  }
  Value word(Value index) {
    if (b().index_type() == ScalarType::kI32) return index;
    return b().convert(Op::kTruncate, ScalarType::kI32, index);
  }

  // A column and whether there is one.
  std::pair<Value, Value> column_at(Value column) {
    if (columns_ % t_.block_columns() == 0) return {column, b().boolean(true)};
    return {k_.at_most(column, columns_ - 1), is_below(column, columns_)};
  }

  // What this point brings of the operands' blocks of the depth: rows of queries, then keys.
  Elements score_operands(Value first_column, Value block) {
    const Value depth = b().add(scaled(block, t_.across), x_);
    Elements made;
    for (const std::vector<Value>& row : rows_) {
      made.push_back(score_operand(1 - a_.keys_operand, row, depth));
    }
    for (int64_t j = 0; j < t_.block_columns(); j += t_.down) {
      std::vector<Value> places = places_;
      places[a_.column] = column_at(b().add(sum(first_column, j), y_)).first;
      made.push_back(score_operand(a_.keys_operand, places, depth));
    }
    return made;
  }

  // A loop over blocks of operands that points fetch for all. `body` has what lies in shared
  // memory; the next block is on the way from memory meanwhile.
  Elements fetching_loop(int64_t blocks, const Elements& initial, const Elements& fetched,
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

  // The scores of this point's tile: rows first.
  Elements scores(Value first_column) {
    const int64_t pitch = t_.across + 1;
    const int64_t keys = t_.block_rows() * pitch;
    const auto fetch = [&](Value block) { return score_operands(first_column, block); };
    const auto share = [&](const Elements& fetched) {
      const Value mine = b().add(scaled(y_, pitch), x_);
      for (size_t n = 0; n < fetched.size(); ++n) {
        const auto i = static_cast<int64_t>(n);
        const int64_t row =
            i < t_.rows ? i * t_.down * pitch : keys + (i - t_.rows) * t_.down * pitch;
        put(operands_, sum(mine, row), fetched[n]);
      }
    };
    const auto body = [&](Value, const Elements& carried) {
      Elements sums = carried;
      const Value row = scaled(y_, pitch), column = sum(scaled(x_, pitch), keys);
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
    return fetching_loop(blocks_of(depth_, t_.across), zeros, fetch(k_.index(0)), fetch, share,
                         body);
  }

  void multiply_add(const std::vector<Value>& left, const std::vector<Value>& right,
                    Elements& sums) {
    for (size_t i = 0; i < left.size(); ++i) {
      for (size_t j = 0; j < right.size(); ++j) {
        Element& at = sums[i * right.size() + j];
        at.re = b().fma(left[i], right[j], at.re);
      }
    }
  }

  // What the softmax is of, from the scores; -infinity behind the last column.
  Elements logits(Value first_column, const Elements& scores) {
    const DType dtype = a_.scores->result()->type().dtype();
    Elements made;
    for (int64_t i = 0; i < t_.rows; ++i) {
      for (int64_t j = 0; j < t_.columns; ++j) {
        const auto [column, is_there] = column_at(b().add(sum(first_column, j * t_.across), x_));
        std::vector<Value> places = rows_[static_cast<size_t>(i)];
        places[a_.column] = column;
        Point point;
        for (const int dim : a_.logits_dims) {
          point.dims.push_back(place_of(dim, places, k_.index(0)));
        }
        const Element& score = scores[made.size()];
        k_.emitter().know(*a_.scores->result(),
                          kernel::convert_element(b(), score, DType::kF32, dtype));
        const Element logit = k_.emitter().emit(*a_.logits, point);
        made.push_back(kernel::select(b(), is_there, logit, number(-HUGE_VAL)));
      }
    }
    return made;
  }

  // The greater one; a NaN is no greater than anything, and makes the weight NaN in any case.
  Value greater(Value x, Value y) { return b().select(b().binary(Op::kLt, x, y), y, x); }

  Value exponential(Value x) {
    return kernel::unary(b(), OpCode::kExponential, DType::kF32, {x, kernel::kNoValue})->re;
  }

  // Rows with the columns of one block more. `state`: the greatest logit of each row, what this
  // point has of the sums of weights, and of the weighted values.
  Elements add_block(Value block, const Elements& state) {
    const Value first = scaled(block, t_.block_columns());
    const Elements products = scores(first);
    const Elements fetched = value_operands(first, k_.index(0));
    const Elements tile = logits(first, products);
    const auto rows = static_cast<size_t>(t_.rows), columns = static_cast<size_t>(t_.columns);
    const auto values = static_cast<size_t>(t_.values);
    const int64_t pitch = t_.block_columns() + 1;
    const Value mine = b().add(scaled(y_, pitch), x_);
    Elements next = state;
    for (size_t i = 0; i < rows; ++i) {
      Value greatest = tile[i * columns].re;
      for (size_t j = 1; j < columns; ++j) greatest = greater(greatest, tile[i * columns + j].re);
      for (int64_t distance = 1; distance < t_.across; distance *= 2) {
        greatest =
            greater(greatest, k_.from_team({greatest, kernel::kNoValue}, team_dim(), distance).re);
      }
      greatest = greater(state[i].re, greatest);
      // Of a row without a finite logit so far: what is infinite stays so.
      const Value shift =
          b().select(b().binary(Op::kEq, greatest, number(-HUGE_VAL).re), number(0).re, greatest);
      const Value fading = exponential(b().sub(state[i].re, shift));
      next[i].re = greatest;
      Value total = b().mul(state[rows + i].re, fading);
      for (size_t j = 0; j < columns; ++j) {
        const Value weight = exponential(b().sub(tile[i * columns + j].re, shift));
        total = b().add(total, weight);
        const int64_t offset =
            static_cast<int64_t>(i) * t_.down * pitch + static_cast<int64_t>(j) * t_.across;
        put(weights_, sum(mine, offset), {weight, kernel::kNoValue});
      }
      next[rows + i].re = total;
      for (size_t v = 0; v < values; ++v) {
        Element& sum = next[2 * rows + i * values + v];
        sum.re = b().mul(sum.re, fading);
      }
    }
    const Elements sums(next.begin() + static_cast<ptrdiff_t>(2 * rows), next.end());
    next.resize(2 * rows);
    for (const Element& each : weighted_values(first, sums, fetched)) next.push_back(each);
    return next;
  }

  // What this point brings of a block of values: rows of `across` columns, `down` apart.
  Elements value_operands(Value first_column, Value block) {
    Elements made;
    for (int64_t d = 0; d < t_.across; d += t_.down) {
      const auto [column, is_there] =
          column_at(b().add(b().add(first_column, scaled(block, t_.across)), sum(y_, d)));
      for (const Value place : value_places_) made.push_back(value_at(column, is_there, place));
    }
    return made;
  }

  // The weights of a block times its values, a few columns at a time. `fetched`: the first of them.
  Elements weighted_values(Value first_column, const Elements& initial, const Elements& fetched) {
    const int64_t deep = t_.across, pitch = t_.block_columns() + 1;
    const auto fetch = [&](Value block) { return value_operands(first_column, block); };
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

  void store(const Elements& state) {
    const auto rows = static_cast<size_t>(t_.rows), values = static_cast<size_t>(t_.values);
    const ir::Value& result = *a_.product->result();
    std::vector<Elements> quotients(rows);
    for (size_t i = 0; i < rows; ++i) {
      Element total = state[rows + i];
      for (int64_t distance = 1; distance < t_.across; distance *= 2) {
        total.re = b().add(total.re, k_.from_team(total, team_dim(), distance).re);
      }
      for (size_t v = 0; v < values; ++v) {
        const Value quotient = b().div(state[2 * rows + i * values + v].re, total.re);
        quotients[i].push_back(kernel::convert_element(b(), {quotient, kernel::kNoValue},
                                                       DType::kF32, result.type().dtype()));
      }
    }
    const bool is_uneven = width_ % t_.block_values() != 0;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t v = 0; v < values; ++v) {
        const Value place = value_places_[v];
        const Value linear =
            k_.emitter().linear_of(result_point(rows_[i], place), result.type().dims());
        const Value has =
            is_uneven ? b().bit_and(has_row_[i], is_below(place, width_)) : has_row_[i];
        if (const uint64_t* always = b().constant(has); always != nullptr && *always != 0) {
          k_.store(result, linear, quotients[i][v]);
        } else {
          k_.when(has, [&] { k_.store(result, linear, quotients[i][v]); });
        }
      }
    }
  }

  Point result_point(const std::vector<Value>& places, Value value_place) {
    const OperandDims weights = operand_dims(*a_.product, a_.weights_operand);
    const std::vector<Value> own = split(value_place, values_.own);
    Point point;
    point.dims.assign(a_.product->result()->type().rank(), k_.index(0));
    for (size_t d = 0; d < weights.dims.size(); ++d) {
      if (weights.dims[d].kind == OperandDims::Kind::kDepth || shape_[d] == 1) continue;
      point.dims[weights.dims[d].number] = places[d];
    }
    size_t next = 0;
    for (const OperandDims::Dim& dim : values_.dims) {
      if (dim.kind == OperandDims::Kind::kOwn) point.dims[dim.number] = own[next++];
    }
    return point;
  }

  const Attention& a_;
  const AttentionTile t_;
  const int64_t width_;
  const LowerOptions& options_;
  const Dims& shape_;
  const OperandDims queries_, keys_, values_;
  const int64_t depth_, row_count_, columns_;
  KernelMaker k_;
  const kernel::TeamMemory operands_, weights_;
  Value x_ = kernel::kNoValue, y_ = kernel::kNoValue;  // this point in its team
  std::vector<Value> places_;                          // of weights' dimensions, without the row's
  std::vector<std::vector<Value>> rows_;               // the same with them, of this point's rows
  std::vector<Value> has_row_;
  std::vector<Value> value_places_;  // of this point's elements of the result
};

}  // namespace

std::optional<Result<LoweredSequence>> lower_attention(const std::vector<const ir::Value*>& outputs,
                                                       const InMemory& in_memory,
                                                       const LowerOptions& options) {
  if (options.attention_points < 2 || outputs.size() != 1) return std::nullopt;
  const ir::Operation* op = outputs[0]->defining_op();
  if (op == nullptr || op->code() != OpCode::kDotGeneral ||
      std::all_of(op->operands().begin(), op->operands().end(),
                  [&](const ir::Value* value) { return in_memory(*value); })) {
    return std::nullopt;
  }
  kernel::Refusal why;
  const auto found = find_attention(*op, options, why);
  if (!found ||
      std::any_of(found->members.begin(), found->members.end(),
                  [&](const ir::Operation* member) { return in_memory(*member->result()); })) {
    return std::nullopt;
  }
  const int64_t width = element_count(operand_dims(*op, 1 - found->weights_operand).own);
  const auto tile = attention_tile(width, options);
  if (!tile) return std::nullopt;
  return AttentionLowering(*found, *tile, width, in_memory, options).run();
}

}  // namespace hekla::lower
