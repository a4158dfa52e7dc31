// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/persistent_loops.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>

#include "backends/compiler/kernel/index_analysis.h"
#include "backends/compiler/plan/visit.h"
#include "backends/cpu/execute/row_blocks.h"

namespace hekla::cpu {
namespace {

constexpr int64_t kMostCopiedBytes = 64 * 1024;
// Instructions of all kernels of a loop: what compiling it takes grows with them, some 10 us each.
constexpr size_t kMostInstructions = 3000;
constexpr size_t kMostInstructionsAtAll = 60'000;
// Kernels and copies that take longer than this, on average, gain less than a twentieth.
constexpr double kMostStepNs = 100;
// Of fewer kernels and copies in all iterations nothing is gained that compiling would not take.
constexpr double kFewestSteps = 50;

class Finder {
 public:
  Finder(const plan::LaunchPlan& plan, const std::vector<bool>& in_place,
         const std::vector<const plan::RowsStep*>& keep_apart, int vector_bits, bool always,
         uint64_t schedule_seed)
      : plan_(plan),
        in_place_(in_place),
        keep_apart_(keep_apart),
        vector_bits_(vector_bits),
        always_(always),
        schedule_seed_(schedule_seed) {}

  // Empty: there is now a request for the loop.
  kernel::Refusal find(const plan::Step& loop, std::vector<LoopRequest>& found) {
    Cost cost;
    std::vector<int32_t> kernels;
    if (kernel::Refusal why = add(loop, cost, kernels); !why.empty()) return why;
    if (kernel::Refusal why = refusal(cost); !why.empty()) return why;
    LoopRequest request{
        &plan_, &loop, std::make_shared<const LoopMemory>(loop, plan_), {}, schedule_seed_};
    std::sort(kernels.begin(), kernels.end());
    kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
    for (const int32_t number : kernels) {
      const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(number)];
      request.kernels.push_back(
          {number, plan_of(number),
           in_place_[static_cast<size_t>(number)] || updates_in_place(kernel)});
    }
    if (schedule_seed_ != 0) {
      constexpr std::array<int64_t, 4> kUnrolled = {0, 1, 8, 40};
      request.most_unrolled = kUnrolled[std::mt19937_64(schedule_seed_ + 1)() % kUnrolled.size()];
    }
    found.push_back(std::move(request));
    return "";
  }

 private:
  struct Cost {
    double ns = 0;            // of all iterations, by one thread, without what calls take
    double steps = 0;         // kernels and copies that run in all of them
    size_t instructions = 0;  // of the kernels, each as often as it stands in the loop
  };

  kernel::Refusal refusal(const Cost& cost) const {
    const size_t most = always_ ? kMostInstructionsAtAll : kMostInstructions;
    if (cost.instructions > most) {
      return fmt::format("{} instructions, more than {}", cost.instructions, most);
    }
    if (always_) return "";
    if (cost.steps < kFewestSteps) {
      return fmt::format("{} steps in all iterations, fewer than {}", cost.steps, kFewestSteps);
    }
    if (cost.ns > kMostStepNs * cost.steps) {
      return fmt::format("{:.0f} ns a step, more than {:.0f}", cost.ns / cost.steps, kMostStepNs);
    }
    return "";
  }

  kernel::Refusal add(const plan::Step& step, Cost& cost, std::vector<int32_t>& kernels) {
    return std::visit([&](const auto& what) { return add(step, what, cost, kernels); }, step.what);
  }
  kernel::Refusal add(const plan::Steps& steps, Cost& cost, std::vector<int32_t>& kernels) {
    for (const plan::Step& step : steps) {
      if (kernel::Refusal why = add(step, cost, kernels); !why.empty()) return why;
    }
    return "";
  }

  template <typename Other>
  kernel::Refusal add(const plan::Step& step, const Other&, Cost&, std::vector<int32_t>&) {
    return fmt::format("{} in it", plan::to_string(step, plan_));
  }

  kernel::Refusal add(const plan::Step& step, const plan::KernelStep& run, Cost& cost,
                      std::vector<int32_t>& kernels) {
    const kernel::Kernel& kernel = plan_.kernels[static_cast<size_t>(run.kernel)];
    if (kernel.points() == 0) return "";
    cost.instructions += kernel.body.size();
    const Schedule& schedule = plan_of(run.kernel)->schedule;
    const double ns = static_cast<double>(schedule.units()) * schedule.unit_ns;
    if (schedule.units() > 1 && ns >= kSplitNs && !always_) {
      return fmt::format("{} is for several threads", plan::to_string(step, plan_));
    }
    cost.ns += ns;
    cost.steps += 1;
    kernels.push_back(run.kernel);
    return "";
  }

  kernel::Refusal add(const plan::Step&, const plan::CopyStep& copy, Cost& cost,
                      std::vector<int32_t>&) {
    if (copy.from.bytes > kMostCopiedBytes) {
      return fmt::format("a copy of {} bytes, more than {}", copy.from.bytes, kMostCopiedBytes);
    }
    constexpr double kBytesPerNs = 30;  // from cache to cache
    cost.ns += static_cast<double>(copy.from.bytes) / kBytesPerNs;
    cost.steps += 1;
    return "";
  }

  kernel::Refusal add(const plan::Step&, const plan::RepeatStep& loop, Cost& cost,
                      std::vector<int32_t>& kernels) {
    return add_iterations(loop.body, static_cast<double>(loop.count), cost, kernels);
  }

  // The condition stands in the code twice.
  kernel::Refusal add(const plan::Step&, const plan::WhileStep& loop, Cost& cost,
                      std::vector<int32_t>& kernels) {
    if (kernel::Refusal why = add(loop.condition, cost, kernels); !why.empty()) return why;
    if (kernel::Refusal why = add_iterations(loop.condition, kernel::kUnknownTrips, cost, kernels);
        !why.empty()) {
      return why;
    }
    return add_iterations(loop.body, kernel::kUnknownTrips, cost, kernels);
  }

  kernel::Refusal add_iterations(const plan::Steps& steps, double count, Cost& cost,
                                 std::vector<int32_t>& kernels) {
    Cost one;
    if (kernel::Refusal why = add(steps, one, kernels); !why.empty()) return why;
    cost.ns += count * one.ns;
    cost.steps += count * one.steps;
    cost.instructions += one.instructions;
    return "";
  }

  // As if all branches ran equally often.
  kernel::Refusal add(const plan::Step&, const plan::BranchStep& branch, Cost& cost,
                      std::vector<int32_t>& kernels) {
    Cost all;
    for (const plan::Steps& steps : branch.branches) {
      if (kernel::Refusal why = add(steps, all, kernels); !why.empty()) return why;
    }
    const auto count = static_cast<double>(branch.branches.size());
    cost.ns += all.ns / count;
    cost.steps += all.steps / count;
    cost.instructions += all.instructions;
    return "";
  }

  kernel::Refusal add(const plan::Step& step, const plan::RowsStep& rows, Cost& cost,
                      std::vector<int32_t>& kernels) {
    if (std::find(keep_apart_.begin(), keep_apart_.end(), &rows) != keep_apart_.end()) {
      return fmt::format("{} in it", plan::to_string(step, plan_));
    }
    return add(rows.steps, cost, kernels);
  }

  std::shared_ptr<const KernelPlan> plan_of(int32_t number) {
    std::shared_ptr<const KernelPlan>& known = plans_[number];
    if (known == nullptr) {
      known = std::make_shared<const KernelPlan>(plan_kernel(
          plan_.kernels[static_cast<size_t>(number)], vector_bits_, {}, schedule_seed_));
    }
    return known;
  }

  const plan::LaunchPlan& plan_;
  const std::vector<bool>& in_place_;
  const std::vector<const plan::RowsStep*>& keep_apart_;
  const int vector_bits_;
  const bool always_;
  const uint64_t schedule_seed_;
  std::map<int32_t, std::shared_ptr<const KernelPlan>> plans_;  // by kernel
};

}  // namespace

bool FoundLoops::contains(const plan::Step& step) const {
  return std::any_of(loops.begin(), loops.end(),
                     [&](const LoopRequest& request) { return request.loop == &step; });
}

FoundLoops find_persistent_loops(const plan::LaunchPlan& plan, const std::vector<bool>& in_place,
                                 const std::vector<const plan::RowsStep*>& keep_apart,
                                 int vector_bits, plan::PersistentLoops wanted,
                                 uint64_t schedule_seed) {
  using plan::PersistentLoops;
  if (wanted == PersistentLoops::kWherePays && schedule_seed != 0) {
    // Adjacent seeds draw apart.
    const uint64_t drawn = std::mt19937_64(schedule_seed)() % 3;
    wanted = drawn == 0 ? PersistentLoops::kNone : PersistentLoops::kWherePossible;
  }
  Finder finder(plan, in_place, keep_apart, vector_bits, wanted == PersistentLoops::kWherePossible,
                schedule_seed);
  FoundLoops found;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    if (!std::holds_alternative<plan::RepeatStep>(step.what) &&
        !std::holds_alternative<plan::WhileStep>(step.what)) {
      return true;
    }
    kernel::Refusal why = "not asked for";
    if (wanted != PersistentLoops::kNone) why = finder.find(step, found.loops);
    kernel::Implementations ways;
    const bool is_found = ways.ask("one function", why);
    ways.ask("step by step", "");
    found.decisions.push_back({plan::to_string(step, plan), ways.take()});
    return !is_found;
  });
  return found;
}

}  // namespace hekla::cpu
