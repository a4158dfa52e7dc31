// SPDX-License-Identifier: Apache-2.0
// rng as elementwise arithmetic, with the numbers that the reference evaluator gives: Philox 4x32
// of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. The n-th
// rng of the m-th launch is keyed by n + m * 2^32, element i of its result takes the counter i.
// Loops and branches that draw carry n along.
#include <array>
#include <numbers>
#include <utility>

#include "backends/compiler/passes/passes.h"
#include "runtime/program/builder/graph_builder.h"
#include "runtime/program/ir/clone.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::passes {
namespace {

using ir::OpCode;
using ir::Value;
using Values = ir::GraphBuilder::Values;

// The key of the next rng: what was drawn here so far, added to the key at the block's begin.
struct Drawn {
  Value* before = nullptr;
  int64_t count = 0;

  Value* value(ir::GraphBuilder& g) const {
    return g.add(before, g.constant(DType::kUI64, {}, static_cast<double>(count)));
  }
};

bool draws(const ir::Region& region) {
  bool found = false;
  ir::walk(region, [&](const ir::Operation& op) { found |= op.code() == OpCode::kRng; });
  return found;
}

bool draws(const ir::Operation& op) {
  if (op.code() == OpCode::kRng) return true;
  for (size_t i = 0; i < op.region_count(); ++i) {
    if (draws(op.region(i))) return true;
  }
  return false;
}

bool is_drawable(const ir::Operation& op) {
  const ir::Type& type = op.result()->type();
  return type.is_static_tensor() && type.quantization() == nullptr && !is_complex(type.dtype()) &&
         op.operand(0)->type().dims().empty() && op.operand(1)->type().dims().empty();
}

// Whether all that draws in this region is where the number of draws can be carried.
bool is_countable(const ir::Region& region) {
  if (region.blocks().size() != 1) return false;
  for (const auto& op : region.front().operations()) {
    if (!draws(*op)) continue;
    if (op->code() == OpCode::kRng) {
      if (!is_drawable(*op)) return false;
      continue;
    }
    const bool is_loop = op->code() == OpCode::kWhile;
    if (!is_loop && op->code() != OpCode::kIf && op->code() != OpCode::kCase) return false;
    if (is_loop && draws(op->region(0))) return false;  // a condition hands nothing on
    for (size_t i = is_loop ? 1 : 0; i < op->region_count(); ++i) {
      if (!is_countable(op->region(i))) return false;
    }
  }
  return true;
}

Value* low_word(ir::GraphBuilder& g, Value* x) { return g.convert(x, DType::kUI32); }
Value* high_word(ir::GraphBuilder& g, Value* x) {
  Value* half = g.constant(DType::kUI64, x->type().dims(), 32);
  return low_word(g, g.binary(OpCode::kShiftRightLogical, x, half));
}
Value* join(ir::GraphBuilder& g, Value* low, Value* high) {
  Value* half = g.constant(DType::kUI64, low->type().dims(), 32);
  Value* upper = g.binary(OpCode::kShiftLeft, g.convert(high, DType::kUI64), half);
  return g.binary(OpCode::kOr, g.convert(low, DType::kUI64), upper);
}

// 128 random bits for each element, as two ui64. `key`: ui64[].
std::array<Value*, 2> philox(ir::GraphBuilder& g, const Dims& dims, Value* key) {
  Value* counter = g.reshape(g.iota(DType::kUI64, {element_count(dims)}, 0), dims);
  Value* zero = g.constant(DType::kUI32, dims, 0);
  std::array<Value*, 4> x = {low_word(g, counter), high_word(g, counter), zero, zero};
  std::array<Value*, 2> keys = {low_word(g, key), high_word(g, key)};
  const auto multiply = [&](Value* word, uint32_t factor) {
    return g.multiply(g.convert(word, DType::kUI64), g.constant(DType::kUI64, dims, factor));
  };
  for (int round = 0; round < 10; ++round) {
    Value* first = multiply(x[0], 0xd2511f53U);
    Value* second = multiply(x[2], 0xcd9e8d57U);
    const auto mix = [&](Value* product, Value* word, Value* by) {
      Value* high = g.binary(OpCode::kXor, high_word(g, product), word);
      return g.binary(OpCode::kXor, high, g.broadcast(by, dims, {}));
    };
    x = {mix(second, x[1], keys[0]), low_word(g, second), mix(first, x[3], keys[1]),
         low_word(g, first)};
    keys = {g.add(keys[0], g.constant(DType::kUI32, {}, 0x9e3779b9U)),
            g.add(keys[1], g.constant(DType::kUI32, {}, 0xbb67ae85U))};
  }
  return {join(g, x[0], x[1]), join(g, x[2], x[3])};
}

// The high half of the 128-bit product of two ui64.
Value* multiply_high(ir::GraphBuilder& g, Value* x, Value* y) {
  const auto low = [&](Value* v) { return g.convert(low_word(g, v), DType::kUI64); };
  const auto high = [&](Value* v) { return g.convert(high_word(g, v), DType::kUI64); };
  Value* middle = g.add(g.multiply(high(x), low(y)), high(g.multiply(low(x), low(y))));
  Value* other = g.add(g.multiply(low(x), high(y)), low(middle));
  return g.add(g.multiply(high(x), high(y)), g.add(high(middle), high(other)));
}

// From 53 of the bits: [0, 1).
Value* unit(ir::GraphBuilder& g, Value* bits) {
  const Dims& dims = bits->type().dims();
  Value* some = g.binary(OpCode::kShiftRightLogical, bits, g.constant(DType::kUI64, dims, 11));
  return g.multiply(g.convert(some, DType::kF64), g.constant(DType::kF64, dims, 0x1p-53));
}

// Narrow floats by way of f32, as everywhere.
Value* round(ir::GraphBuilder& g, Value* x, DType dtype) {
  return g.convert(dtype == DType::kF64 ? x : g.convert(x, DType::kF32), dtype);
}

Value* draw(ir::GraphBuilder& g, const ir::Operation& op, Value* key) {
  const ir::Type& type = op.result()->type();
  const DType dtype = type.dtype();
  const Dims& dims = type.dims();
  const std::array<Value*, 2> bits = philox(g, dims, key);
  Value* first = g.broadcast(op.operand(0), dims, {});
  Value* second = g.broadcast(op.operand(1), dims, {});
  if (!is_float(dtype)) {
    Value* low = g.convert(first, DType::kUI64);
    Value* range = g.subtract(g.convert(second, DType::kUI64), low);
    Value* value = g.convert(g.add(low, multiply_high(g, bits[0], range)), dtype);
    return g.select(g.compare("GT", second, first), value, first);
  }
  Value* low = g.convert(first, DType::kF64);
  Value* high = g.convert(second, DType::kF64);
  if (ir::text_value(op, "rng_distribution") != "NORMAL") {
    Value* value = round(g, g.add(low, g.multiply(unit(g, bits[0]), g.subtract(high, low))), dtype);
    // Rounding can reach the open end.
    return g.select(g.compare("LT", value, second), value, first);
  }
  // G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
  Value* angle = g.multiply(g.constant(DType::kF64, dims, 2 * std::numbers::pi), unit(g, bits[1]));
  Value* rest = g.subtract(g.constant(DType::kF64, dims, 1), unit(g, bits[0]));
  Value* length = g.make(
      OpCode::kSqrt, {g.multiply(g.constant(DType::kF64, dims, -2), g.make(OpCode::kLog, {rest}))});
  Value* normal = g.multiply(length, g.make(OpCode::kCosine, {angle}));
  return round(g, g.add(low, g.multiply(high, normal)), dtype);
}

Status expand_block(ir::Block& block, Drawn* drawn);

// `op`, a loop or a branch, with one more result: what was drawn when it ends.
Status carry(ir::Block& block, ir::Operation* op, Drawn* drawn) {
  ir::GraphBuilder g(block, op, op->location());
  const bool is_loop = op->code() == OpCode::kWhile;
  Value* before = drawn->value(g);
  HEKLA_RETURN_IF_ERROR(g.status());
  Values operands = op->operands();
  std::vector<ir::Type> types = op->result_types();
  if (is_loop) operands.push_back(before);
  types.push_back(before->type());
  auto made = std::make_unique<ir::Operation>(op->code(), operands, types, op->attributes(),
                                              op->location());
  ir::Operation* next = block.insert_before(op, std::move(made));
  ir::ValueMap map;
  for (size_t i = 0; i < op->region_count(); ++i) {
    ir::Region& region = next->add_region();
    ir::clone_region(op->region(i), region, map);
    Drawn inside{is_loop ? region.front().add_argument(before->type()) : before, 0};
    if (is_loop && i == 0) continue;  // the condition
    HEKLA_RETURN_IF_ERROR(expand_block(region.front(), &inside));
    ir::Operation* end = region.front().terminator();
    ir::GraphBuilder e(region.front(), end, end->location());
    Values results = end->operands();
    results.push_back(inside.value(e));
    HEKLA_RETURN_IF_ERROR(e.status());
    end->set_operands(results);
  }
  *drawn = {next->result(op->result_count()), 0};
  for (size_t i = 0; i < op->result_count(); ++i) {
    op->result(i)->replace_all_uses_with(next->result(i));
  }
  block.erase(op);
  return ok_status();
}

Status expand_block(ir::Block& block, Drawn* drawn) {
  std::vector<ir::Operation*> all;
  for (const auto& op : block.operations()) all.push_back(op.get());
  for (ir::Operation* op : all) {
    if (!draws(*op)) continue;
    if (op->code() != OpCode::kRng) {
      HEKLA_RETURN_IF_ERROR(carry(block, op, drawn));
      continue;
    }
    ir::GraphBuilder g(block, op, op->location());
    Value* numbers = draw(g, *op, drawn->value(g));
    HEKLA_RETURN_IF_ERROR(g.status());
    ++drawn->count;
    op->result()->replace_all_uses_with(numbers);
    block.erase(op);
  }
  return ok_status();
}

}  // namespace

Status expand_rng(ir::Module& module) {
  if (module.entry() == nullptr || module.entry()->is_declaration()) return ok_status();
  ir::Region& body = module.entry()->body();
  if (!draws(body) || !is_countable(body)) return ok_status();
  ir::Operation* first = body.front().operations().front().get();
  ir::GraphBuilder g(body.front(), first, first->location());
  Value* launch = g.convert(g.make(OpCode::kLaunchNumber, {}), DType::kUI64);
  Drawn drawn{g.binary(OpCode::kShiftLeft, launch, g.constant(DType::kUI64, {}, 32))};
  HEKLA_RETURN_IF_ERROR(g.status());
  return expand_block(body.front(), &drawn);
}

}  // namespace hekla::passes
