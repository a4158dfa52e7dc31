// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/device_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/log.h"

namespace hekla::reference {
namespace {

// An array whose bytes nobody writes any more: receivers read them while the sender goes on, which
// writes in place what it alone holds.
Result<HostArray> detached(HostArray array) {
  if (array.dtype() == DType::kInvalid || array.is_unique()) return array;
  HEKLA_ASSIGN_OR_RETURN(HostArray copy, HostArray::allocate(array.dtype(), array.dims(), false));
  if (array.size_bytes() > 0) {
    std::memcpy(copy.mutable_data(), array.data(), static_cast<size_t>(array.size_bytes()));
  }
  return copy;
}

Status detach_all(std::vector<HostArray>& arrays) {
  for (HostArray& array : arrays) {
    HEKLA_ASSIGN_OR_RETURN(array, detached(std::move(array)));
  }
  return ok_status();
}

}  // namespace

DeviceExchange::DeviceExchange(ir::DeviceGrid grid, WaitLimits limits)
    : grid_(grid), limits_(std::move(limits)), devices_(static_cast<size_t>(grid.size())) {}

std::string DeviceExchange::name(int64_t device) const {
  const auto index = static_cast<size_t>(device);
  return index < limits_.devices.size() ? limits_.devices[index] : grid_.name(device);
}

void DeviceExchange::begin(int64_t device) {
  const std::lock_guard lock(mutex_);
  devices_[static_cast<size_t>(device)].has_begun = true;
}

Status DeviceExchange::check_device(int64_t device, Thread thread) const {
  if (!status_.ok()) return status_;
  if (device >= 0 && device < grid_.size()) {
    const Device& self = devices_[static_cast<size_t>(device)];
    const std::optional<Wait>& wait = thread == Thread::kMain ? self.main : self.lane;
    if (!self.is_finished && !wait) return ok_status();
  }
  return internal_error("device {} is no running device of this launch", device);
}

template <typename IsThere>
Status DeviceExchange::wait(std::unique_lock<std::mutex>& lock, int64_t device, Thread thread,
                            Wait what, const IsThere& is_there) {
  if (is_there()) return ok_status();
  Device& self = devices_[static_cast<size_t>(device)];
  std::optional<Wait>& mine = thread == Thread::kMain ? self.main : self.lane;
  mine = std::move(what);
  mine->since = Clock::now();
  look_for_endless_waits();
  const auto is_called_off = [&] { return thread == Thread::kLane && self.is_lane_called_off; };
  while (!is_there() && status_.ok() && !is_called_off()) {
    const Deadline patience = patience_of(device, *mine);
    if (patience.is_never()) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, patience.time()) == std::cv_status::timeout) {
      // Somebody may have come in the same moment.
      if (!is_there() && status_.ok()) complain(*mine);
    }
  }
  mine.reset();
  if (!status_.ok()) return status_;
  if (is_there()) return ok_status();
  return cancelled("the launch ended before {} had brought its part", grid_.name(device));
}

void DeviceExchange::set_waits_for_lane(int64_t device, bool waits) {
  const std::lock_guard lock(mutex_);
  Device& self = devices_[static_cast<size_t>(device)];
  self.waits_for_lane = waits;
  if (!waits) return;
  if (self.lane) self.lane->since = Clock::now();
  changed_.notify_all();  // from now on the lane's patience counts
  look_for_endless_waits();
}

void DeviceExchange::call_off_lane(int64_t device) {
  const std::lock_guard lock(mutex_);
  devices_[static_cast<size_t>(device)].is_lane_called_off = true;
  changed_.notify_all();
}

Result<DeviceExchange::Ticket> DeviceExchange::post(int64_t device, const Site& site,
                                                    std::vector<int64_t> members, Arrays arrays) {
  HEKLA_RETURN_IF_ERROR(detach_all(arrays));
  const std::lock_guard lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_device(device, Thread::kMain));
  const auto position = std::find(members.begin(), members.end(), device);
  if (position == members.end()) {
    return internal_error("{}: device {} is no member of its own group", site.name, device);
  }
  const size_t index = static_cast<size_t>(position - members.begin());
  devices_[static_cast<size_t>(device)].last_site = site.name;
  const int64_t round = devices_[static_cast<size_t>(device)].rounds[{site.id, members}]++;
  auto [it, is_new] = meetings_.try_emplace(MeetingKey{{site.id, round}, members});
  Meeting& meeting = it->second;
  if (is_new) {
    meeting.brought.resize(members.size());
    meeting.missing = meeting.to_collect = members.size();
  }
  meeting.brought[index] = std::move(arrays);
  if (--meeting.missing == 0) changed_.notify_all();
  return Ticket{site.id, std::move(members), round};
}

Result<std::vector<DeviceExchange::Arrays>> DeviceExchange::collect(int64_t device,
                                                                    const Site& site,
                                                                    const Ticket& ticket,
                                                                    Thread thread) {
  std::unique_lock lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_device(device, thread));
  const MeetingKey key{{ticket.id, ticket.round}, ticket.members};
  const auto it = meetings_.find(key);
  if (it == meetings_.end()) {
    return internal_error("{}: device {} collects from a meeting twice", site.name, device);
  }
  Meeting& meeting = it->second;
  HEKLA_RETURN_IF_ERROR(wait(lock, device, thread, {site.name, key, std::nullopt},
                             [&] { return meeting.missing == 0; }));
  std::vector<Arrays> brought;
  if (--meeting.to_collect == 0) {
    for (auto& arrays : meeting.brought) brought.push_back(*std::move(arrays));
    meetings_.erase(it);
  } else {
    for (const auto& arrays : meeting.brought) brought.push_back(*arrays);
  }
  return brought;
}

Status DeviceExchange::send(int64_t device, const Site& site, const Channel& channel,
                            std::optional<int64_t> target, Arrays arrays) {
  HEKLA_RETURN_IF_ERROR(detach_all(arrays));
  const std::lock_guard lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_device(device, Thread::kMain));
  devices_[static_cast<size_t>(device)].last_site = site.name;
  std::deque<Mail>& queue = mails_[{channel, target ? device : kAnyone, target.value_or(kAnyone)}];
  if (!target && !queue.empty() && queue.front().sender != device) {
    return failed_precondition(
        "channel {} has no source_target_pairs and two senders, {} and {}; say who sends to whom",
        channel.number, grid_.name(queue.front().sender), grid_.name(device));
  }
  queue.push_back({device, site.name, std::move(arrays)});
  changed_.notify_all();
  if (target && devices_[static_cast<size_t>(*target)].is_finished) {
    return look_for_lost_mail(*target);
  }
  return ok_status();
}

Result<DeviceExchange::Arrays> DeviceExchange::receive(int64_t device, const Site& site,
                                                       const Channel& channel,
                                                       std::optional<int64_t> source,
                                                       Thread thread) {
  std::unique_lock lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_device(device, thread));
  devices_[static_cast<size_t>(device)].last_site = site.name;
  const Queue key{channel, source.value_or(kAnyone), source ? device : kAnyone};
  std::deque<Mail>& queue = mails_[key];
  HEKLA_RETURN_IF_ERROR(
      wait(lock, device, thread, {site.name, std::nullopt, key}, [&] { return !queue.empty(); }));
  Arrays arrays = std::move(queue.front().arrays);
  queue.pop_front();
  return arrays;
}

Status DeviceExchange::finish(int64_t device, const Status& status) {
  const std::lock_guard lock(mutex_);
  if (device < 0 || device >= grid_.size()) {
    return internal_error("there is no device {} in this launch", device);
  }
  Device& self = devices_[static_cast<size_t>(device)];
  if (self.is_finished) return status;
  self.is_finished = true;
  ++finished_;
  if (!status.ok()) {
    fail(status.with_context(grid_.name(device) + " failed"));
    return status;
  }
  Status end = look_for_lost_mail(device);
  if (end.ok() && finished_ == devices_.size()) end = look_for_lost_mail(kAnyone);
  look_for_endless_waits();
  return end;
}

Status DeviceExchange::look_for_lost_mail(int64_t device) {
  for (const auto& [queue, mails] : mails_) {
    if (queue.target != device || mails.empty()) continue;
    Status status = failed_precondition("{} sent at {} what {} did not receive before it finished",
                                        grid_.name(mails.front().sender), mails.front().where,
                                        device == kAnyone ? "another device" : grid_.name(device));
    fail(status);
    return status;
  }
  return ok_status();
}

void DeviceExchange::abort(const Status& status) {
  const std::lock_guard lock(mutex_);
  fail(status);
}

Status DeviceExchange::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void DeviceExchange::fail(const Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  changed_.notify_all();
}

const DeviceExchange::Wait* DeviceExchange::obstacle(int64_t device) const {
  const Device& self = devices_[static_cast<size_t>(device)];
  if (self.main) return &*self.main;
  return self.waits_for_lane && self.lane ? &*self.lane : nullptr;
}

bool DeviceExchange::can_go_on(int64_t device) const {
  if (devices_[static_cast<size_t>(device)].is_finished) return false;
  const Wait* wait = obstacle(device);
  if (wait == nullptr) return true;
  if (wait->meeting) return meetings_.at(*wait->meeting).missing == 0;
  return !mails_.at(*wait->queue).empty();
}

std::pair<std::vector<int64_t>, bool> DeviceExchange::waits_for(int64_t device) const {
  const Wait& wait = *obstacle(device);
  std::vector<int64_t> others;
  if (wait.meeting) {
    const Meeting& meeting = meetings_.at(*wait.meeting);
    for (size_t i = 0; i < meeting.brought.size(); ++i) {
      if (!meeting.brought[i]) others.push_back(wait.meeting->second[i]);
    }
    return {others, false};
  }
  if (wait.queue->source != kAnyone) return {{wait.queue->source}, false};
  for (int64_t other = 0; other < grid_.size(); ++other) {
    if (other != device) others.push_back(other);
  }
  return {others, true};
}

Deadline DeviceExchange::patience_of(int64_t device, const Wait& wait) const {
  if (obstacle(device) != &wait) return Deadline::never();
  auto shortest = std::chrono::nanoseconds::max();
  if (!has_warned_ && limits_.warn_after.count() > 0) shortest = limits_.warn_after;
  if (limits_.deadline.count() > 0) shortest = std::min(shortest, limits_.deadline);
  if (shortest >= Clock::time_point::max() - wait.since) return Deadline::never();
  return Deadline::at(wait.since + shortest);
}

void DeviceExchange::complain(const Wait& wait) {
  const auto waited = Clock::now() - wait.since;
  const std::string program = limits_.program.empty() ? "a launch" : limits_.program;
  if (limits_.deadline.count() > 0 && waited >= limits_.deadline) {
    fail(Status(StatusCode::kDeadlineExceeded,
                fmt::format("{} on {} devices: some waited for others for longer than "
                            "gang_deadline_seconds allows:{}",
                            program, devices_.size(), who_waits())));
    return;
  }
  if (has_warned_ || limits_.warn_after.count() == 0 || waited < limits_.warn_after) return;
  has_warned_ = true;
  log_message(LogLevel::kWarning, "{} on {} devices: some wait for others:{}", program,
              devices_.size(), who_waits());
}

std::string DeviceExchange::who_waits() const {
  // Devices that stand at the same operation for the same others share a line.
  std::map<std::pair<std::string, std::string>, std::pair<std::string, double>> lines;
  std::vector<bool> is_missing(devices_.size());
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto device = static_cast<int64_t>(i);
    const Wait* const wait = devices_[i].is_finished ? nullptr : obstacle(device);
    if (wait == nullptr || can_go_on(device)) continue;
    const auto [others, one_is_enough] = waits_for(device);
    std::string missing;
    for (const int64_t other : others) {
      is_missing[static_cast<size_t>(other)] = true;
      if (!missing.empty()) missing += one_is_enough ? " or " : ", ";
      missing += name(other);
    }
    std::string where = wait->where;
    if (wait->meeting) where += fmt::format(", time {},", wait->meeting->first.second + 1);
    auto& [waiting, seconds] = lines[{where, missing}];
    waiting += (waiting.empty() ? "" : ", ") + name(device);
    seconds = std::max(seconds, std::chrono::duration<double>(now - wait->since).count());
  }
  std::string text;
  for (const auto& [key, value] : lines) {
    text += fmt::format("\n  {} waited {:.1f} s at {} for {}", value.first, value.second, key.first,
                        key.second);
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    if (!is_missing[i] || device.main || (device.waits_for_lane && device.lane)) continue;
    text += fmt::format("\n  {} {}", name(static_cast<int64_t>(i)),
                        device.is_finished          ? "has finished"
                        : !device.last_site.empty() ? "runs; it last came to " + device.last_site
                        : device.has_begun          ? "runs, and has come to no other device so far"
                                           : "has not begun: its inputs or an earlier launch on it "
                                             "are not ready");
  }
  return text;
}

void DeviceExchange::look_for_endless_waits() {
  if (!status_.ok()) return;
  // The devices that may still do something: those that run, and those that only such ones can
  // keep waiting.
  const size_t count = devices_.size();
  std::vector<bool> is_live(count);
  for (size_t i = 0; i < count; ++i) is_live[i] = can_go_on(static_cast<int64_t>(i));
  const auto live = [&](int64_t other) { return is_live[static_cast<size_t>(other)]; };
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = 0; i < count; ++i) {
      if (is_live[i] || devices_[i].is_finished) continue;
      const auto [others, one_is_enough] = waits_for(static_cast<int64_t>(i));
      is_live[i] =
          one_is_enough ? std::ranges::any_of(others, live) : std::ranges::all_of(others, live);
      changes = changes || is_live[i];
    }
  }
  std::string lines;
  for (size_t i = 0; i < count; ++i) {
    if (is_live[i] || devices_[i].is_finished) continue;
    const auto self = static_cast<int64_t>(i);
    const auto [others, one_is_enough] = waits_for(self);
    lines += fmt::format("\n  {} waits at {} for ", grid_.name(self), obstacle(self)->where);
    bool is_first = true;
    for (int64_t other : others) {
      if (!one_is_enough && live(other)) continue;
      lines += fmt::format("{}{}",
                           is_first        ? ""
                           : one_is_enough ? " or "
                                           : ", ",
                           grid_.name(other));
      lines += devices_[static_cast<size_t>(other)].is_finished
                   ? ", which has finished"
                   : ", which waits at " + obstacle(other)->where;
      is_first = false;
    }
    if (others.empty()) lines += "a sender, and is the only device";
  }
  if (lines.empty()) return;
  fail(
      failed_precondition("devices of one launch wait for each other without end; all members of a "
                          "group must reach the same collectives in the same order:{}",
                          lines));
}

}  // namespace hekla::reference
