// SPDX-License-Identifier: Apache-2.0
// The code of a persistent loop (persistent.h), once persistent.cc has said how the workgroup runs
// it. Of this folder alone. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/vulkan/codegen/persistent.h"
#include "backends/vulkan/codegen/schedule.h"

namespace hekla::vulkan::codegen {

// A kernel as the device runs it; the analysis points to it.
struct PersistentKernel {
  kernel::Kernel kernel;
  std::unique_ptr<kernel::IndexAnalysis> index;
  Schedule schedule;
};

// How the workgroup runs a loop.
struct PersistentForm {
  Target target;  // its workgroup_size is the loop's
  std::map<const kernel::Kernel*, PersistentKernel> kernels;
  int64_t most_iterations = 1;  // of a launch
};

// Whether data end a loop in it, so that a launch may end inside.
bool has_search(const PersistentStep& step);
bool has_search(const std::vector<PersistentStep>& steps);

// `form`: of all kernels of the loop.
PersistentShader emit_persistent(const PersistentLoop& loop, const PersistentForm& form);

}  // namespace hekla::vulkan::codegen
