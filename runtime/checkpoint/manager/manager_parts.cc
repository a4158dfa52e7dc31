// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/manager_parts.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <utility>

#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/restore/verify.h"

namespace hekla::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

int64_t number_of(std::string_view text) {
  int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Status verify_metadata(Io& io, const std::string& folder) {
  VerifyOptions options;
  options.payload = false;
  options.max_problems = 1;
  HEKLA_ASSIGN_OR_RETURN(const VerifyReport report, verify_step(io, folder, options));
  if (report.problems.empty()) return ok_status();
  return data_loss("{}/{}: {}", folder, report.problems[0].file, report.problems[0].what);
}

}  // namespace

Status CheckpointManager::Parts::open() {
  HEKLA_ASSIGN_OR_RETURN(info, open_root(io, root, options.metadata));
  if (group->is_coordinator()) {
    Result<ManagerLock> held = ManagerLock::acquire(io, root);
    if (held.ok()) {
      lock = *std::move(held);
      RecoveryOptions recover_options;
      recover_options.adopt = options.adopt;
      recover_options.verify = [this](const std::string& folder, const CommitRecord&) {
        return verify_metadata(io, folder);
      };
      Result<RecoveryReport> recovered = recover(io, root, recover_options);
      if (!recovered.ok()) {
        static_cast<void>(agree_on_step("recovery", -1));
        return recovered.status();
      }
      recovery = *std::move(recovered);
    } else if (held.status().code() == StatusCode::kAlreadyExists ||
               held.status().code() == StatusCode::kPermissionDenied) {
      log_message(LogLevel::kWarning, "{} is neither recovered nor cleaned by this manager: {}",
                  root, held.status().to_string());
    } else {
      static_cast<void>(agree_on_step("recovery", -1));
      return held.status();
    }
  }
  // Nobody looks at steps before they are in order.
  HEKLA_ASSIGN_OR_RETURN(const int64_t is_in_order, agree_on_step("recovery", 0));
  if (is_in_order < 0) return unavailable("rank 0 could not put {} in order", root);
  SaverOptions saver_options = options.saver;
  saver_options.after_save = [this](int64_t, const Status& status) {
    if (status.ok()) ask_for_cleaning();
  };
  HEKLA_ASSIGN_OR_RETURN(saver, Saver::create(io, *group, root, info.run_uuid, saver_options));
  preemption = std::make_unique<StepAgreement>(*group, "preempt", options.group_deadline);
  if (options.save.needs_clock()) {
    timed = std::make_unique<StepAgreement>(*group, "timed", options.group_deadline);
  }
  if (!options.preemption_signals.empty()) {
    HEKLA_ASSIGN_OR_RETURN(signal, PreemptionSignal::install(options.preemption_signals, [this] {
                             signal_time = Clock::now().time_since_epoch().count();
                             log_message(LogLevel::kWarning,
                                         "rank {} was told to end; all ranks will save",
                                         group->rank());
                             saver->raise_priority();
                             preemption->request();
                           }));
  }
  if (lock.is_held()) janitor = std::make_unique<SerialQueue>();
  return ok_status();
}

// Rank 0's number reaches all ranks.
Result<int64_t> CheckpointManager::Parts::agree_on_step(std::string_view what,
                                                        std::optional<int64_t> mine) {
  if (group->world() == 1) return mine.value_or(-1);
  if (group->is_coordinator()) {
    HEKLA_RETURN_IF_ERROR(group->store().set(group->key(what), std::to_string(mine.value_or(-1))));
    return mine.value_or(-1);
  }
  rendezvous::Group::Wait wait;
  wait.what = fmt::format("waiting for {}", what);
  wait.deadline = Deadline::in(options.group_deadline);
  HEKLA_ASSIGN_OR_RETURN(const rendezvous::Group::Waited waited, group->wait_key(what, 0, wait));
  return number_of(waited.values.at(0));
}

// The texts of all ranks, by rank. Rounds of one name count up from 1; the store keeps the last
// one.
Result<std::vector<std::string>> CheckpointManager::Parts::gather(std::string_view name,
                                                                  int64_t round,
                                                                  std::string_view text,
                                                                  rendezvous::Group::Wait wait) {
  if (group->world() == 1) return std::vector{std::string(text)};
  const auto prefix = [&](int64_t r) { return fmt::format("{}/{}/", name, r); };
  const auto own_key = [&](int64_t r) {
    return group->key(fmt::format("{}{}", prefix(r), group->rank()));
  };
  HEKLA_RETURN_IF_ERROR(group->store().set(own_key(round), text));
  HEKLA_ASSIGN_OR_RETURN(const rendezvous::Group::Waited waited,
                         group->wait_ranks(prefix(round), wait));
  // Who takes part in this round has read all of the one before.
  if (round > 1) HEKLA_RETURN_IF_ERROR(group->store().remove(own_key(round - 1)));
  std::vector<std::string> texts;
  for (const auto& [rank, value] : waited.values) texts.push_back(value);
  return texts;
}

void CheckpointManager::Parts::note_end(const SaveHandle& handle) {
  if (handle.stage() != SaveStage::kCommitted) return;
  const SaveTimes times = handle.times();
  save_seconds = times.total_seconds - times.throttled_seconds;
}

Clock::time_point CheckpointManager::Parts::preemption_deadline() const {
  if (options.preemption_grace.count() == 0) return Clock::time_point::max();
  const Clock::time_point noticed =
      signal_time != 0 ? Clock::time_point(Clock::duration(signal_time)) : Clock::now();
  return noticed + std::chrono::duration_cast<Clock::duration>(options.preemption_grace);
}

// What all ranks do before they end, from what each knows: its time left, how long its last save
// took, and of rank 0 how old the one under way is and how much of that it was throttled.
Result<CheckpointManager::Parts::LastSave> CheckpointManager::Parts::agree_on_last_save(
    const SaveHandle* under_way) {
  if (options.preemption_grace.count() == 0 && options.preemption_reuse.count() == 0) {
    return LastSave::kNew;
  }
  constexpr double kNever = 1e18;
  const auto seconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  const Clock::time_point now = Clock::now(), end = preemption_deadline();
  const double left = end == Clock::time_point::max() ? kNever : seconds(end - now);
  const double age = under_way != nullptr ? seconds(now - last_begin) : -1;
  const double idle = under_way != nullptr ? under_way->times().throttled_seconds : 0;
  rendezvous::Group::Wait wait;
  wait.what = "what all ranks do before they end";
  wait.deadline =
      end == Clock::time_point::max() ? Deadline::in(options.group_deadline) : Deadline::at(end);
  HEKLA_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      gather("ending", ++exchanges, fmt::format("{} {} {} {}", left, save_seconds, age, idle),
             std::move(wait)));
  double least_left = kNever, longest = 0, first_age = -1, worked = 0;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    double its_left = 0, its_seconds = 0, its_age = 0, its_idle = 0;
    if (std::sscanf(texts[rank].c_str(), "%lf %lf %lf %lf", &its_left, &its_seconds, &its_age,
                    &its_idle) != 4) {
      return internal_error("rank {} says \"{}\" before it ends", rank, texts[rank]);
    }
    least_left = std::min(least_left, its_left);
    longest = std::max(longest, its_seconds);
    if (rank == 0) {
      first_age = its_age;
      worked = its_age - its_idle;
    }
  }
  const bool is_under_way = first_age >= 0;
  if (is_under_way && first_age <= seconds(options.preemption_reuse)) return LastSave::kReuse;
  // The one under way has to end first; it takes at least as long as it has taken.
  longest = std::max(longest, worked);
  const double needed = longest + (is_under_way ? std::max(0.0, longest - worked) : 0);
  if (needed <= least_left) return LastSave::kNew;
  log_message(LogLevel::kWarning,
              "there are {:.1f} s left and a save takes {:.1f} s: none is begun before the end",
              least_left, longest);
  return is_under_way ? LastSave::kReuse : LastSave::kNone;
}

// What ended in the background and was not told yet.
Status CheckpointManager::Parts::take_error() {
  Status first;
  std::erase_if(handles, [&](const std::shared_ptr<SaveHandle>& handle) {
    if (!handle->is_done()) return false;
    const Status status = handle->error();
    if (status.ok()) {
      if (handle->stage() == SaveStage::kCommitted) failures_in_row = 0;
      note_end(*handle);
    } else if (status.code() != StatusCode::kAborted) {  // gave way to a newer one
      ++failures_in_row;
      if (first.ok()) first = status;
    }
    return true;
  });
  if (first.ok()) return first;
  if (options.continue_on_error && failures_in_row < options.max_failures) return ok_status();
  return first.with_context("an earlier save failed");
}

Result<std::shared_ptr<SaveHandle>> CheckpointManager::Parts::begin(int64_t step, State state,
                                                                    SaveArguments arguments) {
  if (is_closed) return failed_precondition("the checkpoint manager of {} is closed", root);
  arguments.overwrite = options.overwrite;
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<SaveHandle> handle,
                         saver->save(step, std::move(state), arguments));
  handles.push_back(handle);
  if (handle->stage() != SaveStage::kSkipped) {
    last = handle;
    last_saved_step = step;
    last_begin = Clock::now();
  }
  return handle;
}

void CheckpointManager::Parts::ask_for_cleaning() {
  const std::lock_guard guard(mutex);
  if (!lock.is_held() || janitor == nullptr || wants_cleaning) return;
  wants_cleaning = true;
  janitor->post([this] {
    std::unique_lock guard(mutex);
    wants_cleaning = false;
    is_cleaning = true;
    guard.unlock();
    clean();
    guard.lock();
    is_cleaning = false;
    changed.notify_all();
  });
}

void CheckpointManager::Parts::clean() {
  if (options.retention.keeps_all() || !lock.is_held()) return;
  const Result<std::vector<StepEntry>> entries = list_steps(io, root);
  if (!entries.ok()) {
    log_message(LogLevel::kWarning, "looking for steps to delete: {}",
                entries.status().to_string());
    return;
  }
  std::vector<KeptStep> steps;
  for (const StepEntry& entry : *entries) {
    if (!entry.status.ok()) continue;
    const Result<int64_t> time = parse_wall_time(entry.record.wall_time);
    steps.push_back({entry.step, time.ok() ? *time : 0, entry.record.metrics, entry.is_pinned});
  }
  for (const int64_t step : deletable(steps, options.retention, std::time(nullptr))) {
    const Status status = delete_step(io, root, step);
    if (status.ok()) {
      log_message(LogLevel::kVerbose, "step {} is deleted", step);
    } else if (status.code() == StatusCode::kUnavailable) {
      log_message(LogLevel::kVerbose, "step {} stays for now: {}", step, status.message());
    } else {
      log_message(LogLevel::kWarning, "deleting step {}: {}", step, status.to_string());
    }
  }
}

Status CheckpointManager::Parts::wait_clean(Deadline deadline) {
  std::unique_lock guard(mutex);
  const auto clean = [&] { return !wants_cleaning && !is_cleaning; };
  if (deadline.time() == Deadline::Clock::time_point::max()) {
    changed.wait(guard, clean);
  } else if (!changed.wait_until(guard, deadline.time(), clean)) {
    return deadline_exceeded("steps of {} are still being deleted", root);
  }
  return ok_status();
}

Result<std::shared_ptr<const StepReader>> CheckpointManager::Parts::open_step(int64_t step) {
  HEKLA_ASSIGN_OR_RETURN(StepLease lease, StepLease::acquire(io, root, step));
  auto keep = std::make_shared<const StepLease>(std::move(lease));
  const std::string folder = keep->folder();
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const StepReader> reader,
                         StepReader::open(io, folder, options.reader, std::move(keep)));
  // A folder under another run's name would have passed every digest.
  if (reader->commit().step != step) {
    return data_loss("{} holds step {}", folder, reader->commit().step);
  }
  return reader;
}

// As load; all ranks restore the step now, and say what they read before they read it.
Result<Restored> CheckpointManager::Parts::load_with_others(int64_t step,
                                                            const RestoreRequest& request) {
  if (group->world() == 1) return load(step, request, nullptr);
  const std::string& machine = boot_id().empty() ? host_name() : boot_id();
  bool has_said = false;
  const ShareReads share =
      [&](std::span<const ShardRange> mine) -> Result<std::vector<ShardRange>> {
    has_said = true;
    HEKLA_RETURN_IF_ERROR(group->store().set(reads_key(), reads_text(machine, mine)));
    rendezvous::Group::Wait wait;
    wait.what = fmt::format("what the others read of step {}", step);
    wait.deadline = Deadline::in(options.group_deadline);
    HEKLA_ASSIGN_OR_RETURN(const rendezvous::Group::Waited waited,
                           group->wait_ranks(fmt::format("reads/{}/", restores), wait));
    std::vector<std::string> texts;
    for (const auto& [rank, text] : waited.values) texts.push_back(text);
    return shared_reads(texts, group->rank());
  };
  Result<Restored> restored = load(step, request, share);
  // Nobody waits for a rank that failed before it came so far.
  if (!has_said) {
    if (Status said = group->store().set(reads_key(), ""); !said.ok() && restored.ok()) return said;
  }
  return restored;
}

std::string CheckpointManager::Parts::reads_key() const {
  return group->key(fmt::format("reads/{}/{}", restores, group->rank()));
}

Result<Restored> CheckpointManager::Parts::load(int64_t step, const RestoreRequest& request,
                                                const ShareReads& share) {
  HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<const StepReader> reader, open_step(step));
  Restored restored;
  restored.step = step;
  HEKLA_ASSIGN_OR_RETURN(restored.tensors, checkpoint::restore(*reader, request, {}, share));
  const std::vector<FileRecord>& files = reader->commit().files;
  const bool has_items = std::any_of(
      files.begin(), files.end(), [](const FileRecord& file) { return file.path == kItemsFile; });
  if (has_items) {
    HEKLA_ASSIGN_OR_RETURN(const std::string text, reader->read_file(kItemsFile));
    HEKLA_ASSIGN_OR_RETURN(restored.items, parse_items(text));
  }
  return restored;
}

}  // namespace hekla::checkpoint
