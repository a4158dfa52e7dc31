// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/leader.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/launch/launcher.h"

namespace hekla::launch {
namespace {

// What fails because of another failure does so within this time.
constexpr std::chrono::milliseconds kSettling(500);
// What processes may need to vanish once they are killed, beside the grace and the silence.
constexpr std::chrono::seconds kVanishing(30);
// What a run ends with that lost a machine.
constexpr int kLostNode = 1;
constexpr size_t kKeptNews = 8;
constexpr std::string_view kHasLeft = "it has left";

std::string ranks_of(const Plan::Seat& seat) {
  const int last = seat.first_rank + seat.ranks - 1;
  return seat.ranks == 1 ? fmt::format("rank {}", last)
                         : fmt::format("ranks {}-{}", seat.first_rank, last);
}

}  // namespace

bool Leader::is_alone() const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& node) { return node.first == own_; });
}

std::string Leader::list(const std::vector<std::string>& nodes) const {
  std::string text;
  for (const std::string& node : nodes) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", nodes_.at(node).card.host);
  }
  return text.empty() ? "none" : text;
}

void Leader::read(Clock::time_point now, const Nodes& nodes) {
  std::set<std::string> present;
  for (const auto& [key, value] : nodes.values) {
    constexpr std::string_view kFront = "node/", kBack = "/card";
    if (!key.starts_with(kFront) || !key.ends_with(kBack)) continue;
    const std::string name = key.substr(kFront.size(), key.size() - kFront.size() - kBack.size());
    const Result<NodeCard> card = NodeCard::read(value);
    if (gone_.contains(name) || !card.ok()) continue;
    present.insert(name);
    const bool is_new = !nodes_.contains(name);
    Node& node = nodes_[name];
    node.card = *card;
    const auto text_of = [&](const char* what) {
      const auto found = nodes.values.find(fmt::format("node/{}/{}", name, what));
      return found == nodes.values.end() ? std::string() : found->second;
    };
    std::string beat = text_of("beat");
    if (is_new || beat != node.beat) node.heard = now;
    node.beat = std::move(beat);
    if (const auto report = NodeReport::read(text_of("report")); report.ok()) node.report = *report;
  }
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    const std::string& name = node->first;
    const Clock::duration silent = now - node->second.heard;
    std::string why;
    if (!present.contains(name)) {
      why = kHasLeft;
    } else if (nodes.lost.contains(name) && silent <= options_.silence / 2) {
      // Later the connection may be what has gone, while the ranks run on.
      why = "its launcher is gone";
    } else if (silent > options_.silence && name != own_) {
      why = fmt::format("nothing has been heard of it for {:.1f} s",
                        std::chrono::duration<double>(options_.silence).count());
    }
    if (!why.empty()) gone_[name] = why;
    node = why.empty() ? std::next(node) : nodes_.erase(node);
  }
}

std::vector<std::string> Leader::candidates() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (!node.report.is_leaving) names.push_back(name);
  }
  const auto order = [&](const std::string& name) {
    const int seat = plan_.seat_of(name);
    return std::tuple(name != own_, seat < 0, seat, nodes_.at(name).card.number);
  };
  std::sort(names.begin(), names.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return names;
}

const Plan& Leader::step(Clock::time_point now, const Nodes& nodes) {
  read(now, nodes);
  if (signal_ != 0 && !must_end_) {
    must_end_ = true;
    exit_code_ = 128 + signal_;
    const std::string news =
        fmt::format("ended by signal {}, which was passed on to all ranks", signal_);
    if (phase_ == Phase::kRunning) {
      stop(news);
    } else {
      end(exit_code_, news);
    }
  }
  if (phase_ == Phase::kGathering) gather(now);
  if (phase_ == Phase::kRunning) watch(now);
  if (phase_ == Phase::kStopping) wait_for_stop(now);
  return plan_;
}

void Leader::gather(Clock::time_point now) {
  if (!gather_until_) gather_until_ = now + options_.join_timeout;
  std::vector<std::string> chosen = candidates();
  const auto enough = static_cast<size_t>(options_.min_nodes);
  const auto most = static_cast<size_t>(options_.max_nodes);
  if (chosen.size() < enough) {
    call_until_.reset();
    if (now < *gather_until_) return;
    return end(
        kLostNode,
        fmt::format(
            "{} of at least {} machines have come in {:.0f} s: {}. Start the launcher on the "
            "others with the same --rdzv and --run-id; --join-timeout is how long it waits",
            chosen.size(), enough, std::chrono::duration<double>(options_.join_timeout).count(),
            list(chosen)));
  }
  if (!call_until_) call_until_ = now + (is_first_ ? options_.last_call : Clock::duration::zero());
  if (chosen.size() < most && now < *call_until_) return;
  if (chosen.size() > most) chosen.resize(most);
  begin(chosen);
}

void Leader::begin(const std::vector<std::string>& chosen) {
  const Result<Meeting> meeting = make_meeting_();
  if (!meeting.ok()) return end(kLostNode, meeting.status().to_string());
  std::vector<Plan::Seat> seats;
  int rank = 0;
  std::string who;
  for (const std::string& name : chosen) {
    const NodeCard& card = nodes_.at(name).card;
    seats.push_back({name, card.host, rank, card.nproc});
    rank += card.nproc;
    who += fmt::format("{}{} on {}", who.empty() ? "" : ", ", ranks_of(seats.back()), card.host);
  }
  plan_.seats = std::move(seats);
  plan_.store = meeting->store;
  plan_.address = meeting->address;
  plan_.port = meeting->port;
  ++plan_.attempt;
  is_first_ = false;
  judge_at_.reset();
  phase_ = Phase::kRunning;
  change(Plan::Kind::kRun,
         fmt::format("attempt {} on {} machine{}: {}", plan_.attempt, plan_.seats.size(),
                     plan_.seats.size() == 1 ? "" : "s", who));
}

void Leader::watch(Clock::time_point now) {
  bool has_failed = false, all_well = true;
  for (const Plan::Seat& seat : plan_.seats) {
    if (!is_here(seat.node)) {
      has_failed = true;
      continue;
    }
    const NodeReport& report = nodes_.at(seat.node).report;
    const bool is_ours = report.attempt == plan_.attempt;
    has_failed = has_failed || (is_ours && report.failure) || report.is_leaving;
    all_well = all_well && is_ours && report.has_ended && !report.failure;
  }
  if (has_failed && !judge_at_) judge_at_ = now + kSettling;
  if (has_failed) {
    if (now >= *judge_at_) judge();
    return;
  }
  if (all_well) return end(0, "");
  if (plan_.seats.size() >= static_cast<size_t>(options_.max_nodes)) return;
  for (const std::string& name : candidates()) {
    if (plan_.seat_of(name) >= 0) continue;
    return stop(
        fmt::format("machine {} has come: all ranks start again with it, which costs no "
                    "restart",
                    nodes_.at(name).card.host));
  }
}

void Leader::judge() {
  const Plan::Seat* lost = nullptr;
  const Plan::Seat* leaving = nullptr;
  const Plan::Seat* failed = nullptr;
  bool all_saved = true;
  const auto failure_of = [&](const Plan::Seat& seat) -> const Failure& {
    return *nodes_.at(seat.node).report.failure;
  };
  const auto order = [&](const Plan::Seat& seat) {
    const Failure& failure = failure_of(seat);
    return std::pair(failure.end.signal == 0, failure.seconds);
  };
  for (const Plan::Seat& seat : plan_.seats) {
    if (!is_here(seat.node)) {
      const Plan::Seat*& kind = gone_[seat.node] == kHasLeft ? leaving : lost;
      if (kind == nullptr) kind = &seat;
      continue;
    }
    const NodeReport& report = nodes_.at(seat.node).report;
    if (report.is_leaving && leaving == nullptr) leaving = &seat;
    if (report.is_leaving || report.attempt != plan_.attempt || !report.failure) continue;
    all_saved = all_saved && report.all_saved && report.failure->end.signal == 0;
    if (failed == nullptr || order(seat) < order(*failed)) failed = &seat;
  }
  std::string cause;
  bool is_free = false;
  int code = kLostNode;
  if (lost != nullptr) {
    cause =
        fmt::format("machine {} ({}) is lost: {}", lost->host, ranks_of(*lost), gone_[lost->node]);
  } else if (leaving != nullptr) {
    cause = fmt::format("machine {} ({}) leaves", leaving->host, ranks_of(*leaving));
    is_free = true;
  } else {
    const Failure& failure = failure_of(*failed);
    cause = fmt::format("rank {} on {} {}", failure.rank, failed->host, how_it_failed(failure));
    is_free = all_saved;
    code = exit_code_of(failure.end);
  }
  stop(cause);
  if (!is_free && restarts_ == options_.max_restarts) {
    must_end_ = true;
    exit_code_ = code;
    if (restarts_ > 0) note(fmt::format("all {} restarts are used up", restarts_));
    return;
  }
  restarts_ += is_free ? 0 : 1;
  note(is_free ? std::string("all ranks start again, which costs no restart")
               : fmt::format("all ranks start again, restart {} of {}", restarts_,
                             options_.max_restarts));
}

bool Leader::has_ended(const Plan::Seat& seat) const {
  if (!is_here(seat.node)) return true;
  const NodeReport& report = nodes_.at(seat.node).report;
  return report.attempt == plan_.attempt && report.has_ended;
}

bool Leader::all_seats_ended() const {
  return std::all_of(plan_.seats.begin(), plan_.seats.end(),
                     [&](const Plan::Seat& seat) { return has_ended(seat); });
}

void Leader::wait_for_stop(Clock::time_point now) {
  if (!stopped_) stopped_ = now;
  if (!all_seats_ended()) {
    const auto most = options_.grace + options_.silence + kVanishing;
    if (now - *stopped_ <= most) return;
    const auto late = std::find_if(plan_.seats.begin(), plan_.seats.end(),
                                   [&](const Plan::Seat& seat) { return !has_ended(seat); });
    return end(
        kLostNode,
        fmt::format("machine {} ({}) has not said within {:.0f} s that its ranks have "
                    "ended: the run ends, since two attempts must not run at once; look "
                    "there for processes that cannot be killed",
                    late->host, ranks_of(*late), std::chrono::duration<double>(most).count()));
  }
  if (must_end_) {
    bool saved = false, all_saved = signal_ != 0;
    for (const Plan::Seat& seat : plan_.seats) {
      if (!is_here(seat.node) || !nodes_.at(seat.node).report.failure) continue;
      const ProcessEnd& ended = nodes_.at(seat.node).report.failure->end;
      saved = true;
      all_saved = all_saved && ended.signal == 0 && ended.exit_code == kPreempted;
    }
    return end(saved && all_saved ? kPreempted : exit_code_, "");
  }
  phase_ = Phase::kGathering;
  gather_until_.reset();
  call_until_.reset();
  const size_t there = candidates().size();
  const auto enough = static_cast<size_t>(options_.min_nodes);
  change(Plan::Kind::kGather,
         there >= enough ? ""
                         : fmt::format("{} of at least {} machines are there; waiting for more",
                                       there, enough));
  gather(now);
}

void Leader::stop(std::string news) {
  phase_ = Phase::kStopping;
  stopped_.reset();
  change(Plan::Kind::kStop, std::move(news));
}

void Leader::end(int exit_code, std::string news) {
  phase_ = Phase::kEnded;
  plan_.exit_code = exit_code;
  change(Plan::Kind::kEnd, std::move(news));
}

void Leader::change(Plan::Kind kind, std::string news) {
  ++plan_.version;
  plan_.kind = kind;
  if (!news.empty()) note(std::move(news));
}

void Leader::note(std::string news) {
  plan_.news.emplace_back(plan_.version, std::move(news));
  if (plan_.news.size() > kKeptNews) plan_.news.erase(plan_.news.begin());
}

}  // namespace hekla::launch
