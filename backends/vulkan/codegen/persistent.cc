// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/persistent.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/compiler/kernel/draw.h"
#include "backends/vulkan/codegen/generator.h"
#include "backends/vulkan/codegen/persistent_emit.h"
#include "backends/vulkan/codegen/schedule_rules.h"

namespace hekla::vulkan {
namespace codegen {
namespace {

// Scalar instructions and loops of a shader: drivers' compilers take more than twice the time for
// twice the code, and llvmpipe's, whose limit the second one is, the cube of the loops' number.
constexpr int64_t kMostOfShader = 10'000;
constexpr int64_t kMostLoops = 40;
// Invocations on GPUs: several subgroups hide each other's waits for memory.
constexpr uint32_t kMostInvocations = 256;
// Instructions that an invocation executes for a kernel, in the mean of an iteration, while
// starting one takes longer: a processor's core runs them one by one, and a dispatch takes it as
// long as waking the others; a GPU's subgroup waits for most of them.
constexpr int64_t kMostOfKernelOnCpu = 10'000;
constexpr int64_t kMostOfKernel = 400;
// Instructions that an invocation executes in a launch: a tenth of a second on a slow processor.
constexpr int64_t kMostOfLaunch = int64_t{1} << 24;

// What a kernel takes, as the workgroup runs it.
struct KernelCost {
  int64_t instructions = 0;  // executed by an invocation
  int64_t loop_ends = 0;     // the same of loops' bodies
  int64_t shared_bytes = 0;
};

// What all iterations of a list of steps take.
struct Cost {
  int64_t code = 0;          // scalar instructions
  int64_t loops = 0;         // in the code
  int64_t shared_bytes = 0;  // of the code
  int64_t kernels = 0;       // executed
  int64_t instructions = 0;  // the same
  int64_t loop_ends = 0;
};

// Of a point, those in loops as often as they run.
int64_t executed_instructions(const kernel::IndexAnalysis& index, int32_t region) {
  const kernel::Function& f = index.kernel().body;
  int64_t sum = 0;
  for (const kernel::Value v : f.region(region).instructions) {
    const kernel::Instruction& inst = f[v];
    const int64_t inside =
        inst.op == kernel::Op::kFor
            ? index.trips(v) * executed_instructions(index, static_cast<int32_t>(inst.immediate))
            : 1;
    sum = std::min(sum + inside, kMostOfLaunch);
  }
  return sum;
}

// null: there is none.
const kernel::Kernel* first_kernel(const std::vector<PersistentStep>& steps) {
  for (const PersistentStep& step : steps) {
    if (step.kernel != nullptr) return step.kernel;
    for (const auto& body : step.bodies) {
      if (const kernel::Kernel* first = first_kernel(body); first != nullptr) return first;
    }
  }
  return nullptr;
}

// Whether one workgroup runs the loop, and how.
class FormChooser {
 public:
  FormChooser(const PersistentLoop& loop, const Target& target)
      : loop_(loop), target_(target), draw_(*first_kernel(loop.body), target.schedule_seed) {}

  Result<PersistentForm> run(bool always) {
    // Most loops of large kernels are told by their grids, without a look at what is in them.
    const auto [rounds, kernels] = least_rounds(loop_.body);
    if (!always && rounds > kernels * most_of_kernel()) {
      return unimplemented("{} points of an invocation in {} kernels, more than {} in each", rounds,
                           kernels, most_of_kernel());
    }
    HEKLA_RETURN_IF_ERROR(add_kernels(loop_.body));
    choose_workgroup();
    for (auto& [kernel, native] : kernels_) {
      HEKLA_ASSIGN_OR_RETURN(costs_[kernel], schedule(native));
    }
    const Cost cost = cost_of(loop_.body);
    HEKLA_RETURN_IF_ERROR(check(cost, always));
    int64_t most_iterations =
        std::max<int64_t>(kMostOfLaunch / std::max<int64_t>(cost.instructions, 1), 1);
    if (target_.max_loop_iterations > 0) {
      most_iterations = std::min(most_iterations, most_by_loop_ends(cost));
      if (most_iterations < 1) {
        return unimplemented(
            "an iteration comes to the ends of loops {} times, and {} ends those after {}",
            cost.loop_ends, target_.device, target_.max_loop_iterations);
      }
    }
    if (draw_.is_on() && draw_.chance(50)) {
      most_iterations = std::min(most_iterations, draw_.any(1, 5));
    }
    return PersistentForm{std::move(target_), std::move(kernels_), most_iterations};
  }

 private:
  int64_t most_of_kernel() const { return target_.is_cpu ? kMostOfKernelOnCpu : kMostOfKernel; }
  int64_t most_lanes() const { return target_.is_cpu ? target_.subgroup_size : kMostInvocations; }

  // Points of an invocation, at least, and kernels, each place in the code once.
  std::pair<int64_t, int64_t> least_rounds(const std::vector<PersistentStep>& steps) const {
    std::pair<int64_t, int64_t> sum;
    for (const PersistentStep& step : steps) {
      if (step.kernel != nullptr) {
        sum.first += step.kernel->points() / most_lanes();
        sum.second += 1;
      }
      for (const auto& body : step.bodies) {
        const auto one = least_rounds(body);
        sum.first += one.first;
        sum.second += one.second;
      }
    }
    return sum;
  }

  int64_t most_by_loop_ends(const Cost& cost) const {
    // Half: what is unrolled and rounded is an estimate.
    return target_.max_loop_iterations / 2 / (cost.loop_ends + 2);
  }

  Status add_kernels(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) {
      for (const auto& body : step.bodies) HEKLA_RETURN_IF_ERROR(add_kernels(body));
      if (step.kernel == nullptr || kernels_.contains(step.kernel)) continue;
      if (kernel::has_sums(step.kernel->body)) {
        return unimplemented("kernel {}: it has sums on matrix units", step.kernel->name);
      }
      HEKLA_ASSIGN_OR_RETURN(kernel::Kernel native, native_form(*step.kernel, target_));
      PersistentKernel& added = kernels_[step.kernel];
      added.kernel = std::move(native);
      added.index = std::make_unique<kernel::IndexAnalysis>(added.kernel);
      most_points_ = std::max(most_points_, added.kernel.points());
      most_team_points_ = std::max(most_team_points_, team_points(added.kernel));
    }
    return ok_status();
  }

  void choose_workgroup() {
    const uint32_t most = std::bit_floor(most_invocations(target_));
    uint32_t size = target_.subgroup_size;
    if (!target_.is_cpu) {
      const auto points = static_cast<uint64_t>(most_points_);
      size = std::max(
          size, static_cast<uint32_t>(std::bit_ceil(std::min<uint64_t>(points, kMostInvocations))));
    }
    if (draw_.is_on()) size = 1U << draw_.below(static_cast<uint64_t>(std::bit_width(256U)));
    target_.workgroup_size = std::clamp(std::max(size, most_team_points_), 1U, most);
    target_.points_per_invocation = 1;
    target_.schedule_seed = 0;
  }

  Result<KernelCost> schedule(PersistentKernel& native) const {
    KernelCost cost;
    if (const uint32_t points = team_points(native.kernel); points > 0) {
      const uint64_t fitting = uint64_t{points} * most_teams(native.kernel, target_);
      if (points > target_.workgroup_size || fitting < target_.workgroup_size) {
        return unimplemented("kernel {}: a workgroup of {} does not hold its teams of {}",
                             native.kernel.name, target_.workgroup_size, points);
      }
      native.schedule = teams(native.kernel, target_, target_.workgroup_size,
                              team_stride(native.kernel) == 1, /*shuffles=*/false);
      cost.shared_bytes = team_bytes(native.kernel) * (target_.workgroup_size / points);
      limit_iterations(*native.index, target_, native.schedule);
    } else {
      native.schedule = choose_schedule(*native.index, target_);
    }
    const Schedule& s = native.schedule;
    if (s.has_too_many_iterations) {
      return unimplemented("kernel {}: too many iterations for {}", native.kernel.name,
                           target_.device);
    }
    // Rounds of the workgroup, and points that an invocation does side by side in each.
    const int64_t rounds = s.group_count, side_by_side = int64_t{s.columns} * s.rows;
    cost.instructions = std::min(
        rounds * side_by_side * std::max<int64_t>(executed_instructions(*native.index, 0), 1),
        kMostOfLaunch);
    const int64_t ends = loop_iterations(*native.index, 0, s.least_unroll);
    cost.loop_ends = rounds * ends + (rounds > 1 ? rounds + 1 : 0);
    return cost;
  }

  Cost cost_of(const std::vector<PersistentStep>& steps) const {
    Cost sum;
    for (const PersistentStep& step : steps) {
      if (step.kernel != nullptr) {
        const auto& [native, index, schedule] = kernels_.at(step.kernel);
        const KernelCost& cost = costs_.at(step.kernel);
        sum.code += static_cast<int64_t>(native.body.size() * schedule.columns * schedule.rows);
        sum.loops += static_cast<int64_t>(native.body.region_count()) - 1 +
                     (schedule.group_count > 1 ? 1 : 0);
        sum.shared_bytes += cost.shared_bytes;
        sum.kernels += 1;
        sum.instructions += cost.instructions;
        sum.loop_ends += cost.loop_ends;
        continue;
      }
      if (!step.selector) sum.loops += 1;
      // Of searches an iteration, and of what holds one.
      const int64_t count = has_search(step) ? 1 : step.count;
      const bool runs_all = target_.is_cpu || step.predicate;
      Cost most;
      for (const auto& body : step.bodies) {
        const Cost one = cost_of(body);
        sum.code += one.code;
        sum.loops += one.loops;
        sum.shared_bytes += one.shared_bytes;
        most.kernels = runs_all ? most.kernels + one.kernels : std::max(most.kernels, one.kernels);
        // Where lanes go all ways that one of them may go.
        most.instructions = runs_all ? most.instructions + one.instructions
                                     : std::max(most.instructions, one.instructions);
        most.loop_ends += one.loop_ends;
      }
      const auto times = [&](int64_t one) {
        return std::min(one * std::min(count, kMostOfLaunch), kMostOfLaunch);
      };
      sum.kernels += times(most.kernels);
      sum.instructions += times(most.instructions);
      sum.loop_ends += times(most.loop_ends + 1) + 1;
    }
    sum.instructions = std::min(sum.instructions, kMostOfLaunch);
    sum.loop_ends = std::min(sum.loop_ends, kMostOfLaunch);
    return sum;
  }

  Status check(const Cost& cost, bool always) const {
    if (cost.code > kMostOfShader) {
      return unimplemented("{} instructions, more than {}", cost.code, kMostOfShader);
    }
    if (target_.max_loop_iterations > 0 && cost.loops > kMostLoops) {
      return unimplemented("{} loops, more than {}", cost.loops, kMostLoops);
    }
    if (cost.shared_bytes > int64_t{target_.max_shared_memory_bytes}) {
      return unimplemented("teams take {} bytes of shared memory, more than {}", cost.shared_bytes,
                           target_.max_shared_memory_bytes);
    }
    // Counts end there: nobody knows how long an iteration with such loops in it takes.
    if (cost.instructions >= kMostOfLaunch) {
      return unimplemented("an invocation executes {} instructions or more in an iteration",
                           kMostOfLaunch);
    }
    const int64_t most = most_of_kernel();
    if (!always && cost.instructions > cost.kernels * most) {
      return unimplemented(
          "an invocation executes {} instructions in the {} kernels of an iteration, more than {} "
          "in each",
          cost.instructions, cost.kernels, most);
    }
    if (!always && cost.kernels < 2) return unimplemented("an iteration is one kernel");
    return ok_status();
  }

  const PersistentLoop& loop_;
  Target target_;
  kernel::Draw draw_;
  std::map<const kernel::Kernel*, PersistentKernel> kernels_;
  std::map<const kernel::Kernel*, KernelCost> costs_;
  int64_t most_points_ = 1;
  uint32_t most_team_points_ = 0;
};

}  // namespace
}  // namespace codegen

Result<PersistentShader> generate_persistent(const PersistentLoop& loop, const Target& target,
                                             bool always) {
  if (codegen::first_kernel(loop.body) == nullptr) return unimplemented("there is no kernel in it");
  HEKLA_ASSIGN_OR_RETURN(const codegen::PersistentForm form,
                         codegen::FormChooser(loop, target).run(always));
  PersistentShader made = codegen::emit_persistent(loop, form);
  const auto bytes = static_cast<int64_t>(made.shader.words.size() * sizeof(uint32_t));
  if (target.max_module_bytes > 0 && bytes > target.max_module_bytes) {
    return unimplemented("{} bytes of SPIR-V, and {} compiles {}", bytes, target.device,
                         target.max_module_bytes);
  }
#ifdef HEKLA_VALIDATE_SHADERS
  HEKLA_RETURN_IF_ERROR(validate(made.shader.words).with_context(loop.name));
#endif
  return made;
}

}  // namespace hekla::vulkan
