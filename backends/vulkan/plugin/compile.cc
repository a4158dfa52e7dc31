// SPDX-License-Identifier: Apache-2.0
// The whole program is one host step in the reference evaluator: right, slow, counted and named as
// such. Kernels take its place here.
#include "backends/vulkan/plugin/compile.h"

#include <cstring>

#include "backends/reference/evaluator.h"
#include "runtime/base/log.h"

namespace hekla::vulkan {
namespace {

void flatten(const std::vector<ir::Type>& types, std::vector<ir::Type>& out) {
  for (const ir::Type& type : types) {
    if (type.is_tuple()) {
      flatten(type.elements(), out);
    } else {
      out.push_back(type);
    }
  }
}

int64_t bytes_of(const ir::Type& type) {
  return type.is_token() ? 0 : element_count(type.dims()) * dtype_bytes(type.dtype());
}

// What the host step needs of the program.
struct HostProgram {
  std::shared_ptr<const ir::Module> module;
  std::vector<ir::Type> parameters;
  std::vector<ir::Type> results;
  int64_t memory_limit_bytes = 0;
};

Status run(const HostProgram& program, const HostCall& call) {
  std::vector<HostArray> arguments;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const ir::Type& type = program.parameters[i];
    if (type.is_token()) {
      arguments.emplace_back();
    } else {
      // In place: the launch keeps its inputs until it ends.
      arguments.push_back(HostArray::wrap(type.dtype(), {type.dims().begin(), type.dims().end()},
                                          nullptr, call.operands[i].data));
    }
  }
  reference::EvaluateOptions options;
  options.replica_id = call.replica;
  options.partition_id = call.partition;
  options.memory_limit_bytes = program.memory_limit_bytes;
  HEKLA_ASSIGN_OR_RETURN(
      std::vector<HostArray> results,
      reference::evaluate(*program.module, std::move(arguments), options));
  for (size_t i = 0; i < results.size(); ++i) {
    const HostMemory& target = call.operands[program.parameters.size() + i];
    if (target.bytes > 0) {
      std::memcpy(target.data, results[i].data(), static_cast<size_t>(target.bytes));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const LaunchProgram>> compile_program(const pjrt::CompileRequest& request,
                                                             const DevicePlan&,
                                                             int64_t memory_limit_bytes) {
  HEKLA_RETURN_IF_ERROR(reference::check_supported(*request.module));
  if (request.partition_count > 1) {
    return unimplemented("programs over {} partitions: the Vulkan device does not split programs "
                         "yet",
                         request.partition_count);
  }
  auto host = std::make_shared<HostProgram>();
  host->module = request.module;
  host->memory_limit_bytes = memory_limit_bytes;
  flatten(request.module->entry()->type.elements(), host->parameters);
  flatten(request.module->entry()->type.results(), host->results);

  auto program = std::make_shared<LaunchProgram>();
  program->name = "main";
  HostStep step;
  step.name = "the whole program in the reference evaluator";
  for (size_t i = 0; i < host->parameters.size(); ++i) {
    const int64_t bytes = bytes_of(host->parameters[i]);
    program->input_bytes.push_back(bytes);
    step.operands.push_back({Slice::Space::kInput, static_cast<int64_t>(i), 0, bytes});
    step.is_written.push_back(false);
  }
  for (size_t i = 0; i < host->results.size(); ++i) {
    const int64_t bytes = bytes_of(host->results[i]);
    program->outputs.push_back({bytes});
    step.operands.push_back({Slice::Space::kOutput, static_cast<int64_t>(i), 0, bytes});
    step.is_written.push_back(true);
  }
  step.run = [host](const HostCall& call) { return run(*host, call); };
  log_message(LogLevel::kVerbose, "host step: {}", step.name);
  program->steps.emplace_back(std::move(step));
  return std::shared_ptr<const LaunchProgram>(std::move(program));
}

}  // namespace hekla::vulkan
