// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/persistent.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "backends/compiler/kernel/builder.h"
#include "backends/compiler/kernel/draw.h"
#include "backends/vulkan/codegen/generator.h"
#include "backends/vulkan/codegen/schedule_rules.h"

namespace hekla::vulkan {
namespace codegen {
namespace {

// Scalar instructions and loops of a shader: drivers' compilers take more than twice the time for
// twice the code, and llvmpipe's, whose limit the second one is, the cube of the loops' number.
constexpr int64_t kMostOfShader = 5000;
constexpr int64_t kMostLoops = 12;
// Invocations on GPUs: several subgroups hide each other's waits for memory.
constexpr uint32_t kMostInvocations = 256;
// Instructions that an invocation executes for a kernel, in the mean of an iteration, while
// starting one takes longer: a processor's core runs them one by one, and a dispatch takes it as
// long as waking the others; a GPU's subgroup waits for most of them.
constexpr int64_t kMostOfKernelOnCpu = 10'000;
constexpr int64_t kMostOfKernel = 400;
// Instructions that an invocation executes in a launch: a tenth of a second on a slow processor.
constexpr int64_t kMostOfLaunch = int64_t{1} << 24;

// A kernel as the device runs it.
struct Member {
  kernel::Kernel kernel;
  std::unique_ptr<kernel::IndexAnalysis> index;
  Schedule schedule;
  int64_t instructions = 0;  // executed by an invocation
  int64_t loop_ends = 0;     // the same of loops' bodies
};

// What all iterations of a list of steps take.
struct Cost {
  int64_t code = 0;          // scalar instructions
  int64_t loops = 0;         // in the code
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

kernel::Access access_of_selector(int64_t bytes) { return {0, static_cast<uint8_t>(bytes), false}; }

// A byte or an i32, which all invocations load.
kernel::Kernel selector_kernel(int64_t bytes) {
  kernel::Builder builder(0, kernel::ScalarType::kI32);
  builder.load(kernel::ScalarType::kI32, access_of_selector(bytes), builder.index(0));
  kernel::Kernel kernel;
  kernel.name = "selector";
  kernel.operands.push_back({bytes, true, false, false});
  kernel.body = std::move(builder).finish();
  return kernel;
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

class PersistentGenerator {
 public:
  PersistentGenerator(const PersistentLoop& loop, const Target& target)
      : loop_(loop),
        target_(target),
        draw_(*first_kernel(loop.body), target.schedule_seed),
        parts_(target_) {}

  Result<PersistentShader> run(bool always) {
    HEKLA_RETURN_IF_ERROR(add_members(loop_.body));
    choose_workgroup();
    for (auto& [kernel, member] : members_) HEKLA_RETURN_IF_ERROR(schedule(member));
    const Cost cost = cost_of(loop_.body);
    HEKLA_RETURN_IF_ERROR(check(cost, always));
    PersistentShader result;
    result.most_iterations =
        std::max<int64_t>(kMostOfLaunch / std::max<int64_t>(cost.instructions, 1), 1);
    if (target_.max_loop_iterations > 0) {
      result.most_iterations = std::min(result.most_iterations, most_by_loop_ends(cost));
      if (result.most_iterations < 1) {
        return unimplemented(
            "an iteration comes to the ends of loops {} times, and {} ends those after {}",
            cost.loop_ends, target_.device, target_.max_loop_iterations);
      }
    }
    if (draw_.is_on() && draw_.chance(50)) {
      result.most_iterations = std::min(result.most_iterations, draw_.any(1, 5));
    }
    emit();
    result.shader.words = parts_.module.words();
    result.shader.workgroup_size = target_.workgroup_size;
    result.shader.group_count = 1;
    result.shader.schedule = "one workgroup";
    result.shader.required_features = parts_.module.features();
    return result;
  }

 private:
  int64_t most_by_loop_ends(const Cost& cost) const {
    // Half: what is unrolled and rounded is an estimate.
    return target_.max_loop_iterations / 2 / (cost.loop_ends + 2);
  }

  Status add_members(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) {
      for (const auto& body : step.bodies) HEKLA_RETURN_IF_ERROR(add_members(body));
      if (step.kernel == nullptr || members_.contains(step.kernel)) continue;
      if (kernel::team_dimension(step.kernel->body) >= 0) {
        return unimplemented("kernel {}: its points exchange values", step.kernel->name);
      }
      HEKLA_ASSIGN_OR_RETURN(kernel::Kernel native, native_form(*step.kernel, target_));
      Member& member = members_[step.kernel];
      member.kernel = std::move(native);
      member.index = std::make_unique<kernel::IndexAnalysis>(member.kernel);
      most_points_ = std::max(most_points_, member.kernel.points());
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
    target_.workgroup_size = std::clamp(size, 1U, most);
    target_.points_per_invocation = 1;
    target_.schedule_seed = 0;
  }

  Status schedule(Member& member) {
    member.schedule = choose_schedule(*member.index, target_);
    const Schedule& s = member.schedule;
    if (s.has_too_many_iterations) {
      return unimplemented("kernel {}: too many iterations for {}", member.kernel.name,
                           target_.device);
    }
    // Rounds of the workgroup, and points that an invocation does side by side in each.
    const int64_t rounds = s.group_count, side_by_side = int64_t{s.columns} * s.rows;
    member.instructions = std::min(
        rounds * side_by_side * std::max<int64_t>(executed_instructions(*member.index, 0), 1),
        kMostOfLaunch);
    const int64_t ends = loop_iterations(*member.index, 0, s.least_unroll);
    member.loop_ends = rounds * ends + (rounds > 1 ? rounds + 1 : 0);
    return ok_status();
  }

  Cost cost_of(const std::vector<PersistentStep>& steps) const {
    Cost sum;
    for (const PersistentStep& step : steps) {
      if (step.kernel != nullptr) {
        const Member& member = members_.at(step.kernel);
        const kernel::Function& body = member.kernel.body;
        sum.code +=
            static_cast<int64_t>(body.size() * member.schedule.columns * member.schedule.rows);
        sum.loops += static_cast<int64_t>(body.region_count()) - 1 +
                     (member.schedule.group_count > 1 ? 1 : 0);
        sum.kernels += 1;
        sum.instructions += member.instructions;
        sum.loop_ends += member.loop_ends;
        continue;
      }
      if (!step.selector) sum.loops += 1;
      Cost most;
      for (const auto& body : step.bodies) {
        const Cost one = cost_of(body);
        sum.code += one.code;
        sum.loops += one.loops;
        most.kernels = std::max(most.kernels, one.kernels);
        // Where lanes go all ways that one of them may go.
        most.instructions = target_.is_cpu ? most.instructions + one.instructions
                                           : std::max(most.instructions, one.instructions);
        most.loop_ends += one.loop_ends;
      }
      const auto times = [&](int64_t one) {
        return std::min(one * std::min(step.count, kMostOfLaunch), kMostOfLaunch);
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
    const int64_t most = target_.is_cpu ? kMostOfKernelOnCpu : kMostOfKernel;
    if (!always && cost.instructions > cost.kernels * most) {
      return unimplemented(
          "an invocation executes {} instructions in the {} kernels of an iteration, more than {} "
          "in each",
          cost.instructions, cost.kernels, most);
    }
    if (!always && cost.kernels < 2) return unimplemented("an iteration is one kernel");
    return ok_status();
  }

  // ---- code

  void emit() {
    std::vector<spv::Id> members;
    for (const bool is_constant : loop_.is_constant) {
      members.push_back(parts_.blocks.pointer(
          32, is_constant ? BlockTypes::Use::kReadOnly : BlockTypes::Use::kShared));
    }
    Entry& entry = parts_.entry;
    entry.begin(target_.workgroup_size, members, /*has_constant=*/true);
    local_ = entry.component(entry.built_in(spv::BuiltInLocalInvocationId, "invocation"), 0);
    prepare(loop_.body);
    std::optional<Memory> predicate;
    if (loop_.predicate) predicate.emplace(selector_memory({*loop_.predicate, 1}));
    const Bits limit = entry.constant();
    // A truth value goes round as a number (loops.cc).
    emit_loop(limit, [&](Bits) {
      barrier();
      emit(loop_.body);
      if (!predicate) return limit;
      if (loop_.has_barrier_before_predicate) barrier();
      const Flag goes_on = load(*predicate, 1) != 0;
      return select(goes_on, limit, 0);
    });
    entry.end();
  }

  // Runs body(iteration) while the iteration is below `count`, which the body gives anew.
  void emit_loop(Bits count, const std::function<Bits(Bits)>& body) {
    Module& m = parts_.module;
    spv::Builder& b = m.builder();
    spv::Block* before = b.getBuildPoint();
    spv::Block& head = b.makeNewBlock();
    spv::Block& inside = b.makeNewBlock();
    spv::Block& next = b.makeNewBlock();
    spv::Block& merge = b.makeNewBlock();
    b.createBranch(&head);
    b.setBuildPoint(&head);
    spv::Instruction* iteration = m.phi(m.uint_type(32));
    spv::Instruction* limit = m.phi(m.uint_type(32));
    Module::add_incoming(iteration, m.uint_constant(32, 0), before);
    Module::add_incoming(limit, count.id(), before);
    const Bits at{&m, 32, iteration->getResultId()}, end{&m, 32, limit->getResultId()};
    const Flag goes_on = at < end;
    b.createLoopMerge(&merge, &next, spv::LoopControlDontUnrollMask, {});
    b.createConditionalBranch(goes_on.id, &inside, &merge);
    b.setBuildPoint(&inside);
    const Bits following_end = body(at);
    b.createBranch(&next);
    b.setBuildPoint(&next);
    const Bits following = at + 1;
    Module::add_incoming(iteration, following.id(), &next);
    Module::add_incoming(limit, following_end.id(), &next);
    b.createBranch(&head);
    b.setBuildPoint(&merge);
  }

  OperandPlaces places_of(const std::vector<unsigned>& operands) const {
    OperandPlaces places;
    places.members = operands;
    for (const unsigned place : operands) places.is_constant.push_back(loop_.is_constant[place]);
    return places;
  }

  // In the order of emit(): addresses that stay the same are loaded in front of the loop.
  void prepare(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) {
      if (step.kernel != nullptr) {
        const Member& member = members_.at(step.kernel);
        const OperandPlaces& places = places_.emplace_back(places_of(step.operands));
        generators_.emplace_back(*member.index, target_, member.schedule, parts_, &places);
        generators_.back().prepare();
      }
      if (step.selector) selectors_.push_back(selector_memory(*step.selector));
      for (const auto& body : step.bodies) prepare(body);
    }
  }

  void emit(const std::vector<PersistentStep>& steps) {
    for (const PersistentStep& step : steps) {
      if (step.has_barrier_before) barrier();
      if (step.kernel != nullptr) {
        generators_[emitted_++].emit_all_groups(local_);
      } else if (step.selector) {
        emit_branch(step);
      } else {
        const Bits count = Bits::constant(parts_.module, 32, static_cast<uint64_t>(step.count));
        emit_loop(count, [&](Bits) {
          barrier();
          emit(step.bodies[0]);
          return count;
        });
      }
    }
  }

  void emit_branch(const PersistentStep& step) {
    const Bits value = load(selectors_[selected_++], step.selector->bytes);
    const size_t last = step.bodies.size() - 1;
    const auto emit_if = [&](Flag condition, const std::vector<PersistentStep>& body) {
      spv::Builder::If chosen(condition.id, spv::SelectionControlMaskNone, parts_.module.builder());
      emit(body);
      chosen.makeEndIf();
    };
    if (step.selector->bytes == 1) {
      emit_if(value != 0, step.bodies[0]);
      emit_if(value == 0, step.bodies[1]);
      return;
    }
    for (size_t i = 0; i <= last; ++i) {
      emit_if(i < last ? value == static_cast<uint64_t>(i) : value >= static_cast<uint64_t>(last),
              step.bodies[i]);
    }
  }

  Memory selector_memory(const PersistentStep::Selector& selector) {
    const kernel::Kernel& kernel = selector_kernels_.emplace_back(selector_kernel(selector.bytes));
    const OperandPlaces& places = places_.emplace_back(places_of({selector.place}));
    Memory memory(parts_.module, parts_.blocks, kernel, false, false, &places);
    memory.load_table(parts_.entry);
    return memory;
  }

  Bits load(Memory& memory, int64_t bytes) {
    Module& m = parts_.module;
    return {
        &m, 32,
        memory.load(access_of_selector(bytes), kernel::ScalarType::kI32, Bits::constant(m, 32, 0))};
  }

  void barrier() {
    parts_.module.builder().createControlBarrier(
        spv::ScopeWorkgroup, spv::ScopeWorkgroup,
        static_cast<spv::MemorySemanticsMask>(spv::MemorySemanticsAcquireReleaseMask |
                                              spv::MemorySemanticsUniformMemoryMask));
  }

  const PersistentLoop& loop_;
  Target target_;
  kernel::Draw draw_;
  ShaderParts parts_;
  std::map<const kernel::Kernel*, Member> members_;
  int64_t most_points_ = 1;
  Bits local_;
  // By step, in order; with stable addresses.
  std::deque<Generator> generators_;
  std::deque<Memory> selectors_;
  std::deque<kernel::Kernel> selector_kernels_;
  std::deque<OperandPlaces> places_;
  size_t emitted_ = 0, selected_ = 0;
};

}  // namespace
}  // namespace codegen

Result<PersistentShader> generate_persistent(const PersistentLoop& loop, const Target& target,
                                             bool always) {
  if (codegen::first_kernel(loop.body) == nullptr) return unimplemented("there is no kernel in it");
  HEKLA_ASSIGN_OR_RETURN(PersistentShader made,
                         codegen::PersistentGenerator(loop, target).run(always));
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
