// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "backends/compiler/lower/algorithm.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/lower/dimensions.h"
#include "backends/compiler/lower/reduce_kernels.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;

namespace {

// Operations between the products that are looked at, so that time stays linear in the program.
constexpr size_t kMostMembers = 256;
// Teams that are work enough for a device; and bytes of scores from which on it is their memory
// that counts.
constexpr int64_t kLeastTeams = 64;
constexpr int64_t kManyScoreBytes = int64_t{64} << 20;
// Rows below which tiles are mostly empty; and those up to which parts of the keys are taken where
// rows alone do not fill a device.
constexpr int64_t kLeastRows = 16;
constexpr int64_t kFewRows = 64;
// Keys below which a product, a softmax and a product are no more than the launches of theirs.
constexpr int64_t kLeastKeysOfFew = 128;

bool is_summed_in_f32(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

bool has_dtype(const ir::Value& value, DType dtype) {
  return value.type().is_static_tensor() && value.type().quantization() == nullptr &&
         value.type().dtype() == dtype;
}

const ir::DotDimensionNumbers* dot_numbers(const ir::Operation& op) {
  return op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
}

// Whether all elements are this number: a constant, or a broadcast of one.
bool is_all(const ir::Value& value, double number) {
  const ir::Operation* op = value.defining_op();
  while (op != nullptr &&
         (op->code() == OpCode::kBroadcastInDim || op->code() == OpCode::kReshape)) {
    op = op->operand(0)->defining_op();
  }
  if (op == nullptr || op->code() != OpCode::kConstant) return false;
  const auto* dense = op->attribute("value").get<ir::DenseValue>();
  if (dense == nullptr || dense->values.size() != 1 || dense->values.dtype() != DType::kF32) {
    return false;
  }
  float element = 0;
  std::memcpy(&element, dense->values.data(), sizeof(element));
  return static_cast<double>(element) == number;
}

// Dimensions that are not of size 1, in order.
std::vector<size_t> dims_with_size(const Dims& dims) {
  std::vector<size_t> kept;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) kept.push_back(d);
  }
  return kept;
}

}  // namespace

std::optional<WeightDims> through_movement(const ir::Operation& op, const WeightDims& dims,
                                           bool may_repeat) {
  if (op.operand_count() != 1) return std::nullopt;
  const Dims& to = op.result()->type().dims();
  const Dims& from = op.operand(0)->type().dims();
  WeightDims moved(from.size(), kSingle);
  switch (op.code()) {
    case OpCode::kTranspose: {
      const std::vector<int64_t> permutation = ir::int_list(op, "permutation");
      for (size_t d = 0; d < to.size(); ++d) moved[static_cast<size_t>(permutation[d])] = dims[d];
      return moved;
    }
    case OpCode::kReshape: {
      const std::vector<size_t> left = dims_with_size(from), right = dims_with_size(to);
      if (left.size() != right.size()) return std::nullopt;
      for (size_t i = 0; i < left.size(); ++i) {
        if (from[left[i]] != to[right[i]]) return std::nullopt;
        moved[left[i]] = dims[right[i]];
      }
      return moved;
    }
    case OpCode::kBroadcastInDim: {
      if (!may_repeat && element_count(from) != element_count(to)) return std::nullopt;
      const std::vector<int64_t> places = ir::int_list(op, "broadcast_dimensions");
      for (size_t d = 0; d < from.size(); ++d) {
        if (from[d] != 1) moved[d] = dims[static_cast<size_t>(places[d])];
      }
      return moved;
    }
    default:
      return std::nullopt;
  }
}

kernel::Refusal why_no_sums(const ir::Operation& op) {
  for (const ir::Value* value : {op.operand(0), op.operand(1), op.result()}) {
    if (!value->type().is_static_tensor() || value->type().quantization() != nullptr ||
        !is_summed_in_f32(value->type().dtype())) {
      return "a product of " + value->type().to_string() + ", not of f32, bf16 or f16";
    }
  }
  const auto algorithm = algorithm_of(op);
  if (!algorithm.ok()) return algorithm.status().message();
  if (!has_rounded_operands(op, *algorithm)) return "its products ask for pieces of operands";
  return {};
}

int64_t value_width(const Attention& attention) {
  const auto* n = dot_numbers(*attention.product);
  const Dims& values = attention.product->operand(1 - attention.weights_operand)->type().dims();
  int64_t width = element_count(values) / attention.columns();
  for (int64_t d :
       attention.weights_operand == 0 ? n->rhs_batching_dimensions : n->lhs_batching_dimensions) {
    width /= values[static_cast<size_t>(d)];
  }
  return width;
}

namespace {

class AttentionFinder {
 public:
  AttentionFinder(const ir::Operation& product, const LowerOptions& options) : options_(options) {
    found_.product = &product;
  }

  // Empty: there is one.
  kernel::Refusal run(bool& is_softmax) {
    is_softmax = false;
    const ir::Operation& product = *found_.product;
    if (product.operand_count() != 2 || dot_numbers(product) == nullptr) return "no product";
    for (size_t operand : {size_t{0}, size_t{1}}) {
      found_.weights_operand = operand;
      found_.members.clear();
      members_.clear();
      if (find_softmax()) {
        is_softmax = true;
        return check();
      }
    }
    return "no softmax";
  }

  const Attention& found() const { return found_; }
  const kernel::Refusal& why_no_matrix() const { return why_no_matrix_; }

 private:
  struct Place {
    const ir::Value* value = nullptr;
    WeightDims dims;
    bool operator==(const Place&) const = default;
  };

  bool add(const ir::Operation& op) {
    if (op.block() != found_.product->block() || op.result_count() != 1 ||
        members_.size() >= kMostMembers) {
      return false;
    }
    if (members_.insert(&op).second) found_.members.push_back(&op);
    return true;
  }

  // Down through operations that only move all elements.
  bool strip(Place& at, bool may_repeat = false) {
    while (const ir::Operation* op = at.value->defining_op()) {
      const auto moved = through_movement(*op, at.dims, may_repeat);
      if (!moved) return true;
      if (!add(*op)) return false;
      at = {op->operand(0), *moved};
    }
    return true;
  }

  const ir::Operation* maker(const Place& at, OpCode code) {
    const ir::Operation* op = at.value->defining_op();
    if (op == nullptr || op->code() != code || !has_dtype(*at.value, DType::kF32) || !add(*op)) {
      return nullptr;
    }
    return op;
  }

  // What a value of one element for each row reduces by `reducer` along the columns; nullopt: it is
  // no such reduction.
  std::optional<Place> reduced(Place at, OpCode reducer, double initial) {
    if (!strip(at, /*may_repeat=*/true)) return std::nullopt;
    if (const ir::Operation* op = at.value->defining_op();
        op != nullptr && op->code() == OpCode::kMaximum && reducer == OpCode::kMaximum) {
      const size_t other = is_all(*op->operand(0), initial) ? 1 : 0;
      if (!is_all(*op->operand(1 - other), initial) || !add(*op)) return std::nullopt;
      at.value = op->operand(other);
      if (!strip(at, /*may_repeat=*/true)) return std::nullopt;
    }
    const ir::Operation* op = maker(at, OpCode::kReduce);
    if (op == nullptr || op->operand_count() != 2 || !is_all(*op->operand(1), initial) ||
        order_of(*op) == Order::kFixed ||
        op->region(0).front().operations().front()->code() != reducer) {
      return std::nullopt;
    }
    const std::vector<int64_t> along = ir::int_list(*op, "dimensions");
    if (along.size() != 1) return std::nullopt;
    Place from{op->operand(0), at.dims};
    from.dims.insert(from.dims.begin() + along[0], static_cast<int>(found_.column));
    if (!strip(from)) return std::nullopt;
    return from;
  }

  // From the product's operand to what the softmax is of.
  bool find_softmax() {
    const ir::Operation& product = *found_.product;
    const auto* numbers = dot_numbers(product);
    const auto& contracting = found_.weights_operand == 0 ? numbers->lhs_contracting_dimensions
                                                          : numbers->rhs_contracting_dimensions;
    if (contracting.size() != 1) return false;
    found_.column = static_cast<size_t>(contracting[0]);
    Place at{product.operand(found_.weights_operand), {}};
    if (!at.value->type().is_static_tensor() || !is_summed_in_f32(at.value->type().dtype())) {
      return false;
    }
    const Dims& shape = at.value->type().dims();
    for (size_t d = 0; d < shape.size(); ++d) {
      at.dims.push_back(shape[d] == 1 ? kSingle : static_cast<int>(d));
    }
    if (shape[found_.column] < 2 || !strip(at)) return false;
    if (const ir::Operation* op = at.value->defining_op();
        op != nullptr && op->code() == OpCode::kConvert &&
        has_dtype(*op->operand(0), DType::kF32)) {
      if (!add(*op)) return false;
      at.value = op->operand(0);
      if (!strip(at)) return false;
    }
    const ir::Operation* divide = maker(at, OpCode::kDivide);
    if (divide == nullptr) return false;
    Place numerator{divide->operand(0), at.dims};
    if (!strip(numerator)) return false;
    const ir::Operation* exponential = maker(numerator, OpCode::kExponential);
    if (exponential == nullptr) return false;
    const auto sum = reduced({divide->operand(1), at.dims}, OpCode::kAdd, 0);
    if (!sum || !(*sum == numerator)) return false;
    Place shifted{exponential->operand(0), numerator.dims};
    if (!strip(shifted)) return false;
    const ir::Operation* subtract = maker(shifted, OpCode::kSubtract);
    if (subtract == nullptr) return false;
    Place logits{subtract->operand(0), shifted.dims};
    if (!strip(logits)) return false;
    const auto greatest =
        reduced({subtract->operand(1), shifted.dims}, OpCode::kMaximum, -HUGE_VAL);
    if (!greatest || !(*greatest == logits)) return false;
    found_.logits = logits.value;
    found_.logits_dims = logits.dims;
    return true;
  }

  // Whether elements of `at` are made of those of the scores at the same place, by elementwise
  // operations. The first product that is met is the scores.
  bool find_scores(const Place& at) {
    const ir::Operation* op = at.value->defining_op();
    if (op == nullptr || op->block() != found_.product->block()) return false;
    if (op->code() == OpCode::kDotGeneral) {
      if (found_.scores == nullptr) {
        found_.scores = op;
        found_.scores_dims = at.dims;
        members_.insert(op);
        found_.members.push_back(op);
      }
      if (found_.scores == op && found_.scores_dims != at.dims) is_twisted_ = true;
      return found_.scores == op;
    }
    if (const auto it = places_.find(at.value); it != places_.end()) {
      if (it->second.second && it->second.first != at.dims) is_twisted_ = true;
      return it->second.second;
    }
    if (places_.size() >= kMostMembers) return false;
    places_[at.value] = {at.dims, false};
    bool is_made = false;
    if (const auto moved = through_movement(*op, at.dims, false)) {
      is_made = find_scores({op->operand(0), *moved});
    } else if (op->result_count() == 1 && op->region_count() == 0 && op->operand_count() <= 3) {
      for (const ir::Value* operand : op->operands()) {
        if (!operand->type().is_static_tensor() ||
            operand->type().dims() != at.value->type().dims()) {
          continue;
        }
        is_made = find_scores({operand, at.dims}) || is_made;
      }
      if (is_made && role_of(*op) != Role::kElementwise) is_twisted_ = true;
    }
    places_[at.value].second = is_made;
    if (is_made && !add(*op)) is_twisted_ = true;
    return is_made;
  }

  kernel::Refusal check() {
    if (!find_scores({found_.logits, found_.logits_dims}) || is_twisted_) {
      return "the softmax is not of elementwise operations on one product";
    }
    const ir::Operation &product = *found_.product, &scores = *found_.scores;
    for (const ir::Operation* op : {&scores, &product}) {
      if (kernel::Refusal why = why_no_sums(*op); !why.empty()) return why;
    }
    const ir::Value& values = *product.operand(1 - found_.weights_operand);
    if (values.defining_op() != nullptr && members_.contains(values.defining_op())) {
      return "its values are made for its weights";
    }
    for (const ir::Operation* op : found_.members) {
      for (const ir::Operation* user : op->result()->users()) {
        if (user == &product || members_.contains(user)) continue;
        return fmt::format("the result of {} inside is used by {} too", op->name(), user->name());
      }
    }
    if (kernel::Refusal why = find_dims(); !why.empty()) return why;
    if (kernel::Refusal why = check_sizes(); !why.empty()) return why;
    return check_device();
  }

  // Which dimensions keys, values and queries have.
  kernel::Refusal find_dims() {
    const auto* numbers = dot_numbers(*found_.scores);
    if (numbers == nullptr) return "scores without dimension numbers";
    const size_t batch = numbers->lhs_batching_dimensions.size();
    const size_t left = found_.scores->operand(0)->type().rank() - batch -
                        numbers->lhs_contracting_dimensions.size();
    const auto column = static_cast<int>(found_.column);
    const auto& dims = found_.scores_dims;
    const auto at = static_cast<size_t>(std::find(dims.begin(), dims.end(), column) - dims.begin());
    if (at < batch || at == dims.size()) return "queries and keys have the keys in common";
    found_.keys_operand = at < batch + left ? 0 : 1;
    const size_t first = found_.keys_operand == 0 ? batch : batch + left;
    const size_t end = found_.keys_operand == 0 ? batch + left : dims.size();
    for (size_t d = first; d < end; ++d) {
      if (d != at && dims[d] != kSingle) return "keys have two dimensions of their own";
    }
    std::unordered_set<int> shared(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(batch));
    const auto* n = dot_numbers(*found_.product);
    for (int64_t d :
         found_.weights_operand == 0 ? n->lhs_batching_dimensions : n->rhs_batching_dimensions) {
      shared.insert(static_cast<int>(d));
    }
    for (const int d : dims) {
      if (d == kSingle || d == column) continue;
      (shared.contains(d) ? found_.batch : found_.rows).push_back(static_cast<size_t>(d));
    }
    return {};
  }

  kernel::Refusal check_sizes() const {
    for (const ir::Operation* op : {found_.scores, found_.product}) {
      for (const ir::Value* value : {op->operand(0), op->operand(1)}) {
        if (element_count(value->type().dims()) == 0) return "an operand without elements";
      }
    }
    return {};
  }

  kernel::Refusal check_device() {
    if (options_.attention_points < 4) {
      return why_no_matrix_ = "not by teams of points on this device";
    }
    why_no_matrix_ = check_matrix();
    if (why_no_matrix_.empty()) return {};
    const auto tile = attention_tile(value_width(found_), options_);
    const auto parts = key_parts(found_, options_);
    if (!tile && !parts) {
      return fmt::format("teams have {} words of shared memory", options_.attention_words);
    }
    if (options_.attention_always) return {};
    // Not products of f32 in pieces, which are worth less than scores that are not stored.
    const auto has_unit = [&](const ir::Operation& op) {
      return !options_.matrix_types.empty() && op.operand(0)->type().dtype() != DType::kF32 &&
             why_no_contraction(op, options_).empty();
    };
    const bool has_units = has_unit(*found_.scores) || has_unit(*found_.product);
    // Fewer rows would leave most of a matrix unit empty.
    if (has_units && (!parts || found_.row_count() >= kLeastRows)) {
      return "matrix units compute its products";
    }
    if (parts) {
      if (options_.small_limits || found_.columns() >= kLeastKeysOfFew) return {};
      return fmt::format("{} keys for {} rows of queries, fewer than {}", found_.columns(),
                         found_.row_count(), kLeastKeysOfFew);
    }
    const int64_t batch = found_.batch_count(), rows = found_.row_count();
    const int64_t bytes = score_bytes();
    const int64_t teams = batch * ((rows + tile->block_rows() - 1) / tile->block_rows());
    if (!options_.small_limits && teams < kLeastTeams && bytes < kManyScoreBytes) {
      return fmt::format("{} teams, fewer than {}, and {} bytes of scores, fewer than {}", teams,
                         kLeastTeams, bytes, kManyScoreBytes);
    }
    return {};
  }

  int64_t score_bytes() const {
    return found_.batch_count() * found_.row_count() * found_.columns() * 4;
  }

  // Whether matrix units compute its products and keep the scores to themselves.
  kernel::Refusal check_matrix() {
    using Form = LowerOptions::AttentionForm;
    AttentionMatrixTile tile;
    if (kernel::Refusal why = why_no_matrix_tile(found_, options_, tile); !why.empty()) return why;
    // No GPU has run it yet.
    if (options_.attention_form != Form::kMatrix) {
      return options_.attention_always ? "another form is asked for"
                                       : "only where hekla_attention=matrix asks for it";
    }
    found_.matrix_tile = tile;
    return {};
  }

  const LowerOptions& options_;
  Attention found_;
  kernel::Refusal why_no_matrix_;
  std::unordered_set<const ir::Operation*> members_;
  std::unordered_map<const ir::Value*, std::pair<WeightDims, bool>> places_;
  bool is_twisted_ = false;  // scores are met in two forms, or by what is not elementwise
};

int64_t count_of(const Dims& shape, const std::vector<size_t>& dims) {
  int64_t count = 1;
  for (const size_t d : dims) count *= shape[d];
  return count;
}

}  // namespace

int64_t Attention::row_count() const { return count_of(weights_shape(), rows); }
int64_t Attention::batch_count() const { return count_of(weights_shape(), batch); }

std::optional<KeyParts> key_parts(const Attention& attention, const LowerOptions& options) {
  using Form = LowerOptions::AttentionForm;
  if (options.attention_form == Form::kTiles) return std::nullopt;
  const auto tile = attention_tile(value_width(attention), options);
  const int64_t rows = attention.row_count();
  const int64_t teams =
      tile ? attention.batch_count() * ((rows + tile->block_rows() - 1) / tile->block_rows()) : 0;
  const bool is_few = options.small_limits
                          ? rows < 3
                          : rows < kLeastRows || (rows <= kFewRows && teams < kLeastTeams);
  if (!is_few && options.attention_form != Form::kKeys) return std::nullopt;
  return key_parts_of(attention, options);
}

std::optional<Attention> find_attention(const ir::Operation& product, const LowerOptions& options,
                                        kernel::Refusal& why, kernel::Refusal* why_no_matrix) {
  why.clear();
  if (product.code() != OpCode::kDotGeneral) return std::nullopt;
  AttentionFinder finder(product, options);
  bool is_softmax = false;
  kernel::Refusal refusal = finder.run(is_softmax);
  if (!is_softmax) return std::nullopt;
  why = std::move(refusal);
  if (why_no_matrix != nullptr) {
    *why_no_matrix = finder.why_no_matrix().empty() ? why : finder.why_no_matrix();
  }
  if (!why.empty()) return std::nullopt;
  return finder.found();
}

int64_t AttentionTile::operand_words() const {
  return std::max((block_rows() + block_columns()) * (across + 1), across * block_values());
}

std::optional<AttentionTile> attention_tile(int64_t value_width, const LowerOptions& options) {
  // Elements of the result that a point has for each row, at most: registers.
  constexpr int64_t kMostValues = 16;
  AttentionTile tile;
  const int64_t points = options.small_limits ? std::min<int64_t>(options.attention_points, 4)
                                              : options.attention_points;
  const int bits = std::bit_width(static_cast<uint64_t>(points)) - 1;
  tile.across = int64_t{1} << ((bits + 1) / 2);
  tile.down = points / tile.across;
  tile.rows = tile.columns = options.small_limits ? 2 : 4;
  tile.values = std::min(options.small_limits ? int64_t{3} : kMostValues,
                         (value_width + tile.across - 1) / tile.across);
  // Exchanges go through two arrays of a word a point, and what points say of masks through one.
  const int64_t most = options.attention_words - 3 * points;
  while (tile.operand_words() + tile.weight_words() > most) {
    int64_t& part = tile.rows > 1 ? tile.rows : tile.columns > 1 ? tile.columns : tile.values;
    if (part == 1) return std::nullopt;
    part /= 2;
  }
  return tile;
}

}  // namespace hekla::lower
