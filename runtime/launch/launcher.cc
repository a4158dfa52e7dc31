// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "runtime/base/host.h"
#include "runtime/launch/rank_process.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::launch {
namespace {

using Clock = std::chrono::steady_clock;

// Signals as something to read, and SIGPIPE as an error of write, as long as this lives.
class Signals {
 public:
  Signals() {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&wanted, number);
    ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
    file_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    if (file_ >= 0) ::close(file_);
    ::signal(SIGPIPE, pipe_before_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  int file() const { return file_; }
  // The last one but SIGCHLD that has come; 0: none.
  int take() const {
    int last = 0;
    signalfd_siginfo info = {};
    while (::read(file_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) last = static_cast<int>(info.ssi_signo);
    }
    return last;
  }

 private:
  sigset_t before_;
  void (*pipe_before_)(int);
  int file_ = -1;
};

void say(const std::string& text) {
  fmt::print(stderr, "hekla launch: {}\n", text);
  std::fflush(stderr);
}

// What ranks have started and left behind has become this process's child.
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

struct Attempt {
  // The rank that ended first without success.
  struct Failure {
    int rank;
    ProcessEnd end;
    double seconds;
    std::string words;  // the last that it wrote to standard error
  };
  std::optional<Failure> first;
  bool all_saved = true;  // all ranks that ended without success ended with kPreempted
  int passed_on = 0;      // a signal
};

class Run {
 public:
  Run(const LaunchOptions& options, const Signals& signals)
      : options_(options), signals_(signals) {}

  Result<Attempt> run(int number) {
    HEKLA_RETURN_IF_ERROR(start(number));
    while (is_any_alive()) {
      wait();
      if (const int signal = signals_.take(); signal != 0) pass_on(signal);
      for (RankProcess& rank : ranks_) rank.pass_on(options_.has_prefix, false);
      look();
      if (kill_at_ && Clock::now() >= *kill_at_) {
        for (const RankProcess& rank : ranks_) rank.signal(SIGKILL);
        kill_at_.reset();
      }
    }
    return std::move(attempt_);
  }

 private:
  Status start(int number) {
    const std::string token = random_hex(16);
    HEKLA_ASSIGN_OR_RETURN(store_, rendezvous::TcpStoreServer::start(options_.address, 0, token));
    int port = options_.port;
    if (port == 0) {
      HEKLA_ASSIGN_OR_RETURN(const auto free_one,
                             rendezvous::TcpStoreServer::start(options_.address, 0, token));
      port = free_one->port();
    }
    const std::string size = std::to_string(options_.nproc);
    for (int rank = 0; rank < options_.nproc; ++rank) {
      const std::string own = std::to_string(rank);
      HEKLA_ASSIGN_OR_RETURN(
          RankProcess process,
          RankProcess::start(options_.command,
                             {{"RANK", own},
                              {"LOCAL_RANK", own},
                              {"ROLE_RANK", own},
                              {"WORLD_SIZE", size},
                              {"LOCAL_WORLD_SIZE", size},
                              {"ROLE_WORLD_SIZE", size},
                              {"ROLE_NAME", "default"},
                              {"GROUP_RANK", "0"},
                              {"GROUP_WORLD_SIZE", "1"},
                              {"MASTER_ADDR", options_.address},
                              {"MASTER_PORT", std::to_string(port)},
                              {"TORCHELASTIC_RESTART_COUNT", std::to_string(number)},
                              {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options_.max_restarts)},
                              {"TORCHELASTIC_RUN_ID", options_.run_id},
                              {"HEKLA_LAUNCH", "1"},
                              {"HEKLA_STORE", fmt::format("tcp:{}@{}:{}", token, options_.address,
                                                          store_->port())}},
                             rank));
      ranks_.push_back(std::move(process));
    }
    return ok_status();
  }

  bool is_any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankProcess& rank) { return !rank.end(); });
  }

  void wait() const {
    std::vector<pollfd> polled = {{signals_.file(), POLLIN, 0}};
    for (const RankProcess& rank : ranks_) {
      for (const int pipe : {rank.output(), rank.errors()}) {
        if (pipe >= 0) polled.push_back({pipe, POLLIN, 0});
      }
    }
    int patience_ms = 1000;
    if (kill_at_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
      patience_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, patience_ms));
    }
    ::poll(polled.data(), polled.size(), patience_ms);
  }

  void end_others(int signal) {
    for (const RankProcess& rank : ranks_) rank.signal(signal);
    if (!kill_at_) kill_at_ = Clock::now() + options_.grace;
  }

  void pass_on(int signal) {
    attempt_.passed_on = signal;
    end_others(signal);
  }

  void look() {
    std::optional<Attempt::Failure> failure;
    for (RankProcess& rank : ranks_) {
      if (rank.end()) continue;
      rank.look();
      if (!rank.end()) continue;
      rank.pass_on(options_.has_prefix, true);
      if (rank.end()->is_well()) continue;
      const std::chrono::duration<double> seconds = Clock::now() - rank.started();
      // Of several at once the one that was killed: the others may have ended because of it.
      if (!failure || (failure->end.signal == 0 && rank.end()->signal != 0)) {
        failure = {rank.rank(), *rank.end(), seconds.count(), words_of(rank)};
      }
      const bool was_told = attempt_.first || attempt_.passed_on != 0;
      if (!was_told) attempt_.all_saved = attempt_.all_saved && rank.end()->exit_code == kPreempted;
    }
    if (!failure || attempt_.first) return;
    attempt_.first = failure;
    if (attempt_.passed_on == 0 && is_any_alive()) end_others(SIGTERM);
  }

  static std::string words_of(const RankProcess& rank) {
    std::string text;
    for (const std::string& line : rank.last_words()) text += "\n    " + line;
    return text;
  }

  const LaunchOptions& options_;
  const Signals& signals_;
  std::unique_ptr<rendezvous::TcpStoreServer> store_;
  std::vector<RankProcess> ranks_;
  std::optional<Clock::time_point> kill_at_;
  Attempt attempt_;
};

int exit_code_of(const ProcessEnd& end) {
  return end.signal != 0 ? 128 + end.signal : end.exit_code;
}

}  // namespace

Result<int> launch(const LaunchOptions& options) {
  if (options.command.empty()) return invalid_argument("no program to launch");
  if (options.nproc < 1 || options.max_restarts < 0) {
    return invalid_argument("{} processes with {} restarts", options.nproc, options.max_restarts);
  }
  const Signals signals;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  int restarts = 0;
  for (int number = 0;; ++number) {
    Result<Attempt> attempt = Run(options, signals).run(number);
    kill_strays();
    if (!attempt.ok()) return attempt.status();
    const std::optional<Attempt::Failure>& first = attempt->first;
    if (attempt->passed_on != 0) {
      say(fmt::format("ended by signal {}, which was passed on to all ranks", attempt->passed_on));
      const bool saved = first && first->end.exit_code == kPreempted && first->end.signal == 0;
      return saved ? kPreempted : 128 + attempt->passed_on;
    }
    if (!first) return 0;
    const bool is_free = attempt->all_saved && first->end.signal == 0;
    say(fmt::format("rank {} failed first, after {:.1f} s, with {}; the others were ended{}{}",
                    first->rank, first->seconds, first->end.to_string(),
                    first->words.empty() ? "" : "; its last words:", first->words));
    if (!is_free && restarts == options.max_restarts) {
      if (restarts > 0) say(fmt::format("all {} restarts are used up", restarts));
      return exit_code_of(first->end);
    }
    restarts += is_free ? 0 : 1;
    say(is_free ? std::string("all ranks start again; it asked for that and costs no restart")
                : fmt::format("all ranks start again, restart {} of {}", restarts,
                              options.max_restarts));
  }
}

}  // namespace hekla::launch
