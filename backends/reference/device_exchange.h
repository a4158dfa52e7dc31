// SPDX-License-Identifier: Apache-2.0
// DeviceExchange: where the devices of one launch meet to exchange arrays.
//
// Made for one launch and shared by its devices, each of which calls from a thread of its own, or
// from several one after the other. A device posts what it brings to a meeting and collects what
// all members brought; it sends to a device and receives from one. Collecting and receiving wait.
// A device may have a second thread, its communication lane, which only collects and receives while
// the first one goes on.
//
// Nobody waits for ever. Whenever a device begins to wait or finishes, the exchange looks for
// devices whose wait can never end (each of them waits for one that has finished or for another of
// them) and fails the launch with FAILED_PRECONDITION, which names who waits where for whom. An
// error or abort() wakes everybody with one and the same status; the first one counts. For this
// every device must call finish() when it is done, and whoever cancels a launch calls abort(): the
// exchange cannot see a device that died without a word.
//
// Nor can it see whether a device that runs, or has not begun, will come. WaitLimits bound the wait
// for it: after warn_after the log says, once, who waits where for whom and what is known of those
// that are missing; after deadline the launch fails with DEADLINE_EXCEEDED, which says the same.
// Time counts while the device can do nothing else: not while its lane alone waits.
//
// Devices of the launch may be another process's (GangLink): what they bring comes in by deliver(),
// and what own devices bring to a meeting goes there in one message for each process, once all of
// them have come. Such a device is believed to go on until its process says that it has finished,
// or that it has come to a stop (process_state.h), which those that wait for 100 ms do: so endless
// waits over several processes are found too, once all of them stand still.
//
// Where devices are launched one by one (Matching::kByOrder, backends/pjrt/communicator.h), one
// exchange serves all their launches, each of which begins and ends when it likes. A device comes
// to the meetings of the same members one after the other, whatever its program calls them, and
// what it receives from another has the order in which that one sent; where one comes with another
// operation than the rest, the exchange fails with FAILED_PRECONDITION. Such a device finishes only
// where its launch has failed, its process is gone, or its client and all its launches are.
//
// All calls are thread-safe. Arrays that go in are copied unless the caller moved the only
// reference in; what comes out is shared by the receivers, who only read it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/pjrt/gang_link.h"
#include "backends/reference/exchange_message.h"
#include "backends/reference/process_state.h"
#include "runtime/base/async/deadline.h"
#include "runtime/base/host_array.h"
#include "runtime/base/status.h"
#include "runtime/program/ir/device_groups.h"

namespace hekla::reference {

struct WaitLimits {
  std::chrono::nanoseconds warn_after{0};  // 0: never
  std::chrono::nanoseconds deadline{0};    // 0: none
  std::string program = {};                // for messages; empty: "a launch"
  std::vector<std::string> devices = {};   // their names, for messages; empty: the grid's
};

class DeviceExchange {
 public:
  using Arrays = std::vector<HostArray>;

  // Which of the meetings of the same members, and which messages of a pair, belong together.
  enum class Matching : uint8_t {
    kBySite,   // of one operation, or channel, of the program that all devices run
    kByOrder,  // the n-th, whatever it is
  };

  // Where a device is in its program: the operation's identity, which is equal on all devices for
  // the same operation (its address, where they share the program; what it does, where they do not
  // or are in several processes), and its name and location for messages.
  struct Site {
    uint64_t id = 0;
    std::string name;
  };
  // A meeting that a device has posted to.
  struct Ticket {
    uint64_t id = 0;
    std::vector<int64_t> members;
    int64_t round = 0;  // how often the members have met here before
  };

  // Which of its threads a device calls from.
  enum class Thread : uint8_t { kMain, kLane };

  // `link`: to the devices of other processes; null where all are this one's.
  explicit DeviceExchange(ir::DeviceGrid grid, WaitLimits limits = {},
                          std::shared_ptr<pjrt::GangLink> link = nullptr,
                          Matching matching = Matching::kBySite);
  DeviceExchange(const DeviceExchange&) = delete;
  DeviceExchange& operator=(const DeviceExchange&) = delete;

  const ir::DeviceGrid& grid() const { return grid_; }
  bool has_other_processes() const { return link_ != nullptr; }
  // What one device brings may not be what another expects.
  bool has_other_programs() const {
    return has_other_processes() || matching_ == Matching::kByOrder;
  }

  // The device's part of the launch runs from now on; for messages.
  void begin(int64_t device);

  // Brings `arrays` to the meeting of `members` at `site`; `device` is one of them. Does not wait.
  Result<Ticket> post(int64_t device, const Site& site, std::vector<int64_t> members,
                      Arrays arrays);
  // Waits until all members have posted: what each brought, in the order of the members. Once per
  // ticket.
  Result<std::vector<Arrays>> collect(int64_t device, const Site& site, const Ticket& ticket,
                                      Thread thread = Thread::kMain);

  // A channel by its number, or of one operation.
  struct Channel {
    int64_t number = 0;
    uint64_t site = 0;  // 0: by its number
    auto operator<=>(const Channel&) const = default;
  };
  // Each pair of devices has a queue in each channel. `target` and `source` are absent where the
  // program does not say: such a channel has one sender and one receiver. send() does not wait.
  Status send(int64_t device, const Site& site, const Channel& channel,
              std::optional<int64_t> target, Arrays arrays);
  Result<Arrays> receive(int64_t device, const Site& site, const Channel& channel,
                         std::optional<int64_t> source, Thread thread = Thread::kMain);

  // The main thread begins, or no longer has, to wait for something that its lane does: as long as
  // it does, the device can only go on where the lane can.
  void set_waits_for_lane(int64_t device, bool waits);
  // What the lane waits for, now or later, ends with CANCELLED.
  void call_off_lane(int64_t device);

  // What has come from another process: what its devices bring, or, with an empty head, that they
  // have finished. Nonsense ends the launch with DATA_LOSS.
  void deliver(int from, std::string_view head, std::vector<HostArray> blocks);

  // The device leaves the launch; what it ends with. An error ends the launch for all others, who
  // hear which device failed. A device that leaves without having received what was sent to it
  // ends the launch with an error, which is then its own too.
  Status finish(int64_t device, const Status& status);
  // With Matching::kByOrder: the device comes to no meeting any more, and its launches have ended.
  // Those that wait for it end with FAILED_PRECONDITION.
  void leave(int64_t device);
  // Ends the launch; `status` is an error.
  void abort(const Status& status);
  // The error that ended the launch.
  Status status() const;

 private:
  using Clock = Deadline::Clock;
  struct Meeting {
    std::vector<std::optional<Arrays>> brought;  // by member
    size_t missing = 0;
    size_t own_missing = 0;
    size_t to_collect = 0;  // by own devices
    // Of who came first.
    std::optional<Site> site;
    int64_t first = 0;
  };
  using MeetingKey = std::pair<std::pair<uint64_t, int64_t>, std::vector<int64_t>>;
  struct Queue {
    Channel channel;
    int64_t source;  // kAnyone where the program does not say
    int64_t target;
    auto operator<=>(const Queue&) const = default;
  };
  struct Mail {
    int64_t sender;
    Site site;
    Arrays arrays;
  };
  // What a thread waits for, a meeting or a message, and at what operation.
  struct Wait {
    std::string where;
    std::optional<MeetingKey> meeting;
    std::optional<Queue> queue;
    Clock::time_point since = {};  // the device can do nothing else
  };
  struct Device {
    bool has_begun = false;
    bool is_finished = false;
    std::string last_site;  // that it came to; empty: none so far
    std::optional<Wait> main, lane;
    bool waits_for_lane = false;
    bool is_lane_called_off = false;
    std::map<std::pair<uint64_t, std::vector<int64_t>>, int64_t> rounds;
  };
  static constexpr int64_t kAnyone = -1;

  // All of these need the lock.
  void fail(const Status& status);
  // Blocks until is_there(), an error, or the lane's end.
  template <typename IsThere>
  Status wait(std::unique_lock<std::mutex>& lock, int64_t device, Thread thread, Wait what,
              const IsThere& is_there);
  // What keeps the device from going on by itself; null: nothing.
  const Wait* obstacle(int64_t device) const;
  // The devices that `device` waits for, and whether one of them is enough.
  std::pair<std::vector<int64_t>, bool> waits_for(int64_t device) const;
  bool can_go_on(int64_t device) const;
  void look_for_endless_waits();
  // When a device that waits is to be heard of next.
  Deadline patience_of(int64_t device, const Wait& wait) const;
  // The device has waited for as long as its patience lasts.
  void complain(const Wait& wait);
  // Who waits where for whom, a line each, and what is known of those that are missing.
  std::string who_waits() const;
  std::string name(int64_t device) const;
  // Messages that `device`, which has finished, can no longer receive: an error, which is returned.
  Status look_for_lost_mail(int64_t device);
  Status check_device(int64_t device, Thread thread) const;
  bool is_own(int64_t device) const { return link_ == nullptr || link_->is_own(device); }
  Meeting& meeting_at(const MeetingKey& key);
  // A device comes to a meeting at `site`: FAILED_PRECONDITION where others came with another one.
  Status come(Meeting& meeting, int64_t device, const Site& site) const;
  Status another_operation(int64_t device, const Site& site, int64_t other,
                           const Site& its_site) const;
  uint64_t meeting_id(uint64_t site) const { return matching_ == Matching::kByOrder ? 0 : site; }
  Channel queue_channel(const Channel& channel) const;
  // Why a device that has finished did, where its process is lost.
  Status loss_of(int64_t device) const;
  // What own devices brought to a meeting.
  ExchangeMessage own_parts(const MeetingKey& key, const Meeting& meeting,
                            const std::string& where) const;
  Status take(int from, ExchangeMessage message);
  Status take_mail(ExchangeMessage message);
  Status take_parts(int from, ExchangeMessage message);
  // The processes of these devices but this one, each of which a message is about to be sent to.
  std::vector<int> count_messages_to(const std::vector<int64_t>& devices);
  // Without the lock.
  void hand_over(const std::vector<int>& processes, const ExchangeMessage& message) const;
  bool has_come_to_a_stop() const;
  // With the lock, which it gives up meanwhile: tells the others so, where they have not heard it.
  void tell_of_stop(std::unique_lock<std::mutex>& lock);
  void look_for_stuck_processes();

  const ir::DeviceGrid grid_;
  const WaitLimits limits_;
  const std::shared_ptr<pjrt::GangLink> link_;  // shared with the gang
  const Matching matching_;
  const size_t own_count_;            // of this process's devices
  const std::vector<int> processes_;  // all, sorted
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Status status_;
  std::vector<Device> devices_;
  size_t finished_ = 0;
  size_t own_finished_ = 0;
  std::map<int, ProcessState::Count> counts_;  // of messages to and from other processes
  StuckProcesses stuck_;
  bool tells_of_stops_ = false;  // an own device has waited for long, and no wait has ended since
  bool has_warned_ = false;
  std::map<MeetingKey, Meeting> meetings_;
  std::map<Queue, std::deque<Mail>> mails_;
};

}  // namespace hekla::reference
