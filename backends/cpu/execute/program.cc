// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "backends/compiler/kernel/index_analysis.h"
#include "backends/compiler/plan/check.h"
#include "backends/compiler/plan/visit.h"
#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/execute/kernel_requests.h"
#include "backends/cpu/execute/step_times.h"
#include "backends/cpu/threads/thread_pool.h"
#include "backends/cpu/transform/transform.h"
#include "backends/reference/collectives_under_way.h"
#include "backends/reference/evaluator.h"
#include "runtime/base/copy_bytes.h"
#include "runtime/base/log.h"

namespace hekla::cpu {
namespace {

using plan::Slice;

constexpr double kStepNs = 20;
constexpr double kBytesPerNs = 10;  // of a copy on one thread
constexpr double kHostStepNs = 1e6;
constexpr double kUnknownTrips = kernel::kUnknownTrips;

class Run {
 public:
  Run(const plan::LaunchPlan& plan, const CompiledKernels& code, const LoopCodes& loops,
      const std::vector<PreparedContraction>& contractions, const RowGroups& row_groups,
      int vector_bits, const LaunchMemory& memory, const RunOptions& options,
      std::atomic<int64_t>& host_steps, plan::StepDetails& details)
      : plan_(plan),
        code_(code),
        loops_(loops),
        contractions_(contractions),
        row_groups_(row_groups),
        vector_bits_(vector_bits),
        memory_(memory),
        options_(options),
        ids_{static_cast<uint32_t>(options.replica_id), static_cast<uint32_t>(options.partition_id),
             options.launch_number},
        host_steps_(host_steps),
        under_way_(options.communication_lane),
        times_(details, options.device) {}

  Status run(const plan::Steps& steps) {
    for (const plan::Step& step : steps) {
      HEKLA_RETURN_IF_ERROR(check_cancelled());
      const StepTimer timer(times_, plan_, step);
      HEKLA_RETURN_IF_ERROR(std::visit([this](const auto& what) { return run(what); }, step.what));
    }
    return ok_status();
  }
  // Of this run, when it is measured.
  const StepTimes& times() const { return times_; }

 private:
  bool is_cancelled() const {
    return options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed);
  }
  Status check_cancelled() const {
    return is_cancelled() ? cancelled("the launch was called off") : ok_status();
  }

  // Inputs and constants are read only: plan::check sees to it.
  std::byte* address(const Slice& slice) const {
    const auto index = static_cast<size_t>(slice.index);
    switch (slice.space) {
      case Slice::Space::kInput:
        return const_cast<std::byte*>(memory_.inputs[index]) + slice.offset;
      case Slice::Space::kOutput:
        return memory_.outputs[index] + slice.offset;
      case Slice::Space::kArena:
        return memory_.arenas[index] + slice.offset;
      case Slice::Space::kLaunch:
        return reinterpret_cast<std::byte*>(const_cast<uint32_t*>(ids_.data())) + slice.offset;
      case Slice::Space::kConstant:
        break;
    }
    return const_cast<std::byte*>(plan_.constants[index].data()) + slice.offset;
  }

  Status run(const plan::KernelStep& step) {
    const CompiledKernel& kernel = code_.kernels[static_cast<size_t>(step.kernel)];
    constexpr size_t kFew = 24;
    std::array<const void*, kFew> few;
    std::vector<const void*> many;
    const void** operands = few.data();
    if (step.operands.size() > kFew) {
      many.resize(step.operands.size());
      operands = many.data();
    }
    for (size_t i = 0; i < step.operands.size(); ++i) operands[i] = address(step.operands[i]);
    const int64_t units = kernel.schedule.units();
    if (runs_here(kernel)) {
      kernel.function(operands, 0, units);
      return ok_status();
    }
    const auto grain = static_cast<int64_t>(kPieceNs / kernel.schedule.unit_ns);
    ThreadPool::process_pool().for_ranges(units, grain, [&](int64_t begin, int64_t end) {
      if (!is_cancelled()) kernel.function(operands, begin, end);
    });
    return check_cancelled();
  }

  Status run(const plan::ContractionStep& step) {
    contractions_[static_cast<size_t>(step.contraction)].run(
        address(step.lhs), address(step.rhs), address(step.out), options_.is_parallel,
        options_.cancelled);
    return check_cancelled();
  }

  Status run(const plan::TransformStep& step) {
    PreparedTransform(step.transform, vector_bits_)
        .run(address(step.from), address(step.roots), address(step.to), options_.is_parallel,
             options_.cancelled);
    return check_cancelled();
  }

  Status run(const plan::RowsStep& step) {
    const auto it = row_groups_.find(&step);
    if (it == row_groups_.end()) return run(step.steps);
    it->second.run([this](const Slice& slice) { return address(slice); }, options_.is_parallel,
                   options_.cancelled);
    return check_cancelled();
  }

  Status run(const plan::CopyStep& step) {
    const std::byte* from = address(step.from);
    std::byte* to = address(step.to);
    if (from == to || step.from.bytes == 0) return ok_status();
    constexpr int64_t kPiece = 512 * 1024;
    if (!options_.is_parallel || step.from.bytes < 2 * kPiece) {
      copy_bytes(to, from, step.from.bytes);
      return ok_status();
    }
    ThreadPool::process_pool().for_ranges(step.from.bytes, kPiece, [&](int64_t begin, int64_t end) {
      if (is_cancelled()) return;
      copy_bytes(to + begin, from + begin, end - begin);
    });
    return check_cancelled();
  }

  reference::EvaluateOptions evaluate_options() const {
    reference::EvaluateOptions options{options_};
    options.use_lapack = true;
    options.allocate = [](int64_t bytes) -> std::shared_ptr<void> {
      Result<Block> block = BlockPool::process_pool().allocate(bytes);
      if (!block.ok()) return nullptr;
      const auto owner = std::make_shared<Block>(std::move(*block));
      return std::shared_ptr<void>(owner, owner->data());
    };
    if (options_.is_parallel) {
      options.for_each = [](int64_t count, const std::function<void(int64_t)>& body) {
        ThreadPool::process_pool().for_ranges(count, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) body(i);
        });
      };
    }
    return options;
  }

  Status run(const plan::HostStep& step) {
    host_steps_.fetch_add(1, std::memory_order_relaxed);
    return reference::evaluate_in_memory(*step.program, memory_of(step.inputs),
                                         memory_of(step.outputs), evaluate_options())
        .with_context(step.name);
  }

  Status run(const plan::StartStep& step) {
    return under_way_
        .start(step.number, *step.program, memory_of(step.inputs), memory_of(step.outputs),
               evaluate_options())
        .with_context(step.name);
  }

  Status run(const plan::DoneStep& step) { return under_way_.await(step.number); }

  std::vector<std::span<std::byte>> memory_of(const std::vector<Slice>& slices) const {
    std::vector<std::span<std::byte>> memory;
    for (const Slice& slice : slices) {
      memory.emplace_back(address(slice), static_cast<size_t>(slice.bytes));
    }
    return memory;
  }

  // A step whose addresses are known: a kernel on this thread, or a small copy; anything else is
  // run as ever.
  struct Prepared {
    KernelFunction function = nullptr;
    size_t operands = 0;  // where they begin in PreparedSteps::operands
    int64_t units = 0;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t bytes = 0;
    const plan::Step* other = nullptr;
  };
  struct PreparedSteps {
    std::vector<Prepared> steps;
    std::vector<const void*> operands;
  };

  bool runs_here(const CompiledKernel& kernel) const {
    const int64_t units = kernel.schedule.units();
    return !options_.is_parallel || units < 2 ||
           static_cast<double>(units) * kernel.schedule.unit_ns < kSplitNs;
  }

  PreparedSteps prepare(const plan::Steps& steps) const {
    PreparedSteps prepared;
    for (const plan::Step& step : steps) {
      Prepared one;
      if (const auto* run = std::get_if<plan::KernelStep>(&step.what)) {
        const CompiledKernel& kernel = code_.kernels[static_cast<size_t>(run->kernel)];
        if (kernel.schedule.units() == 0) continue;
        if (runs_here(kernel)) {
          one.function = kernel.function;
          one.units = kernel.schedule.units();
          one.operands = prepared.operands.size();
          for (const Slice& slice : run->operands) prepared.operands.push_back(address(slice));
          prepared.steps.push_back(one);
          continue;
        }
      } else if (const auto* copy = std::get_if<plan::CopyStep>(&step.what)) {
        constexpr int64_t kSmall = 64 * 1024;
        one.from = address(copy->from);
        one.to = address(copy->to);
        one.bytes = static_cast<size_t>(copy->from.bytes);
        if (one.from == one.to || one.bytes == 0) continue;
        if (copy->from.bytes <= kSmall) {
          prepared.steps.push_back(one);
          continue;
        }
      }
      one.other = &step;
      prepared.steps.push_back(one);
    }
    return prepared;
  }

  Status run(const PreparedSteps& prepared) {
    HEKLA_RETURN_IF_ERROR(check_cancelled());
    for (const Prepared& step : prepared.steps) {
      if (step.function != nullptr) {
        step.function(prepared.operands.data() + step.operands, 0, step.units);
      } else if (step.other == nullptr) {
        std::memcpy(step.to, step.from, step.bytes);
      } else {
        const auto run_step = [this](const auto& what) { return run(what); };
        HEKLA_RETURN_IF_ERROR(std::visit(run_step, step.other->what));
      }
    }
    return ok_status();
  }

  // Null: the loop runs step by step.
  const LoopFunction* function_of(const void* loop) const {
    if (loops_.empty()) return nullptr;
    const auto it = loops_.find(loop);
    return it == loops_.end() ? nullptr : &it->second;
  }

  Status run(const LoopFunction& loop) const {
    static const std::atomic<bool> never = false;
    std::vector<const void*> operands;
    for (const Slice& base : loop.memory->bases()) operands.push_back(address(base));
    operands.push_back(options_.cancelled != nullptr ? options_.cancelled : &never);
    loop.function(operands.data(), 0, 0);
    return check_cancelled();
  }

  Status run(const plan::RepeatStep& loop) {
    if (const LoopFunction* function = function_of(&loop)) return run(*function);
    return with_prepared(loop.body, [&](const auto& body) -> Status {
      for (int64_t i = 0; i < loop.count; ++i) HEKLA_RETURN_IF_ERROR(run(body));
      return ok_status();
    });
  }

  Status run(const plan::WhileStep& loop) {
    if (const LoopFunction* function = function_of(&loop)) return run(*function);
    return with_prepared(loop.condition, [&](const auto& condition) {
      return with_prepared(loop.body, [&](const auto& body) -> Status {
        const std::byte* predicate = address(loop.predicate);
        while (true) {
          HEKLA_RETURN_IF_ERROR(run(condition));
          if (*predicate == std::byte{0}) return ok_status();
          HEKLA_RETURN_IF_ERROR(run(body));
        }
      });
    });
  }

  // Calls use(steps) with the steps of a loop in the form in which they run fastest: their
  // addresses are looked up once a launch, not once an iteration.
  template <typename Use>
  Status with_prepared(const plan::Steps& steps, const Use& use) {
    if (times_.is_on()) return use(steps);
    std::unique_ptr<PreparedSteps>& known = prepared_[&steps];
    if (known == nullptr) known = std::make_unique<PreparedSteps>(prepare(steps));
    const PreparedSteps& prepared = *known;  // inner loops may move what `known` refers to
    return use(prepared);
  }

  Status run(const plan::BranchStep& branch) {
    return run(branch.branches[plan::chosen_branch(branch, address(branch.selector))]);
  }

  const plan::LaunchPlan& plan_;
  const CompiledKernels& code_;
  const LoopCodes& loops_;
  const std::vector<PreparedContraction>& contractions_;
  const RowGroups& row_groups_;
  const int vector_bits_;
  const LaunchMemory& memory_;
  const RunOptions& options_;
  const std::array<uint32_t, 3> ids_;  // plan::Slice::Space::kLaunch
  std::atomic<int64_t>& host_steps_;
  reference::CollectivesUnderWay under_way_;
  StepTimes times_;
  std::unordered_map<const plan::Steps*, std::unique_ptr<PreparedSteps>> prepared_;  // of loops
};

const MicroKernels& kernels_of(const Target& target) {
  return micro_kernels({target.vector_bits, target.has_fma, target.has_vnni, target.has_amx});
}

void log_kernels(const plan::LaunchPlan& plan, const CompiledKernels& code) {
  if (!log_enabled(LogLevel::kVerbose)) return;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const kernel::Kernel& kernel = plan.kernels[i];
    const Schedule& schedule = code.kernels[i].schedule;
    log_message(LogLevel::kVerbose,
                "cpu: kernel {} {}: grid [{}], {} lanes, {} units of about {:.1f} us", i,
                kernel.name, fmt::join(kernel.grid, ", "), schedule.lanes, schedule.units(),
                schedule.unit_ns / 1000);
  }
}

}  // namespace

// How long steps take on one thread.
class Program::Estimate {
 public:
  explicit Estimate(const Program& program) : program_(program) {}

  double of(const plan::Steps& steps) const {
    double ns = 0;
    for (const plan::Step& step : steps) {
      ns += kStepNs + std::visit([this](const auto& what) { return of(what); }, step.what);
    }
    return ns;
  }

 private:
  double of(const plan::KernelStep& step) const {
    const Schedule& schedule = program_.code_->kernels[static_cast<size_t>(step.kernel)].schedule;
    return static_cast<double>(schedule.units()) * schedule.unit_ns;
  }
  double of(const plan::ContractionStep& step) const {
    return program_.contractions_[static_cast<size_t>(step.contraction)].estimated_ns();
  }
  double of(const plan::TransformStep& step) const {
    return PreparedTransform(step.transform, program_.vector_bits_).estimated_ns();
  }
  double of(const plan::CopyStep& step) const {
    return static_cast<double>(step.from.bytes) / kBytesPerNs;
  }
  double of(const plan::HostStep&) const { return kHostStepNs; }
  double of(const plan::StartStep&) const { return kHostStepNs; }
  double of(const plan::DoneStep&) const { return 0; }
  double of(const plan::RepeatStep& step) const {
    return static_cast<double>(step.count) * of(step.body);
  }
  double of(const plan::WhileStep& step) const {
    const double condition = of(step.condition);
    return condition + kUnknownTrips * (condition + of(step.body));
  }
  double of(const plan::BranchStep& step) const {
    double most = 0;
    for (const plan::Steps& branch : step.branches) most = std::max(most, of(branch));
    return most;
  }
  double of(const plan::RowsStep& step) const {
    const auto it = program_.row_groups_.find(&step);
    return it != program_.row_groups_.end() ? it->second.estimated_ns() : of(step.steps);
  }

  const Program& program_;
};

Result<std::shared_ptr<const Program>> Program::create(std::shared_ptr<const plan::LaunchPlan> plan,
                                                       KernelCompiler& compiler,
                                                       uint64_t schedule_seed,
                                                       plan::PersistentLoops loops) {
  HEKLA_RETURN_IF_ERROR(plan::check(*plan));
  std::shared_ptr<Program> program(new Program(plan));
  program->vector_bits_ = compiler.target().vector_bits;
  HEKLA_RETURN_IF_ERROR(program->compile(compiler, schedule_seed, loops));
  for (const kernel::Contraction& contraction : plan->contractions) {
    program->contractions_.emplace_back(contraction, kernels_of(compiler.target()), schedule_seed);
  }
  program->estimated_ns_ = Estimate(*program).of(plan->steps);
  plan::for_each_step(plan->steps, [&](const plan::Step& step) {
    const auto* host = std::get_if<plan::HostStep>(&step.what);
    if (host == nullptr) return;
    ++program->host_steps_;
    log_message(LogLevel::kVerbose, "cpu: host step {}: {}", host->name, host->reason);
  });
  log_kernels(*plan, *program->code_);
  return std::shared_ptr<const Program>(std::move(program));
}

Status Program::compile(KernelCompiler& compiler, uint64_t schedule_seed,
                        plan::PersistentLoops loops) {
  RequestList list = list_requests(*plan_, compiler.target().vector_bits, loops, schedule_seed);
  Result<std::shared_ptr<const CompiledKernels>> code =
      internal_error("the kernels were not compiled");
  try {
    code = compiler.compile(list.requests, list.loops.loops);
  } catch (const std::exception& error) {
    code = resource_exhausted("compiling {} kernels: {}", list.requests.size(), error.what());
  }
  HEKLA_ASSIGN_OR_RETURN(code_, std::move(code));
  for (const auto& [group, blocks] : list.blocks) {
    std::vector<PreparedRows::PreparedStep> prepared;
    bool is_right = true;
    for (const plan::Step& step : group->steps) {
      if (const auto* product = std::get_if<plan::ContractionStep>(&step.what)) {
        const auto number = static_cast<size_t>(product->contraction);
        const kernel::Contraction& contraction = plan_->contractions[number];
        const PreparedContraction& made = row_contractions_.emplace_back(
            contraction, kernels_of(compiler.target()), schedule_seed, !product->leads);
        // Loops for few rows end their sums all at once.
        is_right = is_right && (!product->leads || made.tells_of_sums());
        prepared.push_back({nullptr, &row_contractions_.back()});
        continue;
      }
      const int32_t number = std::get<plan::KernelStep>(step.what).kernel;
      prepared.push_back({&code_->kernels[list.find(number, blocks)], nullptr});
    }
    if (is_right) row_groups_.try_emplace(group, *group, blocks, prepared);
  }
  requests_ = std::move(list.requests);
  loops_ = std::move(list.loops);
  for (size_t i = 0; i < loops_.loops.size(); ++i) {
    std::visit(
        [&](const auto& loop) {
          loop_codes_[&loop] = {code_->loops[i], loops_.loops[i].memory};
        },
        loops_.loops[i].loop->what);
  }
  return ok_status();
}

std::vector<int64_t> Program::arenas() const {
  bool has_blocks = true;
  plan::for_each_step(plan_->steps, [&](const plan::Step& step) {
    const auto* rows = std::get_if<plan::RowsStep>(&step.what);
    has_blocks = has_blocks && (rows == nullptr || row_groups_.contains(rows));
  });
  return has_blocks ? plan_->arenas_without_scratch() : plan_->arenas;
}

int64_t Program::arena_bytes() const {
  const std::vector<int64_t> all = arenas();
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

Status Program::run(const LaunchMemory& memory, const RunOptions& options) const {
  try {
    Run run(*plan_, *code_, loop_codes_, contractions_, row_groups_, vector_bits_, memory, options,
            host_steps_run_, details_);
    const Status status = run.run(plan_->steps);
    run.times().log();
    return status;
  } catch (const std::exception& error) {
    return resource_exhausted("a launch on the CPU device: {}", error.what());
  }
}

}  // namespace hekla::cpu
