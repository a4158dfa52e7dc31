// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/spmd/marks.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/compiler/spmd/custom_partitioner.h"
#include "runtime/program/ir/op_attributes.h"
#include "runtime/program/ir/typed_attributes.h"
#include "runtime/program/sharding/convert.h"

namespace hekla::spmd {

using ir::OpCode;
using sharding::HloSharding;
using sharding::TensorSharding;

namespace {

constexpr std::string_view kOpen = "hekla.open_dimensions";
constexpr std::string_view kPriorities = "hekla.priorities";
constexpr std::string_view kEntry = "SPMDFullToShardShape";
constexpr std::string_view kExit = "SPMDShardToFullShape";
constexpr std::string_view kEntryOfAddends = "hekla.entry_of_addends";
constexpr std::string_view kExitOfAddends = "hekla.exit_of_addends";

struct Wish {
  HloSharding sharding;  // open dimensions as far as it says
  std::vector<int64_t> open, priorities;
};

// None where an operation is no constraint, or one that says nothing here.
std::optional<Wish> wish_of(const ir::Operation& op, const ir::Module& module) {
  Wish wish;
  Result<HloSharding> wanted = HloSharding();
  if (op.code() == OpCode::kSdyShardingConstraint) {
    const auto* value = op.attribute("sharding").get<ir::ShardingValue>();
    const auto* given = value == nullptr ? nullptr : std::get_if<TensorSharding>(&value->value);
    const sharding::Mesh* mesh = given == nullptr ? nullptr : ir::mesh_of(*given, module);
    if (mesh == nullptr || mesh->is_maximal()) return std::nullopt;
    wanted = sharding::to_hlo(*given, *mesh, given->dimensions.size());
    for (size_t d = 0; d < given->dimensions.size(); ++d) {
      if (given->dimensions[d].is_open) wish.open.push_back(static_cast<int64_t>(d));
      wish.priorities.push_back(given->dimensions[d].priority.value_or(0));
    }
  } else if (is_call_of(op, "Sharding") && op.attribute("mhlo.sharding")) {
    wanted = ir::hlo_sharding_of(op.attribute("mhlo.sharding"));
    wish.open = unspecified_dimensions(op);
  } else {
    return std::nullopt;
  }
  if (!wanted.ok()) return std::nullopt;
  wish.sharding = *std::move(wanted);
  const size_t rank = op.result()->type().dims().size();
  if (wish.sharding.kind == HloSharding::Kind::kReplicated) {
    return wish.open.size() >= rank ? std::nullopt : std::optional(std::move(wish));
  }
  if (wish.sharding.kind != HloSharding::Kind::kTiled &&
      wish.sharding.kind != HloSharding::Kind::kUnreduced) {
    return std::nullopt;
  }
  return wish;
}

ir::Operation* insert_mark(ir::Value* value, Wish wish, const ir::Operation& before) {
  ir::AttributeMap attributes;
  attributes.set("call_target_name", ir::StringValue{std::string(kConstraint)});
  attributes.set(kBorder, ir::hlo_sharding_attribute(std::move(wish.sharding)));
  if (!wish.open.empty()) {
    attributes.set(kOpen, ir::IntArrayValue{DType::kI64, std::move(wish.open)});
  }
  if (std::any_of(wish.priorities.begin(), wish.priorities.end(),
                  [](int64_t priority) { return priority != 0; })) {
    attributes.set(kPriorities, ir::IntArrayValue{DType::kI64, std::move(wish.priorities)});
  }
  return before.block()->insert_before(
      &before, std::make_unique<ir::Operation>(OpCode::kCustomCall, std::vector{value},
                                               std::vector{value->type()}, std::move(attributes),
                                               before.location()));
}

void mark_constraints(ir::Region& region, const ir::Module& module) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block->operations()) operations.push_back(op.get());
    for (ir::Operation* op : operations) {
      for (size_t r = 0; r < op->region_count(); ++r) mark_constraints(op->region(r), module);
      if (const ir::Attribute& rule = op->attribute("sdy.sharding_rule");
          is_call_of(*op, kCustomPartitioning) && !rule.is_absent()) {
        op->attributes().set(kRule, ir::Attribute(rule));
      }
      if (op->operand_count() != 1 || op->result_count() != 1 ||
          !op->result()->type().is_static_tensor()) {
        continue;
      }
      std::optional<Wish> wish = wish_of(*op, module);
      if (!wish) continue;
      const ir::Operation* mark = insert_mark(op->operand(0), *std::move(wish), *op);
      op->result()->replace_all_uses_with(mark->result());
      block->erase(op);
    }
  }
}

// Where a slice of step 1 that cuts one dimension alone begins; none for others.
std::optional<int64_t> begin_of_slice(const ir::Value& value, size_t dimension) {
  const ir::Operation* op = value.defining_op();
  if (op == nullptr || op->code() != OpCode::kSlice) return std::nullopt;
  const ir::Type& from = op->operand(0)->type();
  if (!from.is_static_tensor()) return std::nullopt;
  const std::vector<int64_t> start = ir::int_list(*op, "start_indices");
  for (size_t d = 0; d < start.size(); ++d) {
    if (d != dimension && from.dims()[d] != value.type().dims()[d]) return std::nullopt;
  }
  const std::vector<int64_t> strides = ir::int_list(*op, "strides");
  const bool has_steps =
      std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride != 1; });
  return has_steps || dimension >= start.size() ? std::nullopt : std::optional(start[dimension]);
}

// Where the operand of a concatenation of its end and its beginning is taken apart.
std::optional<int64_t> begin_of_roll(const ir::Operation& op) {
  if (op.code() != OpCode::kConcatenate || op.operand_count() != 2 ||
      !op.result()->type().is_static_tensor()) {
    return std::nullopt;
  }
  const auto dimension = static_cast<size_t>(ir::int_value(op, "dimension"));
  const std::optional<int64_t> end = begin_of_slice(*op.operand(0), dimension);
  const std::optional<int64_t> beginning = begin_of_slice(*op.operand(1), dimension);
  if (!end || !beginning || *beginning != 0 || *end == 0) return std::nullopt;
  const ir::Value* whole = op.operand(0)->defining_op()->operand(0);
  const bool is_all = whole == op.operand(1)->defining_op()->operand(0) &&
                      whole->type() == op.result()->type() &&
                      op.operand(1)->type().dims()[dimension] == *end;
  return is_all ? end : std::nullopt;
}

}  // namespace

bool is_roll(const ir::Operation& op) {
  if (!is_call_of(op, kRoll) || op.operand_count() != 1 || op.result_count() != 1 ||
      !op.result()->type().is_static_tensor()) {
    return false;
  }
  const Dims& dims = op.result()->type().dims();
  const int64_t dimension = ir::int_value(op, kRollDimension, -1);
  const int64_t begin = ir::int_value(op, kRollBegin, -1);
  return dimension >= 0 && dimension < static_cast<int64_t>(dims.size()) && begin > 0 &&
         begin < dims[static_cast<size_t>(dimension)];
}

void mark_rolls(ir::Region& region) {
  for (const auto& block : region.blocks()) {
    std::vector<ir::Operation*> operations;
    for (const auto& op : block->operations()) operations.push_back(op.get());
    for (ir::Operation* op : operations) {
      if (op->code() == OpCode::kSdyManualComputation) continue;
      for (size_t r = 0; r < op->region_count(); ++r) mark_rolls(op->region(r));
      const std::optional<int64_t> begin = begin_of_roll(*op);
      if (!begin) continue;
      ir::AttributeMap attributes;
      attributes.set("call_target_name", ir::StringValue{std::string(kRoll)});
      attributes.set(kRollBegin, ir::i64_attribute(*begin));
      attributes.set(kRollDimension, op->attribute("dimension"));
      const ir::Operation* mark = block->insert_before(
          op, std::make_unique<ir::Operation>(
                  OpCode::kCustomCall, std::vector{op->operand(0)->defining_op()->operand(0)},
                  std::vector{op->result()->type()}, std::move(attributes), op->location()));
      op->result()->replace_all_uses_with(mark->result());
      ir::Operation* slices[] = {op->operand(0)->defining_op(), op->operand(1)->defining_op()};
      block->erase(op);
      for (ir::Operation* slice : slices) {
        if (!slice->result()->has_uses()) slice->block()->erase(slice);
      }
    }
  }
}

ir::Value* rolled(ir::GraphBuilder& g, ir::Value* value, const ir::Operation& roll) {
  const Dims dims = value->type().dims();
  const int64_t dimension = ir::int_value(roll, kRollDimension);
  const auto d = static_cast<size_t>(dimension);
  Dims low(dims.size(), 0);
  Dims high = dims;
  low[d] = high[d] = ir::int_value(roll, kRollBegin);
  return g.concatenate({g.slice(value, low, dims), g.slice(value, Dims(dims.size(), 0), high)},
                       dimension);
}

bool is_call_of(const ir::Operation& op, std::string_view target) {
  return op.code() == OpCode::kCustomCall && ir::text_value(op, "call_target_name") == target;
}

bool is_entry(const ir::Operation& op) {
  return is_call_of(op, kEntry) || is_call_of(op, kEntryOfAddends);
}

bool is_exit(const ir::Operation& op) {
  return is_call_of(op, kExit) || is_call_of(op, kExitOfAddends);
}

bool says_addends(const HloSharding& sharding) {
  constexpr auto kAddends = HloSharding::Kind::kUnreduced;
  return sharding.kind == kAddends ||
         std::find(sharding.subgroups.begin(), sharding.subgroups.end(), kAddends) !=
             sharding.subgroups.end();
}

// GSPMD's borders take the sharding of the array outside, which on the way in stands at the
// operand.
void mark_borders(ir::Module& module) {
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](ir::Operation& op) {
      const bool is_in = is_entry(op);
      if (!is_in && !is_exit(op)) return;
      if (!is_in) {
        op.attributes().set(kBorder, op.attribute("mhlo.sharding"));
      } else if (op.operand_count() == 1) {
        const ir::Value& operand = *op.operand(0);
        if (const ir::Operation* maker = operand.defining_op()) {
          op.attributes().set(kBorder, maker->attribute("mhlo.sharding"));
        } else if (static_cast<size_t>(operand.index()) < function->argument_attributes.size() &&
                   op.block()->region()->parent() == nullptr) {
          op.attributes().set(
              kBorder, function->argument_attributes[static_cast<size_t>(operand.index())].get(
                           "mhlo.sharding"));
        }
      }
      if (op.attribute(kBorder).is_absent()) return;
      const Result<HloSharding> outside = ir::hlo_sharding_of(op.attribute(kBorder));
      if (!outside.ok() || !says_addends(*outside)) return;
      const std::string_view name = is_in ? kEntryOfAddends : kExitOfAddends;
      op.attributes().set("call_target_name", ir::StringValue{std::string(name)});
    });
  }
}

void mark_constraints(ir::Module& module) {
  for (const auto& function : module.functions) mark_constraints(function->body(), module);
}

std::string where(const ir::Operation& op) {
  return fmt::format("{} at {}", op.name(), ir::location_string(op.location()));
}

ir::Value* insert_constraint(ir::Value* value, HloSharding sharding, const ir::Operation& before,
                             const std::vector<bool>& open) {
  Wish wish{std::move(sharding), {}, {}};
  for (size_t d = 0; d < open.size(); ++d) {
    if (open[d]) wish.open.push_back(static_cast<int64_t>(d));
  }
  return insert_mark(value, std::move(wish), before)->result();
}

// backend_config = "unspecified_dims=[0,1]".
std::vector<int64_t> unspecified_dimensions(const ir::Operation& op) {
  constexpr std::string_view kName = "unspecified_dims=[";
  const std::string text = ir::text_value(op, "backend_config");
  std::vector<int64_t> found;
  size_t at = text.find(kName);
  if (at == std::string::npos) return found;
  at += kName.size();
  while (at < text.size() && text[at] != ']') {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    if (error != std::errc()) break;
    found.push_back(number);
    at = static_cast<size_t>(end - text.data());
    while (at < text.size() && (text[at] == ',' || text[at] == ' ')) ++at;
  }
  return found;
}

std::vector<bool> open_dimensions(const ir::Operation& constraint, size_t rank) {
  std::vector<bool> open(rank, false);
  for (int64_t d : ir::int_list(constraint, kOpen)) {
    if (d >= 0 && d < static_cast<int64_t>(rank)) open[static_cast<size_t>(d)] = true;
  }
  return open;
}

std::vector<int64_t> priorities(const ir::Operation& constraint) {
  return ir::int_list(constraint, kPriorities);
}

}  // namespace hekla::spmd
