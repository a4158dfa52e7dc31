// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/member.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/base/async/thread.h"
#include "runtime/base/copy_bytes.h"
#include "runtime/base/hash.h"
#include "runtime/base/staging.h"
#include "runtime/rendezvous/group.h"

namespace hekla::process_group {

Result<HostArray> block_of(const ConstElements& x, bool is_copied) {
  if (x.owner != nullptr && !is_copied) {
    return HostArray::wrap(DType::kUI8, {x.size_bytes()}, x.owner, x.data);
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray copy, Staging::allocate(DType::kUI8, {x.size_bytes()}));
  copy_bytes(copy.mutable_data(), x.data, x.size_bytes());
  return copy;
}

Member::Member(Hub& hub, std::string name, std::vector<int> processes, int rank)
    : hub_(hub),
      name_(std::move(name)),
      id_(fnv1a(name_)),
      processes_(std::move(processes)),
      rank_(rank),
      flight_(FlightRecorder::of_process()) {
  if (flight_ != nullptr) flight_id_ = flight_->add_group(id_, name_, rank_, size());
  for (int r = 0; r < size(); ++r) rank_of_[processes_[static_cast<size_t>(r)]] = r;
}

Member::~Member() {
  shutdown();
  if (flight_ != nullptr) flight_->remove_group(flight_id_);
}

uint64_t Member::sequence() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

Status Member::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Member::tell(const Ended& ended) const {
  for (const auto& [state, status] : ended) complete(*state, status);
}

void Member::complete(Work::State& state, const Status& status) const {
  if (state.flight != 0) flight_->ended(state.flight, status);
  state.done.complete(status);
}

void Member::record(Work::State& state, flight::Kind kind, int other, uint64_t tag, DType dtype,
                    int64_t count) const {
  if (flight_ == nullptr) return;
  Call call;
  call.dtype = dtype;
  call.count = count;
  call.root = other;
  state.flight = flight_->made(kind, flight_id_, tag, call);
  state.recorder = flight_;
}

std::vector<CompletionRef> Member::tell_all(Head::Kind kind, const Status& why) {
  Head head;
  head.kind = kind;
  head.group = id_;
  head.step = static_cast<uint64_t>(why.code());
  head.text = why.message();
  {
    const std::lock_guard lock(mutex_);
    head.sequence = ended_from_;
  }
  std::vector<CompletionRef> told;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    told.push_back(Completion::make());
    hub_.send(processes_[static_cast<size_t>(r)], head, {}, told.back());
  }
  return told;
}

std::string Member::describe(int rank) const {
  return fmt::format("rank {} ({})", rank, hub_.name(processes_[static_cast<size_t>(rank)]));
}

Status Member::loss_of(int rank) const {
  const auto found = lost_.find(rank);
  if (found == lost_.end()) return ok_status();
  return Status(found->second.code(), fmt::format("rank {} of group {} is gone: {}", rank, name_,
                                                  found->second.message()));
}

void Member::deliver(int from, Head head, std::vector<HostArray> blocks) {
  const auto found = rank_of_.find(from);
  if (found == rank_of_.end()) return;
  const int rank = found->second;
  const Head::Kind kind = head.kind;
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    switch (kind) {
      case Head::Kind::kCall:
      case Head::Kind::kData:
        if (kind == Head::Kind::kCall) last_call_[rank] = {head.sequence, head.call};
        if (head.sequence >= done_ && head.sequence < ended_from_) {
          const Key key{head.sequence, rank, kind == Head::Kind::kCall, head.step};
          mails_.emplace(key, Mail{std::move(head), std::move(blocks)});
        }
        break;
      case Head::Kind::kPoint:
        take_point(rank, {std::move(head), std::move(blocks)}, ended);
        break;
      case Head::Kind::kAbort: {
        const bool is_code = head.step > 0 && head.step <= 16;
        end(Status(is_code ? static_cast<StatusCode>(head.step) : StatusCode::kUnknown,
                   fmt::format("rank {} ended the group: {}", rank, head.text)),
            head.sequence, ended);
        break;
      }
      case Head::Kind::kRefused:
        refusals_.emplace(std::pair(head.sequence + head.step, rank), std::move(head.text));
        break;
      case Head::Kind::kLeave:
        break;
    }
  }
  stir();
  tell(ended);
  if (kind == Head::Kind::kLeave) lose(from, failed_precondition("it has left the group"));
}

DirectReceives& Member::direct_receives(const Call& own) {
  const std::lock_guard lock(mutex_);
  own_call_ = own;
  return direct_receives_;
}

std::shared_ptr<void> Member::place(int from, const Head& head, int64_t bytes) {
  const auto found = rank_of_.find(from);
  if (found == rank_of_.end() || head.kind != Head::Kind::kData) return nullptr;
  const std::lock_guard lock(mutex_);
  const bool is_of_now = is_running_ && head.sequence + 1 == started_ &&
                         head.sequence < ended_from_ && own_call_ == head.call;
  if (!is_of_now) return nullptr;
  // Before that the caller's memory stays as it is.
  for (int r = 0; r < size() && !is_own_agreed_; ++r) {
    if (r == rank_) continue;
    const auto mail = mails_.find({head.sequence, r, true, 0});
    if (mail == mails_.end() || mail->second.head.call != head.call) return nullptr;
  }
  return direct_receives_.claim(found->second, head.step, bytes);
}

void Member::end_direct_receives() {
  // Longer than what is under way takes on a link of 1 Gbit/s, and short beside a deadline.
  constexpr std::chrono::milliseconds kStill(100);
  constexpr std::chrono::seconds kAtMost(1);
  direct_receives_.close();
  const Deadline until = Deadline::in(kAtMost);
  while (!direct_receives_.senders().empty() && !until.expired()) {
    if (!direct_receives_.wait_for_one(kStill)) break;
  }
  for (const int r : direct_receives_.senders()) {
    hub_.abandon(processes_[static_cast<size_t>(r)],
                 deadline_exceeded("{} has not finished sending what a call of group {} that has "
                                   "failed was to receive",
                                   describe(r), name_));
  }
  while (!direct_receives_.senders().empty()) direct_receives_.wait_for_one(kAtMost);
}

void Member::lose(int process, const Status& why) {
  const auto found = rank_of_.find(process);
  if (found == rank_of_.end()) return;
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    lost_.emplace(found->second, why);
    for (auto posted = posted_.begin(); posted != posted_.end();) {
      // From any: as long as there is anybody else.
      const bool is_hopeless = posted->from == found->second ||
                               (posted->from < 0 && static_cast<int>(lost_.size()) == size() - 1);
      if (is_hopeless) {
        ended.emplace_back(posted->state, loss_of(found->second).with_context(posted->state->call));
      }
      posted = is_hopeless ? posted_.erase(posted) : std::next(posted);
    }
  }
  stir();
  tell(ended);
}

void Member::expire() {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto posted = posted_.begin(); posted != posted_.end();) {
      const bool is_over = posted->deadline.expired();
      if (is_over) {
        ended.emplace_back(
            posted->state,
            deadline_exceeded("{} on group {}: nothing came from {}", posted->state->call, name_,
                              posted->from < 0 ? "any rank" : describe(posted->from)));
      }
      posted = is_over ? posted_.erase(posted) : std::next(posted);
    }
    for (auto sending = sending_.begin(); sending != sending_.end();) {
      const bool is_over = sending->deadline.expired();
      if (is_over) {
        ended.emplace_back(sending->state,
                           deadline_exceeded("{} on group {}: the receiver does not take it",
                                             sending->state->call, name_));
      }
      sending =
          is_over || sending->state->done.is_done() ? sending_.erase(sending) : std::next(sending);
    }
  }
  tell(ended);
}

void Member::fill(const Posted& posted, int from, const Mail& mail, Ended& ended) {
  const int64_t bytes = mail.blocks.size() == 1 ? mail.blocks[0].size_bytes() : -1;
  const bool fits = mail.head.call.dtype == posted.into.dtype &&
                    mail.head.call.count == posted.into.count && bytes == posted.into.size_bytes();
  posted.state->source = from;
  if (!mail.head.text.empty()) {
    ended.emplace_back(posted.state, failed_precondition("{}: rank {} has refused to send: {}",
                                                         posted.state->call, from, mail.head.text));
    return;
  }
  if (!fits) {
    ended.emplace_back(
        posted.state, failed_precondition("{}: rank {} sent {}[{}] with tag {}", posted.state->call,
                                          from, dtype_name(mail.head.call.dtype),
                                          mail.head.call.count, mail.head.sequence));
    return;
  }
  if (bytes > 0) copy_bytes(posted.into.data, mail.blocks[0].data(), bytes);
  ended.emplace_back(posted.state, ok_status());
}

void Member::take_point(int from, Mail mail, Ended& ended) {
  const auto posted = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& one) {
    return one.tag == mail.head.sequence && (one.from == from || one.from < 0);
  });
  if (posted == posted_.end()) {
    points_.emplace_back(from, std::move(mail));
    return;
  }
  fill(*posted, from, mail, ended);
  posted_.erase(posted);
}

Work Member::receive(Elements x, int from, uint64_t tag, Deadline deadline) {
  auto state = std::make_shared<Work::State>();
  state->call = fmt::format("receive of {}[{}] from {} with tag {}", dtype_name(x.dtype), x.count,
                            from < 0 ? "any rank" : fmt::format("rank {}", from), tag);
  record(*state, flight::Kind::kReceive, from, tag, x.dtype, x.count);
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    Posted posted{from, tag, std::move(x), deadline, state};
    const auto point = std::find_if(points_.begin(), points_.end(), [&](const auto& one) {
      return one.second.head.sequence == tag && (one.first == from || from < 0);
    });
    const bool is_alone = from < 0 && size() > 1 && static_cast<int>(lost_.size()) == size() - 1;
    if (point != points_.end()) {
      fill(posted, point->first, point->second, ended);
      points_.erase(point);
    } else if (!status_.ok()) {
      ended.emplace_back(state, status_);
    } else if (is_alone || (from >= 0 && lost_.contains(from))) {
      const Status loss = loss_of(is_alone ? lost_.begin()->first : from);
      ended.emplace_back(state, loss.with_context(state->call));
    } else {
      posted_.push_back(std::move(posted));
    }
  }
  tell(ended);
  return Work(state);
}

Work Member::send(ConstElements x, int to, uint64_t tag, Deadline deadline) {
  auto state = std::make_shared<Work::State>();
  state->call =
      fmt::format("send of {}[{}] to rank {} with tag {}", dtype_name(x.dtype), x.count, to, tag);
  record(*state, flight::Kind::kSend, to, tag, x.dtype, x.count);
  Result<HostArray> block = block_of(x, false);
  if (!block.ok()) {
    complete(*state, block.status().with_context(state->call));
    return Work(state);
  }
  Head head;
  head.kind = Head::Kind::kPoint;
  head.group = id_;
  head.sequence = tag;
  head.call.dtype = x.dtype;
  head.call.count = x.count;
  Status refused;
  {
    const std::lock_guard lock(mutex_);
    refused = status_;
    if (refused.ok() && to != rank_) sending_.push_back({deadline, state});
  }
  if (!refused.ok()) {
    complete(*state, refused);
    return Work(state);
  }
  if (to == rank_) {
    deliver(processes_[static_cast<size_t>(rank_)], std::move(head), {*std::move(block)});
    complete(*state, ok_status());
    return Work(state);
  }
  auto sent = Completion::make();
  // The recorder lives as long as the process, this object may not.
  sent->on_done([state, recorder = flight_](const Status& status) {
    const Status end = status.with_context(state->call);
    if (recorder != nullptr) recorder->ended(state->flight, end);
    state->done.complete(end);
  });
  post(to, std::move(head), {*std::move(block)}, std::move(sent));
  return Work(state);
}

void Member::refuse_send(int to, uint64_t tag, const Status& why) {
  Head head;
  head.kind = Head::Kind::kPoint;
  head.group = id_;
  head.sequence = tag;
  head.text = why.message();
  if (to == rank_) {
    deliver(processes_[static_cast<size_t>(rank_)], std::move(head), {});
  } else {
    post(to, std::move(head), {}, nullptr);
  }
}

uint32_t Member::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

void Member::refuse(std::string_view call, const Status& why) {
  Head head;
  head.kind = Head::Kind::kRefused;
  head.group = id_;
  head.text = fmt::format("{}: {}", call, why.message());
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    head.sequence = started_ + jobs_.size();
    head.step = refused_++;
    if (jobs_.empty() && !is_running_) forget_refusals(head.sequence + head.step);
    refusals_.emplace(std::pair(head.sequence + head.step, rank_), head.text);
  }
  if (flight_ != nullptr) {
    const Status end(why.code(), head.text);
    flight_->ended(flight_->made(flight::Kind::kRefused, flight_id_, head.sequence, {}), end);
  }
  for (int r = 0; r < size(); ++r) {
    if (r != rank_) hub_.send(processes_[static_cast<size_t>(r)], head, {}, nullptr);
  }
}

void Member::forget_refusals(uint64_t place) {
  refusals_.erase(refusals_.begin(), refusals_.lower_bound({place + 1, -1}));
}

Status Member::refusal_of(uint64_t sequence, const Call& own) const {
  const std::lock_guard lock(mutex_);
  return refusal_of_locked(sequence, own);
}

Status Member::refusal_of_locked(uint64_t sequence, const Call& own) const {
  if (refusals_.empty()) return ok_status();
  const auto found = refusals_.lower_bound({sequence + own.refused, -1});
  if (found == refusals_.end() || found->first.first != sequence + own.refused) return ok_status();
  return failed_precondition("call {} of group {}, {}: rank {} has refused it, {}", sequence, name_,
                             own.to_string(), found->first.second, found->second);
}

Status Member::refusal_among(uint64_t sequence, const std::map<int, Call>& calls) {
  std::unique_lock lock(mutex_);
  // Of a rank whose call has come by memory the message may still be on its way, behind that of
  // another one, which has heard of it and ended the group.
  const Deadline until = Deadline::in(std::chrono::seconds(5));
  for (;;) {
    bool is_expected = false;
    const Status refusal = refusal_among_locked(sequence, calls, is_expected);
    const bool is_any_lost = std::any_of(calls.begin(), calls.end(), [this](const auto& call) {
      return lost_.contains(call.first);
    });
    if (!refusal.ok() || !is_expected || until.expired() || is_any_lost || is_shut_down_) {
      return refusal;
    }
    changed_.wait_until(lock, until.time());
  }
}

Status Member::refusal_among_locked(uint64_t sequence, const std::map<int, Call>& calls,
                                    bool& is_expected) const {
  const auto [least, most] = std::minmax_element(
      calls.begin(), calls.end(),
      [](const auto& a, const auto& b) { return a.second.refused < b.second.refused; });
  is_expected = least->second.refused != most->second.refused;
  return is_expected ? refusal_of_locked(sequence, least->second) : ok_status();
}

void Member::post(int to, Head head, std::vector<HostArray> blocks, CompletionRef sent) {
  head.group = id_;
  hub_.send(processes_[static_cast<size_t>(to)], head, std::move(blocks), std::move(sent));
}

std::string Member::late(uint64_t sequence, const Call& own,
                         const std::vector<int>& missing) const {
  std::string text =
      fmt::format("call {} of group {}, {}, waits in vain for ", sequence, name_, own.to_string());
  constexpr size_t kNamed = 4;
  for (size_t i = 0; i < std::min(kNamed, missing.size()); ++i) {
    std::optional<std::pair<uint64_t, Call>> last;
    if (memory_ != nullptr) last = memory_->last_call(missing[i]);
    const auto told = last_call_.find(missing[i]);
    if (!last && told != last_call_.end()) last = told->second;
    text += fmt::format(
        "{}{}, {}", i == 0 ? "" : "; ", describe(missing[i]),
        !last ? "which has made no call"
              : fmt::format("whose last call is {}, {}", last->first, last->second.to_string()));
  }
  if (missing.size() > kNamed) {
    text += fmt::format("; in all for ranks {}", rendezvous::rank_list(missing));
  }
  // Whom this rank waits for may itself wait for another, of which it has all it needs.
  constexpr std::chrono::milliseconds kSilent(500);  // many beats of any transport
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const auto silent = hub_.silent_for(processes_[static_cast<size_t>(r)]);
    if (silent < kSilent) continue;
    text += fmt::format("; {} has given no sign of life for {:.1f} s", describe(r),
                        std::chrono::duration<double>(silent).count());
  }
  return text;
}

Result<std::vector<Mail>> Member::meet(uint64_t sequence, const Call& own, Deadline deadline) {
  std::unique_lock lock(mutex_);
  std::vector<Mail> mails(static_cast<size_t>(size()));
  for (;;) {
    std::map<int, Call> calls = {{rank_, own}};
    std::vector<int> missing;
    bool agree = true;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const auto found = mails_.find({sequence, r, true, 0});
      if (found == mails_.end()) {
        missing.push_back(r);
        continue;
      }
      calls.emplace(r, found->second.head.call);
      agree = agree && found->second.head.call == own;
    }
    if (!agree) {
      bool is_expected = false;
      HEKLA_RETURN_IF_ERROR(refusal_of_locked(sequence, own));
      HEKLA_RETURN_IF_ERROR(refusal_among_locked(sequence, calls, is_expected));
      return failed_precondition("call {} of group {} differs: {}", sequence, name_,
                                 who_calls_what(calls));
    }
    if (missing.empty()) break;
    HEKLA_RETURN_IF_ERROR(look_locked(sequence, own, missing, deadline));
    if (deadline.is_never()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline.time());
    }
  }
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    auto node = mails_.extract({sequence, r, true, 0});
    mails[static_cast<size_t>(r)] = std::move(node.mapped());
  }
  is_own_agreed_ = true;
  return mails;
}

Result<HostArray> Member::take(uint64_t sequence, const Call& own, uint64_t step, int from,
                               Deadline deadline) {
  std::unique_lock lock(mutex_);
  const Key key{sequence, from, false, step};
  for (;;) {
    if (const auto found = mails_.find(key); found != mails_.end()) {
      Mail mail = std::move(found->second);
      mails_.erase(found);
      if (mail.blocks.size() == 1) return std::move(mail.blocks[0]);
      return data_loss("call {}, {}: rank {} sent {} arrays as a piece", sequence, own.to_string(),
                       from, mail.blocks.size());
    }
    HEKLA_RETURN_IF_ERROR(look_locked(sequence, own, {from}, deadline));
    if (deadline.is_never()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline.time());
    }
  }
}

Status Member::look_locked(uint64_t sequence, const Call& own, const std::vector<int>& missing,
                           Deadline deadline) const {
  HEKLA_RETURN_IF_ERROR(end_of(sequence));
  HEKLA_RETURN_IF_ERROR(refusal_of_locked(sequence, own));
  for (const int r : missing) {
    if (const Status loss = loss_of(r); !loss.ok()) {
      return loss.with_context(fmt::format("call {}, {}", sequence, own.to_string()));
    }
  }
  if (deadline.expired()) return deadline_exceeded("{}", late(sequence, own, missing));
  return ok_status();
}

Status Member::look(uint64_t sequence, const Call& own, const std::vector<int>& missing,
                    Deadline deadline) const {
  const std::lock_guard lock(mutex_);
  return look_locked(sequence, own, missing, deadline);
}

void Member::share(std::unique_ptr<GroupMemory> memory) {
  const std::lock_guard lock(mutex_);
  memory_ = std::move(memory);
  shared_.store(memory_.get(), std::memory_order_release);
}

void Member::stir() {
  changed_.notify_all();
  if (const GroupMemory* const shared = memory(); shared != nullptr) shared->wake(rank_);
}

Work Member::start(std::string call, Run run) {
  auto state = std::make_shared<Work::State>();
  state->call = std::move(call);
  return start(std::move(state), std::move(run));
}

Work Member::start(const Call& call, Deadline deadline, Run run) {
  auto state = std::make_shared<Work::State>();
  state->collective = call;
  if (memory() != nullptr) {
    state->runner = weak_from_this();
    state->ends = deadline;
  }
  return start(std::move(state), std::move(run));
}

Work Member::start(std::shared_ptr<Work::State> state, Run run) {
  Status refused;
  {
    const std::lock_guard lock(mutex_);
    refused = status_;
    if (refused.ok()) {
      if (flight_ != nullptr) {
        state->flight = flight_->made(flight::Kind::kCollective, flight_id_,
                                      started_ + jobs_.size(), state->collective);
        state->recorder = flight_;
      }
      jobs_.push_back({std::move(run), state});
      if (!thread_.joinable()) {
        thread_ = start_thread([this](std::stop_token stop) { work(stop); });
      }
      const bool is_left_to_waiters = memory_ != nullptr && is_run_by_waiters_;
      if (!is_left_to_waiters) is_hurried_ = true;
      if (!is_left_to_waiters || !is_watching_) wanted_.notify_one();
    }
  }
  if (!refused.ok()) state->done.complete(refused);
  return Work(std::move(state));
}

void Member::run_as_waiter(std::unique_lock<std::mutex>& lock) {
  // Enough of them in a row, and the thread is left asleep.
  constexpr int kEnough = 4;
  if (run_by_waiters_ < kEnough) ++run_by_waiters_;
  if (run_by_waiters_ == kEnough) is_run_by_waiters_ = true;
  run_first(lock);
}

void Member::run(Work::State& state) {
  std::unique_lock lock(mutex_);
  while (!jobs_.empty() && !is_running_ && !state.done.is_done()) run_as_waiter(lock);
  is_awaited_ = is_awaited_ || (is_running_ && !state.done.is_done());
}

bool Member::run_if_next(Work::State& state) {
  std::unique_lock lock(mutex_);
  if (jobs_.empty() || is_running_ || jobs_.front().state.get() != &state) return false;
  run_as_waiter(lock);
  return true;
}

void Member::hurry() {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty()) return;
  is_hurried_ = true;
  is_run_by_waiters_ = false;
  run_by_waiters_ = 0;
  wanted_.notify_one();
}

void Member::run_first(std::unique_lock<std::mutex>& lock) {
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  const uint64_t sequence = started_++;
  Status status = end_of(sequence);
  is_running_ = true;
  own_call_.reset();
  is_own_agreed_ = false;
  lock.unlock();
  if (job.state->flight != 0) flight_->began(job.state->flight);
  if (status.ok()) {
    status = job.run(sequence);
    if (!status.ok()) fail(status);
  }
  lock.lock();
  done_ = sequence + 1;
  mails_.erase(mails_.begin(), mails_.lower_bound({done_, -1, false, 0}));
  forget_refusals(sequence + job.state->collective.refused);
  const bool has_direct_receives = own_call_.has_value();
  lock.unlock();
  if (has_direct_receives) end_direct_receives();
  job.run = nullptr;  // what it holds goes before the caller hears of the end
  complete(*job.state, status);
  lock.lock();
  is_running_ = false;
  if (is_shut_down_) changed_.notify_all();
  if (jobs_.empty()) {
    is_awaited_ = false;
  } else if (is_awaited_ || is_hurried_) {
    is_hurried_ = true;
    wanted_.notify_one();
  }
}

void Member::work(std::stop_token stop) {
  // How long a job may wait for a thread that waits for it, and how often the thread looks at a
  // group without calls before it sleeps.
  constexpr std::chrono::milliseconds kLook(1);
  constexpr int kIdleLooks = 20;
  constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t seen_waiting = kNone, seen_started = 0;
  int idle_looks = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (jobs_.empty()) {
      if (stop.stop_requested()) return;
      is_hurried_ = false;
    } else if (!is_running_) {
      const bool is_left = seen_waiting == started_;
      if (is_hurried_ || is_left || stop.stop_requested()) {
        if (is_left) is_run_by_waiters_ = false;
        run_by_waiters_ = 0;
        seen_waiting = kNone;
        run_first(lock);
        continue;
      }
    }
    seen_waiting = jobs_.empty() || is_running_ ? kNone : started_;
    idle_looks = jobs_.empty() && started_ == seen_started ? idle_looks + 1 : 0;
    seen_started = started_;
    is_watching_ = memory_ != nullptr && is_run_by_waiters_ && idle_looks < kIdleLooks;
    if (is_watching_) {
      wanted_.wait_for(lock, kLook);
    } else if (jobs_.empty() || is_running_) {
      wanted_.wait(lock);
      idle_looks = 0;
    }
    is_watching_ = false;
  }
}

Status Member::end_of(uint64_t sequence) const {
  return sequence < ended_from_ ? ok_status() : status_;
}

bool Member::end(const Status& why, uint64_t sequence, Ended& ended) {
  if (sequence >= ended_from_) return false;
  ended_from_ = sequence;
  if (!status_.ok()) return true;
  status_ = why;
  for (Posted& posted : posted_) ended.emplace_back(std::move(posted.state), why);
  for (Sending& sending : sending_) ended.emplace_back(std::move(sending.state), why);
  posted_.clear();
  sending_.clear();
  return true;
}

void Member::fail(const Status& why) {
  Ended ended;
  bool is_news = false;
  {
    const std::lock_guard lock(mutex_);
    is_news = end(why, done_, ended);
  }
  stir();
  if (is_news) {
    std::vector<CompletionRef> told = tell_all(Head::Kind::kAbort, why);
    const std::lock_guard lock(mutex_);
    farewells_ = std::move(told);
  }
  tell(ended);
}

void Member::shutdown() {
  bool is_idle = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_shut_down_) return;
    is_shut_down_ = true;
    is_idle = jobs_.empty() && done_ == started_ && posted_.empty();
  }
  const Status why = cancelled("rank {} has shut group {} down", rank_, name_);
  if (!is_idle) fail(why);
  Status told = why;
  bool is_told = false;
  {
    const std::lock_guard lock(mutex_);
    is_left_well_ = status_.ok();
    if (is_left_well_) {
      // The others still get what was sent to them, and may go on without this rank.
      status_ = why;
      ended_from_ = done_;
    } else {
      told = status_;
      is_told = !farewells_.empty();
    }
  }
  if (!is_told) {
    std::vector<CompletionRef> farewells =
        tell_all(is_left_well_ ? Head::Kind::kLeave : Head::Kind::kAbort, told);
    const std::lock_guard lock(mutex_);
    farewells_ = std::move(farewells);
  }
  {
    // Under the lock, so that the thread does not miss it on its way to sleep.
    std::unique_lock lock(mutex_);
    thread_.request_stop();
    wanted_.notify_one();
    // What another thread runs uses this object and the group.
    changed_.wait(lock, [&] { return !is_running_; });
  }
  if (thread_.joinable()) thread_.join();
}

void Member::await_sent(Deadline deadline) const {
  // Of a group that has failed some may be stopped.
  constexpr std::chrono::seconds kAfterFailure(1);
  std::vector<CompletionRef> farewells;
  {
    const std::lock_guard lock(mutex_);
    farewells = farewells_;
    if (!is_left_well_) {
      deadline = Deadline::in(std::min(deadline.left(), std::chrono::nanoseconds(kAfterFailure)));
    }
  }
  // Who is lost completes them, too.
  for (const CompletionRef& told : farewells) told->await_until(deadline);
}

}  // namespace hekla::process_group
