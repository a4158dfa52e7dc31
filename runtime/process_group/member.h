// SPDX-License-Identifier: Apache-2.0
// Member: this process as a rank of one group: its calls, one after the other, what has come for
// them, and why the group has ended.
//
// Calls run on a thread of the member's. Where ranks share memory, a call is faster than to wake a
// thread: who waits for a call that no thread has begun runs it itself. As long as callers do that,
// the thread is not woken for each call; it looks once in a while whether one is left, runs it, and
// is then woken for each again.
//
// Owned by the group, which keeps the hub alive for longer; the hub's events reach it through weak
// references. Thread-safe.
#pragma once

#include <atomic>
#include <compare>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/process_group/call.h"
#include "runtime/process_group/direct_receives.h"
#include "runtime/process_group/elements.h"
#include "runtime/process_group/flight/flight_recorder.h"
#include "runtime/process_group/group_memory.h"
#include "runtime/process_group/host_layout.h"
#include "runtime/process_group/hub.h"
#include "runtime/process_group/work.h"

namespace hekla::process_group {

// What a message brought.
struct Mail {
  Head head;
  std::vector<HostArray> blocks;
};

// The bytes of x as a block of a message: those that its owner keeps as they are, unless they are
// to be copied; else a copy.
Result<HostArray> block_of(const ConstElements& x, bool is_copied);

class Member final : public Work::Runner, public std::enable_shared_from_this<Member> {
 public:
  // `processes`: of the hub, by rank.
  Member(Hub& hub, std::string name, std::vector<int> processes, int rank);
  ~Member() override;

  const std::string& name() const { return name_; }
  uint64_t id() const { return id_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(processes_.size()); }
  const std::vector<int>& processes() const { return processes_; }
  uint64_t sequence() const;
  Status status() const;
  std::string describe(int rank) const;  // "rank 1 (process 1 (pid 4711 on blue))"

  // A collective that this rank does not make, for what only it may see: the others' call in that
  // place fails at once, unless they refuse it too.
  void refuse(std::string_view call, const Status& why);
  uint32_t refused() const;  // how many
  // Of a call of this rank's, that another rank has refused it; ok: nobody has.
  Status refusal_of(uint64_t sequence, const Call& own) const;
  // Of calls that differ, by rank: which refusal it is that has put some out of step; ok: none. May
  // wait for a moment.
  Status refusal_among(uint64_t sequence, const std::map<int, Call>& calls);

  // The hub's events; `from` is a process.
  void deliver(int from, Head head, std::vector<HostArray> blocks);
  // Where a block of that message goes; null: anywhere.
  std::shared_ptr<void> place(int from, const Head& head, int64_t bytes);
  void lose(int process, const Status& why);
  void expire();  // messages whose deadlines are over

  // A collective: `run` is called after all earlier ones have ended. What it ends with is the
  // call's end, and the group's where it is an error.
  using Run = std::function<Status(uint64_t sequence)>;
  Work start(std::string call, Run run);
  Work start(const Call& call, Deadline deadline, Run run);
  void run(Work::State& state) override;
  bool run_if_next(Work::State& state) override;
  void hurry() override;

  // Collectives go through it from now on. Between calls, once.
  void share(std::unique_ptr<GroupMemory> memory);
  GroupMemory* memory() const { return shared_.load(std::memory_order_acquire); }
  // Which ranks are on one host, where that is known. Between calls, once.
  void set_layout(HostLayout layout) { layout_ = std::move(layout); }
  const HostLayout& layout() const { return layout_; }
  // Why a call that waits for `missing` ranks is not to wait any more; ok: it is.
  Status look(uint64_t sequence, const Call& own, const std::vector<int>& missing,
              Deadline deadline) const;

  Work send(ConstElements x, int to, uint64_t tag, Deadline deadline);
  // The receiver hears why it gets nothing.
  void refuse_send(int to, uint64_t tag, const Status& why);
  Work receive(Elements x, int from, uint64_t tag, Deadline deadline);

  // For `run`. Sends to a rank.
  void post(int to, Head head, std::vector<HostArray> blocks, CompletionRef sent);
  // All other ranks have come to the call `own`, and with the same one; what each brought, by rank.
  Result<std::vector<Mail>> meet(uint64_t sequence, const Call& own, Deadline deadline);
  // Steps of the call `own` under way that go straight into its caller's memory once all ranks have
  // come with the same call. They may still come in blocks of their own.
  DirectReceives& direct_receives(const Call& own);
  // What a rank sends as a step of the call.
  Result<HostArray> take(uint64_t sequence, const Call& own, uint64_t step, int from,
                         Deadline deadline);

  // Ends the group for all ranks. Calls that this rank has done come to their end on the others
  // too.
  void fail(const Status& why);
  void shutdown();
  // After a shutdown, that all that was sent arrives though this process ends, or its receiver has
  // gone; for a second at most where the group has failed.
  void await_sent(Deadline deadline) const;

 private:
  struct Job {
    Run run;
    std::shared_ptr<Work::State> state;
  };
  struct Posted {
    int from;  // -1: any
    uint64_t tag;
    Elements into;
    Deadline deadline;
    std::shared_ptr<Work::State> state;
  };
  struct Sending {
    Deadline deadline;
    std::shared_ptr<Work::State> state;
  };
  struct Key {
    uint64_t sequence;
    int from;
    bool is_call;
    uint64_t step;
    auto operator<=>(const Key&) const = default;
  };
  // A Work that has ended, to be told so without the lock.
  using Ended = std::vector<std::pair<std::shared_ptr<Work::State>, Status>>;

  void work(std::stop_token stop);
  Work start(std::shared_ptr<Work::State> state, Run run);
  void run_as_waiter(std::unique_lock<std::mutex>& lock);
  // Of the lock, which is let go while the first job runs. There is one, and none runs.
  void run_first(std::unique_lock<std::mutex>& lock);
  // What waits for something to come looks again.
  void stir();
  // Until nothing is written into memory of a call that has ended. Those whose pieces neither come
  // nor get lost are abandoned.
  void end_direct_receives();
  Status look_locked(uint64_t sequence, const Call& own, const std::vector<int>& missing,
                     Deadline deadline) const;
  void take_point(int from, Mail mail, Ended& ended);
  // All of these need the lock.
  // From the collective `sequence` on; true when calls end by it that would not have before.
  bool end(const Status& why, uint64_t sequence, Ended& ended);
  Status end_of(uint64_t sequence) const;
  static void fill(const Posted& posted, int from, const Mail& mail, Ended& ended);
  Status refusal_of_locked(uint64_t sequence, const Call& own) const;
  // `is_expected`: there is one, known or not.
  Status refusal_among_locked(uint64_t sequence, const std::map<int, Call>& calls,
                              bool& is_expected) const;
  // Up to the place of that call among those made and refused.
  void forget_refusals(uint64_t place);
  Status loss_of(int rank) const;
  std::string late(uint64_t sequence, const Call& own, const std::vector<int>& missing) const;

  void tell(const Ended& ended) const;
  void complete(Work::State& state, const Status& status) const;
  // Of messages; `call` has their dtype and count.
  void record(Work::State& state, flight::Kind kind, int other, uint64_t tag, DType dtype,
              int64_t count) const;
  // What has come of it, of each other rank.
  std::vector<CompletionRef> tell_all(Head::Kind kind, const Status& why);

  Hub& hub_;
  const std::string name_;
  const uint64_t id_;
  const std::vector<int> processes_;
  const int rank_;
  HostLayout layout_;
  std::map<int, int> rank_of_;    // by process
  FlightRecorder* const flight_;  // of the process; null: there is none
  uint64_t flight_id_ = 0;        // of this group there

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Status status_;                       // why the group has ended, first of all reasons
  uint64_t ended_from_ = ~uint64_t{0};  // the first collective that does not take place
  bool is_shut_down_ = false;
  std::deque<Job> jobs_;
  bool is_running_ = false;        // a job
  bool is_awaited_ = false;        // by a thread that found another running one
  bool is_hurried_ = false;        // the thread is to run what there is
  bool is_watching_ = false;       // the thread looks by itself
  bool is_run_by_waiters_ = true;  // of late
  int run_by_waiters_ = 0;         // in a row
  uint64_t started_ = 0;           // collectives
  uint64_t done_ = 0;
  uint32_t refused_ = 0;  // by this rank
  // What ranks have refused, by its place among calls made and refused, and by rank.
  std::map<std::pair<uint64_t, int>, std::string> refusals_;
  std::optional<Call> own_call_;  // under way, whose pieces direct_receives_ has, if any
  bool is_own_agreed_ = false;    // all ranks have come to it
  DirectReceives direct_receives_;
  std::map<Key, Mail> mails_;
  std::map<int, Status> lost_;                          // by rank
  std::map<int, std::pair<uint64_t, Call>> last_call_;  // by rank
  std::list<Posted> posted_;
  std::list<std::pair<int, Mail>> points_;  // messages that nobody has asked for yet, by arrival
  std::list<Sending> sending_;
  std::vector<CompletionRef> farewells_;  // behind all else that was sent
  bool is_left_well_ = false;             // without a failure
  std::condition_variable wanted_;        // of the thread
  std::unique_ptr<GroupMemory> memory_;
  std::atomic<GroupMemory*> shared_ = nullptr;
  std::jthread thread_;  // last: uses the rest; made for the first call
};

}  // namespace hekla::process_group
