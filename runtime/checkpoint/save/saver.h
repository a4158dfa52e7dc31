// SPDX-License-Identifier: Apache-2.0
// Saver: saves states in the background, one after another, all ranks together.
//
// save() returns as soon as the state may change: at once for arrays that nobody changes and for
// device memory, after a copy for host memory that its owner may change; when that is more than the
// staging pool holds, after the last wave of it is written (report().waited_for_staging). Plan,
// images and offsets are kept while the layout stays.
//
// At most `max_in_flight` saves are under way. What happens to one more is the policy's to say, and
// rank 0 decides for all: every rank calls save() for the same steps in the same order. Handles may
// be used from any thread; save() from one thread at a time. The destructor waits for what is under
// way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/commit/committer.h"
#include "runtime/checkpoint/io/writer.h"
#include "runtime/checkpoint/save/shard_save.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/checkpoint/sharding/save_plan.h"
#include "runtime/rendezvous/group.h"

namespace hekla::checkpoint {

struct ShardLayout;

enum class BusyPolicy {
  kSkip,     // this save does not happen; counted and logged
  kWait,     // until there is room, which lifts the rate limit of those under way
  kReplace,  // instead of one that waits and has not begun; if there is none, wait
};

enum class SaveStage {
  kQueued,
  kStaging,       // arrays are being copied
  kWriting,       // the caller's arrays are free
  kWaitingPeers,  // this rank's files are durable
  kCommitting,
  kCommitted,
  kFailed,
  kSkipped,
};
std::string_view save_stage_name(SaveStage stage);

struct SaveProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;  // of this rank
};

struct SaveTimes {
  double blocked_seconds = 0;    // of the caller within save()
  double total_seconds = 0;      // from the call to the end
  double throttled_seconds = 0;  // of that, when nothing was written because nobody waited
  bool waited_for_staging = false;
};

class SaveHandle {
 public:
  int64_t step() const { return step_; }
  SaveStage stage() const;
  SaveProgress progress() const;
  SaveTimes times() const;
  // Until the end: ok when committed or skipped, else the error. DEADLINE_EXCEEDED: still under
  // way.
  Status wait(Deadline deadline = Deadline::never()) const;
  // Until the caller's arrays are free; ok also when the save has failed.
  Status wait_staged(Deadline deadline = Deadline::never()) const;
  // Ok while there is none.
  Status error() const;
  bool is_done() const;

 private:
  friend class Saver;
  explicit SaveHandle(int64_t step) : step_(step) {}
  // While it is kept the save does not yield to other work, and from now on it does not on
  // other ranks.
  Priority::Hold raise_priority() const;
  void enter(SaveStage stage);
  void end(SaveStage stage, Status status);

  const int64_t step_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  SaveStage stage_ = SaveStage::kQueued;  // guarded by mutex_, as all below
  bool is_staged_ = false;
  Status status_;
  SaveTimes times_;
  SaveProgress progress_;
  const ShardSave* payload_ = nullptr;         // while it is under way
  const RateLimiter* rate_limiter_ = nullptr;  // likewise, if there is one
  std::chrono::duration<double> throttled_before_{0};
  mutable std::function<void()> tell_peers_;  // likewise, until somebody waits
  std::shared_ptr<Priority> priority_;        // the pool's; set before anybody else has the handle
};

struct SaverOptions {
  // Saves go on behind the training loop; whoever waits for one raises its priority.
  WriterOptions writer = {.background = true};
  SaveOptions plan;  // world_size is the group's
  CommitOptions commit;
  SaveChecks checks;
  int max_in_flight = 1;  // 1 or 2
  std::string writer_version = "hekla";
  // Called on the saver's thread when a save has ended and its handle says so.
  std::function<void(int64_t step, const Status& status)> after_save;
  // How long rank 0's word whether a save is skipped may take.
  std::chrono::nanoseconds decision_deadline = std::chrono::minutes(5);
};

struct SaveArguments {
  std::string reason = "manual";
  std::map<std::string, double> metrics;
  BusyPolicy policy = BusyPolicy::kWait;
  bool overwrite = false;
};

class Saver {
 public:
  // `io` and `group` outlive it; `root` was opened by open_root.
  static Result<std::unique_ptr<Saver>> create(Io& io, rendezvous::Group& group, std::string root,
                                               std::string run_uuid, const SaverOptions& options);
  ~Saver();

  // Errors of a state or layout that cannot be saved come at once; all others are the handle's.
  Result<std::shared_ptr<SaveHandle>> save(int64_t step, State state,
                                           const SaveArguments& arguments = {});
  // Whether the next save would begin without waiting, by rank 0's word: every rank asks as often,
  // between the same saves. A save that was asked about too early raises the rate, as one
  // that is skipped does.
  Result<bool> has_room();
  // What is under way and what comes no longer yields to other work.
  void raise_priority();
  // Until nothing is under way.
  Status wait_idle(Deadline deadline = Deadline::never());

  struct Counts {
    int64_t committed = 0, failed = 0, skipped = 0, replaced = 0;
    int64_t plans_made = 0;
  };
  Counts counts() const;
  WriterPool& pool() { return *pool_; }

 private:
  struct Job;
  Saver(Io& io, rendezvous::Group& group, std::string root, std::string run_uuid,
        const SaverOptions& options);
  Result<std::shared_ptr<ShardLayout>> layout_of(State* state);
  Result<std::shared_ptr<SaveHandle>> start(const std::string& id, int64_t step, State state,
                                            const SaveArguments& arguments);
  Result<bool> may_start(BusyPolicy policy);
  bool is_room() const;  // mutex_ held
  Result<bool> agree_on_room(std::string_view name, int64_t round);
  // What is under way does not yield any more, here and on other ranks.
  std::vector<Priority::Hold> raise_all();
  void work();
  void run(Job& job);

  rendezvous::Group& group_;
  SaverOptions options_;
  std::unique_ptr<WriterPool> pool_;
  std::unique_ptr<Committer> committer_;  // used by thread_ alone
  // Used by save() alone.
  SavePlanner planner_;
  std::shared_ptr<ShardLayout> layout_;
  std::map<std::vector<int64_t>, std::shared_ptr<const HeldBoxes>> whole_boxes_;
  int64_t calls_ = 0;
  int64_t questions_ = 0;  // likewise by has_room(), from the same thread
  std::once_flag raised_;
  Priority::Hold hold_;  // from raise_priority() on

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> queue_;  // guarded by mutex_
  bool is_running_ = false;                 // guarded by mutex_; a job, with what follows it
  bool is_saving_ = false;                  // guarded by mutex_; its save, which takes a place
  bool is_closing_ = false;                 // guarded by mutex_
  Counts counts_;                           // guarded by mutex_
  std::shared_ptr<SaveHandle> current_;     // guarded by mutex_
  std::jthread thread_;
};

}  // namespace hekla::checkpoint
