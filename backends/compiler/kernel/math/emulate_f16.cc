// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "backends/compiler/kernel/math/functions.h"
#include "backends/compiler/kernel/math/rewrite.h"

namespace hekla::kernel {
namespace {

// What is rounded to f16 and computed with takes fewer instructions than both conversions.
class WithoutF16 : public Rewriter {
 public:
  WithoutF16(const Kernel& kernel, size_t most_instructions)
      : Rewriter(kernel, kernel.index_type, most_instructions), is_needed_(f_.size()) {
    for (const Instruction& inst : f_.instructions()) {
      if (inst.op == Op::kHalfToFloat) continue;
      for (Value v : inst.arguments) is_needed_[static_cast<size_t>(v)] = true;
    }
    for (const RegionBody& region : f_.regions()) {
      for (Value v : region.yields) is_needed_[static_cast<size_t>(v)] = true;
    }
  }

 private:
  Values constant(ScalarType type, uint64_t bits) override {
    return {b_.constant_bits(type, bits)};
  }
  std::vector<ScalarType> types(ScalarType type) const override { return {type}; }
  Num num(Value v) { return {b_, one(v)}; }

  Values rewrite(const Instruction& inst) override {
    switch (inst.op) {
      case Op::kHalfToFloat: {
        const Instruction& from = f_[inst.arguments[0]];
        if (from.op == Op::kFloatToHalf) {
          return {round_to_half_by_integers(num(from.arguments[0])).v};
        }
        return {half_to_float_by_integers(num(inst.arguments[0])).v};
      }
      case Op::kFloatToHalf:
        if (!is_needed_[static_cast<size_t>(&inst - f_.instructions().data())]) {
          return {b_.integer(ScalarType::kI32, 0)};
        }
        return {float_to_half_by_integers(num(inst.arguments[0])).v};
      default:
        return copy(inst);
    }
  }

  std::vector<bool> is_needed_;  // as bits
};

}  // namespace

Result<Function> without_f16(const Kernel& kernel, size_t most_instructions) {
  return WithoutF16(kernel, most_instructions).run();
}

}  // namespace hekla::kernel
