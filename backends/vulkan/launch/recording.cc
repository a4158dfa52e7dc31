// SPDX-License-Identifier: Apache-2.0
// DeviceProgram: what a slot holds: recorded command buffers, the argument table that they read and
// the timestamps that they write.
#include <algorithm>
#include <cstring>
#include <map>

#include "backends/vulkan/launch/device_program_run.h"
#include "runtime/base/log.h"

namespace hekla::vulkan {
namespace {

// Which barriers also name the stage that reads the grids of indirect dispatches, for which a
// device waits longer: the last one before each gate, which writes grids that earlier dispatches
// have read, and the first one behind it, before the dispatches that read them.
std::vector<bool> barriers_for_grids(const LoweredRecording& recording, size_t gate) {
  const auto& dispatches = recording.dispatches;
  std::vector<bool> result(dispatches.size(), false);
  size_t before = dispatches.size();  // the barrier that the run of dispatches began with
  bool has_gate = false;
  for (size_t i = 0; i < dispatches.size(); ++i) {
    if (dispatches[i].has_barrier_before) {
      result[i] = has_gate;
      before = i;
      has_gate = false;
    }
    if (dispatches[i].pipeline != gate) continue;
    has_gate = true;
    if (before < dispatches.size()) result[before] = true;
  }
  return result;
}

}  // namespace

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
  slot.timestamps.reset();
  const uint32_t family = device_->compute().queue().family;
  const bool has_clock = device_->device().snapshot().queue_families[family].timestamp_bits > 0;
  // A profiler without times of kernels still sees launches; who asks for the log wants them.
  if (slot.is_timed && (has_clock || options_.profile)) {
    std::vector<size_t> dispatches;
    for (const LoweredPart& part : lowered->parts) {
      for (const LoweredRecording& r : part.recordings) dispatches.push_back(r.dispatches.size());
    }
    HEKLA_ASSIGN_OR_RETURN(slot.timestamps,
                           Timestamps::create(device_->device_ref(), family, dispatches));
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
  const std::vector<bool> for_grids = barriers_for_grids(recording, gate_pipeline(*program_));
  if (slot.timestamps) slot.timestamps->begin(commands.handle(), number);
  for (size_t i = 0; i < recording.dispatches.size(); ++i) {
    const LoweredDispatch& dispatch = recording.dispatches[i];
    if (dispatch.has_barrier_before && for_grids[i]) {
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
      for (size_t i = 0; i + 1 < times->size(); ++i) {
        for (Sum* sum : {&sums[recording.dispatches[i].pipeline], &all}) {
          sum->ns += (*times)[i + 1] - (*times)[i];
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
    if (pipeline > gate_pipeline(*program_)) {
      name = program_->loops[pipeline - loop_pipeline(*program_, 0)].code.code.name;
    }
    if (pipeline < kernels.size()) {
      name = fmt::format("kernel {} {}", pipeline, kernels[pipeline].code.name);
    } else if (pipeline < copy_pipeline(*program_)) {
      name = program_->contractions[pipeline - kernels.size()].code.name;
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
      return {&run.arenas[i], slice.offset};
    case plan::Slice::Space::kLaunch:
      return {&run.slot->table, launch_offset(*run.slot->recorded) + slice.offset};
    case plan::Slice::Space::kConstant:
      break;
  }
  const auto& [memory, offset] = constants_[i];
  return {&memory, offset + slice.offset};
}

void DeviceProgram::write_table(Run& run) const {
  if (!run.slot->table) return;
  const uint32_t ids[] = {static_cast<uint32_t>(run.request.replica),
                          static_cast<uint32_t>(run.request.partition), run.request.number};
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

}  // namespace hekla::vulkan
