// SPDX-License-Identifier: Apache-2.0
// GangInputs: watches gangs whose devices wait for the inputs of one of them.
//
// A gang that meets in its program begins when the inputs of all its devices are there (backend.h).
// As long as some devices have theirs and others do not, the former wait for the latter, and
// GangOptions hold for this wait as for any other: the log says, once, who lacks which argument,
// and the deadline ends the launch with DEADLINE_EXCEEDED, which says the same. While no device has
// its inputs nobody waits for a peer: launches in a row may take as long as they like.
//
// Owned by the client; has a thread only while there is something to watch. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/pjrt/gang.h"
#include "runtime/base/async/completion.h"

namespace hekla::pjrt {

// One gang that waits. Not thread-safe.
class GangInputWait {
 public:
  using Clock = std::chrono::steady_clock;
  struct Argument {
    std::string name;  // "argument 2, f32[4]"
    CompletionRef ready;
  };
  struct Device {
    std::string name;
    std::vector<Argument> missing;  // as far as known
  };

  GangInputWait(const GangRef& gang, std::vector<Device> devices)
      : gang_(gang), devices_(std::move(devices)) {}

  // Looks at what has come, and warns or aborts the gang where its time is over; whether there is
  // more to wait for.
  bool look(Clock::time_point now);

 private:
  std::string who_lacks_what() const;

  std::weak_ptr<Gang> gang_;  // gone: the launch has ended
  std::vector<Device> devices_;
  bool has_begun_ = false;  // a device has its inputs, since since_
  Clock::time_point since_;
  bool has_warned_ = false;
};

class GangInputs {
 public:
  GangInputs() = default;
  GangInputs(const GangInputs&) = delete;
  GangInputs& operator=(const GangInputs&) = delete;
  // May run on the thread that watches: an end of a launch may be the end of its client.
  ~GangInputs();

  // Without limits, or where nothing is missing, nothing is watched; nor where the system has no
  // thread, which the log says.
  void watch(const GangRef& gang, std::vector<GangInputWait::Device> devices);

 private:
  struct Watched {
    std::mutex mutex;
    std::vector<GangInputWait> waits;  // guarded by mutex, as all below
    int idle_beats = 0;
    bool has_thread = false;
  };
  static bool beat(Watched& watched);

  const std::shared_ptr<Watched> watched_ = std::make_shared<Watched>();
  std::mutex thread_mutex_;
  std::jthread thread_;  // guarded by thread_mutex_
};

}  // namespace hekla::pjrt
