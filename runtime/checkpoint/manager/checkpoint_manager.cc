// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/checkpoint_manager.h"

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/manager/manager_parts.h"

namespace hekla::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CheckpointManager::CheckpointManager(std::unique_ptr<Parts> state) : state_(std::move(state)) {}

Result<std::unique_ptr<CheckpointManager>> CheckpointManager::open(
    Io& io, std::unique_ptr<rendezvous::Group> group, std::string root, ManagerOptions options) {
  std::unique_ptr<CheckpointManager> manager(new CheckpointManager(
      std::make_unique<Parts>(io, std::move(group), std::move(root), std::move(options))));
  if (Status status = manager->state_->open(); !status.ok()) {
    manager->state_->is_closed = true;
    return status;
  }
  return manager;
}

Result<std::unique_ptr<CheckpointManager>> CheckpointManager::open(std::string root,
                                                                   ManagerOptions options) {
  HEKLA_ASSIGN_OR_RETURN(std::unique_ptr<rendezvous::Group> group,
                         rendezvous::Group::from_environment(Deadline::in(options.group_deadline)));
  return open(posix_io(), std::move(group), std::move(root), std::move(options));
}

CheckpointManager::~CheckpointManager() {
  if (const Status status = close(); !status.ok()) {
    log_message(LogLevel::kError, "closing the checkpoints of {}: {}", state_->root,
                status.to_string());
  }
}

Result<bool> CheckpointManager::should_save(int64_t step) {
  Parts& s = *state_;
  if (step == s.asked_step) return s.asked_answer;
  s.asked_step = step;
  s.asked_answer = s.options.save.is_due_at(step);
  if (s.timed != nullptr) {
    if (s.group->is_coordinator()) {
      const Clock::duration since = Clock::now() - s.last_begin;
      const bool is_idle = s.last == nullptr || s.last->is_done();
      const bool is_time =
          (s.options.save.every_time.count() > 0 && since >= s.options.save.every_time) ||
          (s.options.save.continuous && since >= s.options.save.min_interval && is_idle);
      if (is_time && (is_idle || s.options.busy_policy != BusyPolicy::kSkip)) s.timed->request();
    }
    HEKLA_ASSIGN_OR_RETURN(const bool reached, s.timed->reached(step));
    s.asked_answer |= reached;
  }
  if (s.asked_answer && s.options.busy_policy == BusyPolicy::kSkip) {
    HEKLA_ASSIGN_OR_RETURN(s.asked_answer, s.saver->has_room());
    if (!s.asked_answer) {
      log_message(LogLevel::kInfo, "step {} is not saved: a save is still under way", step);
    }
  }
  if (s.options.preemption_signals.empty() && !s.preemption->is_requested()) return s.asked_answer;
  HEKLA_ASSIGN_OR_RETURN(const bool preempted, reached_preemption(step));
  s.asked_answer |= preempted;
  return s.asked_answer;
}

Result<std::shared_ptr<SaveHandle>> CheckpointManager::save_async(
    int64_t step, State state, const std::map<std::string, double>& metrics) {
  HEKLA_RETURN_IF_ERROR(state_->take_error());
  SaveArguments arguments;
  arguments.reason = "interval";
  arguments.metrics = metrics;
  arguments.policy = state_->options.busy_policy;
  return state_->begin(step, std::move(state), std::move(arguments));
}

Status CheckpointManager::save(int64_t step, State state,
                               const std::map<std::string, double>& metrics) {
  HEKLA_RETURN_IF_ERROR(state_->take_error());
  SaveArguments arguments;
  arguments.metrics = metrics;
  HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<SaveHandle> handle,
                         state_->begin(step, std::move(state), std::move(arguments)));
  const Status status = handle->wait();
  // Told here: nobody else need hear of it.
  std::erase(state_->handles, handle);
  state_->note_end(*handle);
  state_->failures_in_row = status.ok() ? 0 : state_->failures_in_row + 1;
  return status;
}

Result<Restored> CheckpointManager::restore(const RestoreRequest& request,
                                            std::optional<int64_t> step) {
  Parts& s = *state_;
  const bool is_chosen = step.has_value();
  int64_t below = kMaxStep + 1;
  while (true) {
    const std::string choice = fmt::format("restore/{}/step", ++s.restores);
    std::optional<int64_t> mine = step;
    if (!is_chosen && s.group->is_coordinator()) {
      const Result<std::vector<int64_t>> steps = all_steps();
      mine = -1;
      if (!steps.ok()) {
        static_cast<void>(s.agree_on_step(choice, mine));
        return steps.status();
      }
      for (const int64_t candidate : *steps) {
        if (candidate < below) mine = candidate;
      }
    }
    HEKLA_ASSIGN_OR_RETURN(const int64_t chosen, s.agree_on_step(choice, mine));
    if (is_chosen && chosen != *step) {
      return failed_precondition("rank {} restores step {} while rank 0 restores step {}",
                                 s.group->rank(), *step, chosen);
    }
    if (chosen < 0) return not_found("{} has no valid step", s.root);
    Result<Restored> restored = s.load_with_others(chosen, request);
    if (s.group->world() > 1) {
      const std::string word =
          restored.ok() ? "ok" : std::string(status_code_name(restored.status().code()));
      rendezvous::Group::Wait wait;
      wait.what = fmt::format("restoring step {}", chosen);
      wait.deadline = Deadline::in(s.options.saver.commit.write_deadline);
      HEKLA_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                             s.gather("restored", s.restores, word, std::move(wait)));
      HEKLA_RETURN_IF_ERROR(s.group->store().remove(s.reads_key()));
      if (s.group->is_coordinator()) {
        HEKLA_RETURN_IF_ERROR(s.group->store().remove(s.group->key(choice)));
      }
      for (size_t rank = 0; rank < words.size(); ++rank) {
        const std::string& text = words[rank];
        if (text == "ok" || !restored.ok()) continue;
        const Status other(
            text == status_code_name(StatusCode::kDataLoss) ? StatusCode::kDataLoss
                                                            : StatusCode::kUnavailable,
            fmt::format("rank {} could not restore step {} ({})", rank, chosen, text));
        restored = other;
      }
    }
    const bool is_damaged = !restored.ok() && (restored.status().code() == StatusCode::kDataLoss ||
                                               restored.status().code() == StatusCode::kNotFound);
    if (restored.ok() || is_chosen || !is_damaged) {
      if (restored.ok()) s.last_saved_step = chosen;
      return restored;
    }
    log_message(LogLevel::kError, "step {} cannot be restored, the one before is tried: {}", chosen,
                restored.status().to_string());
    below = chosen;
  }
}

Result<std::shared_ptr<const StepReader>> CheckpointManager::open_step(int64_t step) {
  return state_->open_step(step);
}

Result<std::vector<int64_t>> CheckpointManager::all_steps() const {
  HEKLA_ASSIGN_OR_RETURN(const std::vector<StepEntry> entries,
                         list_steps(state_->io, state_->root));
  std::vector<int64_t> steps;
  for (const StepEntry& entry : entries) {
    if (entry.status.ok()) steps.push_back(entry.step);
  }
  return steps;
}

Result<int64_t> CheckpointManager::latest_step() const {
  return newest_step(state_->io, state_->root);
}

Result<std::vector<std::string>> CheckpointManager::exchange(std::string_view text) {
  Parts& s = *state_;
  rendezvous::Group::Wait wait;
  wait.what = "the layouts of all ranks";
  wait.deadline = Deadline::in(s.options.saver.commit.plan_deadline);
  return s.gather("exchange", ++s.exchanges, text, std::move(wait));
}

Status CheckpointManager::pin(int64_t step) { return pin_step(state_->io, state_->root, step); }

Status CheckpointManager::unpin(int64_t step) { return unpin_step(state_->io, state_->root, step); }

Result<bool> CheckpointManager::reached_preemption(int64_t step) {
  Parts& s = *state_;
  if (s.is_preempted) return true;
  HEKLA_ASSIGN_OR_RETURN(s.is_preempted, s.preemption->reached(step));
  if (s.is_preempted) s.saver->raise_priority();
  return s.is_preempted;
}

void CheckpointManager::request_preemption() {
  state_->signal_time = Clock::now().time_since_epoch().count();
  state_->saver->raise_priority();
  state_->preemption->request();
}

int CheckpointManager::save_for_preemption(int64_t step, State state) {
  Parts& s = *state_;
  const auto unsaved = [&](const Status& status) {
    log_message(LogLevel::kError, "step {} is not saved before the end: {}", step,
                status.to_string());
    return kPreemptedUnsavedExitCode;
  };
  for (const std::shared_ptr<SaveHandle>& handle : s.handles) s.note_end(*handle);
  std::shared_ptr<SaveHandle> handle = s.last;
  const bool is_same =
      handle != nullptr && handle->step() == step && handle->stage() != SaveStage::kFailed;
  if (!is_same) {
    const bool is_under_way = handle != nullptr && !handle->is_done();
    const Result<Parts::LastSave> what =
        s.agree_on_last_save(is_under_way ? handle.get() : nullptr);
    if (!what.ok()) return unsaved(what.status());
    if (*what == Parts::LastSave::kNone) {
      return unsaved(deadline_exceeded("there is no time for a save"));
    }
    // Rank 0 says that its save is under way; here the same one may have ended a moment ago.
    if (*what == Parts::LastSave::kNew) {
      SaveArguments arguments;
      arguments.reason = "preempt";
      Result<std::shared_ptr<SaveHandle>> begun =
          s.begin(step, std::move(state), std::move(arguments));
      if (!begun.ok()) return unsaved(begun.status());
      handle = *std::move(begun);
    }
  }
  const Clock::time_point end = s.preemption_deadline();
  const Status status =
      handle->wait(end == Clock::time_point::max() ? Deadline::never() : Deadline::at(end));
  std::erase(s.handles, handle);
  return status.ok() ? kPreemptedExitCode : unsaved(status);
}

Status CheckpointManager::wait(Deadline deadline) {
  HEKLA_RETURN_IF_ERROR(state_->saver->wait_idle(deadline));
  HEKLA_RETURN_IF_ERROR(state_->wait_clean(deadline));
  // Asked for expressly: told whatever the options say.
  const bool was_error = std::any_of(
      state_->handles.begin(), state_->handles.end(), [](const std::shared_ptr<SaveHandle>& h) {
        return !h->error().ok() && h->error().code() != StatusCode::kAborted;
      });
  if (!was_error) return state_->take_error();
  for (const std::shared_ptr<SaveHandle>& handle : std::exchange(state_->handles, {})) {
    const Status status = handle->error();
    if (!status.ok() && status.code() != StatusCode::kAborted) return status;
  }
  return ok_status();
}

Status CheckpointManager::close() {
  Parts& s = *state_;
  if (s.is_closed) return ok_status();
  const Status status = wait();
  s.is_closed = true;
  s.signal.reset();
  s.saver.reset();
  s.preemption.reset();
  s.timed.reset();
  s.janitor.reset();  // cleans first, if asked to
  s.lock = ManagerLock();
  return status;
}

const RecoveryReport& CheckpointManager::recovery() const { return state_->recovery; }

Saver::Counts CheckpointManager::counts() const {
  return state_->saver == nullptr ? Saver::Counts() : state_->saver->counts();
}

const std::string& CheckpointManager::run_uuid() const { return state_->info.run_uuid; }

}  // namespace hekla::checkpoint
