// SPDX-License-Identifier: Apache-2.0
#include "backends/pjrt/gang_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <system_error>

#include "runtime/base/async/thread.h"
#include "runtime/base/log.h"

namespace hekla::pjrt {
namespace {

// Limits are whole seconds.
constexpr std::chrono::milliseconds kBeat{100};
// Before the thread ends for want of work.
constexpr int kIdleBeats = 50;

}  // namespace

bool GangInputWait::look(Clock::time_point now) {
  const GangRef gang = gang_.lock();
  if (gang == nullptr || gang->is_aborted()) return false;
  bool has_all = true, has_one = false;
  for (Device& device : devices_) {
    std::erase_if(device.missing, [](const Argument& one) { return one.ready->is_done(); });
    has_all = has_all && device.missing.empty();
    has_one = has_one || device.missing.empty();
  }
  if (has_all) return false;
  if (!has_one) return true;
  if (!has_begun_) {
    has_begun_ = true;
    since_ = now;
  }
  const auto waited = now - since_;
  const GangOptions& limits = gang->options();
  const std::string program =
      gang->names() == nullptr ? std::string("a launch") : gang->names()->program;
  if (limits.deadline_seconds > 0 && waited >= std::chrono::seconds(limits.deadline_seconds)) {
    gang->abort(Status(StatusCode::kDeadlineExceeded,
                       fmt::format("{} on {} devices has not begun: some waited for the inputs of "
                                   "others for longer than gang_deadline_seconds allows:{}",
                                   program, devices_.size(), who_lacks_what())));
    return false;
  }
  if (!has_warned_ && limits.warning_seconds > 0 &&
      waited >= std::chrono::seconds(limits.warning_seconds)) {
    has_warned_ = true;
    log_message(LogLevel::kWarning,
                "{} on {} devices has not begun: some wait for the inputs of others:{}", program,
                devices_.size(), who_lacks_what());
  }
  return true;
}

std::string GangInputWait::who_lacks_what() const {
  constexpr size_t kNamed = 4;
  std::string text;
  for (const Device& device : devices_) {
    if (device.missing.empty()) continue;
    text += fmt::format("\n  {} lacks", device.name);
    for (size_t i = 0; i < std::min(kNamed, device.missing.size()); ++i) {
      text += (i == 0 ? " " : "; ") + device.missing[i].name;
    }
    if (device.missing.size() > kNamed) {
      text += fmt::format(" and {} more", device.missing.size() - kNamed);
    }
    text += ": the launch or transfer that makes it has not ended";
  }
  return text;
}

GangInputs::~GangInputs() {
  const std::lock_guard lock(thread_mutex_);
  if (thread_.get_id() != std::this_thread::get_id()) return;
  // It finds nothing to watch and ends by itself.
  {
    const std::lock_guard watched_lock(watched_->mutex);
    watched_->waits.clear();
  }
  thread_.request_stop();
  thread_.detach();
}

void GangInputs::watch(const GangRef& gang, std::vector<GangInputWait::Device> devices) {
  const GangOptions& limits = gang->options();
  if (limits.warning_seconds == 0 && limits.deadline_seconds == 0) return;
  GangInputWait wait(gang, std::move(devices));
  if (!wait.look(GangInputWait::Clock::now())) return;
  const std::lock_guard lock(thread_mutex_);
  {
    const std::lock_guard watched_lock(watched_->mutex);
    watched_->waits.push_back(std::move(wait));
    watched_->idle_beats = 0;
    if (watched_->has_thread) return;
    watched_->has_thread = true;
  }
  try {
    thread_ = start_heartbeat(kBeat, [watched = watched_] { return beat(*watched); });
  } catch (const std::system_error& error) {
    log_message(LogLevel::kWarning, "no thread to watch for the inputs of launches: {}",
                error.what());
    const std::lock_guard watched_lock(watched_->mutex);
    watched_->has_thread = false;
    watched_->waits.clear();
  }
}

bool GangInputs::beat(Watched& watched) {
  std::vector<GangInputWait> waits;
  {
    const std::lock_guard lock(watched.mutex);
    waits.swap(watched.waits);
  }
  // Without the lock: the end of a launch may begin another one.
  const auto now = GangInputWait::Clock::now();
  std::vector<GangInputWait> left;
  for (GangInputWait& wait : waits) {
    if (wait.look(now)) left.push_back(std::move(wait));
  }
  const std::lock_guard lock(watched.mutex);
  std::ranges::move(left, std::back_inserter(watched.waits));
  watched.idle_beats = watched.waits.empty() ? watched.idle_beats + 1 : 0;
  watched.has_thread = watched.idle_beats < kIdleBeats;
  return watched.has_thread;
}

}  // namespace hekla::pjrt
