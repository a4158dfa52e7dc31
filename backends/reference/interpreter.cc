// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/interpreter.h"

#include <algorithm>
#include <unordered_set>

#include "backends/reference/kernels/movement.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

// The arrays inside a datum, tuples flattened.
void flatten(const Datum& datum, std::vector<HostArray>& out) {
  if (!datum.is_tuple()) {
    out.push_back(datum.array);
    return;
  }
  for (const Datum& part : *datum.parts) flatten(part, out);
}

int64_t bytes_of(const Datum& datum, std::unordered_set<const void*>& seen) {
  if (datum.is_tuple()) {
    int64_t bytes = 0;
    for (const Datum& part : *datum.parts) bytes += bytes_of(part, seen);
    return bytes;
  }
  if (datum.array.size_bytes() == 0 || !seen.insert(datum.array.data()).second) return 0;
  return datum.array.size_bytes();
}

int64_t declared_bytes(const ir::Type& type) {
  if (type.is_tuple()) {
    int64_t bytes = 0;
    for (const ir::Type& element : type.elements()) bytes += declared_bytes(element);
    return bytes;
  }
  if (!type.is_static_tensor()) return 0;
  const Result<int64_t> bytes = checked_bytes(type.dtype(), type.dims());
  return bytes.ok() ? *bytes : std::numeric_limits<int64_t>::max() / 4;
}

}  // namespace

Result<std::vector<Datum>> Interpreter::call(const ir::Function& function,
                                             std::vector<Datum> arguments) {
  std::unique_ptr<FunctionPlan>& plan = plans_[&function];
  if (plan == nullptr) plan = std::make_unique<FunctionPlan>(make_plan(function));
  Frame frame(static_cast<size_t>(plan->slot_count));
  frames_.push_back(&frame);
  Result<std::vector<Datum>> results = run_block(plan->body, frame, std::move(arguments));
  frames_.pop_back();
  return results;
}

Result<std::vector<Datum>> Interpreter::run_block(const BlockPlan& plan, Frame& frame,
                                                  std::vector<Datum> arguments) {
  for (size_t i = 0; i < plan.arguments.size(); ++i) {
    frame[static_cast<size_t>(plan.arguments[i])] = std::move(arguments[i]);
  }
  arguments.clear();
  for (int slot : plan.unused_arguments) frame[static_cast<size_t>(slot)] = Datum();
  for (size_t i = 0; i + 1 < plan.steps.size(); ++i) {
    HEKLA_RETURN_IF_ERROR(run_step(plan.steps[i], frame));
  }
  // The terminator hands its operands over.
  const Step& last = plan.steps.back();
  std::vector<Datum> results;
  results.reserve(last.operands.size());
  for (size_t i = 0; i < last.operands.size(); ++i) {
    Datum& value = frame[static_cast<size_t>(last.operands[i])];
    results.push_back(last.moves[i] ? std::move(value) : value);
    if (last.moves[i]) value = Datum();
  }
  for (int slot : last.dead) frame[static_cast<size_t>(slot)] = Datum();
  return results;
}

Status Interpreter::run_step(const Step& step, Frame& frame) {
  if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed)) {
    return cancelled("the launch was cancelled at {}", step.op->name());
  }
  if (options_.memory_limit_bytes != std::numeric_limits<int64_t>::max()) {
    HEKLA_RETURN_IF_ERROR(check_memory(step));
  }
  std::vector<Datum> operands;
  operands.reserve(step.operands.size());
  for (size_t i = 0; i < step.operands.size(); ++i) {
    Datum& value = frame[static_cast<size_t>(step.operands[i])];
    operands.push_back(step.moves[i] ? std::move(value) : value);
    if (step.moves[i]) value = Datum();
  }
  Result<std::vector<Datum>> results = execute(step, frame, operands);
  if (!results.ok()) {
    const bool has_place =
        results.status().message().find(" at ") != std::string::npos && !step.regions.empty();
    // Errors from inside a region name their own op.
    if (has_place) return results.status();
    return results.status().with_context(
        fmt::format("{} at {}", step.op->name(), ir::location_string(step.op->location())));
  }
  if (options_.on_operation) report(step, *results);
  operands.clear();
  for (size_t i = 0; i < step.results.size(); ++i) {
    frame[static_cast<size_t>(step.results[i])] = std::move((*results)[i]);
  }
  for (int slot : step.dead) frame[static_cast<size_t>(slot)] = Datum();
  return ok_status();
}

Status Interpreter::check_memory(const Step& step) const {
  std::unordered_set<const void*> seen;
  int64_t live = 0;
  for (const Frame* outer : frames_) {
    for (const Datum& value : *outer) live += bytes_of(value, seen);
  }
  int64_t wanted = 0;
  for (const ir::Type& type : step.op->result_types()) wanted += declared_bytes(type);
  if (live + wanted <= options_.memory_limit_bytes) return ok_status();
  return resource_exhausted(
      "{} at {} needs {} bytes for ({}) while {} bytes are live; the limit is {} bytes. Use "
      "smaller "
      "shapes, donate inputs or raise the limit",
      step.op->name(), ir::location_string(step.op->location()), wanted,
      ir::types_string(step.op->result_types()), live, options_.memory_limit_bytes);
}

void Interpreter::report(const Step& step, const std::vector<Datum>& results) const {
  std::vector<HostArray> arrays;
  for (const Datum& result : results) flatten(result, arrays);
  options_.on_operation(*step.op, arrays);
}

Result<std::vector<Datum>> Interpreter::run_while(const Step& step, Frame& frame,
                                                  std::vector<Datum> state) {
  while (true) {
    HEKLA_ASSIGN_OR_RETURN(std::vector<Datum> condition, run_block(*step.regions[0], frame, state));
    if (condition[0].array.as<uint8_t>()[0] == 0) return state;
    HEKLA_ASSIGN_OR_RETURN(state, run_block(*step.regions[1], frame, std::move(state)));
  }
}

Result<std::vector<Datum>> Interpreter::run_branch(const Step& step, Frame& frame, size_t branch) {
  return run_block(*step.regions[branch], frame, {});
}

Result<std::vector<Datum>> Interpreter::execute(const Step& step, Frame& frame,
                                                std::vector<Datum>& operands) {
  const ir::Operation& op = *step.op;
  switch (op.code()) {
    case OpCode::kFuncCall:
    case OpCode::kComposite: {
      const char* attribute = op.code() == OpCode::kFuncCall ? "callee" : "decomposition";
      const auto* symbol = op.attribute(attribute).get<ir::SymbolValue>();
      const ir::Function* callee = symbol == nullptr ? nullptr : module_.find(symbol->root);
      if (callee == nullptr || callee->is_declaration()) {
        return invalid_argument("there is no function @{}", symbol == nullptr ? "" : symbol->root);
      }
      return call(*callee, std::move(operands));
    }
    case OpCode::kWhile:
      return run_while(step, frame, std::move(operands));
    case OpCode::kIf:
      return run_branch(step, frame, operands[0].array.as<uint8_t>()[0] ? 0 : 1);
    case OpCode::kCase: {
      // An index outside of the branches takes the last one.
      const int64_t last = static_cast<int64_t>(step.regions.size()) - 1;
      const int64_t index = index_at(operands[0].array, 0);
      return run_branch(step, frame, static_cast<size_t>(index < 0 || index > last ? last : index));
    }
    case OpCode::kSdyManualComputation:
    case OpCode::kSdyNamedComputation:
      return run_block(*step.regions[0], frame, std::move(operands));
    case OpCode::kTuple: {
      std::vector<Datum> result;
      result.push_back(Datum::tuple(std::move(operands)));
      return result;
    }
    case OpCode::kGetTupleElement: {
      const auto* index = op.attribute("index").get<ir::IntegerValue>();
      return std::vector<Datum>{(*operands[0].parts)[static_cast<size_t>(index->value)]};
    }
    case OpCode::kOptimizationBarrier:
      return std::move(operands);
    default:
      return execute_op(step, *this, frame, operands);
  }
}

}  // namespace hekla::reference
