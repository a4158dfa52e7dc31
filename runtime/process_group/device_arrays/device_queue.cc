// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/device_arrays/device_queue.h"

#include <algorithm>
#include <vector>

#include "runtime/base/async/thread.h"

namespace hekla::process_group {

using State = DeviceWork::State;

void State::end(const Status& status) {
  if (is_ended.exchange(true)) return;
  Status last = status;
  if (last.ok() && output) {
    Result<runtime::Buffer> buffer = output->take();
    last = buffer.status();
    const std::lock_guard lock(mutex);
    if (buffer.ok()) result = std::move(*buffer);
  }
  output.reset();
  input.reset();
  done.complete(last.with_context(call));
}

void State::end_unissued(const Status& status) {
  for (const auto& member : members) member->end_unissued(status);
  output.reset();
  end(status);
  issued.complete(ok_status());
}

void State::hook() {
  if (is_block()) {
    for (const auto& member : members) member->hook();
    for (const auto& point : points) {
      if (point->issued.is_done()) point->hook();
    }
    return;
  }
  if (works.empty() || is_hooked.exchange(true)) return;
  const Work whole = works.size() == 1 ? works[0] : Work::all(call, works);
  whole.then([self = shared_from_this()](const Status& status) {
    // To make a device buffer takes a while: not on the group's threads.
    const auto signal = self->signal.lock();
    if (signal != nullptr && status.ok() && self->makes_buffer) {
      const std::lock_guard lock(signal->mutex);
      if (!signal->is_stopped) {
        signal->ended.emplace_back(self, status);
        signal->changed.notify_all();
        return;
      }
    }
    self->end(status);
  });
}

DeviceQueue::~DeviceQueue() { stop(); }

bool DeviceQueue::is_due(const State& state) {
  if (!state.refused.ok()) return true;
  return state.arrival->has_come.load() &&
         std::all_of(state.members.begin(), state.members.end(),
                     [](const StateRef& member) { return is_due(*member); });
}

bool DeviceQueue::watch(State& state) const {
  state.signal = signal_;
  if (!state.refused.ok() || !state.input) {
    state.arrival->has_come = true;
    return false;
  }
  Result<runtime::Event> ready = state.input->ready();
  if (!ready.ok()) state.arrival->status = ready.status();
  const Result<bool> is_ready = ready.ok() ? ready->is_ready() : Result<bool>(true);
  // An error that is there already is to be seen as well, so the event is asked for its own.
  if (ready.ok() && is_ready.ok() && *is_ready) state.arrival->status = ready->await();
  state.arrival->has_come = !ready.ok() || (is_ready.ok() && *is_ready);
  if (state.arrival->has_come) return false;
  watch(*ready, state.arrival, state.deadline);
  return true;
}

void DeviceQueue::watch(const runtime::Event& event, const std::shared_ptr<Arrival>& arrival,
                        Deadline deadline) const {
  const Status watched = event.on_ready([arrival, signal = signal_](const Status& status) {
    const std::lock_guard lock(signal->mutex);
    arrival->status = status;
    arrival->has_come = true;
    signal->changed.notify_all();
  });
  if (watched.ok()) return;
  // A plugin that cannot call back.
  arrival->status = event.await(deadline);
  arrival->has_come = true;
}

void DeviceQueue::add(const std::shared_ptr<State>& state) {
  const auto is_copied = [](const State& one) { return one.input && one.input->is_copied(); };
  bool goes_slowly = watch(*state) || is_copied(*state);
  for (const StateRef& member : state->members) {
    goes_slowly = watch(*member) || is_copied(*member) || goes_slowly;
  }
  const bool is_line = state->kind != State::Kind::kReceive;
  std::unique_lock lock(signal_->mutex);
  if (signal_->is_stopped) {
    lock.unlock();
    state->end_unissued(cancelled("the group has been shut down"));
    return;
  }
  Line& line = state->kind == State::Kind::kSend ? sends_ : collectives_;
  if (!is_line) {
    start_thread_locked();  // which makes a buffer of what comes
    lock.unlock();
    issue(*state);
    state->hook();
    return;
  }
  if (line.calls.empty() && !line.is_issuing && line.in_parts == nullptr && !goes_slowly) {
    // Without the lock, which callbacks of the plugin want. Calls that come meanwhile wait.
    line.is_issuing = true;
    lock.unlock();
    issue(*state);
    lock.lock();
    line.is_issuing = false;
    if (!state->issued.is_done()) {  // which the thread goes on with
      line.in_parts = state;
      start_thread_locked();
    }
    if (!line.calls.empty() || line.in_parts != nullptr) signal_->changed.notify_all();
    const bool makes_buffer =
        state->makes_buffer || std::any_of(state->members.begin(), state->members.end(),
                                           [](const StateRef& one) { return one->makes_buffer; });
    if (makes_buffer) start_thread_locked();
    lock.unlock();
    if ((makes_buffer || state->is_block()) && state->issued.is_done()) state->hook();
    return;
  }
  line.calls.push_back(state);
  start_thread_locked();
  signal_->changed.notify_all();
}

void DeviceQueue::start_thread_locked() {
  if (!thread_.joinable() && !signal_->is_stopped) {
    thread_ = start_thread([this] { work(); });
  }
}

void DeviceQueue::work() {
  // How often the group is looked at for calls whose inputs may never come.
  constexpr std::chrono::milliseconds kLook(50);
  bool is_over = false;
  std::unique_lock lock(signal_->mutex);
  for (;;) {
    const bool is_awaited =
        !collectives_.calls.empty() || !sends_.calls.empty() || collectives_.in_parts != nullptr;
    if (is_awaited && !is_over) {
      lock.unlock();
      is_over = !group_status_().ok();
      lock.lock();
    }
    if (!signal_->written.empty()) {
      const auto [upload, part] = std::move(signal_->written.front());
      signal_->written.pop_front();
      lock.unlock();
      upload->send(part);
      lock.lock();
      continue;
    }
    if (!signal_->ended.empty()) {
      const auto [state, status] = std::move(signal_->ended.front());
      signal_->ended.pop_front();
      lock.unlock();
      state->end(status);
      lock.lock();
      continue;
    }
    if (signal_->is_stopped) return;
    Deadline next = Deadline::never();
    Line* due = nullptr;
    for (Line* const line : {&collectives_, &sends_}) {
      if (line->is_issuing || (line->calls.empty() && line->in_parts == nullptr)) continue;
      const bool is_part = line->in_parts != nullptr;
      const State& first = is_part ? *line->in_parts : *line->calls.front();
      if (is_over || (is_part ? is_part_due(first) : is_due(first)) || first.deadline.expired()) {
        due = line;
        break;
      }
      if (first.deadline.time() < next.time()) next = first.deadline;
    }
    if (due != nullptr) {
      StateRef state = std::move(due->in_parts);
      const bool is_next = state == nullptr;
      if (is_next) {
        state = std::move(due->calls.front());
        due->calls.pop_front();
      }
      due->in_parts = nullptr;
      due->is_issuing = true;
      lock.unlock();
      is_next ? issue(*state) : issue_parts(*state);
      if (state->issued.is_done()) state->hook();
      lock.lock();
      due->is_issuing = false;
      if (!state->issued.is_done()) due->in_parts = state;
      if (signal_->is_stopped && due->in_parts != nullptr) {
        // stop() has not seen it.
        due->in_parts = nullptr;
        lock.unlock();
        state->end_unissued(cancelled("the group has been shut down"));
        lock.lock();
      }
      continue;
    }
    if (is_awaited) {
      const Deadline look = Deadline::in(kLook);
      signal_->changed.wait_until(lock, std::min(next.time(), look.time()));
    } else {
      signal_->changed.wait(lock);
    }
  }
}

Result<Elements> DeviceQueue::open_output(State& state) {
  const bool is_reused = state.output.has_value();
  if (!state.output) {
    std::shared_ptr<HostArray> host;
    if (state.may_write_over && state.input) host = state.input->host();
    if (host == nullptr) {
      HEKLA_ASSIGN_OR_RETURN(state.output, DeviceOutput::make(*state.place, may_be_direct_));
      host = state.output->host();
    }
    if (host != nullptr && state.parts != nullptr) {
      auto upload = DeviceUpload::begin(host, *state.place, state.parts->at_once);
      if (!upload.ok() && upload.status().code() != StatusCode::kUnimplemented) {
        return upload.status();
      }
      if (upload.ok()) {
        state.parts->upload = *upload;
        state.output = DeviceOutput::through(*std::move(upload));
      }
    }
    if (!state.output) state.output = DeviceOutput::through(std::move(host), *state.place);
  }
  HEKLA_ASSIGN_OR_RETURN(Elements out, state.output->elements());
  state.makes_buffer = !state.output->is_in_place();
  ++(state.makes_buffer ? written_copied_ : written_in_place_);
  if (is_reused) ++reused_;
  return out;
}

Status DeviceQueue::check_arrival(const Arrival& arrival) const {
  if (arrival.has_come) return arrival.status.with_context("its input");
  HEKLA_RETURN_IF_ERROR(group_status_());
  return deadline_exceeded("the contents of its input have not come");
}

Result<ConstElements> DeviceQueue::open_input(State& state) {
  if (state.parts == nullptr) return state.input->read();
  std::vector<runtime::Event> events;
  Result<ConstElements> in = state.input->begin_read(state.parts->at_once, events);
  if (in.status().code() == StatusCode::kUnimplemented) return state.input->read();
  HEKLA_RETURN_IF_ERROR(in.status());
  for (const runtime::Event& event : events) {
    state.parts->arrivals.push_back(std::make_shared<Arrival>());
    watch(event, state.parts->arrivals.back(), state.deadline);
  }
  return in;
}

Result<DeviceElements> DeviceQueue::open(State& state) {
  HEKLA_RETURN_IF_ERROR(state.refused);
  HEKLA_RETURN_IF_ERROR(check_arrival(*state.arrival));
  const int64_t count = state.place   ? element_count(state.place->dims)
                        : state.input ? state.input->count()
                                      : 0;
  if (state.part_elements > 0 && count > state.part_elements) {
    state.parts = std::make_unique<DeviceParts>();
    state.parts->count = count;
    state.parts->at_once = state.part_elements;
  }
  DeviceElements memory;
  if (state.input) {
    HEKLA_ASSIGN_OR_RETURN(memory.in, open_input(state));
    ++(state.input->is_in_place() ? read_in_place_ : read_copied_);
  }
  if (state.place) {
    HEKLA_ASSIGN_OR_RETURN(memory.out, open_output(state));
  }
  return memory;
}

void DeviceQueue::issue(State& state) {
  if (state.is_block()) return issue_block(state);
  const Result<DeviceElements> memory = open(state);
  if (!memory.ok()) {
    state.refuse(memory.status());
    state.end_unissued(memory.status());
    return;
  }
  if (state.parts != nullptr) {
    state.parts->all = *memory;
    return issue_parts(state);
  }
  state.works = {state.issue(memory->out, memory->in, state.deadline.left())};
  state.issued.complete(ok_status());
}

bool DeviceQueue::is_part_due(const State& state) {
  const DeviceParts& parts = *state.parts;
  return parts.arrivals.empty() || parts.arrivals[static_cast<size_t>(parts.next)]->has_come;
}

void DeviceQueue::issue_parts(State& state) {
  DeviceParts& parts = *state.parts;
  const bool is_over = !group_status_().ok();
  for (; parts.next < parts.size(); ++parts.next) {
    if (!is_part_due(state) && !is_over && !state.deadline.expired()) return;
    if (!parts.arrivals.empty()) {
      const Status status = check_arrival(*parts.arrivals[static_cast<size_t>(parts.next)]);
      if (!status.ok()) {
        state.refuse(status);
        state.works.clear();
        state.end_unissued(status);
        return;
      }
    }
    const int64_t first = parts.next * parts.at_once;
    const int64_t count = std::min(parts.at_once, parts.count - first);
    const auto part = [&](const auto& whole) {
      return whole.count == 0 ? whole : whole.part(first, count);
    };
    state.works.push_back(
        state.issue(part(parts.all.out), part(parts.all.in), state.deadline.left()));
    if (parts.upload == nullptr) continue;
    state.works.back().then(
        [upload = parts.upload, k = parts.next, signal = signal_](const Status& status) {
          const std::lock_guard lock(signal->mutex);
          if (!status.ok() || signal->is_stopped) return;
          signal->written.emplace_back(upload, k);
          signal->changed.notify_all();
        });
  }
  parts_ += parts.size();
  state.parts.reset();
  state.issued.complete(ok_status());
}

void DeviceQueue::stop() {
  std::vector<StateRef> left;
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->is_stopped = true;
    for (Line* const line : {&collectives_, &sends_}) {
      if (line->in_parts != nullptr) left.push_back(std::move(line->in_parts));
      for (StateRef& state : line->calls) left.push_back(std::move(state));
      line->in_parts = nullptr;
      line->calls.clear();
    }
    signal_->changed.notify_all();
  }
  for (const StateRef& state : left) {
    state->end_unissued(cancelled("the group has been shut down"));
  }
  const std::lock_guard joins(joining_);
  if (thread_.joinable()) thread_.join();
}

DeviceCounts DeviceQueue::counts() const {
  return {read_in_place_, read_copied_, written_in_place_, written_copied_, reused_, parts_};
}

namespace {

Status held(const State& state) {
  if (!state.is_held.load()) return ok_status();
  return failed_precondition("{} goes together with others that have not gone yet", state.call);
}

}  // namespace

Status DeviceWork::wait() const {
  // What is refused has ended before it is its turn to tell the others.
  if (state_->done.is_done()) return state_->done.status();
  HEKLA_RETURN_IF_ERROR(held(*state_));
  static_cast<void>(state_->issued.await());
  for (const auto& member : state_->members) static_cast<void>(DeviceWork(member).wait());
  for (const auto& point : state_->points) static_cast<void>(DeviceWork(point).wait());
  Status first;
  for (const Work& work : state_->works) {
    const Status status = work.wait();
    if (first.ok()) first = status;
  }
  if (!state_->works.empty()) state_->end(first);
  return state_->done.await();
}

Status DeviceWork::wait(std::chrono::nanoseconds timeout) const {
  if (state_->done.is_done()) return state_->done.status();
  HEKLA_RETURN_IF_ERROR(held(*state_));
  const Deadline deadline = Deadline::in(timeout);
  const auto late = [&] {
    return deadline_exceeded(
        "{} is not done after {} ms", call(),
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  };
  if (!state_->issued.await_until(deadline)) return late();
  for (const auto* parts : {&state_->members, &state_->points}) {
    for (const auto& part : *parts) static_cast<void>(DeviceWork(part).wait(deadline.left()));
  }
  Status first;
  for (const Work& work : state_->works) {
    static_cast<void>(work.wait(deadline.left()));
    if (!work.test()) return late();
    if (first.ok()) first = work.error();
  }
  if (!state_->works.empty()) state_->end(first);
  if (!state_->done.await_until(deadline)) return late();
  return state_->done.status();
}

bool DeviceWork::test() const {
  if (!state_->done.is_done() && state_->issued.is_done()) state_->hook();
  return state_->done.is_done();
}

Status DeviceWork::error() const { return state_->done.status(); }

void DeviceWork::then(std::function<void(const Status&)> callback) const {
  state_->done.on_done(std::move(callback));
  // A call that has not gone yet is one that the queue sees to.
  if (state_->issued.is_done()) state_->hook();
}

Result<runtime::Buffer> DeviceWork::result() const {
  HEKLA_RETURN_IF_ERROR(state_->done.is_done() ? state_->done.status() : wait());
  const std::lock_guard lock(state_->mutex);
  if (state_->is_given) return failed_precondition("{}: its result has been given", call());
  state_->is_given = true;
  return state_->result ? std::move(*state_->result) : runtime::Buffer();
}

int DeviceWork::source() const {
  return state_->works.size() == 1 && test() ? state_->works[0].source() : -1;
}
const std::string& DeviceWork::call() const { return state_->call; }

}  // namespace hekla::process_group
