// SPDX-License-Identifier: Apache-2.0
// What a DeviceProgram keeps of one launch: its slot, its memory and how far it is. For the files
// of DeviceProgram alone: device_program.cc (from the request to the end), recording.cc (command
// buffers and argument tables), loop_progress.cc (loops that the device decides), host_steps.cc,
// launch_spans.cc (for profilers).
// A run is one thread's at a time: that of the caller, of the lane's watcher or of the host worker.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backends/reference/collectives_under_way.h"
#include "backends/vulkan/launch/device_program.h"
#include "backends/vulkan/launch/launch_end.h"
#include "backends/vulkan/launch/timestamps.h"

namespace hekla::vulkan {

// What one launch in flight records into and writes to.
struct DeviceProgram::Slot {
  bool is_busy = false;
  std::shared_ptr<const LoweredProgram> recorded;
  std::vector<std::unique_ptr<CommandBuffer>> commands;  // one per part with dispatches
  AllocationRef table;
  AllocationRef loop_state;
  bool is_timed = false;                   // recorded with timestamps where the queue has a clock
  std::unique_ptr<Timestamps> timestamps;  // a group per command buffer; null where nobody asks
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
  std::optional<ffi::LaunchCalls> calls;
  std::vector<AllocationRef> outputs;
  std::vector<bool> is_shared;  // per output: with the input whose memory it takes
  std::vector<bool> is_taken;   // per input: by such an output
  std::vector<Allocation*> counted_readers;
  std::vector<AllocationRef> arenas;  // null: of no bytes
  CompletionRef submitted;
  std::shared_ptr<LaunchEnd> end;  // null without a gang
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
  // Results of collectives under way, by number; after `arenas` and `outputs`, which these may be.
  std::map<int32_t, std::vector<HostOperand>> results;
  // For profilers, of the host's clock: when the launch came to the device, and when the host saw
  // that the last submission had ended, of which part.
  int64_t begun_ns = 0;
  int64_t passed_ns = 0;
  size_t passed_part = 0;
  std::unique_ptr<SerialQueue> own_lane;  // of a launch that meets its host
  std::unique_ptr<reference::CollectivesUnderWay> under_way;

  ~Run() { release_readers(); }
  // From now on the device's order protects what this launch reads.
  void release_readers() {
    for (Allocation* allocation : counted_readers) --allocation->unordered_readers;
    counted_readers.clear();
  }
};

}  // namespace hekla::vulkan
