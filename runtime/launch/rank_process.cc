// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/launch/outbox.h"

namespace hekla::launch {
namespace {

constexpr size_t kLastWords = 5;
// A line that is longer is passed on in pieces.
constexpr size_t kLongestLine = 64 << 10;
// Of a rank that has ended: more than its pipe holds, unless others write to it for ever.
constexpr size_t kMostAtEnd = 2 << 20;

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool is_replaced = std::any_of(added.begin(), added.end(), [&](const auto& pair) {
      return text.starts_with(pair.first + "=");
    });
    if (!is_replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : added) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec only what signal handlers may do: other threads may have held any lock.
[[noreturn]] void become(char* const* words, char* const* variables, int output, int errors,
                         int failure, int rank, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  // The terminal's input is rank 0's.
  const int nothing = rank == 0 ? STDIN_FILENO : ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execvpe(words[0], words, variables);
  const int error = errno;
  static_cast<void>(!::write(failure, &error, sizeof(error)));
  ::_exit(127);
}

}  // namespace

std::string ProcessEnd::to_string() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, ::strsignal(signal));
  return fmt::format("exit code {}", exit_code);
}

Result<RankProcess> RankProcess::start(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& added, int rank) {
  std::vector<std::string> words = command, variables = environment_with(added);
  const std::vector<char*> word_pointers = pointers_to(words);
  const std::vector<char*> variable_pointers = pointers_to(variables);
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};  // output, errors, why exec failed
  const auto close_all = [&] {
    for (const auto& pair : pipes) {
      for (const int end : pair) {
        if (end >= 0) ::close(end);
      }
    }
  };
  for (auto& pair : pipes) {
    if (::pipe2(pair, O_CLOEXEC) != 0) {
      const int error = errno;
      close_all();
      return unavailable("no pipes for rank {}: errno {}", rank, error);
    }
  }
  RankProcess made;
  made.rank_ = rank;
  made.started_ = std::chrono::steady_clock::now();
  const pid_t parent = ::getpid();
  made.pid_ = ::fork();
  if (made.pid_ == 0) {
    become(word_pointers.data(), variable_pointers.data(), pipes[0][1], pipes[1][1], pipes[2][1],
           rank, parent);
  }
  if (made.pid_ < 0) {
    const int error = errno;
    close_all();
    return unavailable("rank {} cannot be started: errno {}", rank, error);
  }
  ::setpgid(made.pid_, made.pid_);  // whoever is first
  for (auto& pair : pipes) ::close(std::exchange(pair[1], -1));
  int error = 0;
  ssize_t count = -1;
  do {
    count = ::read(pipes[2][0], &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  ::close(std::exchange(pipes[2][0], -1));
  made.streams_[0].pipe = pipes[0][0];
  made.streams_[1].pipe = pipes[1][0];
  for (const Stream& stream : made.streams_) ::fcntl(stream.pipe, F_SETFL, O_NONBLOCK);
  if (count == sizeof(error)) {
    const StatusCode code = error == ENOENT   ? StatusCode::kNotFound
                            : error == EACCES ? StatusCode::kPermissionDenied
                                              : StatusCode::kUnavailable;
    return Status(code, fmt::format("{} cannot be run: {}", command[0], ::strerror(error)));
  }
  return made;
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      pid_(std::exchange(other.pid_, -1)),
      end_(std::move(other.end_)),
      started_(other.started_),
      last_words_(std::move(other.last_words_)) {
  std::swap(streams_[0], other.streams_[0]);
  std::swap(streams_[1], other.streams_[1]);
}

RankProcess::~RankProcess() {
  if (pid_ > 0 && !end_) {
    signal(SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  for (const Stream& stream : streams_) {
    if (stream.pipe >= 0) ::close(stream.pipe);
  }
}

void RankProcess::look() {
  if (end_) return;
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return;
  }
  // While its number is still its own: what it has started.
  signal(SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  end_ = WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
}

void RankProcess::signal(int number) const {
  if (!end_) ::kill(-pid_, number);
}

void RankProcess::pass_on(Stream& stream, int to, bool has_prefix, bool is_end) {
  Outbox& outbox = Outbox::of(to);
  if (outbox.is_full() && !is_end) return;
  char bytes[16384];
  while (stream.pipe >= 0) {
    const ssize_t count = ::read(stream.pipe, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count > 0) {
      stream.text.append(bytes, static_cast<size_t>(count));
      if (stream.text.size() >= (is_end ? kMostAtEnd : kLongestLine)) break;
      continue;
    }
    if (count < 0 && errno == EAGAIN) break;
    ::close(std::exchange(stream.pipe, -1));
  }
  const bool is_last = is_end || stream.pipe < 0;
  std::string out;
  size_t at = 0;
  while (at < stream.text.size()) {
    size_t end = stream.text.find('\n', at);
    if (end == stream.text.npos) {
      if (!is_last && stream.text.size() - at < kLongestLine) break;
      end = stream.text.size();
    }
    const std::string line = stream.text.substr(at, end - at);
    if (has_prefix) out += fmt::format("[{}] ", rank_);
    out += line + "\n";
    if (to == STDERR_FILENO && !line.empty()) {
      last_words_.push_back(line);
      if (last_words_.size() > kLastWords) last_words_.pop_front();
    }
    at = std::min(end + 1, stream.text.size());
  }
  stream.text.erase(0, at);
  outbox.add(out);
}

void RankProcess::pass_on(bool has_prefix, bool is_end) {
  pass_on(streams_[0], STDOUT_FILENO, has_prefix, is_end);
  pass_on(streams_[1], STDERR_FILENO, has_prefix, is_end);
}

}  // namespace hekla::launch
