// SPDX-License-Identifier: Apache-2.0
// ShaderRunner: runs one generated shader at a time on a device, for tests alone.
//
// A submission and a wait per run, over memory that the host sees. Messages of the validation layer
// since the last run are an error of `run`. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/device/device.h"

namespace hekla::vulkan {
class CommandBuffer;
class DeviceMemory;
class Lane;
class Pipelines;
}  // namespace hekla::vulkan

namespace hekla::vulkan::testing {

struct RunOptions {
  // Workgroups per dispatch, and of a dispatch in x and in y with z: what is more is cut and
  // folded.
  uint32_t max_groups = UINT32_MAX;
  uint32_t max_x = 65535;
  uint32_t max_y = 65535;
  int repetitions = 1;  // of the launch
};

class ShaderRunner {
 public:
  static Result<std::unique_ptr<ShaderRunner>> create(std::shared_ptr<Device> device);
  ShaderRunner(const ShaderRunner&) = delete;
  ShaderRunner& operator=(const ShaderRunner&) = delete;
  ~ShaderRunner();

  // Runs the shader over `operands`, in place.
  Status run(const Shader& shader, kernel::testing::Buffers& operands,
             const RunOptions& options = {});

 private:
  explicit ShaderRunner(std::shared_ptr<Device> device);
  void record(const Shader& shader, uint64_t table, const RunOptions& options);

  const std::shared_ptr<Device> device_;
  std::shared_ptr<DeviceMemory> memory_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<CommandBuffer> commands_;
  int64_t messages_ = 0;
};

}  // namespace hekla::vulkan::testing
