// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/interpreter.h"

#include <algorithm>
#include <unordered_set>

#include "backends/reference/custom_calls.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/sorting.h"
#include "backends/reference/region_function.h"
#include "runtime/program/ir/device_groups.h"
#include "runtime/program/ir/infer.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

int64_t bytes_of(const Datum& datum, std::unordered_set<const void*>& seen) {
  if (datum.is_tuple()) {
    int64_t bytes = 0;
    for (const Datum& part : *datum.parts) bytes += bytes_of(part, seen);
    return bytes;
  }
  if (datum.array.size_bytes() == 0 || !seen.insert(datum.array.data()).second) return 0;
  return datum.array.size_bytes();
}

bool has_type(const HostArray& array, const ir::Type& type) {
  if (array.dtype() != type.dtype() || array.rank() != type.rank()) return false;
  for (size_t d = 0; d < type.dims().size(); ++d) {
    if (type.dims()[d] != ir::kDynamic && type.dims()[d] != array.dims()[d]) return false;
  }
  return true;
}

// What no verifier can know: results of custom calls and of operations whose shapes are computed
// must be what their types promise, since later operations rely on them.
Status check_results(const ir::Operation& op, const std::vector<Datum>& results) {
  if (results.size() != op.result_count()) {
    return invalid_argument("gives {} results, {} are declared", results.size(), op.result_count());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const ir::Type& type = op.result(i)->type();
    if (type.is_tensor() && (results[i].is_tuple() || !has_type(results[i].array, type))) {
      return invalid_argument("result {} is {}, {} is declared", i, results[i].array.shape(),
                              type.to_string());
    }
  }
  return ok_status();
}

// Operations that only hand values on; what they hand on was checked where it was made.
bool is_control_flow(OpCode code) {
  switch (code) {
    case OpCode::kCase:
    case OpCode::kComposite:
    case OpCode::kFuncCall:
    case OpCode::kGetTupleElement:
    case OpCode::kIf:
    case OpCode::kOptimizationBarrier:
    case OpCode::kSdyManualComputation:
    case OpCode::kSdyNamedComputation:
    case OpCode::kTuple:
    case OpCode::kWhile:
      return true;
    default:
      return false;
  }
}

bool has_dynamic_operand(const ir::Operation& op) {
  return std::ranges::any_of(op.operands(), [](const ir::Value* operand) {
    return operand->type().is_tensor() && !operand->type().is_static_tensor();
  });
}

// The constraints of the operation once more, on the shapes that its operands really have.
Status check_dynamic_operands(const ir::Operation& op, const std::vector<Datum>& operands) {
  if (ir::is_collective(op.code()) || op.code() == OpCode::kAsyncStart) return ok_status();
  // Its arrays have shapes of their own, which its kernel holds against each other.
  if (op.code() == OpCode::kScatter) return ok_status();
  if (op.region_count() > 0) {
    // reduce, reduce_window, sort, map: all arrays of one shape. check_op refused the others.
    const Dims* first = nullptr;
    for (const Datum& operand : operands) {
      if (operand.is_tuple() || operand.array.rank() == 0) continue;
      if (first == nullptr) first = &operand.array.dims();
      if (*first != operand.array.dims()) {
        return invalid_argument("operands differ in shape: {} and {}", operands[0].array.shape(),
                                operand.array.shape());
      }
    }
    return ok_status();
  }
  ir::Region scope(nullptr);
  ir::Block& block = scope.add_block();
  std::vector<ir::Value*> values;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ir::Type& declared = op.operand(i)->type();
    values.push_back(block.add_argument(
        declared.is_tensor() ? ir::Type::tensor(declared.element(), operands[i].array.dims())
                             : declared));
  }
  ir::Operation* real = block.append(op.code(), values, op.result_types(), op.attributes());
  const Result<std::vector<ir::Type>> types = ir::infer_result_types(*real);
  return types.ok() ? ok_status() : types.status();
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

const FunctionPlan& Interpreter::plan_of(const ir::Function& function) {
  std::unique_ptr<FunctionPlan>& plan = plans_[&function];
  if (plan == nullptr) plan = std::make_unique<FunctionPlan>(make_plan(function));
  return *plan;
}

Result<std::vector<Datum>> Interpreter::run_approx_top_k(const ir::Operation& op,
                                                         std::vector<Datum>& operands) {
  const ApproxTopK call = approx_top_k_of(op);
  const ir::Function* comparator = module_.find(call.comparator);
  if (comparator == nullptr || comparator->is_declaration()) {
    return invalid_argument("there is no function @{}", call.comparator);
  }
  const size_t inputs = operands.size() / 2;  // the rest are what padding would hold
  std::vector<HostArray> arrays;
  for (size_t i = 0; i < inputs; ++i) arrays.push_back(std::move(operands[i].array));
  const FunctionPlan& plan = plan_of(*comparator);
  Frame frame(static_cast<size_t>(plan.slot_count));
  RegionFunction function(plan.body, *this, frame);
  HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> sorted,
                         reference::sort(arrays, call.dimension, function));
  std::vector<Datum> results;
  for (size_t i = 0; i < inputs; ++i) {
    SliceConfig config;
    config.start_indices.assign(sorted[i].dims().size(), 0);
    config.limit_indices = op.result(i)->type().dims();
    HEKLA_ASSIGN_OR_RETURN(HostArray best, slice(sorted[i], config));
    results.emplace_back(std::move(best));
  }
  return results;
}

Result<std::vector<Datum>> Interpreter::call(const ir::Function& function,
                                             std::vector<Datum> arguments) {
  const FunctionPlan& plan = plan_of(function);
  Frame frame(static_cast<size_t>(plan.slot_count));
  frames_.push_back(&frame);
  Result<std::vector<Datum>> results = run_block(plan.body, frame, std::move(arguments));
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
  const OperationTrace trace(TraceLine::kSteps, options_.device, *step.op);
  const bool is_control = is_control_flow(step.op->code());
  Status arguments;
  if (!is_control && has_dynamic_operand(*step.op)) {
    arguments = cut_to_size(*step.op, operands);
    if (arguments.ok()) arguments = check_dynamic_operands(*step.op, operands);
  }
  Result<std::vector<Datum>> results = arguments.ok()
                                           ? execute(step, frame, operands)
                                           : Result<std::vector<Datum>>(std::move(arguments));
  if (results.ok() && !is_control) {
    const Status check = check_results(*step.op, *results);
    if (!check.ok()) results = check;
  }
  if (!results.ok()) {
    const bool names_operation =
        results.status().message().find(" at ") != std::string::npos && !step.regions.empty();
    // Errors from inside a region name their own op.
    if (names_operation) return results.status();
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

Result<std::vector<Datum>> Interpreter::run_async_start(const Step& step, Frame& frame,
                                                        std::vector<Datum>& operands) {
  const BlockPlan& block = *step.regions[0];
  const Step& inner = block.steps[0];
  const auto slot = [&](int number) -> Datum& { return frame[static_cast<size_t>(number)]; };
  for (size_t i = 0; i < operands.size(); ++i) slot(block.arguments[i]) = std::move(operands[i]);
  std::vector<Datum> inputs;
  for (int number : inner.operands) inputs.push_back(slot(number));
  for (int number : block.arguments) slot(number) = Datum();
  auto future = std::make_shared<Future>();
  if (ir::is_host_transfer(*inner.op)) {
    HEKLA_ASSIGN_OR_RETURN(future->results, run_host_transfer(*inner.op, inputs));
  } else if (ir::is_collective(inner.op->code())) {
    HEKLA_ASSIGN_OR_RETURN(future->pending, collectives_.begin(inner, inputs));
    future->frame.resize(frame.size());
    std::vector<int> captured;
    for (const auto& region : inner.regions) collect_reads(*region, captured);
    for (int number : captured) future->frame[static_cast<size_t>(number)] = slot(number);
  } else {
    HEKLA_ASSIGN_OR_RETURN(future->results, execute_op(inner, *this, frame, inputs));
  }
  std::vector<Datum> results(1);
  results[0].future = std::move(future);
  return results;
}

Result<std::vector<Datum>> Interpreter::run_async_done(const Datum& datum) {
  if (datum.future == nullptr) return internal_error("the operand is no future");
  Future& future = *datum.future;
  if (!future.pending) return future.results;
  HEKLA_ASSIGN_OR_RETURN(future.results, collectives_.finish(*future.pending, *this, future.frame));
  future.pending.reset();
  future.frame.clear();
  return future.results;
}

// The values go one after the other on the operation's channel; the last operand or result is the
// token.
Result<std::vector<Datum>> Interpreter::run_host_transfer(const ir::Operation& op,
                                                          const std::vector<Datum>& operands) {
  const bool is_mine = op.attribute(ir::kHostPartition).is_absent() ||
                       ir::int_value(op, ir::kHostPartition) == options_.partition_id;
  if (is_mine && options_.transfers == nullptr) {
    return failed_precondition("a transfer with the host in a launch without a host");
  }
  const auto* handle = op.attribute("channel_handle").get<ir::ChannelHandle>();
  const int64_t channel = handle == nullptr ? 0 : handle->handle;
  std::vector<Datum> results(op.result_count());
  if (op.code() == OpCode::kSend) {
    for (size_t i = 0; is_mine && i + 1 < operands.size(); ++i) {
      HEKLA_RETURN_IF_ERROR(options_.transfers->send(channel, operands[i].array.bytes()));
    }
    return results;
  }
  for (size_t i = 0; i + 1 < results.size(); ++i) {
    const ir::Type& type = op.result(i)->type();
    HEKLA_ASSIGN_OR_RETURN(HostArray array,
                           HostArray::allocate(type.dtype(), type.dims(), /*zero=*/!is_mine));
    if (!is_mine) {
      results[i] = Datum(std::move(array));
      continue;
    }
    const std::span<std::byte> to(array.mutable_data(), static_cast<size_t>(array.size_bytes()));
    HEKLA_RETURN_IF_ERROR(options_.transfers->receive(channel, to));
    extend_narrow_integers(array);
    results[i] = Datum(std::move(array));
  }
  return results;
}

Result<Collectives::Pending> Interpreter::begin_collective(const ir::Function& function,
                                                           std::vector<Datum> arguments,
                                                           Frame& frame) {
  const FunctionPlan& plan = plan_of(function);
  const BlockPlan& body = plan.body;
  if (body.steps.size() != 2 || !ir::is_collective(body.steps[0].op->code())) {
    return internal_error("@{} is no collective by itself", function.name());
  }
  frame.resize(static_cast<size_t>(plan.slot_count));
  for (size_t i = 0; i < body.arguments.size(); ++i) {
    frame[static_cast<size_t>(body.arguments[i])] = std::move(arguments[i]);
  }
  const Step& step = body.steps[0];
  if (options_.memory_limit_bytes != std::numeric_limits<int64_t>::max()) {
    frames_.push_back(&frame);
    const Status fits = check_memory(step);
    frames_.pop_back();
    HEKLA_RETURN_IF_ERROR(fits);
  }
  std::vector<Datum> operands;
  for (int slot : step.operands) operands.push_back(frame[static_cast<size_t>(slot)]);
  return collectives_.begin(step, operands);
}

Result<std::vector<Datum>> Interpreter::finish_collective(const Collectives::Pending& pending,
                                                          Frame& frame,
                                                          DeviceExchange::Thread thread) {
  const ir::Operation& op = *pending.step->op;
  Result<std::vector<Datum>> results = collectives_.finish(pending, *this, frame, thread);
  if (results.ok()) {
    if (Status status = check_results(op, *results); !status.ok()) results = std::move(status);
  }
  if (results.ok()) return results;
  return results.status().with_context(
      fmt::format("{} at {}", op.name(), ir::location_string(op.location())));
}

Result<std::vector<Datum>> Interpreter::execute(const Step& step, Frame& frame,
                                                std::vector<Datum>& operands) {
  const ir::Operation& op = *step.op;
  switch (op.code()) {
    case OpCode::kFuncCall:
    case OpCode::kComposite: {
      if (is_known_composite(op)) return execute_composite(op, operands);
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
    case OpCode::kAsyncStart:
      return run_async_start(step, frame, operands);
    case OpCode::kAsyncDone:
      return run_async_done(operands[0]);
    case OpCode::kCustomCall:
      if (is_approx_top_k(op)) return run_approx_top_k(op, operands);
      return execute_op(step, *this, frame, operands);
    default:
      if (ir::is_host_transfer(op)) return run_host_transfer(op, operands);
      if (ir::is_collective(op.code())) {
        HEKLA_ASSIGN_OR_RETURN(Collectives::Pending pending, collectives_.begin(step, operands));
        return collectives_.finish(pending, *this, frame);
      }
      return execute_op(step, *this, frame, operands);
  }
}

}  // namespace hekla::reference
