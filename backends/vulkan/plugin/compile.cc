// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/plugin/compile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "backends/compiler/compile.h"
#include "backends/compiler/plan/visit.h"
#include "backends/pjrt/client_options.h"
#include "backends/reference/evaluator.h"
#include "backends/vulkan/codegen/generate.h"
#include "backends/vulkan/codegen/matrix_product.h"
#include "backends/vulkan/launch/kernel_abi.h"
#include "backends/vulkan/plugin/persistent_loops.h"
#include "backends/vulkan/plugin/user_kernels.h"
#include "runtime/base/log.h"

namespace hekla::vulkan {
namespace {

// Scalar instructions of a kernel of several operations: drivers' compilers take more than twice
// the time for twice the code, and several kernels are compiled side by side.
constexpr size_t kMostInstructions = 5000;

class Compiler {
 public:
  Compiler(UserKernels user, const Target& target, plan::PersistentLoops loops,
           int64_t memory_limit_bytes, bool fail_on_fallback, const ir::DeviceGrid& grid)
      : plan_(std::move(user.plan)),
        user_kernels_(std::move(user.kernels)),
        target_(target),
        loops_(loops),
        grid_(grid),
        memory_limit_bytes_(memory_limit_bytes),
        fail_on_fallback_(fail_on_fallback) {}

  Result<std::shared_ptr<const LaunchProgram>> run() {
    program_->name = "main";
    program_->plan = plan_;
    program_->fma = fma_rounding(target_);
    program_->host_memory_limit_bytes = memory_limit_bytes_;
    const size_t own_kernels = plan_->kernels.size() - user_kernels_.size();
    HEKLA_RETURN_IF_ERROR(generate_kernels());
    HEKLA_RETURN_IF_ERROR(generate_products());
    HEKLA_ASSIGN_OR_RETURN(FoundLoops found,
                           find_persistent_loops(*program_, own_kernels, target_, loops_));
    program_->loops = std::move(found.loops);
    program_->decisions = std::move(found.decisions);
    find_host_steps();
    if (!unsupported_.empty()) {
      return unimplemented("the program has {} operations that cannot run:\n{}",
                           unsupported_.size(), fmt::join(unsupported_, "\n"));
    }
    HEKLA_ASSIGN_OR_RETURN(program_->calls, reference::instantiate_calls(host_programs_));
    if (fail_on_fallback_ && !fallbacks_.empty()) {
      HEKLA_RETURN_IF_ERROR(check_memory());
      return pjrt::check_fallbacks(fail_on_fallback_, fallbacks_);
    }
    return std::shared_ptr<const LaunchProgram>(std::move(program_));
  }

 private:
  // What no launch has memory for is not refused for its kernels.
  Status check_memory() const {
    int64_t bytes = plan_->arena_bytes();
    for (size_t i = 0; i < plan_->output_bytes.size(); ++i) {
      if (plan_->output_input[i] < 0) bytes += plan_->output_bytes[i];
    }
    if (bytes <= memory_limit_bytes_) return ok_status();
    return resource_exhausted(
        "results and temporaries of a launch take {} bytes of memory, the device has {}", bytes,
        memory_limit_bytes_);
  }

  Status generate_kernels() {
    const size_t own = plan_->kernels.size() - user_kernels_.size();
    for (const kernel::Kernel& kernel : std::span(plan_->kernels).first(own)) {
      Result<Shader> shader = !fail_on_fallback_ && is_drawn_for_host(kernel, target_)
                                  ? Result<Shader>(unimplemented("drawn for the host"))
                                  : generate(kernel, target_);
      DeviceKernel code;
      code.code.name = kernel.name;
      if (shader.ok() && shader->group_count <= static_cast<int64_t>(kMaxGroups)) {
        code.code.words = std::move(shader->words);
        code.groups[0] = static_cast<uint32_t>(shader->group_count);
        code.workgroup_size = shader->workgroup_size;
        code.code.subgroup_size = shader->subgroup_size;
        code.schedule = shader->schedule;
        code.implementations = std::move(shader->implementations);
      } else if (!shader.ok() && shader.status().code() != StatusCode::kUnimplemented) {
        return shader.status();
      } else {
        const std::string reason =
            shader.ok() ? "its grid has too many groups" : shader.status().message();
        log_message(LogLevel::kVerbose, "host step: kernel {} is interpreted: {}", kernel.name,
                    reason);
        fallbacks_.push_back(fmt::format("kernel {}: {}", kernel.name, reason));
        code.implementations = {{"shader", reason}, {"on the host", ""}};
      }
      program_->kernels.push_back(std::move(code));
    }
    std::move(user_kernels_.begin(), user_kernels_.end(), std::back_inserter(program_->kernels));
    return ok_status();
  }

  Status generate_products() {
    for (size_t i = 0; i < plan_->contractions.size(); ++i) {
      const kernel::Contraction& contraction = plan_->contractions[i];
      HEKLA_ASSIGN_OR_RETURN(Shader shader, generate_product(contraction, target_));
      DeviceKernel code;
      code.code.name = plan::contraction_title(*plan_, i);
      code.code.words = std::move(shader.words);
      code.code.subgroup_size = shader.subgroup_size;
      if (shader.group_count > static_cast<int64_t>(kMaxGroups)) {
        return unimplemented("{}: a grid of {} groups, more than {}", code.code.name,
                             shader.group_count, kMaxGroups);
      }
      code.groups[0] = static_cast<uint32_t>(shader.group_count);
      code.workgroup_size = shader.workgroup_size;
      code.schedule = shader.schedule;
      code.implementations = std::move(shader.implementations);
      program_->contractions.push_back(std::move(code));
    }
    return ok_status();
  }

  void find_host_steps() {
    const auto is_supported = [&](const ir::Module& program) {
      const Status status = reference::check_supported(program, grid_);
      if (!status.ok()) unsupported_.push_back(status.message());
      host_programs_.push_back(&program);
      return status.ok();
    };
    plan::for_each_step(plan_->steps, [&](const plan::Step& step) {
      const auto* start = std::get_if<plan::StartStep>(&step.what);
      if (start != nullptr) is_supported(*start->program);
      const auto* host = std::get_if<plan::HostStep>(&step.what);
      if (host == nullptr || !is_supported(*host->program)) return;
      log_message(LogLevel::kVerbose, "host step: {}: {}", host->name, host->reason);
      if (!reference::is_for_host(*host->program)) {
        fallbacks_.push_back(fmt::format("{}: {}", host->name, host->reason));
      }
    });
  }

  const std::shared_ptr<const plan::LaunchPlan> plan_;
  std::vector<DeviceKernel> user_kernels_;  // the last ones of the plan's
  const Target& target_;
  const plan::PersistentLoops loops_;
  const ir::DeviceGrid grid_;
  const int64_t memory_limit_bytes_;
  const bool fail_on_fallback_;
  std::shared_ptr<LaunchProgram> program_ = std::make_shared<LaunchProgram>();
  std::vector<std::string> unsupported_;
  std::vector<std::string> fallbacks_;
  std::vector<const ir::Module*> host_programs_;
};

}  // namespace

Result<std::shared_ptr<const plan::LaunchPlan>> plan_program(const pjrt::CompileRequest& request,
                                                             const Target& target) {
  plan::DeviceTraits traits;
  traits.has_row_groups = false;
  // A GPU sorts updates side by side; a processor is done with them before they are sorted.
  traits.scatters_in_order = target.is_cpu;
  traits.merges_reductions = true;
  // A tree wants what a GPU has to spare; a processor is as fast along memory, without barriers.
  traits.team_points = team_points(target);
  traits.team_words = team_words(target);
  traits.reduces_by_trees = !target.is_cpu;
  traits.fuses_attention = !target.is_cpu;
  traits.max_loop_iterations = target.max_loop_iterations;
  traits.max_arena_bytes = target.max_allocation_bytes;
  traits.max_buffer_bytes = target.max_buffer_bytes;
  // A processor's matrices are loops, which kernels of loops do as well; tests want them.
  if (!target.is_cpu || request.options.plan.small_limits) {
    for (const MatrixShape& shape : target.matrix_shapes) {
      traits.matrix_types.push_back(shape.operands);
      if (has_pieces(target, shape.operands)) traits.piece_types.push_back(shape.operands);
    }
  }
  for (const MatrixShape& shape : target.matrix_shapes) {
    if (shape.sums != DType::kF32) continue;
    // In software each product of matrices is a page of code.
    traits.matrix_units.push_back({shape.operands, shape.rows, shape.columns, shape.depth,
                                   target.matrix_subgroup_size, target.is_cpu ? 32 : 1 << 20});
  }
  CompilerOptions options = request.options;
  options.plan.max_instructions = std::min(options.plan.max_instructions, kMostInstructions);
  return ::hekla::compile_program(request.module, options, traits);
}

Result<std::shared_ptr<const LaunchProgram>> compile_program(
    const pjrt::CompileRequest& request, const Target& target, int64_t memory_limit_bytes,
    bool fail_on_fallback, std::shared_ptr<const plan::LaunchPlan> plan) {
  if (plan == nullptr) {
    HEKLA_ASSIGN_OR_RETURN(plan, plan_program(request, target));
  }
  Target drawn = target;
  drawn.schedule_seed = request.options.schedule_seed;
  const ir::DeviceGrid grid{request.replica_count, request.partition_count};
  HEKLA_ASSIGN_OR_RETURN(UserKernels user, take_user_kernels(std::move(plan), target));
  return Compiler(std::move(user), drawn, request.options.plan.persistent_loops, memory_limit_bytes,
                  fail_on_fallback, grid)
      .run();
}

}  // namespace hekla::vulkan
