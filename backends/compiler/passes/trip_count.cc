// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/passes/trip_count.h"

#include <limits>
#include <optional>

#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;

class Counter {
 public:
  explicit Counter(const ir::Operation& loop)
      : loop_(loop), condition_(loop.region(0).front()), body_(loop.region(1).front()) {}

  int64_t trips() const {
    const ir::Value* decision = condition_.terminator()->operand(0);
    const ir::Operation* compare = decision->defining_op();
    if (compare == nullptr || compare->code() != OpCode::kCompare ||
        compare->block() != &condition_) {
      return -1;
    }
    std::string direction = ir::text_value(*compare, "comparison_direction");
    const ir::Value* counter = compare->operand(0);
    const ir::Value* bound = compare->operand(1);
    if (counter->argument_of() != &condition_ || constant_through(*counter)) {
      std::swap(counter, bound);
      if (direction == "LT") {
        direction = "GT";
      } else if (direction == "LE") {
        direction = "GE";
      } else if (direction == "GT") {
        direction = "LT";
      } else if (direction == "GE") {
        direction = "LE";
      }
    }
    if (counter->argument_of() != &condition_) return -1;
    const auto k = static_cast<size_t>(counter->index());
    const std::optional<int64_t> limit = constant_through(*bound);
    const std::optional<int64_t> start = ir::constant_integer(*loop_.operand(k));
    const std::optional<int64_t> step = step_of(k);
    if (!limit || !start || !step || *step == 0) return -1;
    const bool is_wide = counter->type().dtype() == DType::kI64;
    return count(direction, *start, *limit, *step, is_wide);
  }

 private:
  // A constant, or a carried value that starts as one and stays.
  std::optional<int64_t> constant_through(const ir::Value& value) const {
    if (value.argument_of() != &condition_) return ir::constant_integer(value);
    const auto i = static_cast<size_t>(value.index());
    if (body_.terminator()->operand(i) != body_.argument(i)) return {};
    return ir::constant_integer(*loop_.operand(i));
  }

  // What the body adds to carried value `k`.
  std::optional<int64_t> step_of(size_t k) const {
    const ir::Operation* op = body_.terminator()->operand(k)->defining_op();
    if (op == nullptr || op->block() != &body_ || op->operand_count() != 2) return {};
    const ir::Value* counter = body_.argument(k);
    if (op->code() == OpCode::kAdd) {
      if (op->operand(0) == counter) return ir::constant_integer(*op->operand(1));
      if (op->operand(1) == counter) return ir::constant_integer(*op->operand(0));
    }
    if (op->code() == OpCode::kSubtract && op->operand(0) == counter) {
      const std::optional<int64_t> number = ir::constant_integer(*op->operand(1));
      if (number && *number != std::numeric_limits<int64_t>::min()) return -*number;
    }
    return {};
  }

  static int64_t count(const std::string& direction, int64_t start, int64_t limit, int64_t step,
                       bool is_wide) {
    __int128 distance = static_cast<__int128>(limit) - start;
    __int128 by = step;
    if (direction == "GT" || direction == "GE") {
      distance = -distance;
      by = -by;
    }
    if (direction == "NE") {
      if (distance == 0) return 0;
      if (distance % by != 0 || distance / by < 0) return -1;
    } else if (direction == "LE" || direction == "GE") {
      distance += 1;
    } else if (direction != "LT" && direction != "GT") {
      return -1;
    }
    if (distance <= 0 && direction != "NE") return 0;
    if (by < 0 && direction != "NE") return -1;
    const __int128 trips = direction == "NE" ? distance / by : (distance + by - 1) / by;
    const __int128 last = start + trips * static_cast<__int128>(step);
    const __int128 most =
        is_wide ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
    const __int128 least =
        is_wide ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
    if (last > most || last < least || trips > std::numeric_limits<int64_t>::max()) return -1;
    return static_cast<int64_t>(trips);
  }

  const ir::Operation& loop_;
  const ir::Block& condition_;
  const ir::Block& body_;
};

}  // namespace

int64_t trip_count(const ir::Operation& loop) { return Counter(loop).trips(); }

}  // namespace hekla::passes
