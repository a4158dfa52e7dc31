// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/local_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "runtime/launch/launcher.h"
#include "runtime/launch/outbox.h"
#include "runtime/process_group/flight/flight_analysis.h"

namespace hekla::launch {
namespace {

using RankClock = std::chrono::steady_clock;

std::string words_of(const RankProcess& rank) {
  std::string text;
  for (const std::string& line : rank.last_words()) text += "\n    " + line;
  return text;
}

}  // namespace

int exit_code_of(const ProcessEnd& end) {
  return end.signal != 0 ? 128 + end.signal : end.exit_code;
}

std::string how_it_failed(const Failure& failure) {
  return fmt::format("failed first, after {:.1f} s, with {}; the others were ended{}{}",
                     failure.seconds, failure.end.to_string(),
                     failure.words.empty() ? "" : "; its last words:", failure.words);
}

void say(const std::string& text) { Outbox::of(STDERR_FILENO).add("hekla launch: " + text + "\n"); }

void kill_strays() {
  for (int round = 0; round < 100; ++round) {
    std::vector<pid_t> children;
    std::error_code ignored;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
      std::ifstream list(thread.path() / "children");
      for (pid_t child = 0; list >> child;) children.push_back(child);
    }
    if (children.empty()) return;
    // One that is killed may leave others.
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      int status = 0;
      while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
    }
  }
}

Status LocalRanks::start(const std::vector<std::string>& command, int first, int count, int size,
                         const Variables& common) {
  const std::string world = std::to_string(size);
  for (int local = 0; local < count; ++local) {
    const std::string rank = std::to_string(first + local);
    Variables own = {{"RANK", rank},
                     {"LOCAL_RANK", std::to_string(local)},
                     {"ROLE_RANK", rank},
                     {"WORLD_SIZE", world},
                     {"LOCAL_WORLD_SIZE", std::to_string(count)},
                     {"ROLE_WORLD_SIZE", world},
                     {"ROLE_NAME", "default"},
                     {"HEKLA_LAUNCH", "1"}};
    own.insert(own.end(), common.begin(), common.end());
    if (!flight_.empty()) own.emplace_back("HEKLA_FLIGHT_DIR", flight_);
    HEKLA_ASSIGN_OR_RETURN(RankProcess process, RankProcess::start(command, own, first + local));
    ranks_.push_back(std::move(process));
  }
  return ok_status();
}

bool LocalRanks::is_any_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& rank) { return !rank.end(); });
}

void LocalRanks::wait(std::vector<pollfd> others, std::chrono::milliseconds most) const {
  for (const int to : {STDOUT_FILENO, STDERR_FILENO}) {
    Outbox& outbox = Outbox::of(to);
    outbox.write();
    outbox.await(others);
    if (outbox.is_full()) continue;
    for (const RankProcess& rank : ranks_) {
      const int pipe = to == STDOUT_FILENO ? rank.output() : rank.errors();
      if (pipe >= 0) others.push_back({pipe, POLLIN, 0});
    }
  }
  int64_t patience_ms = most.count();
  if (kill_at_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - RankClock::now());
    patience_ms = std::clamp<int64_t>(left.count(), 0, patience_ms);
  }
  ::poll(others.data(), others.size(), static_cast<int>(patience_ms));
  for (const int to : {STDOUT_FILENO, STDERR_FILENO}) Outbox::of(to).write();
}

void LocalRanks::look() {
  std::optional<Failure> failure;
  for (RankProcess& rank : ranks_) {
    rank.pass_on(has_prefix_, false);
    if (rank.end()) continue;
    rank.look();
    if (!rank.end()) continue;
    rank.pass_on(has_prefix_, true);
    if (!flight_.empty()) {
      process_group::note_flight_end(flight_, {rank.rank(), was_told_, rank.end()->to_string()});
    }
    if (rank.end()->is_well()) continue;
    const std::chrono::duration<double> seconds = RankClock::now() - rank.started();
    // Of several at once the one that was killed: the others may have ended because of it.
    if (!failure || (failure->end.signal == 0 && rank.end()->signal != 0)) {
      failure = {rank.rank(), *rank.end(), seconds.count(), words_of(rank)};
    }
    if (!was_told_) all_saved_ = all_saved_ && rank.end()->exit_code == kPreempted;
  }
  if (failure && !first_) {
    first_ = failure;
    if (!was_told_ && is_any_alive()) end(SIGTERM);
  }
  if (kill_at_ && RankClock::now() >= *kill_at_) {
    for (const RankProcess& rank : ranks_) rank.signal(SIGKILL);
    kill_at_.reset();
  }
}

void LocalRanks::end(int signal, std::chrono::milliseconds grace) {
  was_told_ = true;
  for (const RankProcess& rank : ranks_) rank.signal(signal);
  const RankClock::time_point latest = RankClock::now() + grace;
  if (!kill_at_ || latest < *kill_at_) kill_at_ = latest;
}

}  // namespace hekla::launch
