// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/execute/program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <unordered_map>

#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/execute/check_plan.h"
#include "backends/cpu/execute/step_times.h"
#include "backends/cpu/threads/thread_pool.h"
#include "backends/reference/evaluator.h"
#include "runtime/base/log.h"

namespace hekla::cpu {
namespace {

using plan::Slice;

constexpr double kStepNs = 20;
constexpr double kBytesPerNs = 10;  // of a copy on one thread
constexpr double kHostStepNs = 1e6;
constexpr double kUnknownTrips = 100;

class Run {
 public:
  Run(const plan::LaunchPlan& plan, const CompiledKernels& code,
      const std::vector<PreparedContraction>& contractions, const RowGroups& row_groups,
      const LaunchMemory& memory, const RunOptions& options, std::atomic<int64_t>& host_steps)
      : plan_(plan),
        code_(code),
        contractions_(contractions),
        row_groups_(row_groups),
        memory_(memory),
        options_(options),
        host_steps_(host_steps) {}

  Status run(const plan::Steps& steps) {
    for (const plan::Step& step : steps) {
      HEKLA_RETURN_IF_ERROR(check_cancelled());
      const StepTimer timer(times_, plan_, step);
      HEKLA_RETURN_IF_ERROR(std::visit([this](const auto& what) { return run(what); }, step.what));
    }
    return ok_status();
  }
  // Of this run, when verbose.
  const StepTimes& times() const { return times_; }

 private:
  Status check_cancelled() const {
    if (options_.cancelled == nullptr || !options_.cancelled->load(std::memory_order_relaxed)) {
      return ok_status();
    }
    return cancelled("the launch was called off");
  }

  // Inputs and constants are read only: check_plan sees to it.
  std::byte* address(const Slice& slice) const {
    const auto index = static_cast<size_t>(slice.index);
    switch (slice.space) {
      case Slice::Space::kInput:
        return const_cast<std::byte*>(memory_.inputs[index]) + slice.offset;
      case Slice::Space::kOutput:
        return memory_.outputs[index] + slice.offset;
      case Slice::Space::kArena:
        return memory_.arena + slice.offset;
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
    ThreadPool::process_pool().for_ranges(
        units, grain, [&](int64_t begin, int64_t end) { kernel.function(operands, begin, end); });
    return ok_status();
  }

  Status run(const plan::ContractionStep& step) {
    contractions_[static_cast<size_t>(step.contraction)].run(
        address(step.lhs), address(step.rhs), reinterpret_cast<float*>(address(step.out)),
        options_.is_parallel);
    return ok_status();
  }

  Status run(const std::shared_ptr<const plan::RowsStep>& step) {
    const auto it = row_groups_.find(step.get());
    if (it == row_groups_.end()) return run(step->steps);
    it->second.run([this](const Slice& slice) { return address(slice); }, options_.is_parallel);
    return ok_status();
  }

  Status run(const plan::CopyStep& step) {
    const std::byte* from = address(step.from);
    std::byte* to = address(step.to);
    if (from == to || step.from.bytes == 0) return ok_status();
    constexpr int64_t kPiece = 512 * 1024;
    if (!options_.is_parallel || step.from.bytes < 2 * kPiece) {
      std::memcpy(to, from, static_cast<size_t>(step.from.bytes));
      return ok_status();
    }
    ThreadPool::process_pool().for_ranges(step.from.bytes, kPiece, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
    return ok_status();
  }

  Status run(const plan::HostStep& step) {
    host_steps_.fetch_add(1, std::memory_order_relaxed);
    const ir::Function& entry = *step.program->entry();
    std::vector<HostArray> arguments;
    size_t next = 0;
    for (const ir::Type& type : flat(entry.type.elements())) {
      if (type.is_token()) {
        arguments.emplace_back();
        if (step.inputs.size() > next && step.inputs[next].bytes == 0) ++next;
        continue;
      }
      if (next >= step.inputs.size()) {
        return internal_error("host step {}: it takes more than its {} inputs", step.name,
                              step.inputs.size());
      }
      arguments.push_back(
          HostArray::wrap(type.dtype(), type.dims(), nullptr, address(step.inputs[next++])));
    }
    reference::EvaluateOptions options;
    options.replica_id = options_.replica_id;
    options.partition_id = options_.partition_id;
    options.cancelled = options_.cancelled;
    options.memory_limit_bytes = options_.memory_limit_bytes;
    options.use_lapack = true;
    options.allocate = [](int64_t bytes) -> std::shared_ptr<void> {
      Result<Block> block = BlockPool::process_pool().allocate(bytes);
      if (!block.ok()) return nullptr;
      const auto owner = std::make_shared<Block>(std::move(*block));
      return std::shared_ptr<void>(owner, owner->data());
    };
    for (const Slice& output : step.outputs) {
      options.result_memory.push_back(overlaps_any(output, step.inputs) ? nullptr
                                                                        : address(output));
    }
    if (options_.is_parallel) {
      options.for_each = [](int64_t count, const std::function<void(int64_t)>& body) {
        ThreadPool::process_pool().for_ranges(count, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) body(i);
        });
      };
    }
    Result<std::vector<HostArray>> results =
        reference::evaluate(*step.program, std::move(arguments), options);
    if (!results.ok()) return results.status().with_context(step.name);
    if (results->size() != step.outputs.size()) {
      return internal_error("host step {}: {} results for {} outputs", step.name, results->size(),
                            step.outputs.size());
    }
    for (size_t i = 0; i < results->size(); ++i) {
      const HostArray& result = (*results)[i];
      const Slice& slice = step.outputs[i];
      if (slice.bytes == 0) continue;
      if (result.size_bytes() != slice.bytes) {
        return internal_error("host step {}: result {} has {} bytes, its place {}", step.name, i,
                              result.size_bytes(), slice.bytes);
      }
      std::byte* const to = address(slice);
      if (result.data() == to) continue;
      std::memmove(to, result.data(), static_cast<size_t>(slice.bytes));
    }
    return ok_status();
  }

  // By address: an output may have a donated input's memory.
  bool overlaps_any(const Slice& output, const std::vector<Slice>& inputs) const {
    const std::byte* const begin = address(output);
    return std::ranges::any_of(inputs, [&](const Slice& input) {
      const std::byte* const other = address(input);
      return begin < other + input.bytes && other < begin + output.bytes;
    });
  }

  static std::vector<ir::Type> flat(const std::vector<ir::Type>& types) {
    std::vector<ir::Type> result;
    for (const ir::Type& type : types) {
      if (!type.is_tuple()) {
        result.push_back(type);
        continue;
      }
      for (ir::Type& inner : flat(type.elements())) result.push_back(std::move(inner));
    }
    return result;
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
  struct PreparedLoop {
    PreparedSteps condition, body;
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

  // Addresses are looked up once a launch, not once a turn.
  Status run(const std::shared_ptr<const plan::LoopStep>& loop) {
    if (times_.is_on()) {
      return run_turns(*loop, loop->condition, loop->body);
    }
    std::unique_ptr<PreparedLoop>& known = loops_[loop.get()];
    if (known == nullptr) {
      known = std::make_unique<PreparedLoop>(
          PreparedLoop{prepare(loop->condition), prepare(loop->body)});
    }
    const PreparedLoop& prepared = *known;  // inner loops may move what `known` refers to
    return run_turns(*loop, prepared.condition, prepared.body);
  }

  template <typename Steps>
  Status run_turns(const plan::LoopStep& loop, const Steps& condition, const Steps& body) {
    for (int64_t turn = 0; turn < loop.trip_count; ++turn) HEKLA_RETURN_IF_ERROR(run(body));
    if (loop.trip_count >= 0) return ok_status();
    const std::byte* predicate = address(loop.predicate);
    while (true) {
      HEKLA_RETURN_IF_ERROR(run(condition));
      if (*predicate == std::byte{0}) return ok_status();
      HEKLA_RETURN_IF_ERROR(run(body));
    }
  }

  Status run(const std::shared_ptr<const plan::BranchStep>& branch) {
    const std::byte* selector = address(branch->selector);
    const auto last = static_cast<int64_t>(branch->branches.size()) - 1;
    int64_t chosen = 0;
    if (branch->selector.bytes == 1) {
      chosen = *selector != std::byte{0} ? 0 : 1;
    } else {
      int32_t index = 0;
      std::memcpy(&index, selector, sizeof(index));
      chosen = index < 0 || index > last ? last : index;
    }
    return run(branch->branches[static_cast<size_t>(chosen)]);
  }

  const plan::LaunchPlan& plan_;
  const CompiledKernels& code_;
  const std::vector<PreparedContraction>& contractions_;
  const RowGroups& row_groups_;
  const LaunchMemory& memory_;
  const RunOptions& options_;
  std::atomic<int64_t>& host_steps_;
  StepTimes times_;
  std::unordered_map<const plan::LoopStep*, std::unique_ptr<PreparedLoop>> loops_;
};

// The code that a plan needs: of a kernel as a whole, in blocks, or both.
struct RequestList {
  std::vector<KernelRequest> requests;  // the first ones are the plan's kernels in their order
  std::vector<std::pair<const plan::RowsStep*, RowBlocks>> blocks;

  size_t find(int32_t kernel, const RowBlocks& wanted) const {
    const auto it = std::find_if(requests.begin(), requests.end(), [&](const auto& request) {
      return request.kernel == requests[static_cast<size_t>(kernel)].kernel &&
             request.blocks == wanted;
    });
    return static_cast<size_t>(it - requests.begin());
  }
};

// Calls `whole` for kernels that run as a whole, `group` for row groups.
void for_each_use(const plan::Steps& steps, const std::function<void(int32_t)>& whole,
                  const std::function<bool(const plan::RowsStep&)>& group) {
  for (const plan::Step& step : steps) {
    if (const auto* kernel = std::get_if<plan::KernelStep>(&step.what)) {
      whole(kernel->kernel);
    } else if (const auto* loop = std::get_if<std::shared_ptr<const plan::LoopStep>>(&step.what)) {
      for_each_use((*loop)->condition, whole, group);
      for_each_use((*loop)->body, whole, group);
    } else if (const auto* branch =
                   std::get_if<std::shared_ptr<const plan::BranchStep>>(&step.what)) {
      for (const plan::Steps& inner : (*branch)->branches) for_each_use(inner, whole, group);
    } else if (const auto* rows = std::get_if<std::shared_ptr<const plan::RowsStep>>(&step.what)) {
      if (!group(**rows)) for_each_use((*rows)->steps, whole, group);
    }
  }
}

RequestList list_requests(const plan::LaunchPlan& plan, const std::vector<bool>& in_place,
                          int vector_bits) {
  RequestList list;
  std::vector<bool> is_whole(plan.kernels.size(), false);
  for_each_use(
      plan.steps, [&](int32_t kernel) { is_whole[static_cast<size_t>(kernel)] = true; },
      [&](const plan::RowsStep& step) {
        const RowBlocks blocks = choose_blocks(step, plan, vector_bits);
        if (blocks.rows != 0) list.blocks.emplace_back(&step, blocks);
        return blocks.rows != 0;
      });
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    list.requests.push_back({&plan.kernels[i], in_place[i], {}});
  }
  // A kernel that never runs as a whole has its first blocks in its place.
  for (const auto& [group, blocks] : list.blocks) {
    for (const plan::Step& step : group->steps) {
      const int32_t number = std::get<plan::KernelStep>(step.what).kernel;
      const auto at = static_cast<size_t>(number);
      if (list.find(number, blocks) < list.requests.size()) continue;
      if (!is_whole[at] && list.requests[at].blocks.rows == 0) {
        list.requests[at].blocks = blocks;
      } else {
        list.requests.push_back({&plan.kernels[at], in_place[at], blocks});
      }
    }
  }
  return list;
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

Result<std::shared_ptr<const Program>> Program::create(std::shared_ptr<const plan::LaunchPlan> plan,
                                                       KernelCompiler& compiler,
                                                       uint64_t schedule_seed) {
  HEKLA_RETURN_IF_ERROR(check_plan(*plan));
  std::shared_ptr<Program> program(new Program(plan));
  HEKLA_RETURN_IF_ERROR(program->compile(compiler, schedule_seed));
  const Target& target = compiler.target();
  for (const kernel::Contraction& contraction : plan->contractions) {
    program->contractions_.emplace_back(
        contraction, micro_kernels(target.vector_bits, target.has_fma, target.has_vnni),
        schedule_seed);
  }
  program->estimated_ns_ = program->estimate(plan->steps);
  log_kernels(*plan, *program->code_);
  return std::shared_ptr<const Program>(std::move(program));
}

Status Program::compile(KernelCompiler& compiler, uint64_t schedule_seed) {
  const std::vector<bool> in_place = kernels_in_place(*plan_);
  RequestList list = list_requests(*plan_, in_place, compiler.target().vector_bits);
  for (KernelRequest& request : list.requests) request.schedule_seed = schedule_seed;
  Result<std::shared_ptr<const CompiledKernels>> code =
      internal_error("the kernels were not compiled");
  try {
    code = compiler.compile(list.requests);
  } catch (const std::exception& error) {
    code = resource_exhausted("compiling {} kernels: {}", list.requests.size(), error.what());
  }
  HEKLA_ASSIGN_OR_RETURN(code_, std::move(code));
  for (const auto& [group, blocks] : list.blocks) {
    std::vector<const CompiledKernel*> kernels;
    for (const plan::Step& step : group->steps) {
      const int32_t number = std::get<plan::KernelStep>(step.what).kernel;
      kernels.push_back(&code_->kernels[list.find(number, blocks)]);
    }
    row_groups_.try_emplace(group, *group, blocks, kernels);
  }
  requests_ = std::move(list.requests);
  return ok_status();
}

double Program::estimate(const plan::Steps& steps) {
  double ns = 0;
  for (const plan::Step& step : steps) {
    ns += kStepNs;
    if (const auto* kernel = std::get_if<plan::KernelStep>(&step.what)) {
      const Schedule& schedule = code_->kernels[static_cast<size_t>(kernel->kernel)].schedule;
      ns += static_cast<double>(schedule.units()) * schedule.unit_ns;
    } else if (const auto* contract = std::get_if<plan::ContractionStep>(&step.what)) {
      ns += contractions_[static_cast<size_t>(contract->contraction)].estimated_ns();
    } else if (const auto* copy = std::get_if<plan::CopyStep>(&step.what)) {
      ns += static_cast<double>(copy->from.bytes) / kBytesPerNs;
    } else if (const auto* host = std::get_if<plan::HostStep>(&step.what)) {
      ns += kHostStepNs;
      ++host_steps_;
      log_message(LogLevel::kVerbose, "cpu: host step {}: {}", host->name, host->reason);
    } else if (const auto* loop = std::get_if<std::shared_ptr<const plan::LoopStep>>(&step.what)) {
      const plan::LoopStep& what = **loop;
      const double trips =
          what.trip_count >= 0 ? static_cast<double>(what.trip_count) : kUnknownTrips;
      // One after the other: the order of evaluation shows in the log.
      const double condition = estimate(what.condition);
      ns += condition + trips * (condition + estimate(what.body));
    } else if (const auto* rows = std::get_if<std::shared_ptr<const plan::RowsStep>>(&step.what)) {
      const auto it = row_groups_.find(rows->get());
      ns += it != row_groups_.end() ? it->second.estimated_ns() : estimate((*rows)->steps);
    } else {
      double most = 0;
      for (const plan::Steps& inner :
           std::get<std::shared_ptr<const plan::BranchStep>>(step.what)->branches) {
        most = std::max(most, estimate(inner));
      }
      ns += most;
    }
  }
  return ns;
}

Status Program::run(const LaunchMemory& memory, const RunOptions& options) const {
  try {
    Run run(*plan_, *code_, contractions_, row_groups_, memory, options, host_steps_run_);
    const Status status = run.run(plan_->steps);
    run.times().log();
    return status;
  } catch (const std::exception& error) {
    return resource_exhausted("a launch on the CPU device: {}", error.what());
  }
}

}  // namespace hekla::cpu
