// SPDX-License-Identifier: Apache-2.0
#include "tools/run/run_program.h"

#include <chrono>
#include <utility>

#include "runtime/program/stablehlo/read_program.h"

namespace hekla::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Uploads what is not there (the first time) or was consumed by the launch before.
Status fill(const runtime::Client& client, const runtime::Device& device,
            const std::vector<HostArray>& inputs, std::vector<runtime::Buffer>& buffers) {
  buffers.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    HEKLA_ASSIGN_OR_RETURN(const bool is_gone, buffers[i].is_freed());
    if (!is_gone) continue;
    Result<runtime::Buffer> buffer = client.to_device(inputs[i], device);
    if (!buffer.ok()) {
      return buffer.status().with_context(fmt::format("input {} ({})", i, inputs[i].shape()));
    }
    buffers[i] = *std::move(buffer);
  }
  // Uploads are not part of the launch's time.
  for (const runtime::Buffer& buffer : buffers) {
    HEKLA_ASSIGN_OR_RETURN(const runtime::Event ready, buffer.ready());
    HEKLA_RETURN_IF_ERROR(ready.await());
  }
  return ok_status();
}

Status read_outputs(const runtime::Launch& launch, RunResult& result) {
  for (size_t d = 0; d < launch.outputs.size(); ++d) {
    result.outputs.emplace_back();
    for (const runtime::Buffer& buffer : launch.outputs[d]) {
      if (buffer.dtype() == DType::kInvalid) {  // a token: nothing to read
        result.outputs.back().emplace_back();
        continue;
      }
      HEKLA_ASSIGN_OR_RETURN(HostArray array, buffer.to_host());
      result.outputs.back().push_back(std::move(array));
    }
  }
  return ok_status();
}

Status run(const runtime::Client& client, const RunRequest& request, RunResult& result) {
  result.stage = RunStage::kCompile;
  runtime::CompileOptions options;
  options.num_replicas = request.replicas;
  options.num_partitions = request.partitions;
  options.overrides.assign(request.compiler_options.begin(), request.compiler_options.end());
  const Clock::time_point compile_start = Clock::now();
  HEKLA_ASSIGN_OR_RETURN(
      const runtime::Executable executable,
      client.compile(request.program, options, stablehlo::program_format(request.program)));
  result.compile_seconds = seconds_since(compile_start);

  const size_t device_count = executable.devices().size();
  std::vector<std::vector<runtime::Buffer>> buffers(device_count);
  for (int round = 0; round < request.repeat; ++round) {
    result.stage = RunStage::kUpload;
    std::vector<std::vector<const runtime::Buffer*>> arguments(device_count);
    for (size_t d = 0; d < device_count; ++d) {
      HEKLA_RETURN_IF_ERROR(fill(client, executable.devices()[d], request.inputs, buffers[d]));
      for (const runtime::Buffer& buffer : buffers[d]) arguments[d].push_back(&buffer);
    }
    result.stage = RunStage::kLaunch;
    const Clock::time_point start = Clock::now();
    HEKLA_ASSIGN_OR_RETURN(const runtime::Launch launch, executable.launch(arguments));
    HEKLA_RETURN_IF_ERROR(launch.await());
    result.launch_seconds.push_back(seconds_since(start));
    if (round + 1 == request.repeat) {
      result.stage = RunStage::kRead;
      HEKLA_RETURN_IF_ERROR(read_outputs(launch, result));
      auto statistics = executable.statistics();
      if (statistics.ok()) result.statistics = *std::move(statistics);
    }
  }
  return ok_status();
}

}  // namespace

RunResult run_program(const runtime::Client& client, const RunRequest& request) {
  RunResult result;
  result.status = run(client, request, result);
  return result;
}

bool is_failed_assertion(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition &&
         status.message().find("expect_") != std::string::npos &&
         status.message().find(" failed: ") != std::string::npos;
}

}  // namespace hekla::tools
