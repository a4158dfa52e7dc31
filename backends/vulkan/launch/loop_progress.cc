// SPDX-License-Identifier: Apache-2.0
// DeviceProgram: loops whose iterations the device decides: how many pieces a submission has, and
// after it where the device is and whether it goes on.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "backends/vulkan/launch/device_program_run.h"

namespace hekla::vulkan {

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

}  // namespace hekla::vulkan
