// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/persistent_loops.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <utility>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/codegen/persistent.h"
#include "backends/vulkan/launch/lowering.h"

namespace hekla::vulkan {
namespace {

using plan::Slice;

// Of a copy by one workgroup, and of the branches of a step.
constexpr int64_t kMostCopiedBytes = 64 * 1024;
constexpr size_t kMostBranches = 8;
// Kernels and copies in the code of a loop.
constexpr size_t kMostSteps = 512;
// Operands start at multiples of so many bytes; of a number that is looked at, a word does.
constexpr int64_t kAlignment = 16;

// Copies `bytes` of one operand to another, by words where they are whole.
kernel::Kernel copy_kernel(int64_t bytes) {
  const uint8_t width = bytes % 4 == 0 ? 4 : 1;
  kernel::Kernel kernel;
  kernel.name = "copy";
  kernel.grid = {bytes / width};
  kernel.operands = {{bytes, true, false, false}, {bytes, false, true, false}};
  kernel::Builder builder(1, kernel::ScalarType::kI32);
  builder.set_grid_size(0, bytes / width);
  const kernel::Value at = builder.grid_index(0);
  builder.store({1, width, false}, at,
                builder.load(kernel::ScalarType::kI32, {0, width, false}, at));
  kernel.body = builder.finish();
  return kernel;
}

// One loop on its way to a PersistentLoop.
class Finder {
 public:
  Finder(const LaunchProgram& program, size_t own_kernels, const Target& target)
      : program_(program), plan_(*program.plan), own_kernels_(own_kernels), target_(target) {}

  Result<DeviceLoopKernel> run(const plan::Step& step, bool always) {
    loop_.name = plan::to_string(step, plan_);
    HazardTracker hazards;
    const auto* counted = std::get_if<plan::RepeatStep>(&step.what);
    const bool is_resumable = searches_in(step) > (counted != nullptr ? 0 : 1);
    if (is_resumable) {
      HEKLA_RETURN_IF_ERROR(std::visit(
          [&](const auto& what) { return add(step, what, loop_.body, hazards); }, step.what));
    } else if (counted != nullptr) {
      HEKLA_RETURN_IF_ERROR(add(counted->body, loop_.body, hazards));
    } else {
      const auto& search = std::get<plan::WhileStep>(step.what);
      HEKLA_RETURN_IF_ERROR(add(search.body, loop_.body, hazards));
      HEKLA_RETURN_IF_ERROR(add(search.condition, loop_.body, hazards));
      HEKLA_RETURN_IF_ERROR(check_word(search.predicate));
      loop_.predicate = place_of(search.predicate, false);
    }
    find_constants();
    HEKLA_ASSIGN_OR_RETURN(PersistentShader made, generate_persistent(loop_, target_, always));
    if (counted != nullptr && !is_resumable &&
        counted->count / made.most_iterations > kMaxDispatchesPerRecording) {
      return unimplemented("{} iterations, and a dispatch does {}", counted->count,
                           made.most_iterations);
    }
    DeviceLoopKernel result;
    result.step = &step;
    result.code.code.name = loop_.name + " in one workgroup";
    result.code.code.words = std::move(made.shader.words);
    result.code.groups[0] = 1;
    result.code.workgroup_size = made.shader.workgroup_size;
    result.code.schedule = made.shader.schedule;
    result.operands = slices_;
    result.is_written = is_written_;
    result.most_iterations = made.most_iterations;
    result.state_words = made.state_words;
    return result;
  }

 private:
  Status add(const plan::Steps& steps, std::vector<PersistentStep>& out, HazardTracker& hazards) {
    for (const plan::Step& step : steps) {
      HEKLA_RETURN_IF_ERROR(
          std::visit([&](const auto& what) { return add(step, what, out, hazards); }, step.what));
    }
    return ok_status();
  }

  template <typename Other>
  Status add(const plan::Step& step, const Other&, std::vector<PersistentStep>&, HazardTracker&) {
    return unimplemented("{} in it", plan::to_string(step, plan_));
  }

  Status add(const plan::Step&, const plan::KernelStep& step, std::vector<PersistentStep>& out,
             HazardTracker& hazards) {
    const auto number = static_cast<size_t>(step.kernel);
    const kernel::Kernel& kernel = plan_.kernels[number];
    if (number >= own_kernels_) return unimplemented("{} is a user's shader", kernel.name);
    if (program_.kernels[number].is_interpreted()) {
      return unimplemented("kernel {} runs on the host", kernel.name);
    }
    if (kernel.points() == 0) return ok_status();
    std::vector<Access> accesses;
    PersistentStep one;
    one.kernel = &kernel;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      HEKLA_RETURN_IF_ERROR(check_alignment(step.operands[i], kAlignment));
      const bool is_written = kernel.operands[i].is_written;
      one.operands.push_back(place_of(step.operands[i], is_written));
      accesses.push_back(access_of(plan_, step.operands[i], is_written));
    }
    one.has_barrier_before = hazards.step(accesses);
    return put(std::move(one), out);
  }

  Status add(const plan::Step&, const plan::CopyStep& step, std::vector<PersistentStep>& out,
             HazardTracker& hazards) {
    if (step.from == step.to || step.from.bytes == 0) return ok_status();
    if (step.from.bytes > kMostCopiedBytes) {
      return unimplemented("a copy of {} bytes, more than {}", step.from.bytes, kMostCopiedBytes);
    }
    HEKLA_RETURN_IF_ERROR(check_alignment(step.from, kAlignment));
    HEKLA_RETURN_IF_ERROR(check_alignment(step.to, kAlignment));
    auto known = copies_.find(step.from.bytes);
    if (known == copies_.end()) {
      known = copies_.emplace(step.from.bytes, copy_kernel(step.from.bytes)).first;
    }
    PersistentStep one;
    one.kernel = &known->second;
    one.operands = {place_of(step.from, false), place_of(step.to, true)};
    one.has_barrier_before =
        hazards.step({{access_of(plan_, step.from, false), access_of(plan_, step.to, true)}});
    return put(std::move(one), out);
  }

  Status add(const plan::Step&, const plan::RepeatStep& step, std::vector<PersistentStep>& out,
             HazardTracker& hazards) {
    if (step.count == 0) return ok_status();
    if (step.count > std::numeric_limits<int32_t>::max()) {
      return unimplemented("a loop of {} iterations in it", step.count);
    }
    PersistentStep one;
    one.count = step.count;
    // Each iteration begins with a barrier.
    hazards.reset();
    HEKLA_RETURN_IF_ERROR(add(step.body, one.bodies.emplace_back(), hazards));
    return put(std::move(one), out);
  }

  // Iterations begin with a barrier, and there is one in front of the predicate: behind the loop
  // nothing is left of what the last iteration did but reading it.
  Status add(const plan::Step&, const plan::WhileStep& step, std::vector<PersistentStep>& out,
             HazardTracker& hazards) {
    for (const plan::Step& inner : step.condition) {
      if (searches_in(inner) > 0) return unimplemented("while in the condition of a while");
    }
    HEKLA_RETURN_IF_ERROR(check_word(step.predicate));
    PersistentStep one;
    one.predicate = place_of(step.predicate, false);
    one.bodies.resize(2);
    hazards.reset();
    HEKLA_RETURN_IF_ERROR(add(step.condition, one.bodies[1], hazards));
    hazards.reset();
    hazards.step({{access_of(plan_, step.predicate, false)}});
    const HazardTracker behind = hazards;
    HEKLA_RETURN_IF_ERROR(add(step.body, one.bodies[0], hazards));
    hazards = behind;
    return put(std::move(one), out);
  }

  static int64_t searches_in(const plan::Step& step) {
    int64_t found = std::holds_alternative<plan::WhileStep>(step.what) ? 1 : 0;
    plan::for_each_list(step, [&](const plan::Steps& steps) {
      for (const plan::Step& inner : steps) found += searches_in(inner);
    });
    return found;
  }

  Status add(const plan::Step&, const plan::BranchStep& step, std::vector<PersistentStep>& out,
             HazardTracker& hazards) {
    if (step.branches.size() > kMostBranches) {
      return unimplemented("a branch of {} ways, more than {}", step.branches.size(),
                           kMostBranches);
    }
    HEKLA_RETURN_IF_ERROR(check_word(step.selector));
    PersistentStep one;
    one.selector = {place_of(step.selector, false), step.selector.bytes};
    one.has_barrier_before = hazards.step({{access_of(plan_, step.selector, false)}});
    const HazardTracker before = hazards;
    for (const plan::Steps& branch : step.branches) {
      HazardTracker within = before;
      HEKLA_RETURN_IF_ERROR(add(branch, one.bodies.emplace_back(), within));
      hazards.join(within);
    }
    return put(std::move(one), out);
  }

  Status put(PersistentStep step, std::vector<PersistentStep>& out) {
    if (++steps_ > kMostSteps) return unimplemented("more than {} steps", kMostSteps);
    out.push_back(std::move(step));
    return ok_status();
  }

  Status check_alignment(const Slice& slice, int64_t alignment) const {
    if (slice.offset % alignment == 0) return ok_status();
    return unimplemented("{} is not aligned to {} bytes", plan::to_string(slice), alignment);
  }
  Status check_word(const Slice& slice) const { return check_alignment(slice, 4); }

  unsigned place_of(const Slice& slice, bool is_written) {
    const auto known = std::find(slices_.begin(), slices_.end(), slice);
    const auto place = static_cast<size_t>(known - slices_.begin());
    if (known == slices_.end()) {
      slices_.push_back(slice);
      is_written_.push_back(false);
    }
    is_written_[place] = is_written_[place] || is_written;
    return static_cast<unsigned>(place);
  }

  void find_constants() {
    std::vector<Access> all;
    for (size_t i = 0; i < slices_.size(); ++i) {
      all.push_back(access_of(plan_, slices_[i], is_written_[i]));
    }
    for (const Access& one : all) {
      loop_.is_constant.push_back(std::none_of(all.begin(), all.end(), [&](const Access& other) {
        return other.is_write && other.region == one.region && other.begin < one.end &&
               one.begin < other.end;
      }));
    }
  }

  const LaunchProgram& program_;
  const plan::LaunchPlan& plan_;
  const size_t own_kernels_;
  const Target& target_;
  PersistentLoop loop_;
  size_t steps_ = 0;
  std::map<int64_t, kernel::Kernel> copies_;  // by bytes
  std::vector<Slice> slices_;                 // by place
  std::vector<bool> is_written_;
};

}  // namespace

Result<FoundLoops> find_persistent_loops(const LaunchProgram& program, size_t own_kernels,
                                         const Target& target, plan::PersistentLoops wanted) {
  using plan::PersistentLoops;
  FoundLoops found;
  if (wanted == PersistentLoops::kWherePays && target.schedule_seed != 0) {
    // Adjacent seeds draw apart.
    const uint64_t drawn = std::mt19937_64(target.schedule_seed)() % 3;
    wanted = drawn == 0 ? PersistentLoops::kNone : PersistentLoops::kWherePossible;
  }
  Status status;
  plan::for_each_step(program.plan->steps, [&](const plan::Step& step) {
    if (!status.ok() || !(std::holds_alternative<plan::RepeatStep>(step.what) ||
                          std::holds_alternative<plan::WhileStep>(step.what))) {
      return true;
    }
    Result<DeviceLoopKernel> made = unimplemented("not asked for");
    if (wanted != PersistentLoops::kNone) {
      made =
          Finder(program, own_kernels, target).run(step, wanted == PersistentLoops::kWherePossible);
    }
    if (!made.ok() && made.status().code() != StatusCode::kUnimplemented) {
      status = made.status();
      return false;
    }
    kernel::Implementations ways;
    ways.ask("one workgroup", made.ok() ? "" : made.status().message());
    ways.ask("dispatches", "");
    found.decisions.push_back({plan::to_string(step, *program.plan), ways.take()});
    if (!made.ok()) return true;
    found.loops.push_back(*std::move(made));
    return false;
  });
  HEKLA_RETURN_IF_ERROR(status);
  return found;
}

}  // namespace hekla::vulkan
