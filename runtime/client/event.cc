// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/event.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "runtime/base/log.h"

namespace hekla::runtime {
namespace {

struct Callback {
  std::shared_ptr<const Plugin> plugin;
  std::function<void(Status)> function;
};

// Called by the plugin once; the error belongs to the callee.
void run_callback(PJRT_Error* error, void* user_arg) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(user_arg));
  callback->function(callback->plugin->take_error(error));
}

}  // namespace

Event::Event(std::shared_ptr<const Plugin> plugin, PJRT_Event* event)
    : plugin_(std::move(plugin)), event_(event) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    destroy();
    plugin_ = std::move(other.plugin_);
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

void Event::destroy() {
  if (event_ == nullptr) return;
  HEKLA_PJRT_ARGS(PJRT_Event_Destroy_Args, args, event);
  args.event = std::exchange(event_, nullptr);
  if (Status status = HEKLA_PJRT_CALL(*plugin_, PJRT_Event_Destroy, &args); !status.ok()) {
    log_message(LogLevel::kWarning, "{}", status.to_string());
  }
}

Result<bool> Event::is_ready() const {
  if (event_ == nullptr) return true;
  HEKLA_PJRT_ARGS(PJRT_Event_IsReady_Args, args, is_ready);
  args.event = event_;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin_, PJRT_Event_IsReady, &args));
  return args.is_ready;
}

Status Event::await(Deadline deadline) const {
  if (event_ == nullptr) return ok_status();
  if (deadline.is_never()) {
    if (!plugin_->has(&PJRT_Api::PJRT_Event_Await)) {
      return HEKLA_PJRT_CALL(*plugin_, PJRT_Event_Await,
                             static_cast<PJRT_Event_Await_Args*>(nullptr));
    }
    HEKLA_PJRT_ARGS(PJRT_Event_Await_Args, args, event);
    args.event = event_;
    return plugin_->take_error(plugin_->api().PJRT_Event_Await(&args));
  }
  // Shared with the callback, which may come after this wait has given up.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> status;
  };
  auto state = std::make_shared<State>();
  HEKLA_RETURN_IF_ERROR(on_ready([state](Status status) {
    std::lock_guard lock(state->mutex);
    state->status = std::move(status);
    state->changed.notify_all();
  }));
  std::unique_lock lock(state->mutex);
  if (!state->changed.wait_until(lock, deadline.time(),
                                 [&] { return state->status.has_value(); })) {
    return deadline_exceeded("the operation on plugin '{}' did not end in time", plugin_->name());
  }
  return *state->status;
}

Status Event::on_ready(std::function<void(Status)> callback) const {
  if (event_ == nullptr) {
    callback(ok_status());
    return ok_status();
  }
  auto state = std::make_unique<Callback>(Callback{plugin_, std::move(callback)});
  HEKLA_PJRT_ARGS(PJRT_Event_OnReady_Args, args, user_arg);
  args.event = event_;
  args.callback = run_callback;
  args.user_arg = state.get();
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin_, PJRT_Event_OnReady, &args));
  (void)state.release();  // the callback owns it now
  return ok_status();
}

}  // namespace hekla::runtime
