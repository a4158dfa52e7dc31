// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/device_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/staging.h"

namespace hekla::reference {
namespace {

// An array whose bytes nobody writes any more: receivers read them while the sender goes on, which
// writes in place what it alone holds.
Result<HostArray> detached(HostArray array) {
  if (array.dtype() == DType::kInvalid || array.is_unique()) return array;
  HEKLA_ASSIGN_OR_RETURN(HostArray copy, Staging::allocate(array.dtype(), array.dims()));
  if (array.size_bytes() > 0) {
    std::memcpy(copy.mutable_data(), array.data(), static_cast<size_t>(array.size_bytes()));
  }
  return copy;
}

// After a wait so long a process tells the others that it has come to a stop.
constexpr std::chrono::milliseconds kStopAfter{100};

std::vector<int> sorted_processes(const ir::DeviceGrid& grid, const pjrt::GangLink* link) {
  std::vector<int> processes;
  for (int64_t device = 0; link != nullptr && device < grid.size(); ++device) {
    processes.push_back(link->process_of(device));
  }
  std::ranges::sort(processes);
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  return processes;
}

Status endless_waits(const std::string& lines) {
  return failed_precondition(
      "devices of one launch wait for each other without end; all members of a group must reach "
      "the same collectives in the same order:{}",
      lines);
}

Status needs_pairs(const std::string& where) {
  return unimplemented(
      "{} has no source_target_pairs: in a launch over several processes they say who sends to "
      "whom",
      where);
}

Status detach_all(std::vector<HostArray>& arrays) {
  for (HostArray& array : arrays) {
    HEKLA_ASSIGN_OR_RETURN(array, detached(std::move(array)));
  }
  return ok_status();
}

}  // namespace

DeviceExchange::DeviceExchange(ir::DeviceGrid grid, WaitLimits limits,
                               std::shared_ptr<pjrt::GangLink> link, Matching matching)
    : grid_(grid),
      limits_(std::move(limits)),
      link_(std::move(link)),
      matching_(matching),
      own_count_([this] {
        size_t count = 0;
        for (int64_t device = 0; device < grid_.size(); ++device) count += is_own(device);
        return count;
      }()),
      processes_(sorted_processes(grid_, link_.get())),
      devices_(static_cast<size_t>(grid.size())) {}

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
  if (tells_of_stops_) tell_of_stop(lock);
  const auto is_called_off = [&] { return thread == Thread::kLane && self.is_lane_called_off; };
  while (!is_there() && status_.ok() && !is_called_off()) {
    Deadline patience = patience_of(device, *mine);
    if (link_ != nullptr && !tells_of_stops_ && obstacle(device) == &*mine) {
      const Deadline stop = Deadline::at(mine->since + kStopAfter);
      if (stop.expired()) {
        tell_of_stop(lock);
        continue;
      }
      patience = std::min(patience, stop,
                          [](const Deadline& a, const Deadline& b) { return a.time() < b.time(); });
    }
    if (patience.is_never()) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, patience.time()) == std::cv_status::timeout) {
      // Somebody may have come in the same moment.
      if (!is_there() && status_.ok()) complain(*mine);
    }
  }
  mine.reset();
  // The next launch of the device may be warned of again.
  if (matching_ == Matching::kByOrder && is_there()) has_warned_ = false;
  // Those that still wait look at the clock again.
  if (std::exchange(tells_of_stops_, false)) changed_.notify_all();
  if (!status_.ok()) return status_;
  if (is_there()) return ok_status();
  return cancelled("the launch ended before {} had brought its part", grid_.name(device));
}

void DeviceExchange::set_waits_for_lane(int64_t device, bool waits) {
  std::unique_lock lock(mutex_);
  Device& self = devices_[static_cast<size_t>(device)];
  self.waits_for_lane = waits;
  if (!waits) return;
  if (self.lane) self.lane->since = Clock::now();
  changed_.notify_all();  // from now on the lane's patience counts
  look_for_endless_waits();
  if (tells_of_stops_) tell_of_stop(lock);
}

void DeviceExchange::call_off_lane(int64_t device) {
  const std::lock_guard lock(mutex_);
  devices_[static_cast<size_t>(device)].is_lane_called_off = true;
  changed_.notify_all();
}

Result<DeviceExchange::Ticket> DeviceExchange::post(int64_t device, const Site& site,
                                                    std::vector<int64_t> members, Arrays arrays) {
  HEKLA_RETURN_IF_ERROR(detach_all(arrays));
  std::unique_lock lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_device(device, Thread::kMain));
  const auto position = std::find(members.begin(), members.end(), device);
  if (position == members.end()) {
    return internal_error("{}: device {} is no member of its own group", site.name, device);
  }
  const size_t index = static_cast<size_t>(position - members.begin());
  devices_[static_cast<size_t>(device)].last_site = site.name;
  const uint64_t id = meeting_id(site.id);
  const int64_t round = devices_[static_cast<size_t>(device)].rounds[{id, members}]++;
  const MeetingKey key{{id, round}, members};
  Meeting& meeting = meeting_at(key);
  if (const Status status = come(meeting, device, site); !status.ok()) {
    fail(status);
    return status;
  }
  meeting.brought[index] = std::move(arrays);
  if (--meeting.missing == 0) changed_.notify_all();
  const bool is_last = --meeting.own_missing == 0;
  if (is_last && link_ != nullptr &&
      !std::ranges::all_of(members, [&](int64_t member) { return is_own(member); })) {
    ExchangeMessage message = own_parts(key, meeting, site.name);
    message.site = site.id;
    const std::vector<int> processes = count_messages_to(members);
    lock.unlock();
    hand_over(processes, message);
  }
  return Ticket{id, std::move(members), round};
}

DeviceExchange::Meeting& DeviceExchange::meeting_at(const MeetingKey& key) {
  const auto [it, is_new] = meetings_.try_emplace(key);
  Meeting& meeting = it->second;
  if (is_new) {
    meeting.brought.resize(key.second.size());
    meeting.missing = key.second.size();
    for (const int64_t member : key.second) meeting.own_missing += is_own(member);
    meeting.to_collect = meeting.own_missing;
  }
  return meeting;
}

Status DeviceExchange::come(Meeting& meeting, int64_t device, const Site& site) const {
  if (!meeting.site) {
    meeting.site = site;
    meeting.first = device;
  }
  return meeting.site->id == site.id
             ? ok_status()
             : another_operation(device, site, meeting.first, *meeting.site);
}

Status DeviceExchange::another_operation(int64_t device, const Site& site, int64_t other,
                                         const Site& its_site) const {
  return failed_precondition(
      "{} comes to {} where {} comes to {}; devices that are launched one by one come to the "
      "collectives of a group in one order, with the same types",
      name(device), site.name, name(other), its_site.name);
}

DeviceExchange::Channel DeviceExchange::queue_channel(const Channel& channel) const {
  return {channel.number, channel.site == 0 ? 0 : std::max<uint64_t>(1, meeting_id(channel.site))};
}

ExchangeMessage DeviceExchange::own_parts(const MeetingKey& key, const Meeting& meeting,
                                          const std::string& where) const {
  ExchangeMessage message;
  message.round = key.first.second;
  message.members = key.second;
  message.where = where;
  for (size_t i = 0; i < key.second.size(); ++i) {
    if (is_own(key.second[i])) message.parts.push_back({key.second[i], *meeting.brought[i]});
  }
  return message;
}

std::vector<int> DeviceExchange::count_messages_to(const std::vector<int64_t>& devices) {
  std::vector<int> processes;
  for (const int64_t device : devices) {
    if (!is_own(device)) processes.push_back(link_->process_of(device));
  }
  std::ranges::sort(processes);
  processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
  for (const int process : processes) ++counts_[process].sent;
  return processes;
}

void DeviceExchange::hand_over(const std::vector<int>& processes,
                               const ExchangeMessage& message) const {
  for (const int process : processes) link_->send(process, message.head(), message.blocks());
}

bool DeviceExchange::has_come_to_a_stop() const {
  for (int64_t device = 0; device < grid_.size(); ++device) {
    if (is_own(device) && can_go_on(device)) return false;
  }
  return true;
}

void DeviceExchange::tell_of_stop(std::unique_lock<std::mutex>& lock) {
  tells_of_stops_ = true;
  if (!has_come_to_a_stop() || !status_.ok()) return;
  ProcessState state;
  state.counts = counts_;
  for (int64_t device = 0; device < grid_.size(); ++device) {
    if (!is_own(device) || devices_[static_cast<size_t>(device)].is_finished) continue;
    state.waiting.push_back({device, obstacle(device)->where, waits_for(device).first});
  }
  ExchangeMessage message;
  message.kind = ExchangeMessage::Kind::kState;
  message.where = state.text();
  stuck_.set(link_->own_process(), std::move(state));
  look_for_stuck_processes();
  lock.unlock();
  for (const int process : processes_) {
    if (process != link_->own_process()) link_->send(process, message.head(), {});
  }
  lock.lock();
}

void DeviceExchange::look_for_stuck_processes() {
  if (!status_.ok()) return;
  const auto waits = stuck_.endless(processes_);
  if (!waits) return;
  std::string lines;
  for (const ProcessState::Waiting& wait : *waits) {
    lines += fmt::format("\n  {} waits at {} for", name(wait.device), wait.where);
    for (size_t i = 0; i < wait.others.size(); ++i) {
      const int64_t other = wait.others[i];
      const auto theirs = std::ranges::find(*waits, other, &ProcessState::Waiting::device);
      lines += fmt::format("{} {}, which {}", i == 0 ? "" : ",", name(other),
                           theirs == waits->end() ? "has finished" : "waits at " + theirs->where);
    }
  }
  fail(endless_waits(lines));
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
  std::unique_lock lock(mutex_);
  HEKLA_RETURN_IF_ERROR(check_device(device, Thread::kMain));
  devices_[static_cast<size_t>(device)].last_site = site.name;
  if (link_ != nullptr && !target) return needs_pairs(site.name);
  if (target && !is_own(*target)) {
    if (devices_[static_cast<size_t>(*target)].is_finished) {
      const Status status = failed_precondition("{} sends at {} to {}, which has finished",
                                                grid_.name(device), site.name, grid_.name(*target));
      fail(status);
      return status;
    }
    const std::vector<int> processes = count_messages_to({*target});
    lock.unlock();
    ExchangeMessage message;
    message.kind = ExchangeMessage::Kind::kMail;
    message.site = channel.site;
    message.channel = channel.number;
    message.target = *target;
    message.where = site.name;
    message.parts.push_back({device, std::move(arrays)});
    hand_over(processes, message);
    return ok_status();
  }
  std::deque<Mail>& queue =
      mails_[{queue_channel(channel), target ? device : kAnyone, target.value_or(kAnyone)}];
  if (!target && !queue.empty() && queue.front().sender != device) {
    return failed_precondition(
        "channel {} has no source_target_pairs and two senders, {} and {}; say who sends to whom",
        channel.number, grid_.name(queue.front().sender), grid_.name(device));
  }
  queue.push_back({device, {channel.site, site.name}, std::move(arrays)});
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
  if (link_ != nullptr && !source) return needs_pairs(site.name);
  const Queue key{queue_channel(channel), source.value_or(kAnyone), source ? device : kAnyone};
  std::deque<Mail>& queue = mails_[key];
  HEKLA_RETURN_IF_ERROR(
      wait(lock, device, thread, {site.name, std::nullopt, key}, [&] { return !queue.empty(); }));
  Mail mail = std::move(queue.front());
  queue.pop_front();
  if (mail.site.id != channel.site) {
    const Status status = another_operation(device, site, mail.sender, mail.site);
    fail(status);
    return status;
  }
  return std::move(mail.arrays);
}

void DeviceExchange::deliver(int from, std::string_view head, std::vector<HostArray> blocks) {
  const auto is_theirs = [&](int64_t device) { return link_->process_of(device) == from; };
  Result<ExchangeMessage> message = ExchangeMessage();
  if (!head.empty()) message = ExchangeMessage::read(head, std::move(blocks));
  std::unique_lock lock(mutex_);
  if (!status_.ok()) return;
  Status status = message.status();
  const bool is_news =
      !head.empty() && status.ok() && message->kind != ExchangeMessage::Kind::kState;
  if (head.empty()) {
    for (int64_t device = 0; device < grid_.size(); ++device) {
      Device& theirs = devices_[static_cast<size_t>(device)];
      if (!is_theirs(device) || theirs.is_finished) continue;
      theirs.is_finished = true;
      ++finished_;
    }
    look_for_endless_waits();
  } else if (status.ok()) {
    status = take(from, *std::move(message));
  }
  if (!status.ok()) {
    fail(data_loss("process {} sends what does not belong to this launch: {}", from,
                   status.to_string()));
  }
  // They have to know what has arrived.
  if (is_news && tells_of_stops_ && status_.ok()) tell_of_stop(lock);
}

Status DeviceExchange::take(int from, ExchangeMessage message) {
  if (message.kind == ExchangeMessage::Kind::kState) {
    HEKLA_ASSIGN_OR_RETURN(ProcessState state, ProcessState::read(message.where));
    stuck_.set(from, std::move(state));
    look_for_stuck_processes();
    return ok_status();
  }
  stuck_.goes_on(from);
  stuck_.goes_on(link_->own_process());
  ++counts_[from].received;
  const auto is_device = [&](int64_t device) { return device >= 0 && device < grid_.size(); };
  for (const ExchangeMessage::Part& part : message.parts) {
    if (!is_device(part.device) || link_->process_of(part.device) != from) {
      return invalid_argument("of device {}, which is none of its", part.device);
    }
    Device& sender = devices_[static_cast<size_t>(part.device)];
    sender.has_begun = true;
    sender.last_site = message.where;
  }
  if (message.kind == ExchangeMessage::Kind::kMail) {
    const bool is_fine =
        message.parts.size() == 1 && is_device(message.target) && is_own(message.target);
    return is_fine ? take_mail(std::move(message)) : invalid_argument("mail for nobody");
  }
  std::vector<int64_t> sorted = message.members;
  std::ranges::sort(sorted);
  const bool is_group = std::ranges::all_of(sorted, is_device) &&
                        std::ranges::adjacent_find(sorted) == sorted.end() &&
                        std::ranges::any_of(sorted, [&](int64_t d) { return is_own(d); });
  if (!is_group || message.round < 0) return invalid_argument("a meeting of none of this process");
  return take_parts(from, std::move(message));
}

Status DeviceExchange::take_mail(ExchangeMessage message) {
  const int64_t source = message.parts[0].device;
  const Queue key{queue_channel({message.channel, message.site}), source, message.target};
  mails_[key].push_back(
      {source, {message.site, message.where}, std::move(message.parts[0].arrays)});
  changed_.notify_all();
  // An error of its own, which ends the launch.
  if (devices_[static_cast<size_t>(message.target)].is_finished) {
    static_cast<void>(look_for_lost_mail(message.target));
  }
  return ok_status();
}

Status DeviceExchange::take_parts(int from, ExchangeMessage message) {
  const MeetingKey key{{meeting_id(message.site), message.round}, message.members};
  Meeting& meeting = meeting_at(key);
  if (matching_ == Matching::kByOrder && !message.parts.empty()) {
    const int64_t device = message.parts.front().device;
    if (const Status status = come(meeting, device, {message.site, message.where}); !status.ok()) {
      fail(status);
      return ok_status();
    }
  }
  for (ExchangeMessage::Part& part : message.parts) {
    const auto position = std::ranges::find(message.members, part.device);
    const auto index = static_cast<size_t>(position - message.members.begin());
    if (position == message.members.end() || meeting.brought[index]) {
      return invalid_argument("device {} of process {} comes to {} twice", part.device, from,
                              message.where);
    }
    meeting.brought[index] = std::move(part.arrays);
    --meeting.missing;
  }
  if (meeting.missing == 0) changed_.notify_all();
  return ok_status();
}

Status DeviceExchange::finish(int64_t device, const Status& status) {
  std::unique_lock lock(mutex_);
  if (device < 0 || device >= grid_.size()) {
    return internal_error("there is no device {} in this launch", device);
  }
  Device& self = devices_[static_cast<size_t>(device)];
  if (self.is_finished) return status;
  self.is_finished = true;
  ++finished_;
  ++own_finished_;
  if (!status.ok()) {
    fail(status.with_context(grid_.name(device) + " failed"));
    return status;
  }
  Status end = look_for_lost_mail(device);
  if (end.ok() && finished_ == devices_.size()) end = look_for_lost_mail(kAnyone);
  look_for_endless_waits();
  const bool is_last = own_finished_ == own_count_ && status_.ok();
  if (link_ != nullptr && (is_last || tells_of_stops_)) tell_of_stop(lock);
  lock.unlock();
  if (is_last && link_ != nullptr) link_->finish();
  return end;
}

void DeviceExchange::leave(int64_t device) {
  const std::lock_guard lock(mutex_);
  Device& self = devices_[static_cast<size_t>(device)];
  if (std::exchange(self.is_finished, true)) return;
  ++finished_;
  ++own_finished_;
  look_for_endless_waits();
}

Status DeviceExchange::look_for_lost_mail(int64_t device) {
  for (const auto& [queue, mails] : mails_) {
    if (queue.target != device || mails.empty()) continue;
    Status status = failed_precondition("{} sent at {} what {} did not receive before it finished",
                                        grid_.name(mails.front().sender), mails.front().site.name,
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
    const auto number = static_cast<int64_t>(i);
    if (!is_own(number) && !device.is_finished) {
      const int process = link_->process_of(number);
      text +=
          fmt::format("\n  {} is process {}'s, which {}", name(number), process,
                      device.last_site.empty() ? link_->describe(process)
                                               : "runs it; it last came to " + device.last_site);
      continue;
    }
    text += fmt::format("\n  {} {}", name(number),
                        device.is_finished          ? "has finished"
                        : !device.last_site.empty() ? "runs; it last came to " + device.last_site
                        : device.has_begun          ? "runs, and has come to no other device so far"
                                           : "has not begun: its inputs or an earlier launch on it "
                                             "are not ready");
  }
  return text;
}

Status DeviceExchange::loss_of(int64_t device) const {
  const bool may_be = matching_ == Matching::kByOrder && !is_own(device) &&
                      devices_[static_cast<size_t>(device)].is_finished;
  return may_be ? link_->loss_of(link_->process_of(device)) : ok_status();
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
  Status loss;
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
      if (loss.ok()) loss = loss_of(other);
    }
    if (others.empty()) lines += "a sender, and is the only device";
  }
  if (lines.empty()) return;
  fail(loss.ok() ? endless_waits(lines)
                 : Status(loss.code(), fmt::format("{}, and there are devices that wait for its:{}",
                                                   loss.message(), lines)));
}

}  // namespace hekla::reference
