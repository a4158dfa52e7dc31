// SPDX-License-Identifier: Apache-2.0
// DeviceQueue: calls on device buffers on their way to a process group, which gets them in the
// order in which they were made, each when its input's contents are there. Internal to this folder.
//
// A call whose input is there, with none before it, goes at once. What waits, is copied to the host
// or goes back to a device is a thread's to do; who waits for a call does the last by itself. The
// plugin's threads only wake that thread. A block of calls that go together takes its place as one,
// when the inputs of all are there. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/process_group/device_arrays/device_memory.h"

namespace hekla::process_group {

// What has become of an input's contents; shared with a callback of the plugin's.
struct Arrival {
  std::atomic<bool> has_come = false;
  Status status;  // set before
};

// Where calls wait for the queue's thread; shared with callbacks that may come late.
struct DeviceSignal {
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  bool is_stopped = false;
  std::deque<std::pair<std::shared_ptr<DeviceWork::State>, Status>> ended;
  std::deque<std::pair<std::shared_ptr<DeviceUpload>, int64_t>> written;  // parts
};

// The memory of a call that is due.
struct DeviceElements {
  Elements out;
  ConstElements in;
};

// A call that goes as several, one after the other, of parts of its elements.
struct DeviceParts {
  DeviceElements all;
  int64_t count = 0;                               // elements
  int64_t at_once = 1;                             // of a part
  int64_t next = 0;                                // part
  std::vector<std::shared_ptr<Arrival>> arrivals;  // of parts of the input; empty: all are there
  std::shared_ptr<DeviceUpload> upload;            // of the output; null: it is not copied in parts

  int64_t size() const { return (count + at_once - 1) / at_once; }
};

struct DeviceWork::State : std::enable_shared_from_this<DeviceWork::State> {
  enum class Kind { kCollective, kSend, kReceive };
  using Issue = std::function<Work(const Elements& out, const ConstElements& in,
                                   std::chrono::nanoseconds timeout)>;

  // Set before others see it.
  std::string call;       // for messages
  std::string operation;  // for the other ranks
  Kind kind = Kind::kCollective;
  Deadline deadline = Deadline::never();
  std::optional<DeviceInput> input;
  std::optional<DeviceOutput> output;  // made when the call goes, unless it is there
  std::optional<DevicePlace> place;    // of the output, where the call has one to write
  bool may_write_over = false;         // the input's host array, where it went through one
  int64_t part_elements = 0;           // more than so many may go in parts of so many; 0: never
  std::unique_ptr<DeviceParts> parts;  // of a call that does, from when it is due until it has gone
  Issue issue;
  // Of a block in place of issue: around those of its members.
  std::function<Status()> begin_block;
  std::function<Work(std::chrono::nanoseconds timeout)> end_block;
  std::vector<std::shared_ptr<State>> members;  // calls that go when it goes
  std::vector<std::shared_ptr<State>> points;   // messages that have gone
  std::function<void(const Status&)> refuse;    // in place of issue
  Status refused;                               // by this rank, before
  std::shared_ptr<Arrival> arrival = std::make_shared<Arrival>();

  // It belongs to a block that has not ended.
  std::atomic<bool> is_held = false;
  Completion issued;
  // Set before issued.
  std::vector<Work> works;    // of its parts; or there is none
  bool makes_buffer = false;  // of a host array, at the end
  Completion done;
  std::atomic<bool> is_ended = false;   // somebody sees to `done`
  std::atomic<bool> is_hooked = false;  // the work tells

  // Once, of a call that the group has ended, by whoever comes first; then done.
  void end(const Status& status);
  // The same of a call that the group does not get, and of the members of a block.
  void end_unissued(const Status& status);
  bool is_block() const { return end_block != nullptr; }
  // The end is not left to who waits. After `issued`.
  void hook();

  std::weak_ptr<DeviceSignal> signal;  // of the queue; set by it
  std::mutex mutex;
  std::optional<runtime::Buffer> result;  // guarded by mutex, as the next
  bool is_given = false;
};

class DeviceQueue {
 public:
  // `group_status`: why the group has ended; calls that still wait for their inputs end then.
  DeviceQueue(bool may_be_direct, std::function<Status()> group_status)
      : may_be_direct_(may_be_direct), group_status_(std::move(group_status)) {}
  // stop().
  ~DeviceQueue();

  void add(const std::shared_ptr<DeviceWork::State>& state);
  // Calls that the group has not got end with CANCELLED, and so do later ones.
  void stop();
  DeviceCounts counts() const;

 private:
  using StateRef = std::shared_ptr<DeviceWork::State>;
  struct Line {
    std::deque<StateRef> calls;
    bool is_issuing = false;  // one that has left, on some thread
    StateRef in_parts;        // one that has left, and of which more parts are to go
  };

  void work();
  void start_thread_locked();
  // Sees to the arrival of its input; whether that is still to come.
  bool watch(DeviceWork::State& state) const;
  void watch(const runtime::Event& event, const std::shared_ptr<Arrival>& arrival,
             Deadline deadline) const;
  // To the group, or to the others that it is refused.
  void issue(DeviceWork::State& state);
  void issue_block(DeviceWork::State& block);
  Result<DeviceElements> open(DeviceWork::State& state);
  Result<ConstElements> open_input(DeviceWork::State& state);
  Result<Elements> open_output(DeviceWork::State& state);
  // Those parts of a call whose elements are there.
  void issue_parts(DeviceWork::State& state);
  static bool is_due(const DeviceWork::State& state);
  static bool is_part_due(const DeviceWork::State& state);
  Status check_arrival(const Arrival& arrival) const;

  const bool may_be_direct_;
  const std::function<Status()> group_status_;
  const std::shared_ptr<DeviceSignal> signal_ = std::make_shared<DeviceSignal>();
  Line collectives_, sends_;  // guarded by signal_->mutex
  std::atomic<int64_t> read_in_place_ = 0, read_copied_ = 0, written_in_place_ = 0,
                       written_copied_ = 0, reused_ = 0, parts_ = 0;
  std::mutex joining_;
  std::jthread thread_;  // last: uses the rest; made for the first call that needs it
};

}  // namespace hekla::process_group
