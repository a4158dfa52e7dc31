// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/executable.h"

#include <atomic>

#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/plugin/storage.h"
#include "backends/cpu/threads/thread_pool.h"

namespace hekla::cpu {
namespace {

using pjrt::MemoryAccount;
using pjrt::StorageRef;

// Programs below this run on the caller's thread: handing them over would take longer.
constexpr double kInlineNs = 30'000;

// Temporary memory of one launch, counted on the device.
class Arena {
 public:
  ~Arena() {
    if (block_.data() == nullptr) return;
    block_ = Block();
    account_->remove(bytes_);
  }
  Status allocate(MemoryAccount& account, int64_t bytes) {
    if (bytes == 0) return ok_status();
    HEKLA_RETURN_IF_ERROR(account.add(bytes).with_context("temporary memory of a launch"));
    Result<Block> block = BlockPool::process_pool().allocate(bytes);
    if (!block.ok()) {
      account.remove(bytes);
      return block.status();
    }
    block_ = *std::move(block);
    account_ = &account;
    bytes_ = bytes;
    return ok_status();
  }
  std::byte* data() const { return block_.data(); }

 private:
  Block block_;
  MemoryAccount* account_ = nullptr;
  int64_t bytes_ = 0;
};

// One launch, from its call to its end.
class Job {
 public:
  Job(std::shared_ptr<const Program> program, std::shared_ptr<MemoryAccount> account,
      pjrt::Launch launch, std::vector<StorageRef> outputs)
      : program_(std::move(program)),
        account_(std::move(account)),
        launch_(std::move(launch)),
        outputs_(std::move(outputs)) {}

  // Runs, and lets go of everything before anybody hears of the end: the memory is there again, and
  // what reads the outputs next may find itself to be their only owner.
  void finish(bool is_parallel) {
    Status status = run(is_parallel);
    const CompletionRef done = std::move(launch_.done);
    launch_.inputs.clear();
    outputs_.clear();
    program_.reset();
    account_.reset();
    done->complete(std::move(status));
  }

 private:
  Status run(bool is_parallel) {
    for (const pjrt::LaunchInput& input : launch_.inputs) {
      HEKLA_RETURN_IF_ERROR(input.ready->status());
    }
    HEKLA_RETURN_IF_ERROR(bind_outputs());
    const plan::LaunchPlan& plan = program_->plan();
    Arena arena;
    HEKLA_RETURN_IF_ERROR(arena.allocate(*account_, plan.arena_bytes));
    LaunchMemory memory;
    memory.arena = arena.data();
    memory.inputs = inputs_;
    for (const StorageRef& output : outputs_) memory.outputs.push_back(storage_of(output).data());
    RunOptions options;
    options.is_parallel = is_parallel;
    options.replica_id = launch_.replica;
    options.partition_id = launch_.partition;
    constexpr int64_t kUnlimited = int64_t{1} << 60;
    const pjrt::MemoryStats stats = account_->stats();
    if (program_->host_step_count() > 0 && stats.bytes_limit < kUnlimited) {
      // A host step's own inputs and outputs are counted by both.
      options.memory_limit_bytes = stats.bytes_limit - stats.bytes_in_use + plan.arena_bytes;
      for (const int64_t bytes : plan.input_bytes) options.memory_limit_bytes += bytes;
      for (const int64_t bytes : plan.output_bytes) options.memory_limit_bytes += bytes;
    }
    return program_->run(memory, options);
  }

  // Outputs without memory so far take a donated input's, or get some of their own.
  Status bind_outputs() {
    for (const pjrt::LaunchInput& input : launch_.inputs) {
      inputs_.push_back(storage_of(input.storage).data());
    }
    const std::vector<int32_t>& donors = program_->plan().output_input;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      CpuStorage& output = storage_of(outputs_[o]);
      if (output.data() != nullptr) continue;
      const pjrt::LaunchInput& donor = launch_.inputs[static_cast<size_t>(donors[o])];
      CpuStorage& memory = storage_of(donor.storage);
      const bool is_only_owner = donor.storage.use_count() == 1;
#ifndef HEKLA_THREAD_SANITIZER  // which does not know fences
      // What the other owners did with the memory happened before they let go.
      std::atomic_thread_fence(std::memory_order_acquire);
#endif
      if (is_only_owner && memory.has_block()) {
        output.take_block(memory);
      } else {
        HEKLA_RETURN_IF_ERROR(output.allocate());
      }
    }
    return ok_status();
  }

  std::shared_ptr<const Program> program_;
  std::shared_ptr<MemoryAccount> account_;
  pjrt::Launch launch_;
  std::vector<StorageRef> outputs_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace

pjrt::ProgramStats CpuExecutable::stats() const {
  pjrt::ProgramStats stats;
  stats.generated_code_bytes = program_->code().code_bytes;
  stats.temporary_bytes = program_->plan().arena_bytes;
  return stats;
}

Result<std::string> CpuExecutable::artefact(std::string_view form) const {
  const plan::LaunchPlan& plan = program_->plan();
  if (form == "plan") return plan::to_string(plan);
  if (form == "kernels") return plan::kernels_string(plan);
  std::string text;
  if (form == "schedules") {
    const int vector_bits = compiler_->target().vector_bits;
    for (const KernelRequest& request : program_->requests()) {
      if (request.kernel->points() == 0) continue;
      const KernelPlan kernel_plan =
          plan_kernel(*request.kernel, vector_bits, request.blocks, request.schedule_seed);
      text += fmt::format("{}: {}\n", request.kernel->name, schedule_name(kernel_plan));
    }
    for (const PreparedContraction& contraction : program_->contractions()) {
      text += fmt::format("packed contraction: {}\n", contraction.schedule_name());
    }
    return text;
  }
  if (form != "llvm" && form != "asm") {
    return unimplemented(
        "the CPU device shows an executable as plan, kernels, schedules, llvm or asm, not {}",
        form);
  }
  for (const KernelRequest& request : program_->requests()) {
    HEKLA_ASSIGN_OR_RETURN(const std::string code, form == "llvm"
                                                       ? compiler_->llvm_text(request)
                                                       : compiler_->assembly_text(request));
    // Both languages begin comments differently; the CPU's assembler takes this one.
    text += fmt::format("{} kernel {} {}\n{}\n", form == "llvm" ? ";" : "#",
                        request.kernel - plan.kernels.data(), request.kernel->name, code);
  }
  return text;
}

std::vector<std::pair<std::string, int64_t>> CpuExecutable::statistics() const {
  std::vector<std::pair<std::string, int64_t>> values = plan::statistics(program_->plan());
  const CompiledKernels& code = program_->code();
  values.insert(values.end(), {{"compiled_kernels", code.compiled_count},
                               {"loaded_kernels", code.loaded_count},
                               {"code_bytes", code.code_bytes},
                               {"host_steps_run", program_->host_steps_run()}});
  return values;
}

Result<std::vector<StorageRef>> CpuExecutable::launch(pjrt::Launch& launch) {
  const plan::LaunchPlan& plan = program_->plan();
  if (launch.inputs.size() != plan.input_bytes.size()) {
    return internal_error("a launch with {} inputs of a plan with {}", launch.inputs.size(),
                          plan.input_bytes.size());
  }
  const std::shared_ptr<MemoryAccount>& account = accounts_[static_cast<size_t>(launch.device)];
  std::vector<StorageRef> outputs;
  for (size_t o = 0; o < plan.output_bytes.size(); ++o) {
    auto output = std::make_shared<CpuStorage>(account, plan.output_bytes[o]);
    const int32_t donor = plan.output_input[o];
    const bool may_take = donor >= 0 && launch.inputs[static_cast<size_t>(donor)].is_donated;
    if (!may_take) HEKLA_RETURN_IF_ERROR(output->allocate());
    outputs.push_back(std::move(output));
  }
  bool is_ready = true;
  std::vector<CompletionRef> waiting;
  for (const pjrt::LaunchInput& input : launch.inputs) {
    if (input.ready->is_done()) continue;
    is_ready = false;
    waiting.push_back(input.ready);
  }
  if (is_ready && program_->estimated_ns() < kInlineNs) {
    Job job(program_, account, std::move(launch), outputs);
    job.finish(/*is_parallel=*/false);
    return outputs;
  }
  auto job = std::make_shared<Job>(program_, account, std::move(launch), outputs);
  const auto start = [job](const Status&) {
    ThreadPool::process_pool().post([job] { job->finish(/*is_parallel=*/true); });
  };
  if (is_ready) {
    start(ok_status());
  } else {
    Completion::all(std::move(waiting))->on_done(start);
  }
  return outputs;
}

}  // namespace hekla::cpu
