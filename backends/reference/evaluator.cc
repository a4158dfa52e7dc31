// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/evaluator.h"

#include <fmt/format.h>

#include <system_error>
#include <thread>

#include "backends/lapack/library.h"
#include "backends/reference/collectives.h"
#include "backends/reference/custom_calls.h"
#include "backends/reference/interpreter.h"
#include "backends/reference/lapack_calls.h"
#include "backends/reference/quantized.h"
#include "runtime/base/narrow_integers.h"
#include "runtime/program/ir/op_attributes.h"

namespace hekla::reference {
namespace {

using ir::OpCode;

// The first leaf of the entry's parameters or results, tuples flattened.
void flatten_types(const ir::Type& type, std::vector<ir::Type>& out) {
  if (!type.is_tuple()) {
    out.push_back(type);
    return;
  }
  for (const ir::Type& element : type.elements()) flatten_types(element, out);
}

bool fits(const HostArray& array, const ir::Type& type) {
  if (type.is_token()) return true;
  if (!type.is_tensor() || array.dtype() != type.dtype() || array.rank() != type.rank()) {
    return false;
  }
  for (size_t i = 0; i < type.dims().size(); ++i) {
    if (type.dims()[i] != ir::kDynamic && type.dims()[i] != array.dims()[i]) return false;
  }
  return true;
}

}  // namespace

void extend_narrow_integers(HostArray& array) {
  if (!is_narrow_integer(array.dtype())) return;
  hekla::extend_narrow_integers(array.dtype(),
                                {array.mutable_data(), static_cast<size_t>(array.size_bytes())});
}

Status check_op(const ir::Operation& op, const ir::Module& module, const ir::DeviceGrid& grid) {
  const auto check_types = [&]() -> Status {
    if (has_quantized(op)) HEKLA_RETURN_IF_ERROR(check_quantized(op));
    for (const ir::Type& type : op.result_types()) {
      if (type.kind() == ir::Type::Kind::kBuffer) {
        return unimplemented("values of type {}", type.to_string());
      }
    }
    return ok_status();
  };
  HEKLA_RETURN_IF_ERROR(check_types());
  if (ir::is_host_transfer(op)) return ok_status();
  if (ir::is_collective(op.code())) return check_collective(op, module, grid);
  switch (op.code()) {
    case OpCode::kUnknown:
      return unimplemented("this operation");
    case OpCode::kInfeed:
    case OpCode::kOutfeed:
      return unimplemented("transfers with the host inside of a program");
    case OpCode::kReshape:
      if (std::ranges::count(op.result()->type().dims(), ir::kDynamic) <= 1) return ok_status();
      return unimplemented("a reshape to {}, where more than one size is not known",
                           op.result()->type().to_string());
    case OpCode::kSelectAndScatter:
      for (const ir::Value* operand : op.operands()) {
        if (!operand->type().is_static_tensor()) {
          return unimplemented("shapes that are not known before the launch ({})",
                               operand->type().to_string());
        }
      }
      return ok_status();
    case OpCode::kCustomCall:
      return check_custom_call(op);
    case OpCode::kCheckExpectSerializedEq:
      return unimplemented("comparison with files (check.expect_serialized_eq)");
    case OpCode::kSdyManualComputation:
      for (const ir::Mesh& mesh : module.meshes) {
        for (const auto& [name, size] : mesh.value.axes) {
          if (size > 1) {
            return unimplemented("manual computations over the mesh axis \"{}\" of {} devices",
                                 name, size);
          }
        }
      }
      return ok_status();
    default:
      return ok_status();
  }
}

bool is_for_host(const ir::Module& module) {
  const ir::Function* entry = module.entry();
  if (entry == nullptr || entry->is_declaration()) return false;
  const auto& operations = entry->body().front().operations();
  if (operations.size() != 2) return false;  // it and the return
  const ir::Operation& op = *operations.front();
  if (ir::is_host_transfer(op) || is_user_call(op)) return true;
  const bool is_linear_algebra =
      op.code() == OpCode::kCustomCall
          ? is_lapack_call(ir::text_value(op, "call_target_name"))
          : op.code() == OpCode::kCholesky || op.code() == OpCode::kTriangularSolve;
  return is_linear_algebra && lapack::table() != nullptr;
}

Result<ffi::CallsRef> instantiate_calls(std::span<const ir::Module* const> modules) {
  return ffi::Calls::create(modules, is_user_call);
}

Status check_supported(const ir::Module& module, const ir::DeviceGrid& grid) {
  std::string problems;
  size_t count = 0;
  constexpr size_t kMaxLines = 200;
  for (const auto& function : module.functions) {
    ir::walk(function->body(), [&](const ir::Operation& op) {
      const Status status = check_op(op, module, grid);
      if (status.ok() || ++count > kMaxLines) return;
      std::vector<ir::Type> operands;
      for (const ir::Value* operand : op.operands()) operands.push_back(operand->type());
      problems += fmt::format("\n  {} : ({}) -> ({}) at {}: {}", op.name(),
                              ir::types_string(operands), ir::types_string(op.result_types()),
                              ir::location_string(op.location()), status.message());
    });
  }
  if (const ir::Function* entry = module.entry(); count == 0 && entry != nullptr) {
    for (const auto* types : {&entry->type.elements(), &entry->type.results()}) {
      for (const ir::Type& type : *types) {
        if (type.kind() == ir::Type::Kind::kFuture) {
          return unimplemented("@{} takes or gives a {}, which no host array is", entry->name(),
                               type.to_string());
        }
      }
    }
  }
  if (count == 0) return ok_status();
  return Status(StatusCode::kUnimplemented,
                fmt::format("the program uses {} operation{} that the reference evaluator does not "
                            "run:{}",
                            count, count == 1 ? "" : "s", problems));
}

namespace {

// Whether the function returns the results of its only operation, in order.
bool hands_on_one_operation(const ir::Function& function) {
  const auto& operations = function.body().front().operations();
  if (operations.size() != 2) return false;
  const ir::Operation& op = *operations.front();
  const ir::Operation& last = *operations.back();
  if (op.result_count() != last.operand_count()) return false;
  for (size_t i = 0; i < op.result_count(); ++i) {
    if (last.operand(i) != op.result(i)) return false;
  }
  return op.region_count() == 0;
}

}  // namespace

Result<std::vector<HostArray>> evaluate(const ir::Module& module, std::vector<HostArray> arguments,
                                        const EvaluateOptions& options) {
  const ir::Function* entry = module.entry();
  if (entry == nullptr || entry->is_declaration()) {
    return invalid_argument("the program has no entry: a function @main, or one public function");
  }
  std::vector<ir::Type> leaves;
  for (const ir::Type& type : entry->type.elements()) flatten_types(type, leaves);
  if (leaves.size() != arguments.size()) {
    return invalid_argument("@{} takes {} arguments, {} were given", entry->name(), leaves.size(),
                            arguments.size());
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!fits(arguments[i], leaves[i])) {
      return invalid_argument("argument {} of @{} must be {}, is {}", i, entry->name(),
                              leaves[i].to_string(), arguments[i].shape());
    }
  }
  for (HostArray& argument : arguments) extend_narrow_integers(argument);
  std::vector<Datum> data;
  size_t next = 0;
  for (const ir::Type& type : entry->type.elements()) data.push_back(build(type, arguments, next));
  arguments.clear();
  EvaluateOptions here = options;
  if (!hands_on_one_operation(*entry)) here.result_memory.clear();
  Interpreter interpreter(module, here);
  HEKLA_ASSIGN_OR_RETURN(std::vector<Datum> results, interpreter.call(*entry, std::move(data)));
  std::vector<HostArray> flat;
  for (Datum& result : results) flatten(std::move(result), flat);
  return flat;
}

Result<std::vector<std::vector<HostArray>>> evaluate_devices(
    const ir::Module& module, std::vector<std::vector<HostArray>> arguments,
    const ir::DeviceGrid& grid, const EvaluateOptions& options) {
  const size_t count = arguments.size();
  if (grid.replicas < 1 || grid.partitions < 1 || static_cast<int64_t>(count) != grid.size()) {
    return invalid_argument(
        "a launch of {} replicas x {} partitions needs arguments for {} "
        "devices, {} were given",
        grid.replicas, grid.partitions, grid.size(), count);
  }
  DeviceExchange exchange(grid);
  std::vector<std::vector<HostArray>> results(count);
  const auto run = [&](size_t device) {
    EvaluateOptions here = options;
    here.replica_id = static_cast<int64_t>(device) / grid.partitions;
    here.partition_id = static_cast<int64_t>(device) % grid.partitions;
    here.exchange = &exchange;
    Result<std::vector<HostArray>> values = evaluate(module, std::move(arguments[device]), here);
    if (values.ok()) results[device] = *std::move(values);
    // What it says is also the exchange's status.
    static_cast<void>(exchange.finish(static_cast<int64_t>(device), values.status()));
  };
  std::vector<std::thread> threads;
  try {
    for (size_t device = 0; device < count; ++device) threads.emplace_back(run, device);
  } catch (const std::system_error& error) {
    exchange.abort(resource_exhausted("no thread for device {} of {}: {}", threads.size(), count,
                                      error.what()));
  }
  for (std::thread& thread : threads) thread.join();
  HEKLA_RETURN_IF_ERROR(exchange.status());
  return results;
}

}  // namespace hekla::reference
