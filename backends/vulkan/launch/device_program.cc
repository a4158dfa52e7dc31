// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/launch/device_program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>

#include "backends/compiler/plan/visit.h"
#include "backends/reference/collectives_under_way.h"
#include "backends/vulkan/launch/timestamps.h"
#include "backends/vulkan/queue/internal_thread.h"
#include "runtime/base/log.h"
#include "shaders/memory/copy.comp.h"
#include "shaders/memory/loop_gate.comp.h"

namespace hekla::vulkan {

// What one launch in flight records into and writes to.
struct DeviceProgram::Slot {
  bool is_busy = false;
  std::shared_ptr<const LoweredProgram> recorded;
  std::vector<std::unique_ptr<CommandBuffer>> commands;  // one per part with dispatches
  AllocationRef table;
  AllocationRef loop_state;
  std::unique_ptr<Timestamps> timestamps;  // a group per command buffer; null without a profile
};

// Counts the launch as in flight on its logical device for as long as it lives.
class InFlight {
 public:
  InFlight() = default;
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() {
    if (device_ != nullptr) device_->end_launch();
  }
  bool begin(LogicalDevice& device) {
    if (!device.begin_launch()) return false;
    device_ = &device;
    return true;
  }

 private:
  LogicalDevice* device_ = nullptr;  // outlives its launches: close() waits for them
};

struct DeviceProgram::HostOperand {
  AllocationRef memory;  // null: no bytes
  int64_t offset = 0;
  int64_t size = 0;
  std::vector<std::byte> staged;  // where the host does not see the memory

  std::span<std::byte> bytes() {
    if (!staged.empty()) return staged;
    if (!memory || size == 0) return {};
    return {memory->host() + offset, static_cast<size_t>(size)};
  }
};

struct DeviceProgram::Run {
  InFlight in_flight;  // first, so that it is destroyed last
  std::shared_ptr<DeviceProgram> program;
  LaunchRequest request;
  std::vector<AllocationRef> outputs;
  std::vector<bool> is_shared;  // per output: with the input whose memory it takes
  std::vector<bool> is_taken;   // per input: by such an output
  std::vector<Allocation*> counted_readers;
  AllocationRef arena;
  CompletionRef submitted;
  Slot* slot = nullptr;
  size_t part = 0;
  size_t recording = 0;           // of the part, the next submission's first
  std::vector<int64_t> pieces;    // of each loop, so far
  std::vector<int64_t> counters;  // of loops that the host counts
  // Of a part with decisions: when it began, when it was last submitted, in which state.
  std::chrono::steady_clock::time_point begun, submitted_at;
  std::vector<std::byte> state;
  // 0: submissions may grow; else the most pieces of a loop in one.
  int64_t most_pieces = 0;
  int64_t largest = 0;  // of the last submission's loops, pieces
  // Results of collectives under way, by number; after `arena` and `outputs`, which these may be.
  std::map<int32_t, std::vector<HostOperand>> results;
  std::unique_ptr<SerialQueue> own_lane;  // of a launch that meets its host
  std::unique_ptr<reference::CollectivesUnderWay> under_way;

  ~Run() { release_readers(); }
  // From now on the device's order protects what this launch reads.
  void release_readers() {
    for (Allocation* allocation : counted_readers) --allocation->unordered_readers;
    counted_readers.clear();
  }
};

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

  // The constants in one piece.
  constexpr int64_t kAlignment = 256;
  int64_t bytes = 0;
  for (const HostArray& constant : plan.constants) {
    constant_offsets_.push_back(bytes);
    const int64_t size = std::max<int64_t>(constant.size_bytes(), 1);
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (bytes == 0) return ok_status();
  HEKLA_ASSIGN_OR_RETURN(constants_, device_->memory().allocate(bytes));
  for (size_t i = 0; i < plan.constants.size(); ++i) {
    const HostArray& constant = plan.constants[i];
    std::promise<Status> uploaded;
    device_->transfers().upload(constant.data(), constants_, constant_offsets_[i],
                                constant.size_bytes(),
                                [&](const Status& status) { uploaded.set_value(status); });
    HEKLA_RETURN_IF_ERROR(uploaded.get_future().get());
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
  for (size_t i = 0; i < program_->kernels.size(); ++i) {
    if (!program_->kernels[i].is_interpreted()) add(i, program_->kernels[i].code);
  }
  bool has_others = false;
  plan::for_each_step(plan.steps, [&](const plan::Step& step) {
    has_others = has_others || !(std::holds_alternative<plan::KernelStep>(step.what) ||
                                 std::holds_alternative<plan::RowsStep>(step.what) ||
                                 std::holds_alternative<plan::HostStep>(step.what) ||
                                 std::holds_alternative<plan::StartStep>(step.what) ||
                                 std::holds_alternative<plan::DoneStep>(step.what));
  });
  if (has_others) {
    add(copy_pipeline(*program_), {{std::begin(kcopy_spirv), std::end(kcopy_spirv)}, 0, "copy"});
    add(gate_pipeline(*program_),
        {{std::begin(kloop_gate_spirv), std::end(kloop_gate_spirv)}, 0, "loop gate"});
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<PipelineRef> made, device_->pipelines().get(codes));
  pipelines_.resize(gate_pipeline(*program_) + 1);
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
  return enqueue(run, std::move(request));
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
    if (plan.output_input[i] >= 0) {
      const auto input = static_cast<size_t>(plan.output_input[i]);
      const LaunchInput& donor = request.inputs[input];
      if (donor.is_donated && donor.memory->unordered_readers == 0 &&
          donor.memory->bytes() == plan.output_bytes[i]) {
        run->is_taken[input] = run->is_shared[i] = true;
        run->outputs.push_back(donor.memory);
        continue;
      }
    }
    HEKLA_ASSIGN_OR_RETURN(AllocationRef memory, device_->memory().allocate(plan.output_bytes[i]));
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

LaunchOutputs DeviceProgram::enqueue(const RunRef& run, LaunchRequest request) {
  run->program = shared_from_this();
  run->request = std::move(request);
  run->submitted = Completion::make();
  const LaunchOutputs outputs{run->outputs, run->submitted};
  std::vector<CompletionRef> gates;
  for (size_t i = 0; i < run->request.inputs.size(); ++i) {
    LaunchInput& input = run->request.inputs[i];
    if (!run->is_taken[i]) {
      ++input.memory->unordered_readers;
      run->counted_readers.push_back(input.memory.get());
    }
    // A host step in front reads bytes; the lane's order is enough for the device.
    CompletionRef gate = starts_on_host_ ? input.ready : input.submitted;
    if (gate && !(gate->is_done() && gate->status().ok())) gates.push_back(std::move(gate));
  }
  const pjrt::GangRef gang = run->request.gang;
  // Gangs of a device run one after the other: their host steps may wait for peers, which must not
  // stand behind another gang's.
  // One that a callback launches may be waited for by the gang before it.
  if (gang != nullptr && !CallbackScope::is_inside()) {
    const CompletionRef before = device_->replace_last_gang(run->submitted);
    if (before != nullptr && !before->is_done()) gates.push_back(without_error(before));
  }
  ++device_->counters().launches;
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
  return outputs;
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
  if (run.slot->recorded != wanted) HEKLA_RETURN_IF_ERROR(record(*run.slot, std::move(wanted)));
  if (is_split_) {
    // Other launches run between the parts of this one.
    if (plan.arena_bytes > 0) {
      HEKLA_ASSIGN_OR_RETURN(run.arena, device_->memory().allocate(plan.arena_bytes));
    }
  } else {
    HEKLA_ASSIGN_OR_RETURN(run.arena, device_->lane_arena(plan.arena_bytes));
  }
  run.counters.resize(run.slot->recorded->host_counter_count);
  write_table(run);
  return ok_status();
}

Status DeviceProgram::record(Slot& slot, std::shared_ptr<const LoweredProgram> lowered) {
  slot.recorded = nullptr;
  const int64_t table_bytes = launch_offset(*lowered) + plan::kLaunchBytes;
  const bool has_table = !lowered->table.empty() || reads_launch_;
  if (has_table && (!slot.table || slot.table->bytes() < table_bytes)) {
    slot.table.reset();
    HEKLA_ASSIGN_OR_RETURN(slot.table, device_->memory().allocate(table_bytes, MemoryRole::kTable));
  }
  const auto state_bytes = static_cast<int64_t>(lowered->loop_state.size() * sizeof(uint32_t));
  if (state_bytes > 0) {
    if (!slot.loop_state || slot.loop_state->bytes() < state_bytes) {
      slot.loop_state.reset();
      HEKLA_ASSIGN_OR_RETURN(slot.loop_state,
                             device_->memory().allocate(state_bytes, MemoryRole::kTable));
    }
  }
  if (options_.profile) {
    std::vector<size_t> dispatches;
    for (const LoweredPart& part : lowered->parts) {
      for (const LoweredRecording& r : part.recordings) dispatches.push_back(r.dispatches.size());
    }
    HEKLA_ASSIGN_OR_RETURN(
        slot.timestamps,
        Timestamps::create(device_->device_ref(), device_->compute().queue().family, dispatches));
  }
  size_t recorded = 0;
  for (const LoweredPart& part : lowered->parts) {
    for (const LoweredRecording& recording : part.recordings) {
      if (recorded == slot.commands.size()) {
        HEKLA_ASSIGN_OR_RETURN(
            std::unique_ptr<CommandBuffer> fresh,
            CommandBuffer::create(device_->device_ref(), device_->compute().queue().family));
        slot.commands.push_back(std::move(fresh));
      }
      HEKLA_RETURN_IF_ERROR(record(slot, recorded++, recording));
    }
  }
  slot.recorded = std::move(lowered);
  ++device_->counters().recordings;
  return ok_status();
}

Status DeviceProgram::record(const Slot& slot, size_t number,
                             const LoweredRecording& recording) const {
  CommandBuffer& commands = *slot.commands[number];
  const bool is_several = recording.repeats > 1 || recording.loop >= 0;
  HEKLA_RETURN_IF_ERROR(
      commands.begin(is_several ? CommandBuffer::Use::kSeveral : CommandBuffer::Use::kRepeated));
  const DeviceFunctions& call = commands.call();
  const Pipeline* bound = nullptr;
  const bool is_indirect =
      std::any_of(recording.dispatches.begin(), recording.dispatches.end(),
                  [](const LoweredDispatch& dispatch) { return dispatch.indirect_offset >= 0; });
  if (slot.timestamps) slot.timestamps->begin(commands.handle(), number);
  for (size_t i = 0; i < recording.dispatches.size(); ++i) {
    const LoweredDispatch& dispatch = recording.dispatches[i];
    // Grids that dispatches wrote are read by a stage of their own, for which the device waits
    // longer.
    if (dispatch.has_barrier_before && is_indirect) {
      commands.barrier();
    } else if (dispatch.has_barrier_before) {
      commands.dispatch_barrier();
    }
    const Pipeline* pipeline = pipelines_[dispatch.pipeline].get();
    if (pipeline != bound) {
      call.CmdBindPipeline(commands.handle(), VK_PIPELINE_BIND_POINT_COMPUTE, pipeline->handle());
      bound = pipeline;
    }
    KernelPush push = dispatch.push;
    push.table = slot.table ? slot.table->address() + dispatch.first_entry * sizeof(uint64_t) : 0;
    call.CmdPushConstants(commands.handle(), device_->pipelines().layout(),
                          VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(push), &push);
    if (dispatch.indirect_offset >= 0) {
      call.CmdDispatchIndirect(
          commands.handle(), slot.loop_state->buffer(),
          static_cast<VkDeviceSize>(slot.loop_state->offset() + dispatch.indirect_offset));
    } else {
      call.CmdDispatch(commands.handle(), dispatch.grid[0], dispatch.grid[1], dispatch.grid[2]);
    }
    if (slot.timestamps) slot.timestamps->mark(commands.handle(), number, i);
  }
  return commands.end();
}

// One line for the launch and one for each pipeline, the dearest first. Of command buffers that ran
// several times (iterations of loops) the last time counts.
void DeviceProgram::log_profile(const Slot& slot) const {
  struct Sum {
    double ns = 0;
    int64_t dispatches = 0;
  };
  std::map<size_t, Sum> sums;
  Sum all;
  size_t number = 0;
  for (const LoweredPart& part : slot.recorded->parts) {
    for (const LoweredRecording& recording : part.recordings) {
      const Result<std::vector<double>> times = slot.timestamps->read(number++);
      if (!times.ok()) {
        return log_message(LogLevel::kWarning, "no profile of {}: {}", program_->name,
                           times.status().message());
      }
      for (size_t i = 0; i < times->size(); ++i) {
        for (Sum* sum : {&sums[recording.dispatches[i].pipeline], &all}) {
          sum->ns += (*times)[i];
          ++sum->dispatches;
        }
      }
    }
  }
  std::vector<std::pair<size_t, Sum>> ranked(sums.begin(), sums.end());
  std::sort(ranked.begin(), ranked.end(),
            [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  std::string text = fmt::format("profile of {}: {:.1f} us on the device, {} dispatches",
                                 program_->name, all.ns / 1e3, all.dispatches);
  const std::vector<DeviceKernel>& kernels = program_->kernels;
  for (const auto& [pipeline, sum] : ranked) {
    std::string name = pipeline == copy_pipeline(*program_) ? "copy" : "loop gate";
    if (pipeline < kernels.size()) {
      name = fmt::format("kernel {} {}", pipeline, kernels[pipeline].code.name);
    }
    text += fmt::format("\n  {:9.1f} us {:4.1f} % {:5} x {}", sum.ns / 1e3,
                        all.ns > 0 ? 100 * sum.ns / all.ns : 0, sum.dispatches, name);
  }
  log_line(LogLevel::kInfo, text);
}

// What the launch says of its device stands behind the argument table.
int64_t DeviceProgram::launch_offset(const LoweredProgram& lowered) {
  return static_cast<int64_t>(lowered.table.size() * sizeof(uint64_t));
}

// The memory that a slice lies in, none for an arena of no bytes, and its offset there.
std::pair<const AllocationRef*, int64_t> DeviceProgram::find(const Run& run,
                                                             const plan::Slice& slice) const {
  const auto i = static_cast<size_t>(slice.index);
  switch (slice.space) {
    case plan::Slice::Space::kInput:
      return {&run.request.inputs[i].memory, slice.offset};
    case plan::Slice::Space::kOutput:
      return {&run.outputs[i], slice.offset};
    case plan::Slice::Space::kArena:
      return {&run.arena, slice.offset};
    case plan::Slice::Space::kLaunch:
      return {&run.slot->table, launch_offset(*run.slot->recorded) + slice.offset};
    case plan::Slice::Space::kConstant:
      break;
  }
  return {&constants_, constant_offsets_[i] + slice.offset};
}

void DeviceProgram::write_table(Run& run) const {
  if (!run.slot->table) return;
  const uint32_t ids[] = {static_cast<uint32_t>(run.request.replica),
                          static_cast<uint32_t>(run.request.partition)};
  static_assert(sizeof(ids) == plan::kLaunchBytes);
  std::memcpy(run.slot->table->host() + launch_offset(*run.slot->recorded), ids, sizeof(ids));
  const std::vector<TableEntry>& table = run.slot->recorded->table;
  auto* entry = reinterpret_cast<uint64_t*>(run.slot->table->host());
  for (const TableEntry& slice : table) {
    if (!slice) {
      *entry++ = run.slot->loop_state->address();
      continue;
    }
    const auto [memory, offset] = find(run, *slice);
    // Without an arena a slice of it is empty; any address will do.
    const uint64_t base = *memory ? (*memory)->address() : run.slot->table->address();
    *entry++ = base + static_cast<uint64_t>(offset);
  }
}

uint32_t DeviceProgram::state_word(const Run& run, int64_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, run.slot->loop_state->host() + offset, sizeof(word));
  return word;
}

// What the launch's next submission holds: the part's recordings from the current one on.
std::vector<VkCommandBuffer> DeviceProgram::submission(Run& run) {
  const LoweredProgram& lowered = *run.slot->recorded;
  const LoweredPart& part = lowered.parts[run.part];
  size_t index = 0;
  for (size_t i = 0; i < run.part; ++i) index += lowered.parts[i].recordings.size();
  if (run.pieces.empty()) run.pieces.resize(lowered.loops.size(), 0);
  std::vector<VkCommandBuffer> commands;
  LaunchCounters& counters = device_->counters();
  for (size_t i = run.recording; i < part.recordings.size(); ++i) {
    const LoweredRecording& recording = part.recordings[i];
    int64_t times = recording.repeats;
    if (recording.loop >= 0) {
      const auto loop = static_cast<size_t>(recording.loop);
      // A loop that goes on gets as many pieces again as it had.
      times = run.pieces[loop] == 0 ? pieces_[loop].load() : run.pieces[loop];
      times = std::min(times, lowered.loops[loop].max_pieces);
      if (run.most_pieces > 0) times = std::min(times, run.most_pieces);
      run.largest = std::max(run.largest, times);
      run.pieces[loop] += times;
    }
    commands.insert(commands.end(), static_cast<size_t>(times),
                    run.slot->commands[index + i]->handle());
    counters.dispatches += times * static_cast<int64_t>(recording.dispatches.size());
    counters.barriers += times * recording.barrier_count;
  }
  return commands;
}

// After a submission of a part with decisions: whether the device came to its end. Else the launch
// goes on where the device is.
bool DeviceProgram::came_to_end(Run& run) {
  const LoweredProgram& lowered = *run.slot->recorded;
  const LoweredPart& part = lowered.parts[run.part];
  const uint32_t block = state_word(run, part.block_offset);
  if (block != part.end_block) {
    run.recording = part.recording_of_block[block];
    return false;
  }
  for (const LoweredRecording& recording : part.recordings) {
    if (recording.loop < 0) continue;
    const auto number = static_cast<size_t>(recording.loop);
    const LoweredLoop& loop = lowered.loops[number];
    int64_t needed = run.pieces[number];
    if (loop.iterations_offset >= 0) {
      const int64_t iterations = state_word(run, loop.iterations_offset);
      needed = (iterations + loop.iterations_per_piece - 1) / loop.iterations_per_piece;
    }
    pieces_[number] = std::clamp<int64_t>(needed, 1, loop.max_pieces);
  }
  return true;
}

// After a submission whose loops go on.
Status DeviceProgram::check_progress(Run& run) {
  const LoweredProgram& lowered = *run.slot->recorded;
  const bool all_count =
      std::all_of(lowered.loops.begin(), lowered.loops.end(),
                  [](const LoweredLoop& loop) { return loop.iterations_offset >= 0; });
  // Each submission takes an iteration at least, and counts it.
  if (all_count &&
      std::memcmp(run.state.data(), run.slot->loop_state->host(), run.state.size()) == 0) {
    return internal_error(
        "{}: {} has ended a submission without an iteration of the program's loops: the driver "
        "does "
        "not run what it is given",
        program_->name, device_->device().snapshot().name);
  }
  const auto now = std::chrono::steady_clock::now();
  if (run.request.gang != nullptr) {
    // A submission cannot be called back, and an error of a peer is to end this launch soon.
    constexpr std::chrono::milliseconds kLongest(20);
    const auto took = now - run.submitted_at;
    if (took > kLongest) {
      run.most_pieces = std::max<int64_t>(1, run.largest * kLongest / took);
      most_gang_pieces_ = run.most_pieces;
    }
  }
  const std::chrono::seconds timeout(device_->device().plan().launch_timeout_seconds);
  if (timeout.count() == 0) return ok_status();
  // Well below what the lane takes for a hung device.
  constexpr int kShare = 8;
  if (run.most_pieces == 0 && now - run.submitted_at > timeout / kShare) {
    run.most_pieces = run.largest;
  }
  if (now - run.begun < timeout) return ok_status();
  return Status(StatusCode::kDeadlineExceeded,
                fmt::format("{}: its loops have not ended within {} seconds "
                            "(vulkan_launch_timeout)",
                            program_->name, timeout.count()));
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
  const Point waits[] = {{&device_->transfer(), device_->transfer().passed()}};
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

namespace {

Status wait_for(const std::function<void(Transfers::Done)>& transfer) {
  std::promise<Status> promise;
  transfer([&](const Status& status) { promise.set_value(status); });
  return promise.get_future().get();
}

}  // namespace

DeviceProgram::HostOperand DeviceProgram::host_operand(const Run& run,
                                                       const plan::Slice& slice) const {
  const auto [memory, offset] = find(run, slice);
  HostOperand operand{*memory, offset, slice.bytes, {}};
  if (operand.memory && slice.bytes > 0 && operand.memory->host() == nullptr) {
    operand.staged.resize(static_cast<size_t>(slice.bytes));
  }
  return operand;
}

Status DeviceProgram::download(HostOperand& operand) const {
  if (operand.staged.empty()) return ok_status();
  return wait_for([&](Transfers::Done done) {
    device_->transfers().download(operand.memory, operand.offset, operand.staged.data(),
                                  operand.size, std::move(done));
  });
}

Status DeviceProgram::upload(const HostOperand& operand) const {
  if (operand.staged.empty()) return ok_status();
  return wait_for([&](Transfers::Done done) {
    device_->transfers().upload(operand.staged.data(), operand.memory, operand.offset, operand.size,
                                std::move(done));
  });
}

HostCall DeviceProgram::host_call(const Run& run) {
  HostCall call{run.request.replica, run.request.partition};
  if (run.request.gang != nullptr) call.cancelled = &run.request.gang->aborted();
  call.exchange = run.request.member.exchange();
  call.transfers = run.request.transfers.get();
  return call;
}

Result<size_t> DeviceProgram::run_on_host(Run& run, const HostPart& part) {
  if (part.kind == HostPart::Kind::kStart) {
    HEKLA_RETURN_IF_ERROR(start_collective(run, std::get<plan::StartStep>(part.step->what)));
    return size_t{0};
  }
  if (part.kind == HostPart::Kind::kDone) {
    HEKLA_RETURN_IF_ERROR(end_collective(run, std::get<plan::DoneStep>(part.step->what)));
    return size_t{0};
  }
  std::vector<HostOperand> operands;
  std::vector<bool> are_written;
  plan::for_each_slice(*part.step, *program_->plan,
                       [&](const plan::Slice& slice, const plan::Use& use) {
                         operands.push_back(host_operand(run, slice));
                         are_written.push_back(use.is_written);
                       });
  std::vector<std::span<std::byte>> bytes;
  for (HostOperand& operand : operands) {
    HEKLA_RETURN_IF_ERROR(download(operand));
    bytes.push_back(operand.bytes());
  }
  HEKLA_ASSIGN_OR_RETURN(const size_t choice,
                         run_host_part(part, *program_, bytes, host_call(run)));
  for (size_t i = 0; i < operands.size(); ++i) {
    if (are_written[i]) HEKLA_RETURN_IF_ERROR(upload(operands[i]));
  }
  HEKLA_RETURN_IF_ERROR(device_->device().health());
  return choice;
}

Status DeviceProgram::start_collective(Run& run, const plan::StartStep& step) {
  if (run.under_way == nullptr) {
    const bool has_peers = run.request.member.exchange() != nullptr;
    SerialQueue* lane = has_peers ? &device_->communication() : nullptr;
    // Several such launches may be on the device at once, one waiting for the other in a callback.
    if (has_peers && run.request.transfers != nullptr) {
      run.own_lane = std::make_unique<SerialQueue>(internal_thread_options());
      lane = run.own_lane.get();
    }
    run.under_way = std::make_unique<reference::CollectivesUnderWay>(lane);
  }
  std::vector<HostOperand> operands;
  std::vector<HostOperand>& kept = run.results[step.number];
  for (const plan::Slice& slice : step.inputs) operands.push_back(host_operand(run, slice));
  for (const plan::Slice& slice : step.outputs) kept.push_back(host_operand(run, slice));
  std::vector<std::span<std::byte>> inputs, outputs;
  for (HostOperand& operand : operands) {
    HEKLA_RETURN_IF_ERROR(download(operand));
    inputs.push_back(operand.bytes());
  }
  for (HostOperand& operand : kept) outputs.push_back(operand.bytes());
  return run.under_way
      ->start(step.number, *step.program, inputs, outputs,
              evaluate_options(*program_, host_call(run)))
      .with_context(step.name);
}

Status DeviceProgram::end_collective(Run& run, const plan::DoneStep& step) {
  HEKLA_RETURN_IF_ERROR(run.under_way->await(step.number));
  const auto kept = run.results.extract(step.number);
  for (const HostOperand& result : kept.mapped()) HEKLA_RETURN_IF_ERROR(upload(result));
  return device_->device().health();
}

void DeviceProgram::finish(const RunRef& run, const Status& ended) {
  RunRef next;
  // The lane lets go of the launch's memory, and later of nothing.
  run->under_way.reset();
  run->results.clear();
  const Status status = run->request.member.ends_with(ended);
  if (status.ok() && run->slot != nullptr && run->slot->timestamps) log_profile(*run->slot);
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
  run->arena.reset();
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
