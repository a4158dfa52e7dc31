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

void State::hook() {
  if (!work || is_hooked.exchange(true)) return;
  work->then([self = shared_from_this()](const Status& status) {
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
  return !state.refused.ok() || state.arrival->has_come.load();
}

void DeviceQueue::add(const std::shared_ptr<State>& state) {
  state->signal = signal_;
  bool is_watched = false;
  if (state->refused.ok() && state->input) {
    Result<runtime::Event> ready = state->input->ready();
    if (!ready.ok()) state->arrival->status = ready.status();
    const Result<bool> is_ready = ready.ok() ? ready->is_ready() : Result<bool>(true);
    // An error that is there already is to be seen as well, so the event is asked for its own.
    if (ready.ok() && is_ready.ok() && *is_ready) state->arrival->status = ready->await();
    state->arrival->has_come = !ready.ok() || (is_ready.ok() && *is_ready);
    if (!state->arrival->has_come) {
      is_watched = true;
      const Status watched =
          ready->on_ready([arrival = state->arrival, signal = signal_](const Status& status) {
            const std::lock_guard lock(signal->mutex);
            arrival->status = status;
            arrival->has_come = true;
            signal->changed.notify_all();
          });
      if (!watched.ok()) {  // a plugin that cannot call back
        state->arrival->status = ready->await(state->deadline);
        state->arrival->has_come = true;
      }
    }
  } else {
    state->arrival->has_come = true;
  }
  const bool is_line = state->kind != State::Kind::kReceive;
  const bool goes_slowly = is_watched || (state->input && state->input->is_copied());
  std::unique_lock lock(signal_->mutex);
  if (signal_->is_stopped) {
    lock.unlock();
    state->end(cancelled("the group has been shut down"));
    state->issued.complete(ok_status());
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
  if (line.calls.empty() && !line.is_issuing && !goes_slowly) {
    // Without the lock, which callbacks of the plugin want. Calls that come meanwhile wait.
    line.is_issuing = true;
    lock.unlock();
    issue(*state);
    lock.lock();
    line.is_issuing = false;
    if (!line.calls.empty()) signal_->changed.notify_all();
    if (state->makes_buffer) start_thread_locked();
    lock.unlock();
    if (state->makes_buffer) state->hook();
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
    const bool is_awaited = !collectives_.calls.empty() || !sends_.calls.empty();
    if (is_awaited && !is_over) {
      lock.unlock();
      is_over = !group_status_().ok();
      lock.lock();
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
      if (line->calls.empty() || line->is_issuing) continue;
      const State& first = *line->calls.front();
      if (is_over || is_due(first) || first.deadline.expired()) {
        due = line;
        break;
      }
      if (first.deadline.time() < next.time()) next = first.deadline;
    }
    if (due != nullptr) {
      const StateRef state = std::move(due->calls.front());
      due->calls.pop_front();
      due->is_issuing = true;
      lock.unlock();
      issue(*state);
      state->hook();
      lock.lock();
      due->is_issuing = false;
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
    if (state.may_write_over && state.input && state.input->host() != nullptr) {
      state.output = DeviceOutput::through(state.input->host(), *state.place);
    } else {
      HEKLA_ASSIGN_OR_RETURN(state.output, DeviceOutput::make(*state.place, may_be_direct_));
    }
  }
  HEKLA_ASSIGN_OR_RETURN(Elements out, state.output->elements());
  state.makes_buffer = !state.output->is_in_place();
  ++(state.makes_buffer ? written_copied_ : written_in_place_);
  if (is_reused) ++reused_;
  return out;
}

Result<Work> DeviceQueue::begin(State& state) {
  HEKLA_RETURN_IF_ERROR(state.refused);
  if (!state.arrival->has_come) {
    HEKLA_RETURN_IF_ERROR(group_status_());
    return deadline_exceeded("the contents of its input have not come");
  }
  HEKLA_RETURN_IF_ERROR(state.arrival->status.with_context("its input"));
  ConstElements in;
  if (state.input) {
    HEKLA_ASSIGN_OR_RETURN(in, state.input->read());
    ++(state.input->is_in_place() ? read_in_place_ : read_copied_);
  }
  Elements out;
  if (state.place) {
    HEKLA_ASSIGN_OR_RETURN(out, open_output(state));
  }
  return state.issue(out, in, state.deadline.left());
}

void DeviceQueue::issue(State& state) {
  Result<Work> begun = begin(state);
  if (begun.ok()) {
    state.work = std::move(*begun);
  } else {
    state.refuse(begun.status());
    state.output.reset();
    state.end(begun.status());
  }
  state.issued.complete(ok_status());
}

void DeviceQueue::stop() {
  std::vector<StateRef> left;
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->is_stopped = true;
    for (Line* const line : {&collectives_, &sends_}) {
      for (StateRef& state : line->calls) left.push_back(std::move(state));
      line->calls.clear();
    }
    signal_->changed.notify_all();
  }
  for (const StateRef& state : left) {
    state->end(cancelled("the group has been shut down"));
    state->issued.complete(ok_status());
  }
  const std::lock_guard joins(joining_);
  if (thread_.joinable()) thread_.join();
}

DeviceCounts DeviceQueue::counts() const {
  return {read_in_place_, read_copied_, written_in_place_, written_copied_, reused_};
}

Status DeviceWork::wait() const {
  // What is refused has ended before it is its turn to tell the others.
  if (state_->done.is_done()) return state_->done.status();
  static_cast<void>(state_->issued.await());
  if (state_->work) state_->end(state_->work->wait());
  return state_->done.await();
}

Status DeviceWork::wait(std::chrono::nanoseconds timeout) const {
  if (state_->done.is_done()) return state_->done.status();
  const Deadline deadline = Deadline::in(timeout);
  const auto late = [&] {
    return deadline_exceeded(
        "{} is not done after {} ms", call(),
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  };
  if (!state_->issued.await_until(deadline)) return late();
  if (state_->work) {
    static_cast<void>(state_->work->wait(deadline.left()));
    if (!state_->work->test()) return late();
    state_->end(state_->work->error());
  }
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

int DeviceWork::source() const { return state_->work && test() ? state_->work->source() : -1; }
const std::string& DeviceWork::call() const { return state_->call; }

}  // namespace hekla::process_group
