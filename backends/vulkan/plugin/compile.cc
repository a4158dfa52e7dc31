// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/compile.h"

#include <fmt/ranges.h>

#include <cstring>
#include <optional>
#include <utility>

#include "backends/compiler/compile.h"
#include "backends/compiler/kernel/interpreter.h"
#include "backends/reference/evaluator.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/launch/kernel_abi.h"
#include "runtime/base/log.h"

namespace hekla::vulkan {
namespace {

Slice to_slice(const plan::Slice& slice) {
  return {static_cast<Slice::Space>(slice.space), slice.index, slice.offset, slice.bytes};
}
static_assert(static_cast<int>(Slice::Space::kInput) ==
              static_cast<int>(plan::Slice::Space::kInput));
static_assert(static_cast<int>(Slice::Space::kOutput) ==
              static_cast<int>(plan::Slice::Space::kOutput));
static_assert(static_cast<int>(Slice::Space::kArena) ==
              static_cast<int>(plan::Slice::Space::kArena));
static_assert(static_cast<int>(Slice::Space::kConstant) ==
              static_cast<int>(plan::Slice::Space::kConstant));

// The flat parameters of a host step's program.
void flatten(const std::vector<ir::Type>& types, std::vector<ir::Type>& out) {
  for (const ir::Type& type : types) {
    if (type.is_tuple()) {
      flatten(type.elements(), out);
    } else {
      out.push_back(type);
    }
  }
}

Status evaluate(const ir::Module& module, const std::vector<ir::Type>& parameters,
                int64_t memory_limit_bytes, const HostCall& call) {
  std::vector<HostArray> arguments;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].is_token()) {
      arguments.emplace_back();
    } else {
      // In place: the launch keeps its memory until it ends.
      arguments.push_back(HostArray::wrap(parameters[i].dtype(), parameters[i].dims(), nullptr,
                                          call.operands[i].data));
    }
  }
  reference::EvaluateOptions options;
  options.replica_id = call.replica;
  options.partition_id = call.partition;
  options.cancelled = call.cancelled;
  options.memory_limit_bytes = memory_limit_bytes;
  HEKLA_ASSIGN_OR_RETURN(std::vector<HostArray> results,
                         reference::evaluate(module, std::move(arguments), options));
  for (size_t i = 0; i < results.size(); ++i) {
    const HostMemory& target = call.operands[parameters.size() + i];
    if (target.bytes > 0) {
      std::memcpy(target.data, results[i].data(), static_cast<size_t>(target.bytes));
    }
  }
  return ok_status();
}

class Compiler {
 public:
  Compiler(std::shared_ptr<const plan::LaunchPlan> plan, const Target& target,
           int64_t memory_limit_bytes, bool fail_on_fallback)
      : plan_(std::move(plan)),
        target_(target),
        memory_limit_bytes_(memory_limit_bytes),
        fail_on_fallback_(fail_on_fallback) {}

  Result<std::shared_ptr<const LaunchProgram>> run() {
    program_->name = "main";
    program_->input_bytes = plan_->input_bytes;
    for (size_t i = 0; i < plan_->output_bytes.size(); ++i) {
      const int64_t alias = i < plan_->output_input.size() ? plan_->output_input[i] : -1;
      program_->outputs.push_back({plan_->output_bytes[i], alias, false});
    }
    program_->arena_bytes = plan_->arena_bytes;
    for (const HostArray& constant : plan_->constants) {
      program_->constants.emplace_back(constant.bytes().begin(), constant.bytes().end());
    }
    HEKLA_RETURN_IF_ERROR(generate_kernels());
    add(plan_->steps);
    if (!unsupported_.empty()) {
      return unimplemented("the program has {} operations that cannot run:\n{}",
                           unsupported_.size(), fmt::join(unsupported_, "\n"));
    }
    if (fail_on_fallback_ && !fallbacks_.empty()) {
      HEKLA_RETURN_IF_ERROR(check_memory());
      return unimplemented("fail_on_fallback is set, and these operations have no kernel:\n{}",
                           fmt::join(fallbacks_, "\n"));
    }
    return std::shared_ptr<const LaunchProgram>(std::move(program_));
  }

 private:
  struct Code {
    int64_t pipeline = -1;  // -1: interpreted on the host
    uint32_t groups = 0;
  };

  // What no launch has memory for is not refused for its kernels.
  Status check_memory() const {
    int64_t bytes = plan_->arena_bytes;
    for (size_t i = 0; i < plan_->output_bytes.size(); ++i) {
      if (plan_->output_input[i] < 0) bytes += plan_->output_bytes[i];
    }
    if (bytes <= memory_limit_bytes_) return ok_status();
    return resource_exhausted(
        "results and temporaries of a launch take {} bytes of memory, the device has {}", bytes,
        memory_limit_bytes_);
  }

  Status generate_kernels() {
    for (const kernel::Kernel& kernel : plan_->kernels) {
      Result<Shader> shader = generate(kernel, target_);
      Code code;
      if (shader.ok() && shader->group_count <= static_cast<int64_t>(kMaxGroups)) {
        code.pipeline = static_cast<int64_t>(program_->kernels.size());
        code.groups = static_cast<uint32_t>(shader->group_count);
        program_->kernels.push_back({std::move(shader->words), 0, kernel.name});
        program_->schedules.emplace_back(shader->schedule);
      } else if (!shader.ok() && shader.status().code() != StatusCode::kUnimplemented) {
        return shader.status();
      } else {
        const std::string reason =
            shader.ok() ? "its grid has too many groups" : shader.status().message();
        log_message(LogLevel::kVerbose, "host step: kernel {} is interpreted: {}", kernel.name,
                    reason);
        fallbacks_.push_back(fmt::format("kernel {}: {}", kernel.name, reason));
      }
      codes_.push_back(code);
    }
    return ok_status();
  }

  int64_t next_step() const { return static_cast<int64_t>(program_->steps.size()); }

  void add(const plan::Steps& steps) {
    for (const plan::Step& step : steps) {
      std::visit([this](const auto& one) { add(one); }, step.what);
    }
  }

  // The step as one of the device; nullopt: the kernel is interpreted on the host.
  std::optional<DeviceStep> device_step(const plan::KernelStep& step) const {
    const auto number = static_cast<size_t>(step.kernel);
    const Code& code = codes_[number];
    if (code.pipeline < 0) return std::nullopt;
    const kernel::Kernel& kernel = plan_->kernels[number];
    DispatchStep dispatch;
    dispatch.pipeline = code.pipeline;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      dispatch.operands.push_back(to_slice(step.operands[i]));
      dispatch.is_written.push_back(kernel.operands[i].is_written);
    }
    dispatch.groups = {code.groups, 1, 1};
    dispatch.name = kernel.name;
    return dispatch;
  }
  std::optional<DeviceStep> device_step(const plan::CopyStep& step) const {
    return CopyStep{to_slice(step.from), to_slice(step.to)};
  }
  template <typename Other>
  std::optional<DeviceStep> device_step(const Other&) const {
    return std::nullopt;
  }

  // The step as one of the device with all that it holds; nullopt: some of it needs the host.
  std::optional<DeviceStep> device_step(const std::shared_ptr<const plan::LoopStep>& step) const {
    auto loop = std::make_shared<LoopStep>();
    if (!device_loop(*step, *loop)) return std::nullopt;
    return loop;
  }
  std::optional<DeviceStep> device_step(const std::shared_ptr<const plan::BranchStep>& step) const {
    auto branch = std::make_shared<BranchStep>();
    if (!device_branch(*step, *branch)) return std::nullopt;
    return branch;
  }

  // These append; false, with `out` unspecified, when something needs the host. What a loop with a
  // condition does before its first turn goes in front of it.
  bool add_device_steps(const plan::Steps& steps, std::vector<DeviceStep>& out) const {
    for (const plan::Step& step : steps) {
      const auto* loop = std::get_if<std::shared_ptr<const plan::LoopStep>>(&step.what);
      if (loop != nullptr && (*loop)->trip_count < 0 &&
          !add_device_steps((*loop)->condition, out)) {
        return false;
      }
      std::optional<DeviceStep> one =
          std::visit([this](const auto& s) { return device_step(s); }, step.what);
      if (!one) return false;
      out.push_back(*std::move(one));
    }
    return true;
  }

  // Without what comes before the first turn.
  bool device_loop(const plan::LoopStep& loop, LoopStep& out) const {
    out.name = "while";
    if (!add_device_steps(loop.body, out.body)) return false;
    if (loop.trip_count >= 0) {
      out.trip_count = loop.trip_count;
      return true;
    }
    if (loop.predicate.bytes != 1) return false;
    out.condition = to_slice(loop.predicate);
    return add_device_steps(loop.condition, out.body);
  }

  bool device_branch(const plan::BranchStep& branch, BranchStep& out) const {
    out.name = "branch";
    out.selector = to_slice(branch.selector);
    for (const plan::Steps& steps : branch.branches) {
      if (!add_device_steps(steps, out.branches.emplace_back())) return false;
    }
    return true;
  }

  void add(const plan::KernelStep& step) {
    if (std::optional<DeviceStep> one = device_step(step)) {
      program_->steps.emplace_back(std::get<DispatchStep>(*std::move(one)));
      return;
    }
    const auto number = static_cast<size_t>(step.kernel);
    const kernel::Kernel& kernel = plan_->kernels[number];
    std::vector<Slice> operands;
    std::vector<bool> is_written;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      operands.push_back(to_slice(step.operands[i]));
      is_written.push_back(kernel.operands[i].is_written);
    }
    HostStep host;
    host.name = "kernel " + kernel.name;
    host.operands = std::move(operands);
    host.is_written = std::move(is_written);
    host.run = [plan = plan_, number](const HostCall& call) {
      std::vector<std::span<std::byte>> spans;
      for (const HostMemory& memory : call.operands) {
        spans.emplace_back(memory.data, static_cast<size_t>(memory.bytes));
      }
      return kernel::interpret(plan->kernels[number], spans);
    };
    program_->steps.emplace_back(std::move(host));
  }

  void add(std::vector<DeviceStep> steps) {
    for (DeviceStep& step : steps) {
      std::visit([this](auto& one) { program_->steps.push_back(as_step(std::move(one))); }, step);
    }
  }
  template <typename Simple>
  static Step as_step(Simple step) {
    return step;
  }
  template <typename Inner>
  static Step as_step(const std::shared_ptr<const Inner>& step) {
    return *step;
  }

  void add(const plan::CopyStep& step) {
    program_->steps.emplace_back(CopyStep{to_slice(step.from), to_slice(step.to)});
  }

  // Asked for by PlanOptions::contractions alone.
  void add(const plan::ContractionStep&) {
    unsupported_.emplace_back("a contraction that was planned for another back end");
  }

  // Asked for by PlanOptions::row_groups alone.
  void add(const std::shared_ptr<const plan::RowsStep>&) {
    unsupported_.emplace_back("a row group that was planned for another back end");
  }

  void add(const plan::HostStep& step) {
    if (const Status status = reference::check_supported(*step.program); !status.ok()) {
      unsupported_.push_back(status.message());
      return;
    }
    log_message(LogLevel::kVerbose, "host step: {}: {}", step.name, step.reason);
    if (!reference::is_for_lapack(*step.program)) {
      fallbacks_.push_back(fmt::format("{}: {}", step.name, step.reason));
    }
    HostStep host;
    host.name = step.name;
    for (const plan::Slice& slice : step.inputs) {
      host.operands.push_back(to_slice(slice));
      host.is_written.push_back(false);
    }
    for (const plan::Slice& slice : step.outputs) {
      host.operands.push_back(to_slice(slice));
      host.is_written.push_back(true);
    }
    std::vector<ir::Type> parameters;
    flatten(step.program->entry()->type.elements(), parameters);
    host.run = [program = step.program, parameters = std::move(parameters),
                limit = memory_limit_bytes_](const HostCall& call) {
      return evaluate(*program, parameters, limit, call);
    };
    program_->steps.emplace_back(std::move(host));
  }

  // A step that goes on with one of `targets`, which are filled in later: by the selector's value,
  // or with the first when there is none.
  size_t add_jump(const char* name, const plan::Slice* selector) {
    HostStep jump;
    jump.name = name;
    if (selector != nullptr) {
      jump.operands = {to_slice(*selector)};
      jump.is_written = {false};
    }
    jump.run = [](const HostCall& call) {
      if (call.operands.empty()) return ok_status();
      const HostMemory& memory = call.operands[0];
      if (memory.bytes == 1) {
        *call.choice = memory.data[0] != std::byte{0} ? 0 : 1;
      } else {
        int32_t value = 0;
        std::memcpy(&value, memory.data, sizeof(value));
        *call.choice = value;
      }
      return ok_status();
    };
    program_->steps.emplace_back(std::move(jump));
    return program_->steps.size() - 1;
  }
  // A step that counts at `counter`: starts at 0 when `turns` is -1; else goes on with the first of
  // its targets, and adds one, while the count is below `turns`, then with the second.
  size_t add_counting(const char* name, const plan::Slice& counter, int64_t turns) {
    HostStep step;
    step.name = name;
    step.operands = {to_slice(counter)};
    step.is_written = {true};
    step.run = [turns](const HostCall& call) {
      int64_t count = 0;
      if (turns >= 0) {
        std::memcpy(&count, call.operands[0].data, sizeof(count));
        *call.choice = count < turns ? 0 : 1;
        ++count;
      }
      std::memcpy(call.operands[0].data, &count, sizeof(count));
      return ok_status();
    };
    program_->steps.emplace_back(std::move(step));
    return program_->steps.size() - 1;
  }
  void set_targets(size_t jump, std::vector<int64_t> targets) {
    std::get<HostStep>(program_->steps[jump]).targets = std::move(targets);
  }

  void add(const std::shared_ptr<const plan::LoopStep>& loop) {
    LoopStep on_device;
    std::vector<DeviceStep> before;
    if (device_loop(*loop, on_device) &&
        (loop->trip_count >= 0 || add_device_steps(loop->condition, before))) {
      add(std::move(before));
      program_->steps.emplace_back(std::move(on_device));
      return;
    }
    const bool is_counted = loop->trip_count >= 0;
    if (is_counted) add_counting("start of loop", loop->predicate, -1);
    const int64_t begin = next_step();
    add(loop->condition);
    const size_t test = is_counted ? add_counting("while", loop->predicate, loop->trip_count)
                                   : add_jump("while", &loop->predicate);
    const int64_t body = next_step();
    add(loop->body);
    const size_t back = add_jump("end of while", nullptr);
    set_targets(test, {body, next_step()});
    set_targets(back, {begin});
  }

  void add(const std::shared_ptr<const plan::BranchStep>& branch) {
    BranchStep on_device;
    if (device_branch(*branch, on_device)) {
      program_->steps.emplace_back(std::move(on_device));
      return;
    }
    const size_t choice = add_jump("branch", &branch->selector);
    std::vector<int64_t> targets;
    std::vector<size_t> ends;
    for (const plan::Steps& steps : branch->branches) {
      targets.push_back(next_step());
      add(steps);
      ends.push_back(add_jump("end of branch", nullptr));
    }
    for (size_t end : ends) set_targets(end, {next_step()});
    const auto last = static_cast<int64_t>(targets.size()) - 1;
    auto& jump = std::get<HostStep>(program_->steps[choice]);
    if (branch->selector.bytes != 1) {
      jump.run = [inner = std::move(jump.run), last](const HostCall& call) {
        HEKLA_RETURN_IF_ERROR(inner(call));
        // Out of range means the last branch, by the specification.
        if (*call.choice < 0 || *call.choice > last) *call.choice = last;
        return ok_status();
      };
    }
    set_targets(choice, std::move(targets));
  }

  const std::shared_ptr<const plan::LaunchPlan> plan_;
  const Target& target_;
  const int64_t memory_limit_bytes_;
  const bool fail_on_fallback_;
  std::shared_ptr<LaunchProgram> program_ = std::make_shared<LaunchProgram>();
  std::vector<Code> codes_;  // of each kernel
  std::vector<std::string> unsupported_;
  std::vector<std::string> fallbacks_;
};

}  // namespace

Result<std::shared_ptr<const plan::LaunchPlan>> make_plan(const pjrt::CompileRequest& request,
                                                          const Target& target) {
  CompileOptions options = request.options;
  // A GPU sorts updates side by side; a processor is done with them before they are sorted.
  options.plan.scatters_in_order = options.plan.fuse && target.is_cpu;
  // Scatters in order: a turn, and whether an update is inside, end a loop's body three times.
  if (target.max_loop_turns > 0) options.plan.most_updates_at_once = target.max_loop_turns / 4;
  options.plan.merge_reductions = options.plan.fuse;
  options.plan.row_groups = plan::RowGroups::kNone;
  options.plan = drawn_plan_options(options);
  return ::hekla::compile_program(request.module, options);
}

Result<std::shared_ptr<const LaunchProgram>> compile_program(const pjrt::CompileRequest& request,
                                                             const Target& target,
                                                             int64_t memory_limit_bytes,
                                                             bool fail_on_fallback) {
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const plan::LaunchPlan> plan, make_plan(request, target));
  Target drawn = target;
  drawn.schedule_seed = request.options.schedule_seed;
  return Compiler(std::move(plan), drawn, memory_limit_bytes, fail_on_fallback).run();
}

}  // namespace hekla::vulkan
