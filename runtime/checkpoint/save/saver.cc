// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/saver.h"

#include <algorithm>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/save/shard_layout.h"
#include "runtime/checkpoint/save/shard_save.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

constexpr std::string_view kGo = "go";
constexpr std::string_view kSkip = "skip";
// Words about calls this far back are read by all ranks: none is that much slower than rank 0.
constexpr int64_t kKeptDecisions = 256;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string_view save_stage_name(SaveStage stage) {
  switch (stage) {
    case SaveStage::kQueued:
      return "queued";
    case SaveStage::kStaging:
      return "staging";
    case SaveStage::kWriting:
      return "writing";
    case SaveStage::kWaitingPeers:
      return "waiting-peers";
    case SaveStage::kCommitting:
      return "committing";
    case SaveStage::kCommitted:
      return "committed";
    case SaveStage::kFailed:
      return "failed";
    case SaveStage::kSkipped:
      return "skipped";
  }
  return "?";
}

SaveStage SaveHandle::stage() const {
  const std::lock_guard lock(mutex_);
  return stage_;
}

SaveProgress SaveHandle::progress() const {
  const std::lock_guard lock(mutex_);
  SaveProgress progress = progress_;
  if (payload_ != nullptr) progress.bytes_done = payload_->bytes_done();
  // Metadata counts as written too.
  progress.bytes_done = std::min(progress.bytes_done, progress.bytes_total);
  return progress;
}

SaveTimes SaveHandle::times() const {
  const std::lock_guard lock(mutex_);
  SaveTimes times = times_;
  if (rate_limiter_ != nullptr)
    times.throttled_seconds = (rate_limiter_->throttled_time() - throttled_before_).count();
  return times;
}

Status SaveHandle::error() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool SaveHandle::is_done() const {
  const std::lock_guard lock(mutex_);
  return stage_ >= SaveStage::kCommitted;
}

Status SaveHandle::wait(Deadline deadline) const {
  const Priority::Hold hold = raise_priority();
  std::unique_lock lock(mutex_);
  const auto done = [&] { return stage_ >= SaveStage::kCommitted; };
  if (deadline.time() == Deadline::Clock::time_point::max()) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_until(lock, deadline.time(), done)) {
    return deadline_exceeded("the save of step {} is still {}", step_, save_stage_name(stage_));
  }
  return status_;
}

Priority::Hold SaveHandle::raise_priority() const {
  {
    // Called under the lock: until end() has it, the saver lives.
    const std::lock_guard lock(mutex_);
    if (tell_peers_) std::exchange(tell_peers_, nullptr)();
  }
  return priority_ == nullptr || is_done() ? Priority::Hold() : Priority::Hold(priority_);
}

Status SaveHandle::wait_staged(Deadline deadline) const {
  const Priority::Hold hold = raise_priority();
  std::unique_lock lock(mutex_);
  const auto done = [&] { return is_staged_ || stage_ >= SaveStage::kCommitted; };
  if (deadline.time() == Deadline::Clock::time_point::max()) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_until(lock, deadline.time(), done)) {
    return deadline_exceeded("the state of step {} is still being copied", step_);
  }
  return ok_status();
}

void SaveHandle::enter(SaveStage stage) {
  const std::lock_guard lock(mutex_);
  if (stage_ < SaveStage::kCommitted) stage_ = stage;
  changed_.notify_all();
}

void SaveHandle::end(SaveStage stage, Status status) {
  const std::lock_guard lock(mutex_);
  if (payload_ != nullptr) progress_.bytes_done = payload_->bytes_done();
  payload_ = nullptr;
  if (rate_limiter_ != nullptr)
    times_.throttled_seconds = (rate_limiter_->throttled_time() - throttled_before_).count();
  rate_limiter_ = nullptr;
  tell_peers_ = nullptr;
  stage_ = stage;
  is_staged_ = true;
  status_ = std::move(status);
  times_.total_seconds = seconds_since(start_);
  changed_.notify_all();
}

struct Saver::Job {
  std::shared_ptr<SaveHandle> handle;
  std::unique_ptr<ShardSave> payload;
  SaveRequest request;
  Priority::Hold raised;  // once another rank is waited for
};

Saver::Saver(Io& io, rendezvous::Group& group, std::string root, std::string run_uuid,
             const SaverOptions& options)
    : group_(group), options_(options) {
  options_.plan.world_size = group.world();
  CommitOptions commit = options.commit;
  commit.on_phase = [this, outer = commit.on_phase](Phase phase) {
    if (outer) outer(phase);
    std::shared_ptr<SaveHandle> handle;
    {
      const std::lock_guard lock(mutex_);
      handle = current_;
    }
    if (handle == nullptr) return;
    if (phase == Phase::kSnapshot) handle->enter(SaveStage::kStaging);
    if (phase == Phase::kWrite) handle->enter(SaveStage::kWriting);
    if (phase == Phase::kCommit) {
      handle->enter(group_.is_coordinator() ? SaveStage::kCommitting : SaveStage::kWaitingPeers);
    }
  };
  committer_ = std::make_unique<Committer>(io, group, std::move(root), std::move(run_uuid),
                                           std::move(commit));
}

Result<std::unique_ptr<Saver>> Saver::create(Io& io, rendezvous::Group& group, std::string root,
                                             std::string run_uuid, const SaverOptions& options) {
  if (options.max_in_flight < 1 || options.max_in_flight > 2) {
    return invalid_argument("{} saves in flight: 1 or 2 are possible", options.max_in_flight);
  }
  std::unique_ptr<Saver> saver(new Saver(io, group, std::move(root), std::move(run_uuid), options));
  HEKLA_ASSIGN_OR_RETURN(saver->pool_, WriterPool::create(io, options.writer));
  saver->thread_ = start_thread([saver = saver.get()] { saver->work(); });
  return saver;
}

Saver::~Saver() {
  std::vector<Priority::Hold> holds;
  if (pool_ != nullptr) holds = raise_all();
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<std::shared_ptr<ShardLayout>> Saver::layout_of(State* state) {
  std::sort(state->tensors.begin(), state->tensors.end(),
            [](const StateTensor& a, const StateTensor& b) { return a.info.name < b.info.name; });
  std::vector<TensorLayout> layouts;
  layouts.reserve(state->tensors.size());
  for (StateTensor& tensor : state->tensors) {
    if (tensor.boxes == nullptr) {
      std::shared_ptr<const HeldBoxes>& whole = whole_boxes_[tensor.info.shape];
      if (whole == nullptr) {
        HeldBox held{whole_box(tensor.info.shape), {}};
        for (int32_t rank = 0; rank < group_.world(); ++rank) held.ranks.push_back(rank);
        whole = std::make_shared<const HeldBoxes>(HeldBoxes{std::move(held)});
      }
      tensor.boxes = whole;
    }
    layouts.push_back({tensor.info, tensor.boxes});
  }
  HEKLA_ASSIGN_OR_RETURN(std::shared_ptr<const SavePlan> plan,
                         planner_.plan(layouts, options_.plan));
  if (layout_ == nullptr || layout_->plan != plan) {
    HEKLA_ASSIGN_OR_RETURN(layout_, ShardLayout::make(std::move(plan), group_.rank()));
    const std::lock_guard lock(mutex_);
    ++counts_.plans_made;
  }
  return layout_;
}

bool Saver::is_room() const {
  return static_cast<int>(queue_.size()) + (is_saving_ ? 1 : 0) < options_.max_in_flight;
}

// Rounds of one name count up from 1.
Result<bool> Saver::agree_on_room(std::string_view name, int64_t round) {
  const auto own_room = [this] {
    const std::lock_guard lock(mutex_);
    return is_room();
  };
  if (group_.world() == 1) return own_room();
  const auto key = [&](int64_t r) { return fmt::format("{}/{}", name, r); };
  if (group_.is_coordinator()) {
    const bool go = own_room();
    HEKLA_RETURN_IF_ERROR(group_.store().set(group_.key(key(round)), go ? kGo : kSkip));
    if (round > kKeptDecisions) {
      HEKLA_RETURN_IF_ERROR(group_.store().remove(group_.key(key(round - kKeptDecisions))));
    }
    return go;
  }
  rendezvous::Group::Wait wait;
  wait.what = "whether to skip this save";
  wait.deadline = Deadline::in(options_.decision_deadline);
  HEKLA_ASSIGN_OR_RETURN(const rendezvous::Group::Waited waited,
                         group_.wait_key(key(round), 0, wait));
  return waited.values.at(0) == kGo;
}

Result<bool> Saver::has_room() {
  HEKLA_ASSIGN_OR_RETURN(const bool room, agree_on_room("room", ++questions_));
  if (!room && pool_->rate_limiter() != nullptr) pool_->rate_limiter()->double_rate();
  return room;
}

// Rank 0 looks at its own saves and says for all; the others then make room.
Result<bool> Saver::may_start(BusyPolicy policy) {
  std::unique_ptr<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    if (policy == BusyPolicy::kReplace && group_.is_coordinator() && !is_room() &&
        !queue_.empty()) {
      dropped = std::move(queue_.back());
      queue_.pop_back();
      ++counts_.replaced;
    }
  }
  if (dropped != nullptr) {
    const Status reason(
        StatusCode::kAborted,
        fmt::format("step {} gave way to a newer one before it was begun", dropped->request.step));
    // The other ranks, which may have begun it, find this decision.
    const Status told = committer_->refuse(dropped->request.id, reason);
    {
      const std::lock_guard lock(dropped->handle->mutex_);
      dropped->handle->payload_ = nullptr;
    }
    dropped->payload.reset();
    dropped->handle->end(SaveStage::kFailed, reason);
    HEKLA_RETURN_IF_ERROR(told);
  }
  if (policy == BusyPolicy::kSkip) {
    HEKLA_ASSIGN_OR_RETURN(const bool go, agree_on_room("d", calls_));
    if (!go) return false;
  }
  {
    const std::lock_guard lock(mutex_);
    if (is_room()) return true;
  }
  if (pool_->rate_limiter() != nullptr) pool_->rate_limiter()->double_rate();
  const std::vector<Priority::Hold> holds = raise_all();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_room(); });
  return true;
}

std::vector<Priority::Hold> Saver::raise_all() {
  std::vector<std::shared_ptr<SaveHandle>> handles;
  {
    const std::lock_guard lock(mutex_);
    if (current_ != nullptr) handles.push_back(current_);
    for (const std::unique_ptr<Job>& job : queue_) handles.push_back(job->handle);
  }
  std::vector<Priority::Hold> holds;
  holds.emplace_back(pool_->priority());
  for (const std::shared_ptr<SaveHandle>& handle : handles)
    holds.push_back(handle->raise_priority());
  return holds;
}

Result<std::shared_ptr<SaveHandle>> Saver::save(int64_t step, State state,
                                                const SaveArguments& arguments) {
  const std::string id = std::to_string(++calls_);
  Result<std::shared_ptr<SaveHandle>> handle = start(id, step, std::move(state), arguments);
  if (!handle.ok() && group_.world() > 1) {
    // The others need not wait for this rank until a deadline.
    const Status reason =
        handle.status().with_context(fmt::format("step {}, rank {}", step, group_.rank()));
    static_cast<void>(committer_->refuse(id, reason));
    if (group_.is_coordinator() && arguments.policy == BusyPolicy::kSkip) {
      static_cast<void>(group_.store().set(group_.key(fmt::format("d/{}", id)), kGo));
    }
  }
  return handle;
}

Result<std::shared_ptr<SaveHandle>> Saver::start(const std::string& id, int64_t step, State state,
                                                 const SaveArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<SaveHandle> handle(new SaveHandle(step));
  HEKLA_ASSIGN_OR_RETURN(const std::shared_ptr<ShardLayout> layout, layout_of(&state));
  HEKLA_ASSIGN_OR_RETURN(const bool go, may_start(arguments.policy));
  if (!go) {
    log_message(LogLevel::kInfo, "the save of step {} is skipped: one is still under way", step);
    if (pool_->rate_limiter() != nullptr) pool_->rate_limiter()->double_rate();
    {
      const std::lock_guard lock(mutex_);
      ++counts_.skipped;
    }
    handle->end(SaveStage::kSkipped, ok_status());
    return handle;
  }
  handle->priority_ = pool_->priority();
  auto job = std::make_unique<Job>();
  HEKLA_ASSIGN_OR_RETURN(
      job->payload, ShardSave::make(group_, *pool_, layout, std::move(state), id, options_.checks));
  ShardSave& payload = *job->payload;
  handle->progress_.bytes_total = payload.bytes_total();
  handle->payload_ = &payload;
  handle->rate_limiter_ = pool_->rate_limiter();
  if (handle->rate_limiter_ != nullptr) {
    handle->throttled_before_ = handle->rate_limiter_->throttled_time();
    if (group_.world() > 1) {
      handle->tell_peers_ = [this, id] { committer_->raise_priority(id); };
      job->request.on_priority_raised = [this, raw = job.get()] {
        raw->raised = Priority::Hold(pool_->priority());
      };
    }
  }
  payload.on_staged = [raw = handle.get()] {
    const std::lock_guard lock(raw->mutex_);
    raw->is_staged_ = true;
    raw->changed_.notify_all();
  };
  job->handle = handle;
  job->request.step = step;
  job->request.id = id;
  job->request.layout_hash = layout->hash;
  job->request.layout_text = layout->text;
  job->request.reason = arguments.reason;
  job->request.metrics = arguments.metrics;
  job->request.writer_version = options_.writer_version;
  job->request.overwrite = arguments.overwrite;
  job->request.reads_back = options_.checks.verify_after_write != HowMuch::kNone;
  job->request.wants_parent = !options_.plan.frozen.empty();

  bool must_wait = payload.mutable_bytes() > 0 || payload.has_to_compare();
  bool is_idle = false;
  {
    const std::lock_guard lock(mutex_);
    is_idle = queue_.empty() && !is_saving_;
  }
  StagingPool& staging = pool_->staging();
  if (must_wait && is_idle && payload.staging_buffers() <= staging.buffers() - staging.in_use()) {
    const Status staged = payload.stage_now({});
    if (!staged.ok()) {
      handle->payload_ = nullptr;
      return staged;
    }
    must_wait = payload.has_to_compare();
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(job));
  }
  changed_.notify_all();
  if (must_wait) static_cast<void>(handle->wait_staged());
  const std::lock_guard lock(handle->mutex_);
  handle->times_.blocked_seconds = seconds_since(start);
  handle->times_.waited_for_staging = must_wait;
  return handle;
}

void Saver::work() {
  while (true) {
    std::unique_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      is_running_ = true;
      is_saving_ = true;
      current_ = job->handle;
    }
    run(*job);
    const std::shared_ptr<SaveHandle> handle = job->handle;
    job.reset();
    {
      const std::lock_guard lock(mutex_);
      is_running_ = false;
      current_.reset();
    }
    changed_.notify_all();
  }
}

void Saver::run(Job& job) {
  const Status status = committer_->run(job.request, *job.payload);
  job.raised = Priority::Hold();
  {
    const std::lock_guard lock(mutex_);
    ++(status.ok() ? counts_.committed : counts_.failed);
  }
  if (!status.ok()) {
    log_message(LogLevel::kError, "step {} is not saved: {}", job.request.step, status.to_string());
  }
  // Buffers, descriptors and the place are free before anybody hears of the end: who has waited for
  // a save can begin the next one.
  SaveHandle& handle = *job.handle;
  {
    const std::lock_guard lock(handle.mutex_);
    handle.progress_.bytes_done = job.payload->bytes_done();
    handle.payload_ = nullptr;
  }
  job.payload.reset();
  {
    const std::lock_guard lock(mutex_);
    is_saving_ = false;
  }
  changed_.notify_all();
  handle.end(status.ok() ? SaveStage::kCommitted : SaveStage::kFailed, status);
  if (options_.after_save) options_.after_save(handle.step(), status);
}

void Saver::raise_priority() {
  std::call_once(raised_, [this] { hold_ = Priority::Hold(pool_->priority()); });
  raise_all();
}

Status Saver::wait_idle(Deadline deadline) {
  const std::vector<Priority::Hold> holds = raise_all();
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return queue_.empty() && !is_running_; };
  if (deadline.time() == Deadline::Clock::time_point::max()) {
    changed_.wait(lock, idle);
  } else if (!changed_.wait_until(lock, deadline.time(), idle)) {
    return deadline_exceeded("{} saves are still under way", queue_.size() + (is_running_ ? 1 : 0));
  }
  return ok_status();
}

Saver::Counts Saver::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace hekla::checkpoint
