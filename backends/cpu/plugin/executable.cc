// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/plugin/executable.h"

#include <fmt/format.h>

#include <atomic>
#include <numeric>
#include <utility>

#include "backends/compiler/plan/artefact.h"
#include "backends/compiler/plan/visit.h"
#include "backends/cpu/execute/block_pool.h"
#include "backends/cpu/plugin/storage.h"
#include "backends/cpu/threads/thread_pool.h"
#include "backends/pjrt/launch_trace.h"
#include "backends/reference/gang_exchange.h"
#include "runtime/base/exceptions.h"

namespace hekla::cpu {
namespace {

using pjrt::MemoryAccount;
using pjrt::StorageRef;

// Programs below this run on the caller's thread: handing them over would take longer.
constexpr double kInlineNs = 30'000;

// Temporary memory of one launch, counted on the device.
class Arenas {
 public:
  ~Arenas() {
    if (account_ == nullptr) return;
    blocks_.clear();
    account_->remove(bytes_);
  }
  Status allocate(MemoryAccount& account, const std::vector<int64_t>& arenas) {
    const int64_t bytes = std::accumulate(arenas.begin(), arenas.end(), int64_t{0});
    if (bytes > 0) {
      HEKLA_RETURN_IF_ERROR(account.add(bytes).with_context("temporary memory of a launch"));
      account_ = &account;
      bytes_ = bytes;
    }
    for (const int64_t each : arenas) {
      blocks_.emplace_back();
      if (each == 0) continue;
      HEKLA_ASSIGN_OR_RETURN(blocks_.back(), BlockPool::process_pool().allocate(each));
    }
    return ok_status();
  }
  std::vector<std::byte*> addresses() const {
    std::vector<std::byte*> all;
    for (const Block& block : blocks_) all.push_back(block.data());
    return all;
  }

 private:
  std::vector<Block> blocks_;
  MemoryAccount* account_ = nullptr;  // null: nothing is counted
  int64_t bytes_ = 0;
};

// One launch, from its call to its end.
class Job : public DeviceJob {
 public:
  // Takes the launch over; its outputs stay there too.
  Job(std::shared_ptr<const Program> program, ffi::CallsRef calls, const CpuDevice& device,
      pjrt::Launch& launch, reference::GangMember member = {})
      : program_(std::move(program)),
        calls_(std::move(calls)),
        account_(device.account),
        communication_lane_(launch.gang == nullptr ? nullptr : device.queue->communication_lane()),
        launch_(taken(launch)),
        member_(std::move(member)) {}

  void run(bool is_parallel) override {
    const pjrt::LaunchTrace trace(launch_);
    end(member_.ends_with(status_of_work([&] { return run_program(is_parallel); })));
  }
  // In place of run() and before tell(). Lets go of everything before anybody hears of the end: the
  // memory is there again, and what reads the outputs next may find itself to be their only owner.
  void end(Status status) {
    status_ = std::move(status);
    if (launch_.gang != nullptr && launch_.gang->is_aborted()) status_ = launch_.gang->status();
    launch_.inputs.clear();
    launch_.outputs.clear();
    calls_.reset();
    program_.reset();
    account_.reset();
  }
  void tell() override {
    launch_.done->complete(status_);
    member_.ended(status_);
  }

 private:
  // All or nothing, whatever is thrown.
  static pjrt::Launch taken(pjrt::Launch& launch) {
    std::vector<StorageRef> outputs = launch.outputs;
    pjrt::Launch whole = std::move(launch);
    launch.outputs = std::move(outputs);
    return whole;
  }

  Status run_program(bool is_parallel) {
    if (launch_.gang != nullptr && launch_.gang->is_aborted()) return launch_.gang->status();
    for (const pjrt::LaunchInput& input : launch_.inputs) {
      HEKLA_RETURN_IF_ERROR(input.ready->status());
    }
    member_.begin();
    HEKLA_RETURN_IF_ERROR(bind_outputs());
    const plan::LaunchPlan& plan = program_->plan();
    Arenas arenas;
    HEKLA_RETURN_IF_ERROR(arenas.allocate(*account_, program_->arenas()));
    LaunchMemory memory;
    memory.arenas = arenas.addresses();
    memory.inputs = inputs_;
    for (const StorageRef& output : launch_.outputs)
      memory.outputs.push_back(storage_of(output).data());
    RunOptions options;
    options.is_parallel = is_parallel;
    options.replica_id = launch_.replica;
    options.partition_id = launch_.partition;
    options.launch_number = launch_.number;
    if (launch_.gang != nullptr) options.cancelled = &launch_.gang->aborted();
    options.exchange = member_.exchange();
    options.transfers = launch_.transfers.get();
    options.device = launch_.device;
    options.collectives = launch_.collectives.get();
    std::optional<ffi::LaunchCalls> calls;
    if (calls_ != nullptr) options.calls = &calls.emplace(calls_, launch_.info);
    // Several such launches may be on the device at once, one waiting for the other in a callback.
    std::optional<SerialQueue> own_lane;
    if (launch_.gang != nullptr && launch_.transfers != nullptr) own_lane.emplace();
    options.communication_lane = own_lane ? &*own_lane : communication_lane_;
    constexpr int64_t kUnlimited = int64_t{1} << 60;
    const pjrt::MemoryStats stats = account_->stats();
    if (program_->host_step_count() > 0 && stats.bytes_limit < kUnlimited) {
      // A host step's own inputs and outputs are counted by both.
      options.memory_limit_bytes = stats.bytes_limit - stats.bytes_in_use + program_->arena_bytes();
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
    for (size_t o = 0; o < launch_.outputs.size(); ++o) {
      CpuStorage& output = storage_of(launch_.outputs[o]);
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
  ffi::CallsRef calls_;
  std::shared_ptr<MemoryAccount> account_;
  SerialQueue* communication_lane_;  // of the queue that runs this job
  pjrt::Launch launch_;
  reference::GangMember member_;
  std::vector<const std::byte*> inputs_;
  Status status_;
};

// A gang's launch: an abort before its turn ends it at once, whatever stands before it on its
// device.
class GangJob : public DeviceJob {
 public:
  static std::shared_ptr<GangJob> make(Job job, pjrt::Gang& gang) {
    auto made = std::make_shared<GangJob>(std::move(job));
    gang.on_abort([weak = std::weak_ptr(made)](const Status& status) {
      const std::shared_ptr<GangJob> waiting = weak.lock();
      if (waiting == nullptr || waiting->is_taken_.exchange(true)) return;
      waiting->job_.end(status);
      waiting->job_.tell();
    });
    return made;
  }
  explicit GangJob(Job job) : job_(std::move(job)) {}

  void run(bool is_parallel) override {
    runs_ = !is_taken_.exchange(true);
    if (runs_) job_.run(is_parallel);
  }
  void tell() override {
    if (runs_) job_.tell();
  }

 private:
  Job job_;
  std::atomic<bool> is_taken_ = false;  // by who runs it or by who calls it off
  bool runs_ = false;
};

void add_waiting(const pjrt::Launch& launch, std::vector<CompletionRef>& waiting) {
  for (const pjrt::LaunchInput& input : launch.inputs) {
    if (!input.ready->is_done()) waiting.push_back(input.ready);
  }
}

}  // namespace

pjrt::ProgramStats CpuExecutable::stats() const {
  pjrt::ProgramStats stats;
  stats.generated_code_bytes = program_->code().code_bytes;
  stats.temporary_bytes = program_->arena_bytes();
  return stats;
}

std::vector<plan::Decision> CpuExecutable::decisions() const {
  const plan::LaunchPlan& plan = program_->plan();
  std::vector<plan::Decision> decisions = plan.decisions;
  for (const KernelRequest& request : program_->requests()) {
    if (request.kernel->points() == 0) continue;
    kernel::Implementations asked;
    plan_kernel(*request.kernel, compiler_->target().vector_bits, request.blocks,
                request.schedule_seed, TileUse::kChosen, StridedUse::kShuffles, &asked);
    const auto number = static_cast<size_t>(request.kernel - plan.kernels.data());
    decisions.push_back({plan::kernel_title(plan, number), asked.take()});
  }
  const std::vector<plan::Decision>& loops = program_->loops().decisions;
  decisions.insert(decisions.end(), loops.begin(), loops.end());
  for (size_t i = 0; i < plan.contractions.size(); ++i) {
    decisions.push_back(
        {fmt::format("contraction {} {}", i, kernel::to_string(plan.contractions[i])),
         program_->contractions()[i].implementations()});
  }
  return decisions;
}

Result<std::string> CpuExecutable::artefact(std::string_view form) const {
  const plan::LaunchPlan& plan = program_->plan();
  if (auto shown = plan::artefact(form, plan, [this] { return decisions(); })) return *shown;
  std::string text;
  if (form == "schedules") {
    const int vector_bits = compiler_->target().vector_bits;
    for (const KernelRequest& request : program_->requests()) {
      if (request.kernel->points() == 0) continue;
      const KernelPlan kernel_plan =
          plan_kernel(*request.kernel, vector_bits, request.blocks, request.schedule_seed);
      text += fmt::format("{}: {}\n", request.kernel->name, schedule_name(kernel_plan));
    }
    for (const plan::Decision& loop : program_->loops().decisions) {
      const auto& ways = loop.implementations;
      const auto taken = std::ranges::find(ways, "", &kernel::Implementation::refusal);
      if (taken != ways.end()) text += fmt::format("loop: {}\n", taken->name);
    }
    for (const PreparedContraction& contraction : program_->contractions()) {
      text += fmt::format("packed contraction: {}\n", contraction.schedule_name());
    }
    plan::for_each_step(plan.steps, [&](const plan::Step& step) {
      if (std::holds_alternative<plan::TransformStep>(step.what)) text += "fft: whole lines\n";
    });
    return text;
  }
  if (form != "llvm" && form != "asm") {
    return unimplemented(
        "the CPU device shows an executable as plan, kernels, schedules, implementations, llvm or "
        "asm, not {}",
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
  for (const LoopRequest& request : program_->loops().loops) {
    HEKLA_ASSIGN_OR_RETURN(const std::string code, form == "llvm"
                                                       ? compiler_->llvm_text(request)
                                                       : compiler_->assembly_text(request));
    text += fmt::format("{} {}\n{}\n", form == "llvm" ? ";" : "#",
                        plan::to_string(*request.loop, plan), code);
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

// All that can fail.
Status CpuExecutable::prepare(pjrt::Launch& launch) const {
  const plan::LaunchPlan& plan = program_->plan();
  if (launch.inputs.size() != plan.input_bytes.size()) {
    return internal_error("a launch with {} inputs of a plan with {}", launch.inputs.size(),
                          plan.input_bytes.size());
  }
  const CpuDevice& device = devices_[static_cast<size_t>(launch.device)];
  if (launch.transfers != nullptr) {
    HEKLA_RETURN_IF_ERROR(device.callbacks->start_thread());
  } else if (launch.gang != nullptr) {
    HEKLA_RETURN_IF_ERROR(device.queue->start_threads());
  }
  for (size_t o = 0; o < plan.output_bytes.size(); ++o) {
    auto output = std::make_shared<CpuStorage>(device.account, plan.output_bytes[o]);
    const int32_t donor = plan.output_input[o];
    const bool may_take = donor >= 0 && launch.inputs[static_cast<size_t>(donor)].is_donated;
    if (!may_take) HEKLA_RETURN_IF_ERROR(output->allocate());
    launch.outputs.push_back(std::move(output));
  }
  return ok_status();
}

Status CpuExecutable::launch(std::span<pjrt::Launch> launches) {
  for (pjrt::Launch& launch : launches) {
    if (const Status status = prepare(launch); !status.ok()) {
      for (pjrt::Launch& other : launches) other.outputs.clear();
      return status;
    }
  }
  std::vector<CompletionRef> ends;
  for (const pjrt::Launch& launch : launches) ends.push_back(launch.done);
  if (collectives_.has_value() && launches.front().gang != nullptr) {
    const Status status = status_of_work([&] {
      enqueue_peers(launches);
      return ok_status();
    });
    for (const CompletionRef& end : ends) {
      if (!status.ok()) end->complete(status);
    }
    return ok_status();
  }
  for (size_t i = 0; i < launches.size(); ++i) {
    Status status = status_of_work([&] {
      enqueue(launches[i]);
      return ok_status();
    });
    // Of a launch that was taken over, or comes behind one that was, it is the launch's own end.
    if (!status.ok()) ends[i]->complete(std::move(status));
  }
  return ok_status();
}

// Of launches that call the client; those that wait for inputs let later ones pass.
void CpuExecutable::post_with_transfers(const CpuDevice& device, std::shared_ptr<DeviceJob> job,
                                        const CompletionRef& ready) {
  const auto work = [job = std::move(job)] {
    job->run(/*is_parallel=*/true);
    job->tell();
  };
  if (ready == nullptr) return device.callbacks->post(work);
  ready->on_done([callbacks = device.callbacks, work](const Status&) { callbacks->post(work); });
}

// Devices that meet in the program come to run in one order, and hold up what comes later: so they
// begin when the inputs of all are there. One whose inputs an earlier launch makes would otherwise
// stand before what a callback of that launch launches and waits for.
void CpuExecutable::enqueue_peers(std::span<pjrt::Launch> launches) const {
  const pjrt::GangRef gang = launches.front().gang;
  std::vector<CompletionRef> waiting;
  std::vector<std::pair<CpuDevice, std::shared_ptr<DeviceJob>>> jobs;
  const bool has_transfers = launches.front().transfers != nullptr;
  for (pjrt::Launch& launch : launches) {
    add_waiting(launch, waiting);
    const CpuDevice& device = devices_[static_cast<size_t>(launch.device)];
    reference::GangMember member(launch, launches.size(), *collectives_);
    jobs.emplace_back(
        device, GangJob::make(Job(program_, calls_, device, launch, std::move(member)), *gang));
  }
  const auto post = [jobs = std::move(jobs), has_transfers] {
    for (const auto& [device, job] : jobs) {
      if (has_transfers) {
        post_with_transfers(device, job, nullptr);
      } else {
        device.queue->post(job, nullptr, /*on_own_thread=*/true);
      }
    }
  };
  gang->post_when(std::move(waiting), post);
}

void CpuExecutable::enqueue(pjrt::Launch& launch) const {
  const CpuDevice& device = devices_[static_cast<size_t>(launch.device)];
  const pjrt::GangRef gang = launch.gang;
  std::vector<CompletionRef> waiting;
  add_waiting(launch, waiting);
  const bool has_transfers = launch.transfers != nullptr;
  if (gang == nullptr && !has_transfers && waiting.empty() &&
      program_->estimated_ns() < kInlineNs) {
    Job job(program_, calls_, device, launch);
    if (device.queue->try_run_here(job)) return;
    device.queue->post(std::make_shared<Job>(std::move(job)), nullptr, /*on_own_thread=*/false);
    return;
  }
  CompletionRef ready;
  if (!waiting.empty()) {
    ready = gang == nullptr ? Completion::all(std::move(waiting))
                            : gang->all_or_abort(std::move(waiting));
  }
  std::shared_ptr<DeviceJob> job;
  if (gang == nullptr) {
    job = std::make_shared<Job>(program_, calls_, device, launch);
  } else {
    job = GangJob::make(Job(program_, calls_, device, launch), *gang);
  }
  if (has_transfers) return post_with_transfers(device, std::move(job), ready);
  device.queue->post(std::move(job), std::move(ready), /*on_own_thread=*/gang != nullptr);
}

}  // namespace hekla::cpu
