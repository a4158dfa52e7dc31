// SPDX-License-Identifier: Apache-2.0
// Rewriter: makes a function again, one instruction after the other, with other instructions in
// the place of some. A value may become several. For this folder only; one thread, one run.
#pragma once

#include <unordered_map>
#include <vector>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/kernel.h"

namespace hekla::kernel {

class Rewriter {
 public:
  using Values = std::vector<Value>;

  // Grid indices and iterations become values of `index_type`.
  Rewriter(const Kernel& kernel, ScalarType index_type, size_t most_instructions)
      : f_(kernel.body),
        b_(static_cast<int>(kernel.grid.size()), index_type),
        most_instructions_(most_instructions) {
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      const KernelOperand& operand = kernel.operands[i];
      if (operand.is_read && operand.is_written) b_.set_updated(static_cast<int32_t>(i));
    }
  }
  virtual ~Rewriter() = default;

  // RESOURCE_EXHAUSTED when there are more instructions than allowed.
  Result<Function> run();

 protected:
  // A grid index or an iteration, which is not negative, as what its old type becomes.
  virtual Values index(Value v) { return {v}; }
  virtual Values constant(ScalarType type, uint64_t bits) = 0;
  // What a value of this type becomes.
  virtual std::vector<ScalarType> types(ScalarType type) const = 0;
  // Any instruction but constants, parameters and loops.
  virtual Values rewrite(Value v) = 0;

  // What a value of the old function has become.
  Values of(Value v);
  // Of a value that is one still.
  Value one(Value v) { return of(v)[0]; }
  // The instruction as it was, but for its arguments.
  Values copy(const Instruction& inst);

  const Function& f_;
  Builder b_;

 private:
  void walk(int32_t region);
  void make_loop(Value v);

  const size_t most_instructions_;
  std::unordered_map<Value, Values> made_;
  std::unordered_map<Value, std::vector<Values>> loops_;
};

// The parts of emulate().
Result<Function> without_f16(const Kernel& kernel, size_t most_instructions);
Result<Function> without_f64(const Kernel& kernel, size_t most_instructions);
Result<Function> without_i64(const Kernel& kernel, size_t most_instructions);

}  // namespace hekla::kernel
