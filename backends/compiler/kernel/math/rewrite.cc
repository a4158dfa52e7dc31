// SPDX-License-Identifier: Apache-2.0
#include "backends/compiler/kernel/math/rewrite.h"

#include <algorithm>

#include "backends/compiler/kernel/math/emulate.h"

namespace hekla::kernel {

Result<Function> Rewriter::run() {
  const auto& parameters = f_.body().parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    made_[parameters[i]] = index(b_.grid_index(static_cast<int>(i)));
  }
  walk(0);
  if (b_.size() > most_instructions_) {
    return resource_exhausted("more than {} instructions", most_instructions_);
  }
  return b_.finish();
}

Rewriter::Values Rewriter::of(Value v) {
  const Instruction& inst = f_[v];
  if (inst.op == Op::kConstant) return constant(inst.type, inst.immediate);
  return made_.at(v);
}

Rewriter::Values Rewriter::copy(const Instruction& inst) {
  const auto argument = [&](size_t i) { return one(inst.arguments[i]); };
  switch (inst.op) {
    case Op::kLoad:
      return {b_.load(inst.type, unpack_access(inst.immediate), argument(0))};
    case Op::kStore:
      b_.store(unpack_access(inst.immediate), argument(0), argument(1));
      return {};
    case Op::kSelect:
      return {b_.select(argument(0), argument(1), argument(2))};
    case Op::kFma:
      return {b_.fma(argument(0), argument(1), argument(2))};
    default:
      break;
  }
  if (inst.op >= Op::kSignExtend && inst.op <= Op::kBitcast) {
    return {b_.convert(inst.op, inst.type, argument(0))};
  }
  if (inst.arguments.size() == 1) return {b_.unary(inst.op, argument(0))};
  return {b_.binary(inst.op, argument(0), argument(1))};
}

void Rewriter::walk(int32_t region) {
  for (Value v : f_.region(region).instructions) {
    const Instruction& inst = f_[v];
    if (b_.size() > most_instructions_) {
      // No more than what keeps the walk going.
      for (ScalarType type : types(inst.type)) made_[v].push_back(b_.constant_bits(type, 0));
    } else if (inst.op == Op::kFor) {
      make_loop(v);
    } else if (inst.op == Op::kForResult) {
      const auto loop = loops_.find(inst.arguments[0]);
      made_[v] = loop->second[inst.immediate];
    } else if (inst.op == Op::kShuffleXor) {
      for (Value part : of(inst.arguments[0])) {
        made_[v].push_back(b_.shuffle_xor(part, unpack_exchange(inst.immediate)));
      }
    } else if (inst.op == Op::kTeamStore) {
      b_.team_store(unpack_team_memory(inst.immediate), one(inst.arguments[0]),
                    one(inst.arguments[1]));
    } else if (inst.op == Op::kTeamAdd) {
      b_.team_add(unpack_team_memory(inst.immediate), one(inst.arguments[0]),
                  one(inst.arguments[1]));
    } else if (inst.op == Op::kTeamStoreWide) {
      b_.team_store_wide(unpack_team_memory(inst.immediate), one(inst.arguments[0]),
                         {one(inst.arguments[1]), one(inst.arguments[2]), one(inst.arguments[3]),
                          one(inst.arguments[4])});
    } else if (is_sums_op(inst.op)) {
      Values places;
      for (const Value place : inst.arguments) places.push_back(one(place));
      b_.sums(inst.op, unpack_sums(inst.immediate), places);
    } else if (inst.op == Op::kTeamLoad) {
      made_[v] = {b_.team_load(unpack_team_memory(inst.immediate), one(inst.arguments[0]))};
    } else {
      made_[v] = rewrite(v);
    }
  }
}

void Rewriter::make_loop(Value v) {
  const Instruction& inst = f_[v];
  const auto number = static_cast<int32_t>(inst.immediate);
  const RegionBody& region = f_.region(number);
  Values initial;
  for (size_t i = 1; i < inst.arguments.size(); ++i) {
    for (Value part : of(inst.arguments[i])) initial.push_back(part);
  }
  // Cuts what is carried into the parts of each value.
  const auto cut = [&](const Values& carried) {
    std::vector<Values> all;
    size_t next = 0;
    for (size_t i = 1; i < inst.arguments.size(); ++i) {
      const size_t parts = types(f_.type(inst.arguments[i])).size();
      all.emplace_back(carried.begin() + static_cast<ptrdiff_t>(next),
                       carried.begin() + static_cast<ptrdiff_t>(next + parts));
      next += parts;
    }
    return all;
  };
  const Values last =
      b_.loop(one(inst.arguments[0]), initial, [&](Value iteration, const Values& carried) {
        made_[region.parameters[0]] = index(iteration);
        const std::vector<Values> all = cut(carried);
        for (size_t i = 0; i < all.size(); ++i) {
          made_[region.parameters[i + 1]] = all[i];
        }
        walk(number);
        Values next;
        for (Value y : region.yields) {
          for (Value part : of(y)) next.push_back(part);
        }
        return next;
      });
  loops_[v] = cut(last);
}

namespace {

// Drivers compile such code in seconds; more is better done elsewhere.
constexpr size_t kMostInstructions = 40'000;

bool has_type(const Function& f, ScalarType type) {
  for (size_t v = 0; v < f.size(); ++v) {
    const Instruction& inst = f[static_cast<Value>(v)];
    if (inst.type == type && has_result(inst.op) && inst.op != Op::kFor) return true;
  }
  return false;
}

bool has_halves(const Function& f) {
  return std::any_of(f.instructions().begin(), f.instructions().end(), [](const Instruction& inst) {
    return inst.op == Op::kHalfToFloat || inst.op == Op::kFloatToHalf;
  });
}

bool is_small(const Kernel& kernel) {
  constexpr int64_t kMost = 0x7fffffff;
  return kernel.points() <= kMost &&
         std::all_of(kernel.operands.begin(), kernel.operands.end(),
                     [](const KernelOperand& o) { return o.bytes <= kMost; });
}

}  // namespace

Result<Kernel> emulate(const Kernel& kernel, const Emulation& emulation) {
  Kernel result = kernel;
  const auto replace = [&](Result<Function> made, const char* type) {
    if (!made.ok()) {
      return unimplemented("kernel {} would take too much code without {}: {}", kernel.name, type,
                           made.status().message());
    }
    result.body = *std::move(made);
    return ok_status();
  };
  if (emulation.i64 && kernel.index_type == ScalarType::kI64 && !is_small(kernel)) {
    return unimplemented("kernel {} counts its grid or its operands in 64 bits", kernel.name);
  }
  if (emulation.f16 && has_halves(result.body)) {
    HEKLA_RETURN_IF_ERROR(replace(without_f16(result, kMostInstructions), "conversions of f16"));
  }
  if (emulation.f64 && has_type(result.body, ScalarType::kF64)) {
    HEKLA_RETURN_IF_ERROR(replace(without_f64(result, kMostInstructions), "f64"));
  }
  if (emulation.i64 && has_type(result.body, ScalarType::kI64)) {
    HEKLA_RETURN_IF_ERROR(replace(without_i64(result, kMostInstructions), "i64"));
    result.index_type = ScalarType::kI32;
  }
  return result;
}

}  // namespace hekla::kernel
