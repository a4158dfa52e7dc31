// SPDX-License-Identifier: Apache-2.0
// Event: the completion of one asynchronous operation of a device.
//
// Owns the plugin's event; movable, not copyable. An empty Event is complete without error. Waiting
// and asking may be done from any thread.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/async/deadline.h"
#include "runtime/plugin/plugin.h"

namespace hekla::runtime {

class Event {
 public:
  Event() = default;
  // Takes ownership of `event`; null is complete without error.
  Event(std::shared_ptr<const Plugin> plugin, PJRT_Event* event);
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept;
  ~Event() { destroy(); }

  Result<bool> is_ready() const;
  // Blocks; the operation's error. DEADLINE_EXCEEDED when the time is up; the operation goes on.
  Status await(Deadline deadline = Deadline::never()) const;
  // Calls `callback` once, now or later on a thread of the plugin, also when this Event is gone.
  // When this returns an error, the callback is not called.
  Status on_ready(std::function<void(Status)> callback) const;

 private:
  void destroy();

  std::shared_ptr<const Plugin> plugin_;
  PJRT_Event* event_ = nullptr;
};

}  // namespace hekla::runtime
