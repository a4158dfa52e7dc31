// SPDX-License-Identifier: Apache-2.0
// Interpreter: walks a module and runs its operations on host arrays.
//
// One Interpreter serves one evaluate() call and one thread. Functions are planned once. Control
// flow, calls, tuples and tokens are its own; arithmetic is in elementwise/ and kernels/, wired up
// in execute_op.cc; regions on scalars become RegionFunctions.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "backends/reference/collectives.h"
#include "backends/reference/datum.h"
#include "backends/reference/evaluator.h"
#include "backends/reference/plan.h"

namespace hekla::reference {

// The values of one function's call, by slot.
using Frame = std::vector<Datum>;

class Interpreter {
 public:
  Interpreter(const ir::Module& module, const EvaluateOptions& options)
      : module_(module), options_(options), collectives_(module, options) {}

  const EvaluateOptions& options() const { return options_; }

  Result<std::vector<Datum>> call(const ir::Function& function, std::vector<Datum> arguments);
  // Runs a region's block on `arguments`; values of the surrounding function are read from `frame`.
  Result<std::vector<Datum>> run_block(const BlockPlan& plan, Frame& frame,
                                       std::vector<Datum> arguments);

  // Of a function that is one collective: what it brings to the exchange goes there, the frame gets
  // the arguments. Does not wait. The result borrows the interpreter.
  Result<Collectives::Pending> begin_collective(const ir::Function& function,
                                                std::vector<Datum> arguments, Frame& frame);
  // Waits for the others, on the device's communication lane: the function's results.
  Result<std::vector<Datum>> finish_collective(const Collectives::Pending& pending, Frame& frame,
                                               DeviceExchange::Thread thread);

  // The next number for ops that need a seed: the same in every evaluation of a program that has
  // the launch number.
  uint64_t next_seed() { return (uint64_t{options_.launch_number} << 32U) + seed_++; }

 private:
  Status run_step(const Step& step, Frame& frame);
  Result<std::vector<Datum>> execute(const Step& step, Frame& frame, std::vector<Datum>& operands);
  Result<std::vector<Datum>> run_while(const Step& step, Frame& frame, std::vector<Datum> state);
  Result<std::vector<Datum>> run_branch(const Step& step, Frame& frame, size_t branch);
  // The k best along a dimension by a comparator function; exact, which "approximate" allows.
  Result<std::vector<Datum>> run_approx_top_k(const ir::Operation& op,
                                              std::vector<Datum>& operands);
  // Collectives between async_start and async_done.
  Result<std::vector<Datum>> run_async_start(const Step& step, Frame& frame,
                                             std::vector<Datum>& operands);
  Result<std::vector<Datum>> run_async_done(const Datum& future);
  Result<std::vector<Datum>> run_host_transfer(const ir::Operation& op,
                                               const std::vector<Datum>& operands);
  const FunctionPlan& plan_of(const ir::Function& function);
  Status check_memory(const Step& step) const;
  void report(const Step& step, const std::vector<Datum>& results) const;

  const ir::Module& module_;
  const EvaluateOptions& options_;
  Collectives collectives_;
  std::unordered_map<const ir::Function*, std::unique_ptr<FunctionPlan>> plans_;
  std::vector<const Frame*> frames_;  // of the calls that are under way, for the memory account
  uint64_t seed_ = 0;
};

// Operations without control flow: everything that needs no frame but regions on scalars.
// UNIMPLEMENTED in words for those that the evaluator does not have.
Result<std::vector<Datum>> execute_op(const Step& step, Interpreter& interpreter, Frame& frame,
                                      std::vector<Datum>& operands);

// Of an elementwise operation where a dimension is bounded and its size the launch's: an operand of
// fixed size, which is as long as the bound, is cut to that size; the rest of it is never seen.
Status cut_to_size(const ir::Operation& op, std::vector<Datum>& operands);

// Whether execute_op or the interpreter runs this operation, apart from its regions; the reason in
// words when not.
Status check_op(const ir::Operation& op, const ir::Module& module, const ir::DeviceGrid& grid);

// See runtime/base/narrow_integers.h.
void extend_narrow_integers(HostArray& array);

}  // namespace hekla::reference
