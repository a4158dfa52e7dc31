// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "backends/compiler/lower/attention_parts.h"
#include "backends/compiler/lower/contraction.h"
#include "backends/compiler/lower/reduce_kernels.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {

using ir::OpCode;

namespace {

// Operations around one softmax, so that time stays linear in the program.
constexpr size_t kMostScoreMembers = 512;
// Elements of the depth of products from which on scores are kept rather than made again.
constexpr int64_t kMostDepth = 512;
// Bytes of scores from which on it is their memory that counts: an NVIDIA H200 takes 30.7 ms in
// place of 15.7 for the gradients of 1 GiB of them in f32 (16 heads of 4,096 x 128, causal).
constexpr int64_t kManyRecomputedBytes = int64_t{2} << 30;

using IsMade = std::function<bool(const ir::Value&)>;

// Whether elements of the result are made of those of operands of the same dimensions there.
bool is_elementwise(const ir::Operation& op) {
  return op.result_count() == 1 && op.region_count() == 0 && op.operand_count() >= 1 &&
         op.operand_count() <= 3 && op.result()->type().is_static_tensor() &&
         role_of(op) == Role::kElementwise;
}

bool has_dims_of(const ir::Value& value, const ir::Value& other) {
  return value.type().is_static_tensor() && value.type().dims() == other.type().dims();
}

WeightDims identity(const Dims& shape) {
  WeightDims dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    dims.push_back(shape[d] == 1 ? kSingle : static_cast<int>(d));
  }
  return dims;
}

// From an operand in a space of scores down to the products that it is made of.
class ProductFinder {
 public:
  explicit ProductFinder(const IsMade& is_made) : is_made_(is_made) {}

  // Whether a product is below.
  bool find(const ir::Value& value, const WeightDims& dims) {
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || !is_made_(value)) return false;
    if (const auto it = known_.find(&value); it != known_.end()) {
      if (it->second.has_products && it->second.dims != dims) is_twisted_ = true;
      return it->second.has_products;
    }
    if (known_.size() >= kMostScoreMembers) {
      is_twisted_ = true;
      return false;
    }
    known_[&value] = {dims, false};
    bool has_products = false;
    if (op->code() == OpCode::kDotGeneral) {
      products_.push_back({op, dims});
      has_products = true;
    } else if (const auto moved = through_movement(*op, dims, false)) {
      has_products = find(*op->operand(0), *moved);
    } else if (is_elementwise(*op)) {
      for (const ir::Value* operand : op->operands()) {
        if (has_dims_of(*operand, value)) {
          has_products = find(*operand, dims) || has_products;
        } else {
          look_for_loops(*operand);
        }
      }
    } else {
      look_for_loops(value);
    }
    known_[&value].has_products = has_products;
    if (has_products) path_.push_back(op);
    return has_products;
  }

  bool is_twisted() const { return is_twisted_; }
  const std::vector<InnerProduct>& products() const { return products_; }
  // Operations on the way to products, products among them.
  const std::vector<const ir::Operation*>& path() const { return path_; }

 private:
  struct Known {
    WeightDims dims;
    bool has_products = false;
  };

  // Of elements at other places: products and sums would be made for each of them.
  void look_for_loops(const ir::Value& value) {
    std::vector<const ir::Value*> open{&value};
    while (!open.empty() && !is_twisted_) {
      const ir::Value& one = *open.back();
      open.pop_back();
      const ir::Operation* op = one.defining_op();
      if (op == nullptr || !is_made_(one) || !looked_at_.insert(&one).second) continue;
      if (op->code() == OpCode::kDotGeneral || op->code() == OpCode::kReduce) is_twisted_ = true;
      open.insert(open.end(), op->operands().begin(), op->operands().end());
    }
  }

  const IsMade& is_made_;
  std::unordered_map<const ir::Value*, Known> known_;
  std::unordered_set<const ir::Value*> looked_at_;
  std::vector<InnerProduct> products_;
  std::vector<const ir::Operation*> path_;
  bool is_twisted_ = false;  // something is met in two forms, or at other places
};

// The dimensions of the space that an operand of a product has.
std::unordered_set<int> dims_of_side(const InnerProduct& product, size_t side) {
  std::unordered_set<int> made;
  for (const OperandDims::Dim& dim : operand_dims(*product.op, side).dims) {
    if (dim.kind == OperandDims::Kind::kDepth) continue;
    if (product.dims[dim.result] != kSingle) made.insert(product.dims[dim.result]);
  }
  return made;
}

bool has_any(const std::unordered_set<int>& set, const std::vector<size_t>& of) {
  return std::any_of(of.begin(), of.end(),
                     [&](size_t d) { return set.contains(static_cast<int>(d)); });
}

// A reduction that teams do: of one operand of f32, by a sum or the greatest.
bool is_score_reduce(const ir::Operation& op) {
  if (op.code() != OpCode::kReduce || op.operand_count() != 2 || op.result_count() != 1 ||
      !op.operand(0)->type().is_static_tensor() || op.operand(0)->type().dtype() != DType::kF32) {
    return false;
  }
  const Order order = order_of(op);
  const OpCode reducer = op.region(0).front().operations().front()->code();
  return order == Order::kSum || (order == Order::kIdempotent && reducer == OpCode::kMaximum);
}

}  // namespace

std::optional<ScoreRoot> score_root(const ir::Operation& op, const IsMade& is_made,
                                    kernel::Refusal& why) {
  why.clear();
  ScoreRoot root;
  root.op = &op;
  std::vector<int64_t> batching, summed;
  std::optional<ProductFinder> finder;
  const auto finds = [&](const ir::Value& value) {
    finder.emplace(is_made);
    return value.type().is_static_tensor() && finder->find(value, identity(value.type().dims()));
  };
  if (op.code() == OpCode::kDotGeneral) {
    const auto* n = op.attribute("dot_dimension_numbers").get<ir::DotDimensionNumbers>();
    if (n == nullptr || op.operand_count() != 2) return std::nullopt;
    while (root.weights_side < 2 && !finds(*op.operand(root.weights_side))) ++root.weights_side;
    if (root.weights_side == 2) return std::nullopt;
    const bool is_left = root.weights_side == 0;
    batching = is_left ? n->lhs_batching_dimensions : n->rhs_batching_dimensions;
    summed = is_left ? n->lhs_contracting_dimensions : n->rhs_contracting_dimensions;
    if (is_left) {
      // Of the other operand elements are asked for at other places.
      ProductFinder other(is_made);
      const ir::Value& values = *op.operand(1);
      if (values.type().is_static_tensor() &&
          (other.find(values, identity(values.type().dims())) || other.is_twisted())) {
        why = "both operands are made of scores";
        return std::nullopt;
      }
    }
    if (why = why_no_sums(op); !why.empty()) return std::nullopt;
  } else if (is_score_reduce(op)) {
    if (!finds(*op.operand(0))) return std::nullopt;
    summed = ir::int_list(op, "dimensions");
  } else {
    return std::nullopt;
  }
  root.weights = op.operand(root.weights_side);
  if (finder->is_twisted()) {
    why = "scores are used at other places than their own";
    return std::nullopt;
  }
  std::unordered_set<int> shared;
  for (const InnerProduct& product : finder->products()) {
    if (why = why_no_sums(*product.op); !why.empty()) return std::nullopt;
    const std::unordered_set<int> right = dims_of_side(product, 1);
    for (const int d : dims_of_side(product, 0)) {
      if (right.contains(d)) shared.insert(d);
    }
  }
  const Dims& shape = root.weights->type().dims();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) why = "an operand without elements";
    if (shape[d] == 1) continue;
    if (std::find(summed.begin(), summed.end(), static_cast<int64_t>(d)) != summed.end()) {
      root.inner.push_back(d);
    } else if (shared.contains(static_cast<int>(d)) ||
               std::find(batching.begin(), batching.end(), static_cast<int64_t>(d)) !=
                   batching.end()) {
      root.batch.push_back(d);
    } else {
      root.outer.push_back(d);
    }
  }
  for (const InnerProduct& product : finder->products()) {
    if (element_count(product.op->operand(0)->type().dims()) == 0) {
      why = "an operand without elements";
    }
    const std::unordered_set<int> sides[2] = {dims_of_side(product, 0), dims_of_side(product, 1)};
    const bool has_outer[2] = {has_any(sides[0], root.outer), has_any(sides[1], root.outer)};
    const bool has_inner[2] = {has_any(sides[0], root.inner), has_any(sides[1], root.inner)};
    const size_t outer_side = has_outer[1] || has_inner[0] ? 1 : 0;
    if (has_outer[1 - outer_side] || has_inner[outer_side]) {
      why = "an operand of the scores has dimensions that are summed over and others";
    }
    root.products.push_back({product, outer_side});
  }
  if (!why.empty()) return std::nullopt;
  return root;
}

namespace {

class RecomputedFinder {
 public:
  RecomputedFinder(const ir::Block& block, const std::function<bool(const ir::Operation&)>& taken,
                   const LowerOptions& options)
      : block_(block), taken_(taken), options_(options) {}

  // Around the softmax that has this greatest logit; nullopt: it is none of a product.
  std::optional<RecomputedScores> run(const ir::Operation& greatest) {
    const ir::Value& logits = *greatest.operand(0);
    // What needs no look at the program comes first: whoever has many softmaxes is done soon.
    if (!is_softmax(logits) || !check_size(logits).empty() || !add_products(logits)) {
      return std::nullopt;
    }
    // What is made of members is one, up to kernels of their own.
    while (!open_.empty() && found_.why_not.empty()) {
      const ir::Operation& member = *open_.front();
      open_.pop_front();
      add_users(member);
      if (is_elementwise(member)) {
        for (const ir::Value* operand : member.operands()) {
          if (has_dims_of(*operand, *member.result())) add_products(*operand);
        }
      }
    }
    if (found_.why_not.empty()) found_.why_not = check();
    in_order(found_.members);
    in_order(found_.roots);
    return std::move(found_);
  }

 private:
  // Whether exponentials of differences to it are taken, where it is or moved.
  static bool is_softmax(const ir::Value& logits) {
    constexpr size_t kMostMoved = 16;
    std::vector<const ir::Value*> open{&logits};
    for (size_t i = 0; i < open.size() && i < kMostMoved; ++i) {
      const ir::Value& value = *open[i];
      for (const ir::Operation* user : value.users()) {
        if (user->result_count() != 1 || !user->result()->type().is_static_tensor()) continue;
        if (through_movement(*user, WeightDims(user->result()->type().rank(), 0), false)) {
          open.push_back(user->result());
        }
        if (user->code() != OpCode::kSubtract || user->operand(0) != &value) continue;
        for (const ir::Operation* next : user->result()->users()) {
          if (next->code() == OpCode::kExponential) return true;
        }
      }
    }
    return false;
  }

  bool is_here(const ir::Value& value) const {
    return value.defining_op() != nullptr && value.defining_op()->block() == &block_;
  }

  void add(const ir::Operation& op) {
    if (!members_.insert(&op).second) return;
    if (members_.size() > kMostScoreMembers) found_.why_not = "too many operations use its scores";
    if (taken_(op)) found_.why_not = "part of it belongs to another attention";
    found_.members.push_back(&op);
    open_.push_back(&op);
  }

  // The products that a value is made of, and what lies between.
  bool add_products(const ir::Value& value) {
    if (!is_here(value) || members_.contains(value.defining_op())) return false;
    const IsMade is_made = [this](const ir::Value& one) { return is_here(one); };
    ProductFinder finder(is_made);
    if (!finder.find(value, identity(value.type().dims()))) return false;
    for (const InnerProduct& product : finder.products()) {
      // Long sums are not made again; they may well be in memory.
      if (!options_.attention_always && depth_of(*product.op) > kMostDepth) return false;
    }
    for (const ir::Operation* op : finder.path()) add(*op);
    return true;
  }

  static int64_t depth_of(const ir::Operation& product) {
    return element_count(operand_dims(product, 0).depth);
  }

  void add_users(const ir::Operation& member) {
    const ir::Value& value = *member.result();
    for (const ir::Operation* user : value.users()) {
      if (members_.contains(user) || roots_.contains(user)) continue;
      const bool is_here = user->block() == &block_ && user->result_count() == 1;
      if (is_here && (user->code() == OpCode::kDotGeneral || is_score_reduce(*user))) {
        roots_.insert(user);
        found_.roots.push_back(user);
      } else if (is_here && user->result()->type().is_static_tensor() &&
                 (through_movement(*user, WeightDims(user->result()->type().rank(), 0), false) ||
                  (is_elementwise(*user) && has_dims_of(value, *user->result())))) {
        add(*user);
      } else {
        found_.why_not =
            fmt::format("the result of {} inside is used by {} too", member.name(), user->name());
      }
    }
  }

  kernel::Refusal check_size(const ir::Value& logits) const {
    if (options_.attention_points < 4) return "not by teams of points on this device";
    if (!attention_tile(1, options_)) {
      return fmt::format("teams have {} words of shared memory", options_.attention_words);
    }
    const int64_t bytes = 4 * element_count(logits.type().dims());
    if (!options_.attention_always && !options_.small_limits && bytes < kManyRecomputedBytes) {
      return fmt::format("{} bytes of scores, fewer than {}", bytes, kManyRecomputedBytes);
    }
    return {};
  }

  kernel::Refusal check() {
    const IsMade is_made = [this](const ir::Value& value) {
      return value.defining_op() != nullptr && members_.contains(value.defining_op());
    };
    for (const ir::Operation* op : found_.roots) {
      kernel::Refusal why;
      if (score_root(*op, is_made, why)) continue;
      return fmt::format("{} of scores: {}", op->name(), why.empty() ? "of none" : why);
    }
    for (const ir::Operation* op : found_.members) {
      if (op->code() != OpCode::kDotGeneral) continue;
      for (const ir::Value* operand : op->operands()) {
        if (is_made(*operand)) return "scores are made of scores";
      }
      if (options_.attention_always || options_.matrix_types.empty()) continue;
      // In pieces they are worth less than scores that are not stored.
      if (op->operand(0)->type().dtype() == DType::kF32) continue;
      if (why_no_contraction(*op, options_).empty()) return "matrix units compute its products";
    }
    return {};
  }

  void in_order(std::vector<const ir::Operation*>& ops) const {
    const std::unordered_set<const ir::Operation*> all(ops.begin(), ops.end());
    ops.clear();
    for (const auto& op : block_.operations()) {
      if (all.contains(op.get())) ops.push_back(op.get());
    }
  }

  const ir::Block& block_;
  const std::function<bool(const ir::Operation&)>& taken_;
  const LowerOptions& options_;
  RecomputedScores found_;
  std::unordered_set<const ir::Operation*> members_, roots_;
  std::deque<const ir::Operation*> open_;
};

}  // namespace

std::vector<RecomputedScores> find_recomputed_scores(
    const ir::Block& block, const std::function<bool(const ir::Operation&)>& taken,
    const LowerOptions& options) {
  std::vector<RecomputedScores> all;
  std::unordered_set<const ir::Operation*> seen;
  const auto is_taken = [&](const ir::Operation& op) { return taken(op) || seen.contains(&op); };
  for (const auto& op : block.operations()) {
    if (!is_score_reduce(*op) || order_of(*op) != Order::kIdempotent || is_taken(*op)) continue;
    const std::function<bool(const ir::Operation&)> known = is_taken;
    auto found = RecomputedFinder(block, known, options).run(*op);
    if (!found) continue;
    seen.insert(found->members.begin(), found->members.end());
    seen.insert(found->roots.begin(), found->roots.end());
    all.push_back(std::move(*found));
  }
  return all;
}

std::unordered_set<const ir::Operation*> attention_products(const ir::Module& module,
                                                            const LowerOptions& options) {
  std::unordered_set<const ir::Operation*> products;
  if (options.attention_points < 2) return products;
  std::unordered_set<const ir::Operation*> taken;
  std::unordered_set<const ir::Block*> blocks;
  ir::walk(module.entry()->body(), [&](const ir::Operation& op) {
    blocks.insert(op.block());
    kernel::Refusal why;
    const auto found = find_attention(op, options, why);
    if (!found) return;
    products.insert(found->product);
    products.insert(found->scores);
    taken.insert(found->members.begin(), found->members.end());
  });
  for (const ir::Block* block : blocks) {
    const auto is_taken = [&](const ir::Operation& op) { return taken.contains(&op); };
    for (const RecomputedScores& found : find_recomputed_scores(*block, is_taken, options)) {
      if (!found.why_not.empty()) continue;
      for (const auto* ops : {&found.members, &found.roots}) {
        for (const ir::Operation* op : *ops) {
          if (op->code() == OpCode::kDotGeneral) products.insert(op);
        }
      }
    }
  }
  return products;
}

}  // namespace hekla::lower
