// SPDX-License-Identifier: Apache-2.0
// Events.
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/programs.h"
#include "plugin_api/conformance/session.h"

namespace hekla::conformance {
namespace {

void require_no_error(const std::optional<ErrorInfo>& error, const std::string& what) {
  if (error) fail(what + " brought " + error->text());
}

// The ready event of a launch that is probably still running.
PJRT_Event* busy_event(Session& s) {
  const std::vector<float> values(256 * 256, 1.0f);
  PJRT_LoadedExecutable* executable = s.compile(kLong);
  Launch launch = s.execute(executable, {s.upload_f32(values, {256, 256})});
  s.destroy_event(launch.done);
  return s.ready_event(launch.outputs[0]);
}

void check_states(Session& s) {
  PJRT_Event* event = s.ready_event(s.upload_f32({1, 2}, {2}));
  require_no_error(s.await(event), "Await");
  require(s.is_ready(event), "IsReady is false after Await");
  auto error = make_args<PJRT_Event_Error_Args>();
  error.event = event;
  require_no_error(s.try_call(HEKLA_SLOT(PJRT_Event_Error), &error), "Event_Error");
  require_no_error(s.await(event), "a second Await");
  s.destroy_event(event);
}

void check_event_destroy_null(Session& s) {
  auto args = make_args<PJRT_Event_Destroy_Args>();
  s.call(HEKLA_SLOT(PJRT_Event_Destroy), &args);
}

void check_callback_once(Session& s) {
  for (bool busy : {false, true}) {
    PJRT_Event* event = busy ? busy_event(s) : s.ready_event(s.upload_f32({1, 2}, {2}));
    if (!busy) require_no_error(s.await(event), "Await");
    const std::string what = busy ? "pending event" : "ready event";
    ReadyCounter first(s);
    ReadyCounter second(s);
    s.on_ready(event, &first);
    s.on_ready(event, &second);
    require_equal(first.wait(1), 1, "calls of the first callback of a " + what);
    require_equal(second.wait(1), 1, "calls of the second callback of a " + what);
    require_no_error(first.error(), "the callback of a " + what);
    s.destroy_event(event);
  }
}

void check_destroy_after_registration(Session& s) {
  PJRT_Event* event = busy_event(s);
  ReadyCounter counter(s);
  s.on_ready(event, &counter);
  s.destroy_event(event);
  require_equal(counter.wait(1), 1, "calls of the callback after the event was destroyed");
}

// Runs `work` in the callback of an event, which it may destroy, and waits for its end; fails with
// its failure.
void in_callback(Session& s, PJRT_Event* event, std::function<void()> work) {
  struct State {
    Session& session;
    std::function<void()> work;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::string reason;
  } state{s, std::move(work)};
  auto args = make_args<PJRT_Event_OnReady_Args>();
  args.event = event;
  args.user_arg = &state;
  args.callback = [](PJRT_Error* error, void* arg) {
    auto& self = *static_cast<State*>(arg);
    std::string reason;
    try {
      self.session.take(error);
      self.work();
    } catch (const Failure& failure) {
      reason = failure.reason;
    } catch (const NotOffered& refusal) {
      reason = refusal.reason;
    }
    const std::lock_guard lock(self.mutex);
    self.done = true;
    self.reason = std::move(reason);
    self.changed.notify_all();
  };
  s.call(HEKLA_SLOT(PJRT_Event_OnReady), &args);
  std::unique_lock lock(state.mutex);
  require(state.changed.wait_for(lock, std::chrono::seconds(20), [&] { return state.done; }),
          "the callback did not run or did not end");
  require(state.reason.empty(), state.reason);
}

void check_destroy_in_callback(Session& s) {
  PJRT_Event* const event = busy_event(s);
  in_callback(s, event, [&] { s.destroy_event(event); });
}

void check_destroy_all_in_callback(Session& s) {
  PJRT_Event* const event = busy_event(s);
  in_callback(s, event, [&] {
    s.destroy_event(event);
    s.finish();
  });
}

void check_calls_in_callback(Session& s) {
  PJRT_Event* const event = busy_event(s);
  PJRT_Buffer* const buffer = s.upload_f32({5, 6, 7}, {3});
  in_callback(s, event, [&] {
    if (s.is_deleted(buffer)) fail("the buffer is deleted");
    s.devices();
    PJRT_Event* ready = s.ready_event(buffer);
    s.is_ready(ready);
    s.destroy_event(ready);
    // A transfer is started here; its end is awaited outside.
    const std::vector<float> values = {1, 2};
    s.upload_f32(values, {2});
  });
  s.destroy_event(event);
}

void check_error(Session& s) {
  PJRT_Event* event = s.ready_event(s.error_buffer(PJRT_Error_Code_DATA_LOSS, "made to fail"));
  for (int i = 0; i < 2; ++i) {
    auto error = s.await(event);
    require(error.has_value(), "Await of a failed event brought no error");
    require_equal(error->code, PJRT_Error_Code_DATA_LOSS, "code of the awaited error");
    require(error->message.find("made to fail") != std::string::npos,
            "the message is \"" + error->message + "\"");
    auto args = make_args<PJRT_Event_Error_Args>();
    args.event = event;
    auto again = s.try_call(HEKLA_SLOT(PJRT_Event_Error), &args);
    require(again.has_value() && again->code == PJRT_Error_Code_DATA_LOSS,
            "Event_Error does not bring the error");
  }
  require(s.is_ready(event), "a failed event is not ready");
  ReadyCounter first(s);
  ReadyCounter second(s);
  s.on_ready(event, &first);
  s.on_ready(event, &second);
  require_equal(first.wait(1), 1, "calls of the callback");
  require_equal(second.wait(1), 1, "calls of the second callback");
  require(first.error().has_value() && second.error().has_value(),
          "a callback of a failed event got no error of its own");
  s.destroy_event(event);
}

PJRT_Event* create_event(Session& s) {
  auto args = make_args<PJRT_Event_Create_Args>();
  s.call_optional(HEKLA_SLOT(PJRT_Event_Create), &args);
  require(args.event != nullptr, "PJRT_Event_Create returned null");
  return args.event;
}

void check_create_set(Session& s) {
  s.client();
  PJRT_Event* event = create_event(s);
  require(!s.is_ready(event), "a new event is ready");
  ReadyCounter counter(s);
  s.on_ready(event, &counter);
  auto set = make_args<PJRT_Event_Set_Args>();
  set.event = event;
  set.error_code = PJRT_Error_Code_OK;
  set.error_message = "";
  s.call(HEKLA_SLOT(PJRT_Event_Set), &set);
  require_equal(counter.wait(1), 1, "calls of the callback after Event_Set");
  require_no_error(counter.error(), "the callback");
  require(s.is_ready(event), "a set event is not ready");
  s.destroy_event(event);

  event = create_event(s);
  {
    std::string message = "a reason of the caller";
    set.event = event;
    set.error_code = PJRT_Error_Code_ABORTED;
    set.error_message = message.data();
    set.error_message_size = message.size();
    s.call(HEKLA_SLOT(PJRT_Event_Set), &set);
    std::fill(message.begin(), message.end(), 'x');
  }
  auto error = s.finish_event(event);
  require(error.has_value(), "an event set with an error brought none");
  require_equal(error->code, PJRT_Error_Code_ABORTED, "code of the event's error");
  require(error->message.find("a reason of the caller") != std::string::npos,
          "the message is \"" + error->message + "\"");
}

void check_set_twice(Session& s) {
  s.client();
  PJRT_Event* event = create_event(s);
  auto set = make_args<PJRT_Event_Set_Args>();
  set.event = event;
  set.error_message = "";
  s.call(HEKLA_SLOT(PJRT_Event_Set), &set);
  s.call_fails(HEKLA_SLOT(PJRT_Event_Set), &set, 0, "an event that was set before");
  s.destroy_event(event);
}

void check_many_waiters(Session& s) {
  PJRT_Event* event = busy_event(s);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      try {
        if (s.await(event) || !s.is_ready(event)) ++wrong;
      } catch (const Failure&) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  require_equal(wrong, 0, "threads that did not see the event ready");
  s.destroy_event(event);
}

constexpr Check kEventChecks[] = {
    {"event-states", "After Await an event is ready, has no error, and can be awaited again.",
     check_states},
    {"event-destroy-null", "Destroying a null event does nothing.", check_event_destroy_null},
    {"event-callback-once",
     "Each of several callbacks on a ready or pending event runs exactly once.",
     check_callback_once},
    {"event-destroyed-early",
     "A callback runs although its event was destroyed after registration.",
     check_destroy_after_registration},
    {"event-destroyed-in-callback", "A callback may destroy its own event.",
     check_destroy_in_callback},
    {"event-callback-destroys-all",
     "A callback may destroy every handle, the client last, that its event depends on.",
     check_destroy_all_in_callback},
    {"event-calls-in-callback", "A callback may call the API without a deadlock.",
     check_calls_in_callback},
    {"event-error", "Each look at a failed event and each callback gets its own error object.",
     check_error},
    {"event-create-set", "An event of the caller becomes ready when set, with its error.",
     check_create_set},
    {"event-set-twice", "Setting an event twice is an error.", check_set_twice},
    {"event-many-waiters", "Several threads can await one event.", check_many_waiters},
};

}  // namespace

std::span<const Check> event_checks() { return kEventChecks; }

}  // namespace hekla::conformance
