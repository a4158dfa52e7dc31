// SPDX-License-Identifier: Apache-2.0
#include "tools/run/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace hekla::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = 4 << 20;
constexpr size_t kMaxErrors = 16 << 10;

// Reads what is there; false at the end.
bool drain(int fd, std::string& text) {
  char chunk[16384];
  const ssize_t count = read(fd, chunk, sizeof(chunk));
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(chunk, static_cast<size_t>(count));
  return count > 0;
}

// posix_spawn's settings: own process group, the two pipes, no input.
pid_t spawn(const std::vector<std::string>& words, std::vector<std::string> environment, int output,
            int errors) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t child = -1;
  if (posix_spawn(&child, words[0].c_str(), &actions, &attributes, arguments.data(),
                  variables.data()) != 0) {
    child = -1;
  }
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return child;
}

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool is_replaced = std::any_of(added.begin(), added.end(), [&](const auto& pair) {
      return std::strncmp(*entry, (pair.first + "=").c_str(), pair.first.size() + 1) == 0;
    });
    if (!is_replaced) variables.emplace_back(*entry);
  }
  for (const auto& [name, value] : added) variables.push_back(name + "=" + value);
  return variables;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& words,
                      const std::vector<std::pair<std::string, std::string>>& environment,
                      std::chrono::milliseconds limit,
                      const std::function<bool(std::string_view output)>& stop_when) {
  ChildResult result;
  int output[2];
  int errors[2];
  if (pipe2(output, O_CLOEXEC) != 0) return result;
  if (pipe2(errors, O_CLOEXEC) != 0) {
    close(output[0]);
    close(output[1]);
    return result;
  }
  const pid_t child = spawn(words, merged_environment(environment), output[1], errors[1]);
  close(output[1]);
  close(errors[1]);
  const Clock::time_point deadline = Clock::now() + limit;
  bool output_open = child > 0;
  bool errors_open = child > 0;
  int wait_status = 0;
  bool ended = child <= 0;
  result.started = child > 0;
  // Ends with the child, not with its pipes: what it started may hold those.
  while (!ended) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    pollfd fds[2] = {{output_open ? output[0] : -1, POLLIN, 0},
                     {errors_open ? errors[0] : -1, POLLIN, 0}};
    poll(fds, 2, static_cast<int>(std::min<int64_t>(left.count(), output_open ? 50 : 5)));
    if (fds[0].revents != 0) {
      output_open = drain(output[0], result.output);
      if (stop_when && stop_when(result.output)) {
        result.was_stopped = true;
        break;
      }
    }
    if (fds[1].revents != 0) errors_open = drain(errors[0], result.errors);
    if (result.output.size() > kMaxOutput) result.output.resize(kMaxOutput);
    if (result.errors.size() > kMaxErrors) {
      result.errors.erase(0, result.errors.size() - kMaxErrors);
    }
    ended = waitpid(child, &wait_status, WNOHANG) == child;
  }
  if (child > 0) {
    kill(-child, SIGKILL);
    if (!ended) {
      result.timed_out = !result.was_stopped;
      waitpid(child, &wait_status, 0);
    }
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    for (size_t before = ~size_t{0}; result.output.size() != before;) {
      before = result.output.size();
      if (before < kMaxOutput) drain(output[0], result.output);
    }
    for (int i = 0; i < 8; ++i) drain(errors[0], result.errors);
    if (WIFSIGNALED(wait_status)) result.signal = WTERMSIG(wait_status);
    if (WIFEXITED(wait_status)) result.exit_code = WEXITSTATUS(wait_status);
  }
  close(output[0]);
  close(errors[0]);
  return result;
}

}  // namespace hekla::tools
