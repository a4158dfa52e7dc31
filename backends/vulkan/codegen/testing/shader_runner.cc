// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/testing/shader_runner.h"

#include <algorithm>
#include <cstring>

#include "backends/vulkan/launch/kernel_abi.h"
#include "backends/vulkan/memory/device_memory.h"
#include "backends/vulkan/pipeline/pipelines.h"
#include "backends/vulkan/queue/command_buffer.h"
#include "backends/vulkan/queue/lane.h"

namespace hekla::vulkan::testing {

ShaderRunner::ShaderRunner(std::shared_ptr<Device> device) : device_(std::move(device)) {}
ShaderRunner::~ShaderRunner() = default;

Result<std::unique_ptr<ShaderRunner>> ShaderRunner::create(std::shared_ptr<Device> device) {
  std::unique_ptr<ShaderRunner> runner(new ShaderRunner(std::move(device)));
  const std::shared_ptr<Device>& d = runner->device_;
  runner->memory_ = DeviceMemory::create(d);
  HEKLA_ASSIGN_OR_RETURN(runner->pipelines_, Pipelines::create(d, ""));
  HEKLA_ASSIGN_OR_RETURN(runner->lane_, Lane::create(d, d->compute_queue(), "test"));
  HEKLA_ASSIGN_OR_RETURN(runner->commands_, CommandBuffer::create(d, d->compute_queue().family));
  runner->messages_ = validation_message_count();
  return runner;
}

void ShaderRunner::record(const Shader& shader, uint64_t table, const RunOptions& options) {
  const DeviceFunctions& call = device_->call();
  KernelPush push;
  push.table = table;
  push.groups[0] = static_cast<uint32_t>(shader.group_count);
  for (int64_t first = 0, next = 0; first < shader.group_count; first = next) {
    const int64_t left = shader.group_count - first;
    const int64_t count = std::min<int64_t>(options.max_groups, left);
    const int64_t x = std::min<int64_t>(count, options.max_x);
    const int64_t y = std::min<int64_t>(count / x, options.max_y);
    // The last piece may have too many groups, the others must not: they would run twice.
    const bool is_last = count == left && (left - 1) / x < int64_t{options.max_y};
    const int64_t rows = is_last ? (left + x - 1) / x : y;
    // A quarter of the rows each in z, to see that z counts.
    const int64_t z = rows % 4 == 0 ? 4 : 1;
    push.first_group = static_cast<uint32_t>(first);
    next = first + x * rows;
    call.CmdPushConstants(commands_->handle(), pipelines_->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                          sizeof(push), &push);
    call.CmdDispatch(commands_->handle(), static_cast<uint32_t>(x), static_cast<uint32_t>(rows / z),
                     static_cast<uint32_t>(z));
  }
}

Status ShaderRunner::run(const Shader& shader, kernel::testing::Buffers& operands,
                         const RunOptions& options) {
  const KernelCode code{shader.words, shader.subgroup_size, "test"};
  HEKLA_ASSIGN_OR_RETURN(const std::vector<PipelineRef> pipelines, pipelines_->get({&code, 1}));
  std::vector<AllocationRef> memory;
  std::vector<uint64_t> addresses;
  for (const auto& operand : operands) {
    // One byte more, so that none is empty.
    const auto bytes = static_cast<int64_t>(operand.size()) + 1;
    HEKLA_ASSIGN_OR_RETURN(AllocationRef place, memory_->allocate(bytes, MemoryRole::kDownload));
    std::copy(operand.begin(), operand.end(), place->host());
    addresses.push_back(place->address());
    memory.push_back(std::move(place));
  }
  const auto table_bytes = static_cast<int64_t>(addresses.size() * sizeof(uint64_t));
  HEKLA_ASSIGN_OR_RETURN(const AllocationRef table,
                         memory_->allocate(table_bytes + 1, MemoryRole::kTable));
  if (!addresses.empty()) {
    std::memcpy(table->host(), addresses.data(), static_cast<size_t>(table_bytes));
  }

  HEKLA_RETURN_IF_ERROR(commands_->begin(CommandBuffer::Use::kRepeated));
  device_->call().CmdBindPipeline(commands_->handle(), VK_PIPELINE_BIND_POINT_COMPUTE,
                                  pipelines.front()->handle());
  record(shader, table->address(), options);
  HEKLA_RETURN_IF_ERROR(commands_->end());
  for (int i = 0; i < options.repetitions; ++i) {
    const VkCommandBuffer buffer = commands_->handle();
    HEKLA_ASSIGN_OR_RETURN(const uint64_t epoch, lane_->submit({&buffer, 1}, {}));
    HEKLA_RETURN_IF_ERROR(lane_->wait(epoch));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    std::copy_n(memory[i]->host(), operands[i].size(), operands[i].begin());
  }
  const int64_t messages = validation_message_count();
  if (std::exchange(messages_, messages) == messages) return Status();
  return internal_error("the validation layer spoke; see the log");
}

}  // namespace hekla::vulkan::testing
