// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/kind_programs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backends/vulkan/plugin/compile.h"

namespace hekla::vulkan {

Target common_target(std::span<const Target> targets) {
  Target common = targets.front();
  for (const Target& other : targets) {
    // A plan asks for products by the types of their operands; each device has shapes of its own.
    std::erase_if(common.matrix_shapes, [&](const MatrixShape& shape) {
      return matrix_shape(other, shape.operands) == nullptr;
    });
    for (int64_t Target::*limit :
         {&Target::max_loop_iterations, &Target::max_allocation_bytes, &Target::max_buffer_bytes}) {
      if (other.*limit == 0) continue;  // none
      common.*limit = common.*limit == 0 ? other.*limit : std::min(common.*limit, other.*limit);
    }
    common.is_cpu = common.is_cpu || other.is_cpu;
    for (uint32_t Target::*limit :
         {&Target::max_workgroup_invocations, &Target::max_workgroup_size_x,
          &Target::max_shared_memory_bytes}) {
      common.*limit = std::min(common.*limit, other.*limit);
    }
  }
  return common;
}

Result<std::unique_ptr<KindPrograms>> KindPrograms::compile(const pjrt::CompileRequest& request,
                                                            Options options) {
  std::unique_ptr<KindPrograms> made(new KindPrograms(request, std::move(options)));
  std::vector<size_t> assigned(request.devices.begin(), request.devices.end());
  if (assigned.empty()) {
    assigned.resize(made->options_.targets.size());
    std::iota(assigned.begin(), assigned.end(), size_t{0});
  }
  std::vector<size_t> kinds;
  std::vector<Target> targets;
  for (const size_t device : assigned) {
    const size_t kind = made->kind_of(device);
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    kinds.push_back(kind);
    targets.push_back(made->options_.targets[kind]);
    made->devices_.push_back(device);
  }
  if (request.has_collectives) {
    HEKLA_ASSIGN_OR_RETURN(made->plan_, plan_program(request, common_target(targets)));
  }
  for (const size_t device : made->devices_) {
    HEKLA_ASSIGN_OR_RETURN(const ProgramRef program, made->of(device));
    if (made->first_ == nullptr) made->first_ = program;
  }
  return made;
}

Result<KindPrograms::ProgramRef> KindPrograms::of(size_t device) {
  const size_t kind = kind_of(device);
  std::lock_guard lock(mutex_);
  if (programs_[kind] == nullptr) {
    HEKLA_ASSIGN_OR_RETURN(programs_[kind], compile_program(request_, options_.targets[kind],
                                                            options_.memory_limits[device],
                                                            options_.fail_on_fallback, plan_));
  }
  return programs_[kind];
}

size_t KindPrograms::kind_of(size_t device) const {
  const std::vector<Target>& all = options_.targets;
  return static_cast<size_t>(std::find(all.begin(), all.end(), all[device]) - all.begin());
}

}  // namespace hekla::vulkan
