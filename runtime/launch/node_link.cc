// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/node_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <charconv>
#include <set>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"

namespace hekla::launch {
namespace {

constexpr std::chrono::milliseconds kBeatPause(100);
constexpr const char* kPlanKey = "plan";
constexpr const char* kSilenceKey = "silence_ms";  // the leader's

}  // namespace

Result<Endpoint> Endpoint::read(std::string_view text) {
  Endpoint made;
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == text.npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const char* const end = text.data() + text.size();
  if (host.empty() || std::from_chars(text.data() + colon + 1, end, made.port).ptr != end ||
      made.port < 1 || made.port > 65535) {
    return invalid_argument("\"{}\" is no place to meet: HOST:PORT or [ADDRESS]:PORT", text);
  }
  made.host = host;
  return made;
}

Result<std::unique_ptr<NodeLink>> NodeLink::join(const Options& options, const MakeLeader& make,
                                                 Deadline deadline) {
  std::unique_ptr<NodeLink> link(new NodeLink(options));
  HEKLA_ASSIGN_OR_RETURN(
      link->store_, rendezvous::TcpStore::connect(options.store.host, options.store.port,
                                                  options.token, deadline, options.silence / 2));
  if (make && link->store_->server_id() != options.own_server) {
    return already_exists("another launcher hosts the store at {}:{}", options.store.host,
                          options.store.port);
  }
  if (make) {
    HEKLA_RETURN_IF_ERROR(link->store_->set(kSilenceKey, std::to_string(options.silence.count())));
  }
  HEKLA_RETURN_IF_ERROR(link->agree_on_silence());
  link->event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (link->event_ < 0) return unavailable("no eventfd for the launcher: errno {}", errno);
  NodeCard card{options.host, options.nproc, 0};
  HEKLA_ASSIGN_OR_RETURN(card.number, link->store_->add("joined", 1));
  link->node_ = fmt::format("{}-{}", card.number, random_hex(4));
  HEKLA_RETURN_IF_ERROR(link->store_->join(link->node_));
  HEKLA_RETURN_IF_ERROR(link->beat(0));
  HEKLA_RETURN_IF_ERROR(link->store_->set(link->key("card"), card.text()));
  if (make) link->leader_ = make(link->node_);
  NodeLink* const own = link.get();
  link->thread_ = start_thread([own](std::stop_token stop) { own->work(stop); });
  return link;
}

Status NodeLink::agree_on_silence() const {
  HEKLA_ASSIGN_OR_RETURN(const auto text, store_->get(kSilenceKey));
  if (!text) {
    return unavailable("the store at {}:{} is there, but the launcher that decides is not yet",
                       options_.store.host, options_.store.port);
  }
  const std::string own = std::to_string(options_.silence.count());
  if (*text == own) return ok_status();
  return Status(StatusCode::kFailedPrecondition,
                fmt::format("--silence of this launcher is {} ms, and {} ms of the one at {}:{}: "
                            "all of a run need the same",
                            own, *text, options_.store.host, options_.store.port));
}

NodeLink::~NodeLink() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  if (store_ != nullptr && !node_.empty() && status_.ok()) {
    static_cast<void>(store_->remove_all("node/" + node_ + "/"));
    static_cast<void>(store_->leave(node_));
  }
  if (event_ >= 0) ::close(event_);
}

void NodeLink::clear_event() const {
  uint64_t count = 0;
  static_cast<void>(!::read(event_, &count, sizeof(count)));
}

Plan NodeLink::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

Status NodeLink::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void NodeLink::report(const NodeReport& report) {
  const std::lock_guard lock(mutex_);
  report_ = report.text();
  has_report_ = true;
}

void NodeLink::shut_down(int signal) {
  const std::lock_guard lock(mutex_);
  leader_->shut_down(signal);
}

bool NodeLink::is_alone() const {
  const std::lock_guard lock(mutex_);
  return leader_->is_alone();
}

void NodeLink::set_plan(Plan plan) {
  const std::lock_guard lock(mutex_);
  if (plan.version == plan_.version) return;
  plan_ = std::move(plan);
  const uint64_t one = 1;
  static_cast<void>(!::write(event_, &one, sizeof(one)));
}

Status NodeLink::beat(int64_t number) {
  HEKLA_RETURN_IF_ERROR(store_->set(key("beat"), std::to_string(number)));
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(has_report_, false)) return ok_status();
    text = report_;
  }
  return store_->set(key("report"), text);
}

Status NodeLink::check_membership() const {
  HEKLA_ASSIGN_OR_RETURN(const auto card, store_->get(key("card")));
  if (card) return ok_status();
  return unavailable("the others count this machine as lost");
}

Status NodeLink::lead() {
  Leader::Nodes nodes;
  HEKLA_ASSIGN_OR_RETURN(nodes.values, store_->get_all("node/"));
  for (const auto& [name, value] : nodes.values) {
    if (!name.ends_with("/card")) continue;
    const std::string node = name.substr(5, name.size() - 10);
    HEKLA_ASSIGN_OR_RETURN(const bool is_lost, store_->is_lost(node));
    if (is_lost) nodes.lost.insert(node);
  }
  Plan plan;
  bool is_new = false;
  std::set<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    plan = leader_->step(Leader::Clock::now(), nodes);
    is_new = plan.version != plan_.version;
    for (const auto& [name, value] : nodes.values) {
      const std::string node = name.substr(5, name.find('/', 5) - 5);
      if (leader_->is_gone(node)) gone.insert(node);
    }
  }
  for (const std::string& node : gone) {
    HEKLA_RETURN_IF_ERROR(store_->remove_all("node/" + node + "/"));
  }
  if (!is_new) return ok_status();
  HEKLA_RETURN_IF_ERROR(store_->set(kPlanKey, plan.text()));
  set_plan(std::move(plan));
  return ok_status();
}

void NodeLink::work(std::stop_token stop) {
  using BeatClock = std::chrono::steady_clock;
  BeatClock::time_point heard = BeatClock::now();
  Status status;
  for (int64_t number = 1; status.ok(); ++number) {
    status = beat(number);
    if (status.ok() && leader_ != nullptr) status = lead();
    if (status.ok() && leader_ == nullptr) status = check_membership();
    if (status.ok() && leader_ == nullptr) {
      const auto text = store_->get(kPlanKey);
      status = text.status();
      if (status.ok() && text->has_value()) {
        Result<Plan> plan = Plan::read(**text);
        status = plan.status();
        if (status.ok()) set_plan(*std::move(plan));
      }
    }
    // Reports that came before the stop have been brought.
    if (stop.stop_requested()) return;
    const BeatClock::time_point now = BeatClock::now();
    if (status.ok() && now - heard > options_.silence / 2) {
      status = unavailable("this launcher has stood still for {} ms",
                           std::chrono::ceil<std::chrono::milliseconds>(now - heard).count());
    }
    heard = now;
    if (status.ok()) std::this_thread::sleep_for(kBeatPause);
  }
  const std::lock_guard lock(mutex_);
  status_ = status;
  const uint64_t one = 1;
  static_cast<void>(!::write(event_, &one, sizeof(one)));
}

}  // namespace hekla::launch
