// SPDX-License-Identifier: Apache-2.0
// TestDevice: runs one shader at a time on the system's preferred Vulkan device, for tests alone.
//
// One submission and one wait per run, everything in one host-visible allocation, nothing cached.
// Khronos's validation layer is on where it is installed; its messages are errors of `run`. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/compiler/kernel/testing/random_kernel.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan::testing {

struct RunOptions {
  // Workgroups per dispatch, and of a dispatch in x and in y with z: what is more is cut and
  // folded.
  uint32_t max_groups = UINT32_MAX;
  uint32_t max_x = 65535;
  uint32_t max_y = 65535;
  int repetitions = 1;  // of the launch
};

class TestDevice {
 public:
  // UNAVAILABLE without a loader, a driver or a device that can run generated shaders.
  static Result<std::unique_ptr<TestDevice>> open();
  ~TestDevice();

  const DeviceSnapshot& snapshot() const;
  // Runs the shader over `operands`, in place. `seconds`: submit to fence, the shortest.
  Status run(const Shader& shader, kernel::testing::Buffers& operands,
             const RunOptions& options = {}, double* seconds = nullptr);

 private:
  struct State;
  explicit TestDevice(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hekla::vulkan::testing
