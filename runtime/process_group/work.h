// SPDX-License-Identifier: Apache-2.0
// Work: a call of a process group that is under way. A handle: copies are the same call; it may be
// dropped, the call goes on. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/async/completion.h"
#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"
#include "runtime/process_group/call.h"
#include "runtime/process_group/flight/flight_recorder.h"

namespace hekla::process_group {

class [[nodiscard]] Work {
 public:
  // Waits until the call is done, which its own deadline sees to: what it ended with. Errors name
  // the call and the ranks that are to blame.
  // May run the call on this thread. FAILED_PRECONDITION: it belongs to calls that go together and
  // have not gone yet.
  Status wait() const {
    HEKLA_RETURN_IF_ERROR(held());
    if (const auto runner = state_->runner.lock(); runner != nullptr) runner->run(*state_);
    const Waiter here(*state_);
    return state_->done.await();
  }
  // The same, or DEADLINE_EXCEEDED when it is not done by then; it then goes on.
  Status wait(std::chrono::nanoseconds timeout) const {
    HEKLA_RETURN_IF_ERROR(held());
    const Deadline deadline = Deadline::in(timeout);
    const auto runner = state_->runner.lock();
    const bool outlasts = deadline.time() >= state_->ends.time();
    if (runner != nullptr && !(outlasts && runner->run_if_next(*state_))) runner->hurry();
    const Waiter here(*state_);
    if (state_->done.await_until(deadline)) return state_->done.status();
    return deadline_exceeded(
        "{} is not done after {} ms", call(),
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  }
  // Whether it is done.
  bool test() const {
    if (state_->done.is_done()) return true;
    hurry();
    return false;
  }
  Status error() const { return state_->done.status(); }  // ok as long as it is not
  // Called once when it is done, at once where it is, else by the group's threads or one that
  // waits: brief, and not the place to destroy the group or to wait.
  void then(std::function<void(const Status&)> callback) const {
    hurry();
    state_->done.on_done(std::move(callback));
  }
  // The rank that a received message came from; -1 of other calls and as long as there is none.
  int source() const { return state_->done.is_done() ? state_->source : -1; }
  const std::string& call() const { return state_->name(); }  // for messages

  // For those that do the work.
  struct State;
  // Runs calls that would otherwise be a thread's to run.
  class Runner {
   public:
    virtual ~Runner() = default;
    // Somebody waits for the call and for nothing else: runs it, and what comes before it, unless
    // another thread does.
    virtual void run(State& state) = 0;
    // The same where nothing comes before it; whether the call has been run.
    virtual bool run_if_next(State& state) = 0;
    // Somebody wants to hear of the end of calls and does something else.
    virtual void hurry() = 0;
  };
  struct State {
    Completion done;
    std::string call;                   // empty: that of `collective`
    int source = -1;                    // set before done
    Call collective = {};               // set before others see it, as the next
    Deadline ends = Deadline::never();  // when the call fails, once it runs
    std::weak_ptr<Runner> runner = {};
    uint64_t flight = 0;  // of the process's recorder, where there is one; set as the next above
    FlightRecorder* recorder = nullptr;         // null where `flight` is 0
    std::vector<std::shared_ptr<State>> parts;  // of a batch, shared with their works
    std::atomic<bool> is_held = false;          // until the calls that it goes with go

    const std::string& name() {
      std::call_once(named_, [this] {
        if (call.empty()) call = collective.to_string();
      });
      return call;
    }

   private:
    std::once_flag named_;
  };
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Done with `status`.
  Work(std::string call, Status status) : state_(std::make_shared<State>()) {
    state_->call = std::move(call);
    state_->done.complete(std::move(status));
  }
  // Done when all are, with the first error in their order.
  static Work all(std::string call, const std::vector<Work>& parts);

 private:
  // The recorder hears for how long somebody waits.
  class Waiter {
   public:
    explicit Waiter(State& state) : state_(state) { tell(1); }
    ~Waiter() { tell(-1); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    void tell(int more) const {
      if (state_.recorder != nullptr) state_.recorder->waits(state_.flight, more);
      for (const auto& part : state_.parts) {
        if (part->recorder != nullptr) part->recorder->waits(part->flight, more);
      }
    }
    State& state_;
  };
  Status held() const {
    if (!state_->is_held.load()) return ok_status();
    return failed_precondition("{} goes together with others that have not gone yet", call());
  }
  void hurry() const {
    if (const auto runner = state_->runner.lock(); runner != nullptr) runner->hurry();
  }

  std::shared_ptr<State> state_;  // shared with those that do the work
};

inline Work Work::all(std::string call, const std::vector<Work>& parts) {
  std::vector<CompletionRef> completions;
  for (const Work& part : parts) {
    part.hurry();
    completions.emplace_back(part.state_, &part.state_->done);  // keeps the state alive
  }
  auto state = std::make_shared<State>();
  state->call = std::move(call);
  for (const Work& part : parts) state->parts.push_back(part.state_);
  Completion::all(std::move(completions))->on_done([state](const Status& status) {
    state->done.complete(status);
  });
  return Work(state);
}

}  // namespace hekla::process_group
