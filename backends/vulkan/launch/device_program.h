// SPDX-License-Identifier: Apache-2.0
// DeviceProgram: a LaunchProgram loaded on a logical device, ready to be launched many times.
//
// Loading compiles the pipelines and uploads the constants. A launch never waits: it allocates the
// outputs, and as soon as its inputs are in order it takes a slot (recorded command buffers and an
// argument table), writes the table and submits once; with host steps once per run of dispatches
// between them, and again while a loop has more iterations than were submitted. Slots are recorded
// when first needed and used again; when all are in flight a launch waits in a queue, not its
// caller. Errors of inputs, of host steps and of the device end in the launch's `done`.
// Thread-safe.
//
// A gang's abort is told to the launch's callers at once (launch_end.h). Nobody can call a
// submission back: the launch keeps its memory until the device has run the steps up to the next
// one of the host, and 20 ms of a loop, and what stands before it in the queue that the logical
// devices of a GPU share. Then it sees the abort and ends.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/compiler/plan/step_details.h"
#include "backends/pjrt/gang.h"
#include "backends/reference/gang_exchange.h"
#include "backends/vulkan/launch/logical_device.h"
#include "backends/vulkan/launch/lowering.h"
#include "backends/vulkan/queue/command_buffer.h"
#include "runtime/base/async/completion.h"
#include "runtime/base/host_transfers.h"

namespace hekla::vulkan {

struct ProgramOptions {
  // Prove the barriers of each recording with the second algorithm. On in debug builds.
#ifdef NDEBUG
  bool check_barriers = false;
#else
  bool check_barriers = true;
#endif
  bool all_barriers = false;
  // Log the device's time of each launch, by kernel.
  bool profile = false;
  // Launches of this program that are on the device at once.
  int64_t max_slots = 8;
  // Overrides the device's limits, for tests of folded grids.
  std::array<uint32_t, 3> max_group_count = {0, 0, 0};
  // 0: kMaxDispatchesPerSubmission.
  int64_t max_dispatches_per_submission = 0;
  // Per output, kTensor or kHostTensor; none: all kTensor.
  std::vector<MemoryRole> output_roles;
};

struct LaunchInput {
  AllocationRef memory;
  // When what makes this memory is in the compute lane's order, or has ended; an error fails the
  // launch. Host memory semantics need `ready`.
  CompletionRef submitted;
  // When the bytes are there.
  CompletionRef ready;
  // The launch is the memory's only owner and may give it to an output.
  bool is_donated = false;
};

struct LaunchRequest {
  std::vector<LaunchInput> inputs;
  int64_t replica = 0;
  int64_t partition = 0;
  uint32_t number = 0;  // see pjrt::Launch
  // Null where the program runs on one device; see pjrt::Launch.
  pjrt::GangRef gang;
  // Where it meets its host; null: nowhere.
  std::shared_ptr<HostTransfers> transfers;
  std::shared_ptr<pjrt::CollectiveCounters> collectives;
  // For the program's calls of the user's functions.
  ffi::LaunchInfo info;
  // What profilers call it; null: none watches.
  TraceDetailRef trace;
  // Its place among the devices that meet in host steps; empty where none do.
  reference::GangMember member;
  // Completed when all outputs are written, or with the error.
  CompletionRef done;
};

struct LaunchOutputs {
  std::vector<AllocationRef> memory;
  // Later launches on the same logical device may be submitted after this one.
  CompletionRef submitted;
};

class DeviceProgram : public std::enable_shared_from_this<DeviceProgram> {
 public:
  // Errors of check_program, of pipelines and memory.
  // Blocks while it compiles and uploads.
  static Result<std::shared_ptr<DeviceProgram>> load(std::shared_ptr<LogicalDevice> device,
                                                     std::shared_ptr<const LaunchProgram> program,
                                                     const ProgramOptions& options = {});
  ~DeviceProgram();

  struct Run;
  using RunRef = std::shared_ptr<Run>;
  // Memory for the outputs. RESOURCE_EXHAUSTED: they do not fit; INVALID_ARGUMENT: not as many
  // inputs as planned.
  Result<RunRef> prepare(const LaunchRequest& request);
  // The launch's outputs, which it will write once it is enqueued. Neither can fail; what goes
  // wrong from here on ends in `done`. Devices that meet in the program run their gangs in the
  // order of enqueue(), one after the other, but for those that call their host.
  LaunchOutputs accept(const RunRef& run, LaunchRequest request);
  void enqueue(const RunRef& run);
  // All three. After an error nothing was enqueued and `request` is as it was.
  Result<LaunchOutputs> launch(LaunchRequest& request);

  const LaunchProgram& program() const { return *program_; }

 private:
  struct Slot;
  friend struct Run;

  DeviceProgram(std::shared_ptr<LogicalDevice> device, std::shared_ptr<const LaunchProgram> program,
                const ProgramOptions& options);
  Status prepare();
  Status load_pipelines();
  Status upload_constants();
  Result<std::shared_ptr<const LoweredProgram>> lowered(const std::vector<bool>& is_shared);
  Status record(Slot& slot, std::shared_ptr<const LoweredProgram> lowered);
  Status record(const Slot& slot, size_t number, const LoweredRecording& recording) const;
  std::pair<const AllocationRef*, int64_t> find(const Run& run, const plan::Slice& slice) const;
  void write_table(Run& run) const;
  static int64_t launch_offset(const LoweredProgram& lowered);

  void start(const RunRef& run);
  Status begin(Run& run);
  void advance(const RunRef& run);
  std::vector<VkCommandBuffer> submission(Run& run);
  bool came_to_end(Run& run);
  // INTERNAL: the device does nothing; DEADLINE_EXCEEDED: loops that take too long.
  Status check_progress(Run& run);
  // Ok where the launch may go on.
  static Status check_gang(const Run& run);
  static uint32_t state_word(const Run& run, int64_t offset);
  // Of a part with memory: its choice.
  Result<size_t> run_on_host(Run& run, const HostPart& part);
  // Memory that a step of the host names, as the host sees it.
  struct HostOperand;
  HostOperand host_operand(const Run& run, const plan::Slice& slice) const;
  Status download(HostOperand& operand) const;
  Status upload(const HostOperand& operand) const;
  reference::LaunchContext launch_context(Run& run) const;
  Status start_collective(Run& run, const plan::StartStep& step);
  Status end_collective(Run& run, const plan::DoneStep& step);
  void log_profile(const Slot& slot) const;
  TraceDetailRef detail_of(const LoweredDispatch& dispatch);
  // Tells profilers of a launch that has ended and still has its slot.
  void show(Run& run, const Status& ended);
  void finish(const RunRef& run, const Status& ended);
  // Gives the run a slot; without one it waits, and from then on is another thread's.
  bool take_slot(const RunRef& run);

  const std::shared_ptr<LogicalDevice> device_;
  const std::shared_ptr<const LaunchProgram> program_;
  const ProgramOptions options_;
  std::vector<PipelineRef> pipelines_;  // by number (lowering.h); null: never run
  std::vector<std::pair<AllocationRef, int64_t>> constants_;  // where each begins
  bool starts_on_host_ = false;
  bool reads_launch_ = false;
  bool is_split_ = false;
  // How many pieces of each loop a launch begins with: what the last one needed.
  std::deque<std::atomic<int64_t>> pieces_;
  plan::StepDetails details_;
  // As Run::most_pieces, for launches of gangs; found by the first.
  std::atomic<int64_t> most_gang_pieces_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;  // guarded by mutex_; a busy one is its run's
  std::deque<RunRef> waiting_;                // guarded by mutex_
  std::map<std::vector<bool>, std::shared_ptr<const LoweredProgram>> lowered_;  // guarded by mutex_
};

}  // namespace hekla::vulkan
