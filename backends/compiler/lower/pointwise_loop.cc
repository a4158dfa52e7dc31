// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/lower/pointwise_loop.h"

#include <algorithm>
#include <unordered_set>

#include "backends/compiler/lower/kernel_maker.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::lower {
namespace {

using ir::OpCode;
using Kind = PointwiseLoop::Kind;
using Values = std::unordered_set<const ir::Value*>;

int64_t count_of(const ir::Value& value) { return element_count(value.type().dims()); }

bool is_plain_tensor(const ir::Value& value) {
  return value.type().is_static_tensor() && value.type().quantization() == nullptr;
}

// The update that carried value `i` gets in each iteration, when that is all there is to it.
const ir::Operation* row_update(const ir::Block& body, size_t i) {
  const ir::Value* whole = body.argument(i);
  const ir::Operation* op = body.terminator()->operand(i)->defining_op();
  if (op == nullptr || op->block() != &body || op->code() != OpCode::kDynamicUpdateSlice ||
      op->operand(0) != whole || whole->users().size() != 1 || op->result()->users().size() != 1) {
    return nullptr;
  }
  return op;
}

class Finder {
 public:
  Finder(const ir::Operation& loop, const LowerOptions& options, kernel::Refusal& why)
      : body_(loop.region(1).front()), options_(options), why_(why) {
    found_.loop = &loop;
  }

  std::optional<PointwiseLoop> run(const std::function<bool(size_t)>& is_unwanted) {
    for (size_t i = 0; i < body_.argument_count(); ++i) {
      found_.kinds.push_back(is_unwanted(i) ? Kind::kUnwanted : kind_of(i));
      if (found_.kinds.back() == Kind::kUnwanted) continue;
      if (!is_plain_tensor(*body_.argument(i)) || count_of(*body_.argument(i)) == 0) {
        return refuse("it carries what is no plain array with elements");
      }
      if (const ir::Value* made = made_in_iteration(i)) {
        found_.points = std::max(found_.points, count_of(*made));
      }
    }
    for (size_t i = 0; i < body_.argument_count(); ++i) {
      const ir::Value* made = made_in_iteration(i);
      if (made == nullptr) continue;
      if (count_of(*made) != 1 && count_of(*made) != found_.points) {
        return refuse("it carries arrays of different sizes");
      }
      if (found_.kinds[i] == Kind::kElements && found_.points > 1 &&
          count_of(*made) == found_.points) {
        bound_.insert(body_.argument(i));
      }
    }
    for (const auto& op : body_.operations()) {
      const bool is_bound =
          std::any_of(op->operands().begin(), op->operands().end(),
                      [&](const ir::Value* value) { return bound_.contains(value); });
      for (size_t r = 0; is_bound && r < op->result_count(); ++r) bound_.insert(op->result(r));
    }
    for (size_t i = 0; i < body_.argument_count(); ++i) {
      const ir::Value* made = made_in_iteration(i);
      if (made == nullptr || !is_computable(*made)) {
        if (made != nullptr) return std::nullopt;
        continue;
      }
      if (found_.kinds[i] != Kind::kRows) continue;
      const ir::Operation& update = *row_update(body_, i);
      if (!are_apart(update)) return refuse("points write what others have written before");
      for (size_t k = 2; k < update.operand_count(); ++k) {
        if (!is_computable(*update.operand(k))) return std::nullopt;
      }
    }
    return std::move(found_);
  }

 private:
  std::nullopt_t refuse(std::string why) {
    why_ = std::move(why);
    return std::nullopt;
  }

  Kind kind_of(size_t i) const {
    if (body_.terminator()->operand(i) == body_.argument(i)) return Kind::kFixed;
    return row_update(body_, i) != nullptr ? Kind::kRows : Kind::kElements;
  }

  // What of carried value `i` an iteration computes.
  const ir::Value* made_in_iteration(size_t i) const {
    if (found_.kinds[i] == Kind::kElements) return body_.terminator()->operand(i);
    return found_.kinds[i] == Kind::kRows ? row_update(body_, i)->operand(1) : nullptr;
  }

  // Whether no two points write one element in any two iterations, whose order nobody keeps: where
  // an update is wider than one element it starts at the same place each time.
  bool are_apart(const ir::Operation& update) const {
    const Dims& whole = update.operand(0)->type().dims();
    const Dims& part = update.operand(1)->type().dims();
    if (count_of(*update.operand(1)) == 1) return true;
    for (size_t d = 0; d < part.size(); ++d) {
      if (part[d] != 1 && part[d] != whole[d] && !is_invariant(*update.operand(2 + d)))
        return false;
    }
    return true;
  }

  bool is_invariant(const ir::Value& value) const {
    if (value.argument_of() == &body_) {
      return found_.kinds[static_cast<size_t>(value.index())] == Kind::kFixed;
    }
    const ir::Operation* op = value.defining_op();
    return op == nullptr || op->block() != &body_ || op->code() == OpCode::kConstant;
  }

  // Whether every point can compute it of its own elements.
  bool is_computable(const ir::Value& value) {
    if (!seen_.insert(&value).second) return true;
    if (value.argument_of() == &body_) {
      const Kind kind = found_.kinds[static_cast<size_t>(value.index())];
      if (kind == Kind::kFixed || kind == Kind::kElements) return true;
      refuse("an iteration reads what another has written");
      return false;
    }
    const ir::Operation* op = value.defining_op();
    if (op == nullptr || op->block() != &body_) {
      if (is_plain_tensor(value)) return true;
      refuse("it uses what is no plain array");
      return false;
    }
    const bool is_bound = bound_.contains(&value);
    switch (role_of(*op, options_)) {
      case Role::kConstant:
        return true;
      case Role::kElementwise:
        break;
      case Role::kMovement:
        if (!is_bound || keeps_row_major_order(*op)) break;
        refuse(std::string(op->name()) + " looks at other points");
        return false;
      default:
        refuse("there is " + std::string(op->name()) + " in it");
        return false;
    }
    if (op->region_count() != 0 || op->result_count() != 1) {
      refuse("there is " + std::string(op->name()) + " in it");
      return false;
    }
    return std::all_of(op->operands().begin(), op->operands().end(),
                       [&](const ir::Value* operand) { return is_computable(*operand); });
  }

  const ir::Block& body_;
  const LowerOptions& options_;
  kernel::Refusal& why_;
  PointwiseLoop found_;
  Values bound_;  // have an element for each point, which that point alone knows
  Values seen_;
};

class LoopMaker {
 public:
  LoopMaker(const PointwiseLoop& loop, bool all_results)
      : loop_(loop),
        all_results_(all_results),
        body_(loop.loop->region(1).front()),
        in_memory_([this](const ir::Value& value) { return is_in_memory(value); }),
        maker_("while", {loop.points}, largest(), in_memory_) {}

  Result<LoweredKernel> run(int64_t trips, const LowerOptions& options) {
    std::vector<size_t> carried;
    std::vector<DType> dtypes;
    for (size_t i = 0; i < loop_.kinds.size(); ++i) {
      if (loop_.kinds[i] != Kind::kElements) continue;
      carried.push_back(i);
      dtypes.push_back(body_.argument(i)->type().dtype());
    }
    // Where nothing else is written than each point's element, a result may take an argument's
    // memory.
    const bool is_own = std::all_of(loop_.kinds.begin(), loop_.kinds.end(),
                                    [](Kind kind) { return kind != Kind::kRows; }) &&
                        std::all_of(carried.begin(), carried.end(), [&](size_t i) {
                          return count_of(*body_.argument(i)) == loop_.points;
                        });
    Elements initial;
    for (const size_t i : carried) {
      const ir::Value& argument = *body_.argument(i);
      initial.push_back(is_own ? maker_.load_own(argument, maker_.at(0))
                               : maker_.emitter().emit(argument, point_of(argument)));
    }
    hoist();
    const Elements last =
        maker_.loop(maker_.index(trips), dtypes, initial, [&](Value, const Elements& elements) {
          Emitter& emitter = maker_.emitter();
          for (size_t k = 0; k < carried.size(); ++k) {
            emitter.know(*body_.argument(carried[k]), elements[k]);
          }
          for (size_t i = 0; i < loop_.kinds.size(); ++i) {
            if (loop_.kinds[i] == Kind::kRows) write_row(i);
          }
          Elements next;
          for (const size_t i : carried) {
            const ir::Value& value = *body_.terminator()->operand(i);
            next.push_back(emitter.emit(value, point_of(value)));
          }
          return next;
        });
    for (size_t k = 0; k < carried.size(); ++k) {
      const ir::Value& result = *loop_.loop->result(carried[k]);
      if (!all_results_ && !result.has_uses()) continue;
      const bool is_of_all = count_of(result) == loop_.points;
      store_once(is_of_all, [&] {
        maker_.store(result, is_of_all ? maker_.at(0) : maker_.index(0), last[k]);
      });
    }
    return maker_.finish(options);
  }

 private:
  // Whether the kernel loads it: all but what the body computes and constants of one element.
  bool is_in_memory(const ir::Value& value) const {
    const ir::Operation* op = value.defining_op();
    if (op == nullptr) return true;
    if (op->code() == OpCode::kConstant) return !ir::is_one_number(value);
    return op->code() != OpCode::kIota && op->block() != &body_;
  }

  int64_t largest() const {
    int64_t most = loop_.points;
    const auto look = [&](const ir::Value& value) {
      if (value.type().is_static_tensor()) most = std::max(most, count_of(value));
    };
    for (size_t i = 0; i < body_.argument_count(); ++i) look(*body_.argument(i));
    for (const auto& op : body_.operations()) {
      for (const ir::Value* operand : op->operands()) look(*operand);
    }
    return most;
  }

  // The element of a value that is this point's.
  Point point_of(const ir::Value& value) {
    if (value.type().rank() == 0) return {};
    return {{}, count_of(value) == loop_.points ? maker_.at(0) : maker_.index(0)};
  }

  // What stays the same is computed before the loop.
  void hoist() {
    Values changing;
    for (size_t i = 0; i < loop_.kinds.size(); ++i) {
      if (loop_.kinds[i] != Kind::kFixed) changing.insert(body_.argument(i));
    }
    std::vector<const ir::Operation*> inside;
    for (const auto& op : body_.operations()) {
      const bool changes =
          std::any_of(op->operands().begin(), op->operands().end(),
                      [&](const ir::Value* value) { return changing.contains(value); });
      if (!changes) continue;
      for (size_t r = 0; r < op->result_count(); ++r) changing.insert(op->result(r));
      inside.push_back(op.get());
    }
    const Values needed = needed_values();
    for (const ir::Operation* op : inside) {
      if (op->result_count() != 1 || !needed.contains(op->result())) continue;
      const bool is_at_points =
          lower::keeps_row_major_order(*op) || role_of(*op) == Role::kElementwise;
      for (const ir::Value* operand : op->operands()) {
        const int64_t count = count_of(*operand);
        if (!is_at_points || changing.contains(operand) || (count != 1 && count != loop_.points)) {
          continue;
        }
        maker_.emitter().emit(*operand, point_of(*operand));
      }
    }
  }

  Values needed_values() const {
    Values needed;
    std::vector<const ir::Value*> open;
    for (size_t i = 0; i < loop_.kinds.size(); ++i) {
      if (loop_.kinds[i] == Kind::kElements) open.push_back(body_.terminator()->operand(i));
      if (loop_.kinds[i] != Kind::kRows) continue;
      const ir::Operation& update = *row_update(body_, i);
      open.insert(open.end(), update.operands().begin() + 1, update.operands().end());
    }
    while (!open.empty()) {
      const ir::Value& value = *open.back();
      open.pop_back();
      if (!needed.insert(&value).second || value.defining_op() == nullptr ||
          value.defining_op()->block() != &body_) {
        continue;
      }
      const auto& operands = value.defining_op()->operands();
      open.insert(open.end(), operands.begin(), operands.end());
    }
    return needed;
  }

  void write_row(size_t i) {
    const ir::Operation& update = *row_update(body_, i);
    const ir::Value& row = *update.operand(1);
    Emitter& emitter = maker_.emitter();
    const Element element = emitter.emit(row, point_of(row));
    const Point target = emitter.update_target(update, point_of(row));
    const Value at = emitter.linear_of(target, update.result()->type().dims());
    store_once(count_of(row) == loop_.points,
               [&] { maker_.store(*loop_.loop->result(i), at, element); });
  }

  // What all points compute alike one of them stores.
  void store_once(bool is_of_all, const std::function<void()>& store) {
    if (is_of_all) return store();
    maker_.when(maker_.b().binary(kernel::Op::kEq, maker_.at(0), maker_.index(0)), store);
  }

  const PointwiseLoop& loop_;
  const bool all_results_;
  const ir::Block& body_;
  const InMemory in_memory_;
  KernelMaker maker_;
};

}  // namespace

std::optional<PointwiseLoop> find_pointwise_loop(const ir::Operation& loop,
                                                 const std::function<bool(size_t)>& is_unwanted,
                                                 const LowerOptions& options,
                                                 kernel::Refusal& why) {
  return Finder(loop, options, why).run(is_unwanted);
}

Result<LoweredKernel> lower_pointwise_loop(const PointwiseLoop& loop, int64_t trips,
                                           bool all_results, const LowerOptions& options) {
  return LoopMaker(loop, all_results).run(trips, options);
}

}  // namespace hekla::lower
