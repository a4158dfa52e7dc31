// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/rewrite.h"

namespace hekla::kernel {
namespace {

// What is rounded to f16 and computed with takes fewer instructions than both conversions; of what
// is moved as bits, or computed with alone, one of them is not needed.
class WithoutF16 : public Rewriter {
 public:
  WithoutF16(const Kernel& kernel, size_t most_instructions)
      : Rewriter(kernel, kernel.index_type, most_instructions), is_needed_(f_.size()) {
    const auto need = [&](Value v) { is_needed_[static_cast<size_t>(v)] = true; };
    for (const RegionBody& region : f_.regions()) {
      for (Value v : region.yields) need(v);
    }
    for (size_t i = f_.size(); i-- > 0;) {  // users stand behind what they use
      const Instruction& inst = f_[static_cast<Value>(i)];
      const bool is_conversion = inst.op == Op::kHalfToFloat || inst.op == Op::kFloatToHalf;
      if (is_conversion && !is_needed_[i]) continue;
      for (Value v : inst.arguments) {
        if (is_rounding(inst, v)) {
          need(f_[v].arguments[0]);
        } else {
          need(v);
        }
      }
    }
  }

 private:
  Values constant(ScalarType type, uint64_t bits) override {
    return {b_.constant_bits(type, bits)};
  }
  std::vector<ScalarType> types(ScalarType type) const override { return {type}; }
  Num num(Value v) { return {b_, one(v)}; }

  bool is_rounding(const Instruction& inst, Value argument) const {
    return inst.op == Op::kHalfToFloat && f_[argument].op == Op::kFloatToHalf;
  }

  Values rewrite(Value v) override {
    const Instruction& inst = f_[v];
    if (inst.op != Op::kHalfToFloat && inst.op != Op::kFloatToHalf) return copy(inst);
    if (!is_needed_[static_cast<size_t>(v)]) {
      return {b_.constant_bits(inst.type, 0)};
    }
    const Value from = inst.arguments[0];
    if (is_rounding(inst, from)) {
      return {round_to_half_by_integers(num(f_[from].arguments[0])).v};
    }
    return {(inst.op == Op::kHalfToFloat ? half_to_float_by_integers(num(from))
                                         : float_to_half_by_integers(num(from)))
                .v};
  }

  std::vector<bool> is_needed_;
};

}  // namespace

Result<Function> without_f16(const Kernel& kernel, size_t most_instructions) {
  return WithoutF16(kernel, most_instructions).run();
}

}  // namespace hekla::kernel
