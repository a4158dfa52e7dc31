// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/device_program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>

#include "backends/compiler/plan/visit.h"
#include "backends/vulkan/launch/device_program_run.h"
#include "shaders/memory/copy.comp.h"
#include "shaders/memory/loop_gate.comp.h"

namespace hekla::vulkan {

Result<std::shared_ptr<DeviceProgram>> DeviceProgram::load(
    std::shared_ptr<LogicalDevice> device, std::shared_ptr<const LaunchProgram> program,
    const ProgramOptions& options) {
  HEKLA_RETURN_IF_ERROR(check_program(*program));
  std::shared_ptr<DeviceProgram> made(
      new DeviceProgram(std::move(device), std::move(program), options));
  HEKLA_RETURN_IF_ERROR(made->prepare());
  return made;
}

DeviceProgram::DeviceProgram(std::shared_ptr<LogicalDevice> device,
                             std::shared_ptr<const LaunchProgram> program,
                             const ProgramOptions& options)
    : device_(std::move(device)), program_(std::move(program)), options_(options) {}

DeviceProgram::~DeviceProgram() = default;

Status DeviceProgram::prepare() {
  const plan::LaunchPlan& plan = *program_->plan;
  HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<const LoweredProgram> plain,
                         lowered(std::vector<bool>(plan.output_bytes.size(), false)));
  HEKLA_RETURN_IF_ERROR(load_pipelines());
  is_split_ = plain->is_split();
  for (const LoweredLoop& loop : plain->loops) pieces_.emplace_back(loop.first_pieces);
  plan::for_each_slice_within(plan.steps, plan, [&](const plan::Slice& slice, const plan::Use&) {
    reads_launch_ = reads_launch_ || slice.space == plan::Slice::Space::kLaunch;
  });
  starts_on_host_ = !plain->parts.empty() && plain->parts.front().host.has_value();

  return upload_constants();
}

// In one piece, or in as many as the driver allocates.
Status DeviceProgram::upload_constants() {
  const std::vector<HostArray>& all = program_->plan->constants;
  constexpr int64_t kAlignment = 256;
  const int64_t most = device_->device().plan().max_allocation_bytes;
  std::vector<int64_t> offsets;
  for (size_t first = 0; first < all.size(); first += offsets.size()) {
    offsets.clear();
    int64_t bytes = 0;
    for (size_t i = first; i < all.size(); ++i) {
      const int64_t size = std::max<int64_t>(all[i].size_bytes(), 1);
      const int64_t end = bytes + (size + kAlignment - 1) / kAlignment * kAlignment;
      if (bytes > 0 && end > most) break;
      offsets.push_back(bytes);
      bytes = end;
    }
    HEKLA_ASSIGN_OR_RETURN(const AllocationRef memory, device_->memory().allocate(bytes));
    for (size_t i = 0; i < offsets.size(); ++i) {
      const HostArray& constant = all[first + i];
      std::promise<Status> uploaded;
      device_->transfers().upload(constant.data(), memory, offsets[i], constant.size_bytes(),
                                  [&](const Status& status) { uploaded.set_value(status); });
      HEKLA_RETURN_IF_ERROR(uploaded.get_future().get());
      constants_.emplace_back(memory, offsets[i]);
    }
  }
  return ok_status();
}

// Of the kernels that the device runs; copies and gates only where something may need them.
Status DeviceProgram::load_pipelines() {
  const plan::LaunchPlan& plan = *program_->plan;
  std::vector<KernelCode> codes;
  std::vector<size_t> numbers;
  const auto add = [&](size_t number, KernelCode code) {
    codes.push_back(std::move(code));
    numbers.push_back(number);
  };
  const std::vector<bool> is_dispatched = dispatched_kernels(*program_);
  for (size_t i = 0; i < program_->kernels.size(); ++i) {
    const DeviceKernel& kernel = program_->kernels[i];
    if (is_dispatched[i] && !kernel.is_interpreted()) add(i, kernel.code);
  }
  for (size_t i = 0; i < program_->contractions.size(); ++i) {
    add(contraction_pipeline(*program_, i), program_->contractions[i].code);
  }
  bool has_others = false;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    has_others = has_others ||
                 !(std::holds_alternative<plan::KernelStep>(step.what) ||
                   std::holds_alternative<plan::ContractionStep>(step.what) ||
                   std::holds_alternative<plan::RowsStep>(step.what) || plan::is_on_host(step));
  });
  if (has_others) {
    add(copy_pipeline(*program_), {{std::begin(kcopy_spirv), std::end(kcopy_spirv)}, 0, "copy"});
    add(gate_pipeline(*program_),
        {{std::begin(kloop_gate_spirv), std::end(kloop_gate_spirv)}, 0, "loop gate"});
  }
  for (size_t i = 0; i < program_->loops.size(); ++i) {
    add(loop_pipeline(*program_, i), program_->loops[i].code.code);
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<PipelineRef> made, device_->pipelines().get(codes));
  pipelines_.resize(loop_pipeline(*program_, program_->loops.size()));
  for (size_t i = 0; i < made.size(); ++i) pipelines_[numbers[i]] = std::move(made[i]);
  return ok_status();
}

Result<std::shared_ptr<const LoweredProgram>> DeviceProgram::lowered(
    const std::vector<bool>& is_shared) {
  {
    std::lock_guard lock(mutex_);
    if (const auto known = lowered_.find(is_shared); known != lowered_.end()) return known->second;
  }
  LoweringOptions options;
  options.max_group_count = options_.max_group_count[0] != 0
                                ? options_.max_group_count
                                : device_->device().plan().max_group_count;
  options.check_barriers = options_.check_barriers;
  options.all_barriers = options_.all_barriers;
  if (options_.max_dispatches_per_submission > 0) {
    options.max_dispatches_per_submission = options_.max_dispatches_per_submission;
  }
  HEKLA_ASSIGN_OR_RETURN(LoweredProgram fresh, lower_program(*program_, is_shared, options));
  auto shared = std::make_shared<const LoweredProgram>(std::move(fresh));
  std::lock_guard lock(mutex_);
  // Callers donate in few ways; a caller that does it in all ways pays with time, not memory.
  constexpr size_t kMaxVariants = 16;
  if (lowered_.size() >= kMaxVariants) lowered_.erase(lowered_.begin());
  return lowered_.emplace(is_shared, std::move(shared)).first->second;
}

Result<LaunchOutputs> DeviceProgram::launch(LaunchRequest& request) {
  HEKLA_ASSIGN_OR_RETURN(const RunRef run, prepare(request));
  LaunchOutputs outputs = accept(run, std::move(request));
  enqueue(run);
  return outputs;
}

Result<DeviceProgram::RunRef> DeviceProgram::prepare(const LaunchRequest& request) {
  HEKLA_RETURN_IF_ERROR(device_->device().health());
  if (request.transfers != nullptr) {
    HEKLA_RETURN_IF_ERROR(device_->callbacks().start_thread());
  }
  const plan::LaunchPlan& plan = *program_->plan;
  if (request.inputs.size() != plan.input_bytes.size()) {
    return invalid_argument("{} takes {} inputs, not {}", program_->name, plan.input_bytes.size(),
                            request.inputs.size());
  }
  auto run = std::make_shared<Run>();
  run->is_shared.assign(plan.output_bytes.size(), false);
  run->is_taken.assign(request.inputs.size(), false);
  for (size_t i = 0; i < plan.output_bytes.size(); ++i) {
    const MemoryRole role =
        options_.output_roles.empty() ? MemoryRole::kTensor : options_.output_roles[i];
    if (plan.output_input[i] >= 0) {
      const auto input = static_cast<size_t>(plan.output_input[i]);
      const LaunchInput& donor = request.inputs[input];
      if (donor.is_donated && !donor.memory->is_imported() &&
          donor.memory->unordered_readers == 0 && donor.memory->bytes() == plan.output_bytes[i] &&
          donor.memory->role() == role) {
        run->is_taken[input] = run->is_shared[i] = true;
        run->outputs.push_back(donor.memory);
        continue;
      }
    }
    HEKLA_ASSIGN_OR_RETURN(AllocationRef memory,
                           device_->memory().allocate(plan.output_bytes[i], role));
    run->outputs.push_back(std::move(memory));
  }
  return run;
}

namespace {

// Done when `part` is, and ok whatever became of it.
CompletionRef without_error(const CompletionRef& part) {
  CompletionRef done = Completion::make();
  part->on_done([done](const Status&) { done->complete(ok_status()); });
  return done;
}

}  // namespace

LaunchOutputs DeviceProgram::accept(const RunRef& run, LaunchRequest request) {
  run->program = shared_from_this();
  run->request = std::move(request);
  if (program_->calls != nullptr) run->calls.emplace(program_->calls, run->request.info);
  run->submitted = Completion::make();
  for (size_t i = 0; i < run->request.inputs.size(); ++i) {
    LaunchInput& input = run->request.inputs[i];
    if (!run->is_taken[i]) {
      ++input.memory->unordered_readers;
      run->counted_readers.push_back(input.memory.get());
    }
  }
  ++device_->counters().launches;
  return {run->outputs, run->submitted};
}

void DeviceProgram::enqueue(const RunRef& run) {
  std::vector<CompletionRef> gates;
  for (const LaunchInput& input : run->request.inputs) {
    // A host step in front reads bytes; the lane's order is enough for the device.
    const CompletionRef& gate = starts_on_host_ ? input.ready : input.submitted;
    if (gate && !(gate->is_done() && gate->status().ok())) gates.push_back(gate);
  }
  const pjrt::GangRef gang = run->request.gang;
  if (gang != nullptr) {
    run->end = std::make_shared<LaunchEnd>(run->submitted, run->request.done);
    gang->on_abort([end = std::weak_ptr(run->end)](const Status& status) {
      if (const auto alive = end.lock()) alive->abort(status);
    });
  }
  // Gangs whose devices meet run one after the other: their host steps wait for peers, which must
  // not stand behind another gang's. Those that call their host have threads of their own, and may
  // wait there for what comes later.
  if (run->request.member.exchange() != nullptr && run->request.transfers == nullptr) {
    const CompletionRef before = device_->replace_last_gang(run->submitted);
    if (before != nullptr && !before->is_done()) gates.push_back(without_error(before));
  }
  if (gates.empty()) {
    start(run);
  } else {
    ++device_->counters().held_back;
    const CompletionRef open =
        gang == nullptr ? Completion::all(std::move(gates)) : gang->all_or_abort(std::move(gates));
    open->on_done([this, run](const Status& status) {
      if (status.ok()) {
        start(run);
      } else {
        finish(run, status);
      }
    });
  }
}

bool DeviceProgram::take_slot(const RunRef& run) {
  std::lock_guard lock(mutex_);
  auto free = std::find_if(slots_.begin(), slots_.end(),
                           [](const std::unique_ptr<Slot>& slot) { return !slot->is_busy; });
  if (free == slots_.end()) {
    // Launches that stand in callbacks may wait for each other.
    size_t limit = static_cast<size_t>(options_.max_slots);
    if (run->request.transfers != nullptr) limit = std::max(limit, CallbackQueue::kMaxThreads);
    if (slots_.size() >= limit && !CallbackScope::is_inside()) {
      waiting_.push_back(run);
      return false;
    }
    free = slots_.insert(slots_.end(), std::make_unique<Slot>());
  }
  (*free)->is_busy = true;
  run->slot = free->get();
  return true;
}

void DeviceProgram::start(const RunRef& run) {
  if (!run->in_flight.begin(*device_)) {
    finish(run, cancelled("{}: the client was closed before its inputs came", program_->name));
    return;
  }
  if (!take_slot(run)) {
    ++device_->counters().held_back;
    return;
  }
  if (const Status status = begin(*run); !status.ok()) {
    finish(run, status);
    return;
  }
  advance(run);
}

Status DeviceProgram::begin(Run& run) {
  const plan::LaunchPlan& plan = *program_->plan;
  // Not earlier: an input whose maker fails has an error, and maybe no bytes.
  for (size_t i = 0; i < run.request.inputs.size(); ++i) {
    if (run.request.inputs[i].memory->bytes() < plan.input_bytes[i]) {
      return invalid_argument("input {} of {} has {} bytes, not {}", i, program_->name,
                              run.request.inputs[i].memory->bytes(), plan.input_bytes[i]);
    }
  }
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const LoweredProgram> wanted, lowered(run.is_shared));
  const bool is_timed = options_.profile || run.request.trace != nullptr;
  if (run.request.trace != nullptr) run.begun_ns = Trace::now();
  if (run.slot->recorded != wanted || run.slot->is_timed != is_timed) {
    run.slot->is_timed = is_timed;
    HEKLA_RETURN_IF_ERROR(record(*run.slot, std::move(wanted)));
  }
  if (is_split_) {
    // Other launches run between the parts of this one.
    run.arenas.resize(plan.arenas.size());
    for (size_t i = 0; i < plan.arenas.size(); ++i) {
      if (plan.arenas[i] == 0) continue;
      HEKLA_ASSIGN_OR_RETURN(run.arenas[i], device_->memory().allocate(plan.arenas[i]));
    }
  } else {
    HEKLA_ASSIGN_OR_RETURN(run.arenas, device_->lane_arenas(plan.arenas));
  }
  run.counters.resize(run.slot->recorded->host_counter_count);
  write_table(run);
  run.request.member.begin();
  return ok_status();
}

Status DeviceProgram::check_gang(const Run& run) {
  const pjrt::GangRef& gang = run.request.gang;
  return gang != nullptr && gang->is_aborted() ? gang->status() : ok_status();
}

void DeviceProgram::advance(const RunRef& run) {
  if (const Status status = check_gang(*run); !status.ok()) {
    finish(run, status);
    return;
  }
  const LoweredProgram& lowered = *run->slot->recorded;
  const auto go_on = [run](const LoweredPart& part, size_t choice) {
    run->part = part.next.empty() ? run->part + 1 : part.next[choice];
  };
  while (run->part < lowered.parts.size() && lowered.parts[run->part].host &&
         !lowered.parts[run->part].host->has_memory()) {
    const LoweredPart& part = lowered.parts[run->part];
    go_on(part, count(*part.host, run->counters));
  }
  if (run->part == lowered.parts.size()) {
    finish(run, ok_status());
    return;
  }
  const LoweredPart& part = lowered.parts[run->part];
  if (part.host) {
    if (part.host->kind == HostPart::Kind::kRun) ++device_->counters().host_steps;
    const auto work = [this, run, &part, go_on] {
      const Result<size_t> choice = run_on_host(*run, *part.host);
      if (!choice.ok()) {
        finish(run, choice.status());
        return;
      }
      go_on(part, *choice);
      advance(run);
    };
    if (run->request.transfers == nullptr) {
      device_->worker().post(work);
    } else {
      device_->callbacks().post(work);
    }
    return;
  }
  const bool decides = part.block_offset >= 0;
  const bool is_last = !decides && run->part + 1 == lowered.parts.size();
  if (decides && run->recording == 0) {
    // A part that is come to again begins with fresh counts.
    std::memcpy(run->slot->loop_state->host(), lowered.loop_state.data(),
                lowered.loop_state.size() * sizeof(uint32_t));
    run->pieces.clear();
    run->begun = std::chrono::steady_clock::now();
    run->most_pieces = run->request.gang == nullptr ? 0 : most_gang_pieces_.load();
  }
  if (decides) {
    run->submitted_at = std::chrono::steady_clock::now();
    run->largest = 0;
    const std::byte* state = run->slot->loop_state->host();
    run->state.assign(state, state + lowered.loop_state.size() * sizeof(uint32_t));
  }
  const std::vector<VkCommandBuffer> commands = submission(*run);
  // What uploads wrote has passed; the wait makes it visible.
  const TimelinePoint waits[] = {{&device_->transfer(), device_->transfer().passed()}};
  Result<uint64_t> epoch = device_->compute().submit(commands, waits);
  if (!epoch.ok()) {
    finish(run, epoch.status());
    return;
  }
  ++device_->counters().submissions;
  if (is_last) {
    run->release_readers();
    run->submitted->complete(ok_status());
  }
  device_->compute().when_passed(*epoch, [this, run, is_last, decides](const Status& status) {
    if (run->request.trace != nullptr) {
      run->passed_ns = Trace::now();
      run->passed_part = run->part;
    }
    if (is_last || !status.ok()) {
      finish(run, status);
    } else if (decides && !came_to_end(*run)) {
      if (device_->is_closed()) {
        finish(run, cancelled("{}: the client was closed during a loop", program_->name));
        return;
      }
      if (const Status goes_on = check_progress(*run); !goes_on.ok()) {
        finish(run, goes_on);
        return;
      }
      advance(run);
    } else {
      ++run->part;
      run->recording = 0;
      advance(run);
    }
  });
}

void DeviceProgram::finish(const RunRef& run, const Status& ended) {
  RunRef next;
  // The lane lets go of the launch's memory, and later of nothing.
  run->under_way.reset();
  run->results.clear();
  const Status status = run->request.member.ends_with(ended);
  if (options_.profile && status.ok() && run->slot != nullptr) log_profile(*run->slot);
  if (run->request.trace != nullptr) show(*run, status);
  if (run->slot != nullptr) {
    std::lock_guard lock(mutex_);
    run->slot->is_busy = false;
    run->slot = nullptr;
    if (!waiting_.empty()) {
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
  }
  run->release_readers();
  // Memory is there again before anybody hears of the end.
  run->request.inputs.clear();
  run->outputs.clear();
  run->arenas.clear();
  const CompletionRef done = std::move(run->request.done);
  run->submitted->complete(status);
  if (done) done->complete(status);
  run->request.member.ended(status);
  if (!next) return;
  if (!take_slot(next)) return;  // another launch was quicker; it waits again
  if (const Status begun = begin(*next); !begun.ok()) {
    // Not from here: a lost device would finish a long queue by recursion.
    device_->worker().post([this, next, begun] { finish(next, begun); });
  } else {
    advance(next);
  }
}

}  // namespace hekla::vulkan
