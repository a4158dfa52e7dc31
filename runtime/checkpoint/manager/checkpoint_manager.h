// SPDX-License-Identifier: Apache-2.0
// CheckpointManager: what a training loop holds. Decides when to save, saves in the background with
// all ranks, restores, deletes what need not be kept, and ends well when it is preempted.
//
//   auto manager = CheckpointManager::open(root, options);       // RANK, WORLD_SIZE, HEKLA_STORE
//   int64_t step = manager->latest_step() + 1;                   // restore(...) when it is not -1
//   for (; step < end; ++step) {
//     train();
//     if (manager->reached_preemption(step)) {
//       return manager->save_for_preemption(step, state());      // exit code 75 or 76
//     }
//     if (manager->should_save(step)) manager->save_async(step, state());
//   }
//   manager->close();
//
// Every rank makes one with the same options and calls the same functions for the same steps in the
// same order, from one thread. What fails in the background is returned by the next save_async,
// save, wait or close on every rank, and logged at once; with `continue_on_error` only after
// `max_failures` in a row. Only the manager that holds LOCK recovers and deletes; a second one on
// the same root saves and restores.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/commit/recovery.h"
#include "runtime/checkpoint/manager/policies.h"
#include "runtime/checkpoint/restore/restore.h"
#include "runtime/checkpoint/save/saver.h"
#include "runtime/checkpoint/save/state.h"
#include "runtime/rendezvous/group.h"

namespace hekla::checkpoint {

struct ManagerOptions {
  SavePolicy save;
  Retention retention;
  SaverOptions saver;
  StepReaderOptions reader;
  // Of save_async when one is under way. With kSkip and kReplace a step that was asked for may be
  // missing; should_save then says no while a save is under way, so that few are asked for.
  BusyPolicy busy_policy = BusyPolicy::kWait;
  bool overwrite = false;  // a step that exists is replaced
  // On these signals all ranks agree upon a step; empty: no handler is installed.
  std::vector<int> preemption_signals;
  // From the signal to the end of the save that it asks for; 0: no limit. A save that would take
  // longer than what is left, by the time that the last one took, is not begun.
  std::chrono::nanoseconds preemption_grace{0};
  // A save that is under way and began no longer ago than this will do for a preemption: the
  // restart then goes on at its step.
  std::chrono::nanoseconds preemption_reuse{0};
  bool continue_on_error = false;
  int max_failures = 3;
  bool adopt = true;                            // of recovery
  std::map<std::string, std::string> metadata;  // into ROOT.json of a new root
  std::chrono::nanoseconds group_deadline = std::chrono::minutes(5);
};

struct Restored {
  int64_t step = -1;
  RestoreReport tensors;
  std::map<std::string, Item> items;
};

class CheckpointManager {
 public:
  // `io` outlives the manager; `group` is taken over.
  static Result<std::unique_ptr<CheckpointManager>> open(Io& io,
                                                         std::unique_ptr<rendezvous::Group> group,
                                                         std::string root, ManagerOptions options);
  // On the machine's files, with the group of the environment.
  static Result<std::unique_ptr<CheckpointManager>> open(std::string root, ManagerOptions options);
  // close(), its error logged: steps that were asked for are there when it has returned. A process
  // that ends without it (std::exit does not destroy local variables) has those of before.
  ~CheckpointManager();

  // Whether the policy wants this step saved; also at the step agreed upon for preemption. With
  // kSkip not while a save is under way.
  Result<bool> should_save(int64_t step);
  // Returns when the arrays may change. The step will be there, whatever else is under way: it
  // waits for a place, and whoever waits lifts the rate limit of the save before (but see
  // busy_policy, and Saver for large host arrays). What goes wrong later is the handle's to say.
  Result<std::shared_ptr<SaveHandle>> save_async(int64_t step, State state,
                                                 const std::map<std::string, double>& metrics = {});
  // Returns when the step is committed.
  Status save(int64_t step, State state, const std::map<std::string, double>& metrics = {});

  // The newest step, or one. Rank 0 chooses for all. When the newest turns out to be damaged the
  // one before is taken, loudly. NOT_FOUND: there is none.
  Result<Restored> restore(const RestoreRequest& request = {},
                           std::optional<int64_t> step = std::nullopt);
  // For reading parts of it later; it is not deleted meanwhile.
  Result<std::shared_ptr<const StepReader>> open_step(int64_t step);

  Result<std::vector<int64_t>> all_steps() const;  // valid ones, ascending
  Result<int64_t> latest_step() const;             // -1: none
  // Every rank gives a text and gets those of all, by rank: for layouts of which each knows its own
  // part alone. Waits for the others; DEADLINE_EXCEEDED and UNAVAILABLE name the ranks that are
  // missing.
  Result<std::vector<std::string>> exchange(std::string_view text);

  Status pin(int64_t step);
  Status unpin(int64_t step);

  // True at the step that all ranks agreed upon after a signal to any of them, and after it.
  Result<bool> reached_preemption(int64_t step);
  // As a signal would.
  void request_preemption();
  // Saves, or waits for a save that is under way and will do: one of this step, one that is young
  // enough (preemption_reuse), or any when there is no time for another (preemption_grace). All
  // ranks decide alike. kPreemptedExitCode when it is committed, else kPreemptedUnsavedExitCode.
  int save_for_preemption(int64_t step, State state);

  // Until no save is under way and what had to go is deleted; the error that nobody has seen yet.
  Status wait(Deadline deadline = Deadline::never());
  Status close();

  const RecoveryReport& recovery() const;  // of rank 0 that held LOCK; else empty
  Saver::Counts counts() const;
  const std::string& run_uuid() const;

 private:
  struct Parts;
  explicit CheckpointManager(std::unique_ptr<Parts> state);
  std::unique_ptr<Parts> state_;
};

}  // namespace hekla::checkpoint
