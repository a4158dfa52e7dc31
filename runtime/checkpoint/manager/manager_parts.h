// SPDX-License-Identifier: Apache-2.0
// CheckpointManager::Parts: what a manager owns, and what its calls are made of. For the files of
// the manager alone: checkpoint_manager.cc (the calls), manager_parts.cc (what they share). Of the
// training thread but where a lock stands beside it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "runtime/base/async/serial_queue.h"
#include "runtime/checkpoint/commit/manager_lock.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/manager/checkpoint_manager.h"
#include "runtime/checkpoint/manager/preemption.h"
#include "runtime/checkpoint/manager/step_agreement.h"
#include "runtime/checkpoint/restore/shared_reads.h"

namespace hekla::checkpoint {

struct CheckpointManager::Parts {
  using Clock = std::chrono::steady_clock;

  Parts(Io& the_io, std::unique_ptr<rendezvous::Group> the_group, std::string the_root,
        ManagerOptions the_options)
      : io(the_io),
        group(std::move(the_group)),
        root(std::move(the_root)),
        options(std::move(the_options)) {}

  Io& io;
  const std::unique_ptr<rendezvous::Group> group;
  const std::string root;
  const ManagerOptions options;
  RootInfo info;
  ManagerLock lock;  // rank 0's, when it got it
  RecoveryReport recovery;
  std::unique_ptr<Saver> saver;
  std::unique_ptr<StepAgreement> preemption, timed;
  std::unique_ptr<PreemptionSignal> signal;
  std::atomic<Clock::rep> signal_time{0};

  // Of the training thread.
  std::vector<std::shared_ptr<SaveHandle>> handles;  // not looked at for errors yet
  std::shared_ptr<SaveHandle> last;
  int64_t last_saved_step = -1;
  Clock::time_point last_begin = Clock::now();
  int failures_in_row = 0;
  bool is_preempted = false;
  int64_t asked_step = -1;  // should_save was asked for it; a timed round is used once
  bool asked_answer = false;
  int64_t restores = 0;
  int64_t exchanges = 0;
  double save_seconds = 0;  // that the last committed save takes when somebody waits for it
  bool is_closed = false;

  // Deletion.
  std::mutex mutex;
  std::condition_variable changed;
  bool wants_cleaning = false, is_cleaning = false;  // guarded by mutex
  std::unique_ptr<SerialQueue> janitor;              // where the lock is held

  Status open();
  Status take_error();
  Result<std::shared_ptr<SaveHandle>> begin(int64_t step, State state, SaveArguments arguments);
  void clean();
  void ask_for_cleaning();
  Status wait_clean(Deadline deadline);
  Result<int64_t> agree_on_step(std::string_view what, std::optional<int64_t> mine);
  Result<std::vector<std::string>> gather(std::string_view name, int64_t round,
                                          std::string_view text, rendezvous::Group::Wait wait);
  Result<Restored> load(int64_t step, const RestoreRequest& request, const ShareReads& share);
  Result<Restored> load_with_others(int64_t step, const RestoreRequest& request);
  std::string reads_key() const;  // of this restore
  void note_end(const SaveHandle& handle);
  enum class LastSave { kNew, kReuse, kNone };
  Result<LastSave> agree_on_last_save(const SaveHandle* under_way);
  Clock::time_point preemption_deadline() const;
  Result<std::shared_ptr<const StepReader>> open_step(int64_t step);
};

}  // namespace hekla::checkpoint
