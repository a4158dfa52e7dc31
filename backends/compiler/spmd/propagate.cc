// SPDX-License-Identifier: Apache-2.0
// Shardy's order of things: what costs nothing to keep cut goes first (elementwise operations,
// reshapes), what may cost most last (broadcasts forward). Each array's axes only grow, so that the
// worklist runs dry after at most as many changes as there are axes in all arrays.
#include "backends/compiler/spmd/propagate.h"

#include <algorithm>
#include <deque>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "backends/compiler/spmd/factor_step.h"
#include "backends/compiler/spmd/rules.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::spmd {
namespace {

using ir::OpCode;

constexpr int kRounds = 5;
constexpr int kNoArray = -1;

bool is_constraint(const ir::Operation& op) {
  return op.code() == OpCode::kCustomCall && op.operand_count() == 1 && op.result_count() == 1 &&
         ir::text_value(op, "call_target_name") == "hekla.constraint";
}

enum class Kind : uint8_t { kOther, kPassThrough, kDynamicSlice, kBroadcast };

Kind kind_of(const ir::Operation& op) {
  if (ir::is_elementwise(op.code())) return Kind::kPassThrough;
  switch (op.code()) {
    case OpCode::kReshape:
    case OpCode::kTranspose:
      return Kind::kPassThrough;
    case OpCode::kBitcastConvert:
      return op.operand(0)->type().dims() == op.result()->type().dims() ? Kind::kPassThrough
                                                                        : Kind::kOther;
    case OpCode::kDynamicSlice:
    case OpCode::kDynamicUpdateSlice:
      return Kind::kDynamicSlice;
    case OpCode::kBroadcastInDim:
      return Kind::kBroadcast;
    default:
      return Kind::kOther;
  }
}

// What ties arrays: an operation, or an edge of control flow.
struct Step {
  FactorRule rule;
  std::vector<int> arrays;  // the rule's, by number; kNoArray
  Kind kind = Kind::kOther;
  bool is_elementwise = false;
  bool has_shared_operand = false;  // some operand has other uses
  // Where a manual computation begins or ends: what its axes cut of the array outside, which is
  // number `outside` of `arrays`.
  const Tiling* border = nullptr;
  size_t outside = 0;

  bool is_cheap() const { return kind == Kind::kPassThrough || kind == Kind::kDynamicSlice; }
  // Whether anything goes through in a round.
  bool is_active(int round) const {
    return round >= 2 || (is_cheap() && (round == 1 || !has_shared_operand));
  }
  // Whether more goes through than in the round before. The others wait until an array of theirs
  // changes and then come first: Shardy's rounds begin with all, so that contractions may decide
  // before elementwise operations that keep cut what is cut, and cost more.
  bool starts(int round) const {
    switch (round) {
      case 0:
        return is_active(0);
      case 1:
        return is_active(1) && has_shared_operand;
      case 2:
        return kind != Kind::kPassThrough;
      case 3:
        return kind != Kind::kPassThrough && !rule.all_pass;
      default:
        return kind == Kind::kBroadcast;
    }
  }
  Direction direction(int round, size_t factor) const {
    if (!is_active(round)) return Direction::kNone;
    if (kind == Kind::kPassThrough || round == 4) return Direction::kBoth;
    if (round < 2 || (round == 2 && !rule.passes[factor])) {
      return kind == Kind::kDynamicSlice ? Direction::kForward : Direction::kNone;
    }
    return kind == Kind::kBroadcast ? Direction::kBackward : Direction::kBoth;
  }
};

class Propagation {
 public:
  Propagation(const PrimeMesh& mesh, const std::unordered_map<const ir::Value*, Given>& given,
              const Manuals& manuals)
      : given_(given), manuals_(manuals), step_(mesh) {}

  Tilings run(const ir::Block& block) {
    collect(block);
    index_steps();
    std::set<int64_t> priorities = {0};
    for (size_t i = 0; i < arrays_.size(); ++i) begin_array(i, priorities);
    for (int64_t priority : priorities) {
      for (size_t i = 0; priority > 0 && i < arrays_.size(); ++i) raise_array(i, priority);
      for (int round = 0; round < kRounds; ++round) run_round(round);
    }
    settle_constants();
    return result();
  }

 private:
  // --- The program as arrays and steps ---

  // Of operations, which come after what they use.
  void collect(const ir::Block& block) {
    for (size_t i = 0; i < block.argument_count(); ++i) add_array(*block.argument(i));
    for (const auto& op : block.operations()) {
      if (collect_constant(*op)) continue;
      for (size_t i = 0; i < op->result_count(); ++i) add_array(*op->result(i));
      switch (op->code()) {
        case OpCode::kWhile:
          collect_while(*op);
          break;
        case OpCode::kCase:
        case OpCode::kIf:
          collect_branches(*op);
          break;
        case OpCode::kOptimizationBarrier:
          for (size_t i = 0; i < op->result_count(); ++i) {
            add_edge({op->operand(i)}, *op->result(i));
          }
          break;
        case OpCode::kSdyManualComputation:
          collect_manual(*op);
          break;
        default:
          collect_operation(*op);
      }
    }
  }

  void collect_manual(const ir::Operation& op) {
    const auto found = manuals_.find(&op);
    if (found == manuals_.end()) return;
    const Manual& manual = found->second;
    const ir::Block& body = op.region(0).front();
    const uint32_t excluded_outside = excluded_;
    for (int axis : manual.axes) excluded_ |= uint32_t{1} << axis;
    for (size_t k = 0; k < op.operand_count(); ++k) {
      const ir::Value* inside = body.argument(k);
      if (!has_shape(*inside) || !has_shape(*op.operand(k))) continue;
      add_array(*inside);
      add_border({use(*op.operand(k)), array_of_.at(inside)}, 0, manual.in[k], *inside);
    }
    collect(body);
    for (size_t k = 0; k < op.result_count(); ++k) {
      const ir::Value* inside = body.terminator()->operand(k);
      if (!has_shape(*inside) || !has_shape(*op.result(k))) continue;
      add_border({use(*inside), array_of_.at(op.result(k))}, 1, manual.out[k], *inside);
    }
    excluded_ = excluded_outside;
  }

  void add_border(std::vector<int> arrays, size_t outside, const Tiling& border,
                  const ir::Value& inside) {
    Step step{.rule = identity_rule(inside.type().dims(), 1), .arrays = std::move(arrays)};
    step.kind = Kind::kPassThrough;
    step.border = &border;
    step.outside = outside;
    steps_.push_back(std::move(step));
  }

  static bool has_shape(const ir::Value& value) { return value.type().is_static_tensor(); }

  int add_array(const ir::Value& value) {
    if (!has_shape(value)) return kNoArray;
    const auto [at, is_new] = array_of_.try_emplace(&value, static_cast<int>(arrays_.size()));
    if (is_new) append_array(value);
    const auto found = given_.find(&value);
    const Given*& given = given_of_[static_cast<size_t>(at->second)];
    if (found != given_.end() && given == nullptr) given = &found->second;
    return at->second;
  }

  void append_array(const ir::Value& value) {
    arrays_.push_back(OpenTiling::of(value.type().dims()));
    arrays_.back().excluded = excluded_;
    given_of_.push_back(nullptr);
    is_edge_.push_back(false);
  }

  // Constants and what is computed of nothing else, and equal elements: each user has its own copy,
  // so that users are not tied to each other by the number 1.
  bool collect_constant(const ir::Operation& op) {
    if (op.result_count() != 1 || !has_shape(*op.result()) || given_.contains(op.result())) {
      return false;
    }
    const auto is_constant = [&](const ir::Value* value) { return constants_.contains(value); };
    const bool keeps_constants = op.code() == OpCode::kBroadcastInDim ||
                                 op.code() == OpCode::kReshape || op.code() == OpCode::kSlice ||
                                 ir::is_elementwise(op.code());
    if (op.code() == OpCode::kConstant || op.code() == OpCode::kIota ||
        (keeps_constants && std::all_of(op.operands().begin(), op.operands().end(), is_constant))) {
      constants_.insert(op.result());
    } else if (op.code() != OpCode::kBroadcastInDim || !has_shape(*op.operand(0)) ||
               !op.operand(0)->type().dims().empty()) {
      return false;
    }
    copies_of_.try_emplace(op.result());
    copied_.push_back(&op);
    return true;
  }

  // The array that an operation uses.
  int use(const ir::Value& value) {
    if (const auto copies = copies_of_.find(&value); copies != copies_of_.end()) {
      copies->second.push_back(static_cast<int>(arrays_.size()));
      append_array(value);
      return copies->second.back();
    }
    const auto found = array_of_.find(&value);
    return found == array_of_.end() ? kNoArray : found->second;
  }

  void add_edge(const std::vector<const ir::Value*>& sources, const ir::Value& target) {
    if (!has_shape(target)) return;
    Step step{.rule = identity_rule(target.type().dims(), sources.size()), .arrays = {}};
    step.kind = Kind::kPassThrough;
    for (const ir::Value* source : sources) {
      step.arrays.push_back(source->type().dims() == target.type().dims() ? use(*source)
                                                                          : kNoArray);
    }
    step.arrays.push_back(array_of_.at(&target));
    is_edge_[static_cast<size_t>(step.arrays.back())] = true;
    steps_.push_back(std::move(step));
  }

  // What is carried is one array: result, arguments of condition and body.
  void collect_while(const ir::Operation& op) {
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (!has_shape(*op.result(i))) continue;
      const int array = array_of_.at(op.result(i));
      is_edge_[static_cast<size_t>(array)] = true;
      for (size_t r = 0; r < op.region_count(); ++r) {
        array_of_.emplace(op.region(r).front().argument(i), array);
      }
    }
    for (size_t r = 0; r < op.region_count(); ++r) collect(op.region(r).front());
    const ir::Operation& end = *op.region(1).front().terminator();
    for (size_t i = 0; i < op.result_count(); ++i) {
      if (has_shape(*op.operand(i)) && has_shape(*end.operand(i))) {
        add_edge({op.operand(i), end.operand(i)}, *op.result(i));
      }
    }
  }

  void collect_branches(const ir::Operation& op) {
    std::vector<const ir::Value*> sources(op.region_count());
    for (size_t r = 0; r < op.region_count(); ++r) collect(op.region(r).front());
    for (size_t i = 0; i < op.result_count(); ++i) {
      for (size_t r = 0; r < op.region_count(); ++r) {
        sources[r] = op.region(r).front().terminator()->operand(i);
      }
      if (std::all_of(sources.begin(), sources.end(),
                      [](const ir::Value* value) { return has_shape(*value); })) {
        add_edge(sources, *op.result(i));
      }
    }
  }

  void collect_operation(const ir::Operation& op) {
    std::optional<FactorRule> rule;
    const bool is_identity = is_constraint(op) && has_shape(*op.operand(0));
    if (is_identity) {
      rule.emplace(identity_rule(op.result()->type().dims(), 1));
    } else if (auto found = rule_of(op)) {
      rule.emplace(*std::move(found));
    }
    if (!rule || rule->array_count() != op.operand_count() + op.result_count()) {
      // Copies that stay whole.
      for (const ir::Value* operand : op.operands()) {
        if (copies_of_.contains(operand) && !ir::is_terminator(op.code())) use(*operand);
      }
      return;
    }
    Step step{.rule = *std::move(rule), .arrays = {}};
    step.kind = is_identity ? Kind::kPassThrough : kind_of(op);
    step.is_elementwise =
        is_identity || (step.kind == Kind::kPassThrough && op.code() != OpCode::kReshape &&
                        op.code() != OpCode::kTranspose);
    for (const ir::Value* operand : op.operands()) {
      step.arrays.push_back(has_shape(*operand) && !operand->type().dims().empty() ? use(*operand)
                                                                                   : kNoArray);
      step.has_shared_operand |= step.arrays.back() != kNoArray && operand->users().size() > 1 &&
                                 !copies_of_.contains(operand);
    }
    for (size_t i = 0; i < op.result_count(); ++i) step.arrays.push_back(use(*op.result(i)));
    if (is_identity) mark_operand(op, step.arrays[0]);
    steps_.push_back(std::move(step));
  }

  const Given* given_to(const ir::Value* value) const {
    const auto found = given_.find(value);
    return found == given_.end() ? nullptr : &found->second;
  }

  // An array that is constrained to one thing, and completely, is best made that way. Not carried
  // ones: there the constraint is for what follows.
  void mark_operand(const ir::Operation& constraint, int array) {
    const ir::Value* operand = constraint.operand(0);
    if (array == kNoArray || copies_of_.contains(operand) || !examined_.insert(operand).second) {
      return;
    }
    const auto a = static_cast<size_t>(array);
    if (given_of_[a] != nullptr || is_edge_[a]) return;
    const Given* wanted = nullptr;
    for (const ir::Operation* user : operand->users()) {
      const Given* given = is_constraint(*user) ? given_to(user->result()) : nullptr;
      if (given == nullptr) continue;
      if (std::find(given->open.begin(), given->open.end(), true) != given->open.end()) return;
      if (wanted != nullptr && !(given->tiling == wanted->tiling)) return;
      wanted = given;
    }
    if (wanted == nullptr) return;
    marks_.push_back(*wanted);
    marks_.back().tiling.partial.clear();
    given_of_[a] = &marks_.back();
  }

  // --- What was given ---

  static int64_t priority_of(const Given& given, size_t d) {
    return d < given.priority.size() ? given.priority[d] : 0;
  }

  void begin_array(size_t i, std::set<int64_t>& priorities) {
    const Given* given = given_of_[i];
    if (given == nullptr) return;
    OpenTiling& array = arrays_[i];
    std::fill(array.open.begin(), array.open.end(), false);
    for (int axis : given->replicated) array.excluded |= uint32_t{1} << axis;
    for (int axis : given->tiling.partial) array.excluded |= uint32_t{1} << axis;
    for (size_t d = 0; d < array.axes.size(); ++d) {
      if (priority_of(*given, d) <= 0) continue;
      priorities.insert(priority_of(*given, d));
      for (int axis : given->tiling.dims[d]) array.excluded |= uint32_t{1} << axis;
    }
    raise_array(i, 0);
  }

  // Its dimensions of this priority get what was given.
  void raise_array(size_t i, int64_t priority) {
    const Given* given = given_of_[i];
    if (given == nullptr) return;
    OpenTiling& array = arrays_[i];
    for (size_t d = 0; d < array.axes.size(); ++d) {
      if (std::max<int64_t>(priority_of(*given, d), 0) != priority) continue;
      array.axes[d] = given->tiling.dims[d];
      array.open[d] = d < given->open.size() && given->open[d];
      array.is_cut |= !array.axes[d].empty();
      if (priority == 0) continue;
      for (int axis : array.axes[d]) array.excluded &= ~(uint32_t{1} << axis);
    }
  }

  // --- Rounds ---

  void index_steps() {
    steps_of_.resize(arrays_.size());
    maker_.assign(arrays_.size(), -1);
    waits_.assign(steps_.size(), false);
    for (size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      for (size_t k = 0; k < step.arrays.size(); ++k) {
        if (step.arrays[k] == kNoArray) continue;
        const auto array = static_cast<size_t>(step.arrays[k]);
        if (k >= step.rule.rule.operands.size()) maker_[array] = static_cast<int>(s);
        if (steps_of_[array].empty() || steps_of_[array].back() != static_cast<int>(s)) {
          steps_of_[array].push_back(static_cast<int>(s));
        }
      }
    }
  }

  void push(int step) {
    const auto s = static_cast<size_t>(step);
    if (waits_[s]) return;
    waits_[s] = true;
    worklist_.push_back(step);
  }

  // From the top down; what a change touches comes next.
  void run_round(int round) {
    for (size_t s = steps_.size(); s-- > 0;) {
      if (steps_[s].starts(round)) push(static_cast<int>(s));
    }
    while (!worklist_.empty()) {
      const int s = worklist_.back();
      worklist_.pop_back();
      waits_[static_cast<size_t>(s)] = false;
      const Step& step = steps_[static_cast<size_t>(s)];
      for (size_t changed : run_step(step, round)) {
        const auto array = static_cast<size_t>(step.arrays[changed]);
        const int maker = maker_[array];
        const auto notify = [&](int other) {
          if (other != s && steps_[static_cast<size_t>(other)].is_active(round)) push(other);
        };
        if (maker >= 0) notify(maker);
        for (size_t k = steps_of_[array].size(); k-- > 0;) notify(steps_of_[array][k]);
      }
    }
  }

  const std::vector<size_t>& run_step(const Step& step, int round) {
    pointers_.clear();
    for (int array : step.arrays) {
      pointers_.push_back(array == kNoArray ? nullptr : &arrays_[static_cast<size_t>(array)]);
    }
    directions_.clear();
    for (size_t factor = 0; factor < step.rule.factor_count(); ++factor) {
      directions_.push_back(step.direction(round, factor));
    }
    if (step.border != nullptr) return run_border(step);
    return step_.run(step.rule, pointers_, directions_, step.is_elementwise);
  }

  // As an edge between the array inside and the one outside without what the manual axes cut.
  const std::vector<size_t>& run_border(const Step& step) {
    static const std::vector<size_t> kNone;
    OpenTiling* const outside = pointers_[step.outside];
    OpenTiling* const inside = pointers_[1 - step.outside];
    if (outside == nullptr || inside == nullptr) return kNone;
    const std::optional<Tiling> rest = tiling_inside({step.border->dims, {}}, {outside->axes, {}});
    if (!rest) return kNone;
    OpenTiling seen = OpenTiling::of(inside->sizes);
    seen.axes = rest->dims;
    seen.open = outside->open;
    seen.excluded = outside->excluded | inside->excluded;
    for (const Axes& axes : seen.axes) seen.is_cut = seen.is_cut || !axes.empty();
    pointers_[step.outside] = &seen;
    const std::vector<size_t>& changed = step_.run(step.rule, pointers_, directions_, false);
    if (contains(changed, step.outside)) {
      outside->axes = joined_tiling(*step.border, {std::move(seen.axes), {}}).dims;
      outside->is_cut = true;
    }
    return changed;
  }

  // --- The outcome ---

  // A constant is cut as far as all its users want it: to cut it further costs them nothing, to
  // gather it would.
  void settle_constants() {
    for (auto at = copied_.rbegin(); at != copied_.rend(); ++at) {
      const ir::Operation& op = **at;
      OpenTiling made = OpenTiling::of(op.result()->type().dims());
      const std::vector<int>& copies = copies_of_.at(op.result());
      for (size_t d = 0; d < made.axes.size(); ++d) {
        for (size_t i = 0; i < copies.size(); ++i) {
          const Axes& wanted = arrays_[static_cast<size_t>(copies[i])].axes[d];
          if (i == 0) made.axes[d] = wanted;
          const auto end =
              std::mismatch(made.axes[d].begin(), made.axes[d].end(), wanted.begin(), wanted.end());
          made.axes[d].erase(end.first, made.axes[d].end());
        }
        made.is_cut |= !made.axes[d].empty();
      }
      if (made.is_cut) settle_operands(op, made);
      constant_tilings_[op.result()].dims = std::move(made.axes);
    }
  }

  // Constants that others are computed of.
  void settle_operands(const ir::Operation& op, OpenTiling& made) {
    auto found = rule_of(op);
    if (!found || op.operand_count() == 0) return;
    const FactorRule rule(*std::move(found));
    if (rule.array_count() != op.operand_count() + 1) return;
    std::vector<int> used;
    for (const ir::Value* operand : op.operands()) {
      used.push_back(copies_of_.contains(operand) ? use(*operand) : kNoArray);
    }
    pointers_.clear();
    for (int array : used) {
      pointers_.push_back(array == kNoArray ? nullptr : &arrays_[static_cast<size_t>(array)]);
    }
    pointers_.push_back(&made);
    directions_.assign(rule.factor_count(), Direction::kBackward);
    step_.run(rule, pointers_, directions_, false);
  }

  Tilings result() {
    Tilings tilings;
    tilings.reserve(array_of_.size() + constant_tilings_.size());
    for (const auto& [value, array] : array_of_) {
      const Given* given = given_to(value);
      tilings.emplace(value, Tiling{arrays_[static_cast<size_t>(array)].axes,
                                    given == nullptr ? Axes() : given->tiling.partial});
    }
    for (auto& [value, tiling] : constant_tilings_) tilings.emplace(value, std::move(tiling));
    return tilings;
  }

  const std::unordered_map<const ir::Value*, Given>& given_;
  const Manuals& manuals_;
  FactorStep step_;
  uint32_t excluded_ =
      0;  // by axis, as in OpenTiling: of the manual computations that are collected

  std::unordered_map<const ir::Value*, int> array_of_;  // several values may share one
  std::vector<OpenTiling> arrays_;
  std::vector<const Given*> given_of_;  // by array, as the two that follow
  std::vector<bool> is_edge_;           // control flow leads there
  std::vector<int> maker_;              // the step that it is a result of, or -1
  std::deque<Given> marks_;
  std::unordered_set<const ir::Value*> examined_;  // operands of constraints
  std::unordered_set<const ir::Value*> constants_;
  std::vector<const ir::Operation*> copied_;
  std::unordered_map<const ir::Value*, std::vector<int>> copies_of_;  // arrays
  Tilings constant_tilings_;

  std::vector<Step> steps_;                 // in the order of the program
  std::vector<std::vector<int>> steps_of_;  // by array, ascending
  std::vector<int> worklist_;               // the last one is next
  std::vector<bool> waits_;                 // by step: is in it
  std::vector<OpenTiling*> pointers_;
  std::vector<Direction> directions_;
};

}  // namespace

Tilings propagate(const ir::Block& block, const PrimeMesh& mesh,
                  const std::unordered_map<const ir::Value*, Given>& given,
                  const Manuals& manuals) {
  return Propagation(mesh, given, manuals).run(block);
}

}  // namespace hekla::spmd
