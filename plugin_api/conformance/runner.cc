// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "plugin_api/conformance/check.h"
#include "plugin_api/conformance/conformance.h"
#include "plugin_api/conformance/session.h"

extern char** environ;

namespace hekla::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// The hidden check behind describe().
constexpr const char* kDescribe = "describe-library";
constexpr size_t kOutputKept = 2000;

const Check* find_check(const std::string& name) {
  for (const Group& group : groups()) {
    for (const Check& check : group.checks) {
      if (name == check.name) return &check;
    }
  }
  for (const Check& check : hidden_checks()) {
    if (name == check.name) return &check;
  }
  return nullptr;
}

std::string describe_here(const std::string& library, const Options& options) {
  Session session(library, options.create_options);
  std::string text = "API 0." + std::to_string(session.minor()) + ", table " +
                     std::to_string(session.api()->struct_size) + " bytes, extensions";
  int nodes = 0;
  for (const PJRT_Extension_Base* node = session.api()->extension_start;
       node != nullptr && nodes < 64; node = node->next, ++nodes) {
    text += " " + std::to_string(static_cast<int>(node->type));
  }
  if (nodes == 0) text += " none";
  PJRT_Client* client = session.client();
  text += ", platform \"" + session.platform_name(client) + "\", " +
          std::to_string(session.addressable_devices().size()) + " devices";
  return text;
}

struct Child {
  pid_t pid = -1;
  int result_fd = -1;
  int output_fd = -1;
  std::string error;
};

Child start(const std::string& library, const std::string& name, const Options& options) {
  Child child;
  int result_pipe[2];
  int output_pipe[2];
  if (pipe2(result_pipe, O_CLOEXEC) != 0) {
    child.error = std::string("no pipe: ") + std::strerror(errno);
    return child;
  }
  if (pipe2(output_pipe, O_CLOEXEC) != 0) {
    child.error = std::string("no pipe: ") + std::strerror(errno);
    close(result_pipe[0]);
    close(result_pipe[1]);
    return child;
  }
  // The child finds its end of the pipe at a fixed number.
  constexpr int kChildFd = 3;
  std::vector<std::string> words = options.child_command;
  if (words.empty()) words = {"/proc/self/exe", "plugin-check"};
  for (const auto& word : {library, std::string("--run-one"), name, std::string("--result-fd"),
                           std::to_string(kChildFd)}) {
    words.push_back(word);
  }
  for (const auto& [key, value] : options.create_options) {
    words.push_back("--option");
    words.push_back(key + "=" + value);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output_pipe[1], 1);
  posix_spawn_file_actions_adddup2(&actions, output_pipe[1], 2);
  // dup2 onto itself clears close-on-exec in posix_spawn, so equal numbers work, too.
  posix_spawn_file_actions_adddup2(&actions, result_pipe[1], kChildFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Its own process group, so that a time-out also ends what the plugin started.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int status =
      posix_spawn(&child.pid, words[0].c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(result_pipe[1]);
  close(output_pipe[1]);
  if (status != 0) {
    child.pid = -1;
    child.error = "cannot start " + words[0] + ": " + std::strerror(status);
    close(result_pipe[0]);
    close(output_pipe[0]);
    return child;
  }
  child.result_fd = result_pipe[0];
  child.output_fd = output_pipe[0];
  return child;
}

// Reads what is there; false at the end of the stream.
bool drain(int fd, std::string* text) {
  char bytes[4096];
  const ssize_t count = read(fd, bytes, sizeof(bytes));
  if (count <= 0) return count < 0 && errno == EINTR;
  text->append(bytes, static_cast<size_t>(count));
  return true;
}

// The child's message: one letter for the outcome, then the detail.
bool decode(const std::string& message, Result* result) {
  if (message.empty()) return false;
  switch (message[0]) {
    case 'p':
      result->outcome = Outcome::kPass;
      break;
    case 'f':
      result->outcome = Outcome::kFail;
      break;
    case 'n':
      result->outcome = Outcome::kNotOffered;
      break;
    default:
      return false;
  }
  result->detail = message.substr(1);
  return true;
}

Result run_child(const std::string& library, const std::string& name, const Options& options) {
  const auto begin = Clock::now();
  Result result;
  result.name = name;
  Child child = start(library, name, options);
  if (child.pid < 0) {
    result.detail = child.error;
    return result;
  }
  const auto deadline =
      begin + std::chrono::duration_cast<Clock::duration>(
                  std::chrono::duration<double>(std::max(options.timeout_seconds, 0.1)));
  std::string message;
  std::string output;
  bool timed_out = false;
  int status = 0;
  bool ended = false;
  // The pipes may outlive the child in what it started, and close before it has ended, so its end
  // is waited for, too. Where the kernel has no descriptors of processes, it is looked for.
  const int end_fd = static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0));
  const int64_t look = end_fd < 0 ? 50 : INT_MAX;
  while (!ended) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      timed_out = true;
      break;
    }
    pollfd fds[3] = {
        {child.result_fd, POLLIN, 0}, {child.output_fd, POLLIN, 0}, {end_fd, POLLIN, 0}};
    poll(fds, 3, static_cast<int>(std::min<int64_t>(left, look)));
    if (fds[0].revents != 0 && !drain(child.result_fd, &message)) {
      close(child.result_fd);
      child.result_fd = -1;
    }
    if (fds[1].revents != 0 && !drain(child.output_fd, &output)) {
      close(child.output_fd);
      child.output_fd = -1;
    }
    if (output.size() > 4 * kOutputKept) output.erase(0, output.size() - kOutputKept);
    ended = waitpid(child.pid, &status, WNOHANG) == child.pid;
  }
  if (end_fd >= 0) close(end_fd);
  kill(-child.pid, SIGKILL);  // the whole group, also after a normal end
  if (!ended) waitpid(child.pid, &status, 0);
  for (int fd : {child.result_fd, child.output_fd}) {
    if (fd < 0) continue;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    std::string* text = fd == child.result_fd ? &message : &output;
    while (drain(fd, text)) {
    }
    close(fd);
  }
  if (output.size() > kOutputKept) output.erase(0, output.size() - kOutputKept);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const bool decoded = decode(message, &result);
  if (timed_out) {
    char limit[64];
    std::snprintf(limit, sizeof(limit), "no end after %.0f s", options.timeout_seconds);
    result.detail = (decoded ? "the check ended, the process did not: " : "") + std::string(limit);
    result.outcome = Outcome::kTimedOut;
    result.output = output;
  } else if (WIFSIGNALED(status)) {
    result.outcome = Outcome::kCrashed;
    result.detail = std::string("signal ") + std::to_string(WTERMSIG(status)) + " (" +
                    strsignal(WTERMSIG(status)) + ")" +
                    (decoded ? " after the check, at the process's exit" : "");
    result.output = output;
  } else if (!decoded || WEXITSTATUS(status) != 0) {
    result.outcome = Outcome::kCrashed;
    result.detail = "the process ended with exit status " + std::to_string(WEXITSTATUS(status)) +
                    (decoded ? " after the check" : " and no result");
    result.output = output;
  }
  return result;
}

}  // namespace

void run_in_another_process(Session& session, const char* hidden_check, const char* variable,
                            const std::string& value) {
  // The words before the library are the program and what chooses this command.
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  Options options;
  options.create_options = session.create_options();
  for (std::string word; std::getline(file, word, '\0') && word != session.library();) {
    options.child_command.push_back(word);
  }
  if (!options.child_command.empty()) options.child_command[0] = "/proc/self/exe";
  setenv(variable, value.c_str(), 1);
  const Result result = run_child(session.library(), hidden_check, options);
  unsetenv(variable);
  if (result.outcome == Outcome::kNotOffered) throw NotOffered{result.detail};
  if (result.outcome != Outcome::kPass) {
    fail("in another process: " + std::string(outcome_name(result.outcome)) + ": " + result.detail);
  }
}

std::span<const Group> groups() {
  static const Group kGroups[] = {
      {"table", "2, 3, 6, 22", table_checks()},
      {"struct sizes", "2, 27", size_checks()},
      {"errors", "5", error_checks()},
      {"client", "7, 8, 10, 24", client_checks()},
      {"topology", "9", topology_checks()},
      {"devices", "10", device_checks()},
      {"memories", "5, 11", memory_checks()},
      {"events", "12", event_checks()},
      {"element types", "2, 13", dtype_checks()},
      {"host to device", "13", upload_checks()},
      {"making buffers", "13", buffer_creation_checks()},
      {"streaming transfers", "13", stream_transfer_checks()},
      {"buffers", "14", buffer_checks()},
      {"device to host", "14", download_checks()},
      {"copies", "14", copy_checks()},
      {"compile", "16", compile_checks()},
      {"executables", "17", executable_checks()},
      {"execute", "18", execute_checks()},
      {"donation", "18", donation_checks()},
      {"launches in flight", "12, 18", flight_checks()},
      {"launches of several devices", "16, 18", gang_checks()},
      {"host callbacks", "18", callback_checks()},
      {"functions of the client's", "18, 19", ffi_checks()},
      {"extensions", "4, 15, 19", extension_checks()},
      {"lifetime", "2, 7, 24", lifetime_checks()},
  };
  return kGroups;
}

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kNotOffered:
      return "not offered";
    case Outcome::kCrashed:
      return "CRASHED";
    case Outcome::kTimedOut:
      return "TIMED OUT";
  }
  return "?";
}

std::vector<CheckInfo> list() {
  std::vector<CheckInfo> infos;
  for (const Group& group : groups()) {
    for (const Check& check : group.checks) {
      infos.push_back({check.name, group.name, group.sections, check.promise});
    }
  }
  return infos;
}

bool matches(std::string_view filter, std::string_view name) {
  while (true) {
    const size_t comma = filter.find(',');
    const std::string pattern(filter.substr(0, comma));
    if (::fnmatch(pattern.c_str(), std::string(name).c_str(), FNM_NOESCAPE) == 0) return true;
    if (comma == std::string_view::npos) return false;
    filter.remove_prefix(comma + 1);
  }
}

Result run_one(const std::string& library, const std::string& name, const Options& options) {
  Result result;
  result.name = name;
  try {
    if (name == kDescribe) {
      result.detail = describe_here(library, options);
      result.outcome = Outcome::kPass;
      return result;
    }
    const Check* check = find_check(name);
    if (check == nullptr) {
      result.detail = "there is no check of this name";
      return result;
    }
    Session session(library, options.create_options);
    check->run(session);
    session.finish();
    result.outcome = Outcome::kPass;
    result.detail = session.remarks();
  } catch (const Failure& failure) {
    result.outcome = Outcome::kFail;
    result.detail = failure.reason;
  } catch (const NotOffered& refusal) {
    result.outcome = Outcome::kNotOffered;
    result.detail = refusal.reason;
  } catch (const std::exception& exception) {
    result.outcome = Outcome::kFail;
    result.detail = std::string("an exception came out of the plugin: ") + exception.what();
  }
  return result;
}

void run_one_and_exit(const std::string& library, const std::string& name, const Options& options,
                      int result_fd) {
  const Result result = run_one(library, name, options);
  std::string message = result.outcome == Outcome::kPass         ? "p"
                        : result.outcome == Outcome::kNotOffered ? "n"
                                                                 : "f";
  message += result.detail;
  for (size_t sent = 0; sent < message.size();) {
    const ssize_t count = write(result_fd, message.data() + sent, message.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(3);
    sent += static_cast<size_t>(count);
  }
  std::fflush(nullptr);
  // A plugin's exit handlers and static destructors belong to what clients live through; after a
  // failed check the state of the process is unknown, so they are left out.
  if (result.outcome == Outcome::kPass) std::exit(0);
  _exit(0);
}

void run_if_child(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[1]) != "plugin-check") return;
  Options options;
  std::string name;
  int result_fd = -1;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string_view word = argv[i];
    const std::string value = argv[i + 1];
    if (word == "--run-one") name = value;
    if (word == "--result-fd") result_fd = std::atoi(value.c_str());
    if (word == "--option") {
      const size_t equals = value.find('=');
      options.create_options.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    }
  }
  if (!name.empty() && result_fd >= 0) run_one_and_exit(argv[2], name, options, result_fd);
}

std::vector<Result> run_all(const std::string& library, const Options& options,
                            const std::function<void(const Result&)>& progress) {
  std::vector<std::string> names;
  for (const CheckInfo& info : list()) {
    if (matches(options.filter, info.name)) names.push_back(info.name);
  }
  std::vector<Result> results(names.size());
  std::vector<bool> ready(names.size(), false);
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < std::max(options.jobs, 1); ++i) {
    workers.emplace_back([&] {
      while (true) {
        size_t index = 0;
        {
          std::lock_guard lock(mutex);
          if (next == names.size()) return;
          index = next++;
        }
        Result result = run_child(library, names[index], options);
        std::lock_guard lock(mutex);
        results[index] = std::move(result);
        ready[index] = true;
        changed.notify_all();
      }
    });
  }
  for (size_t i = 0; i < names.size(); ++i) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ready[i]; });
    lock.unlock();
    if (progress) progress(results[i]);
  }
  for (std::thread& worker : workers) worker.join();
  return results;
}

std::string describe(const std::string& library, const Options& options) {
  const Result result = run_child(library, kDescribe, options);
  if (result.outcome == Outcome::kPass) return result.detail;
  return std::string(outcome_name(result.outcome)) + ": " + result.detail;
}

bool conforms(const std::vector<Result>& results) {
  return std::all_of(results.begin(), results.end(), [](const Result& result) {
    return result.outcome == Outcome::kPass || result.outcome == Outcome::kNotOffered;
  });
}

}  // namespace hekla::conformance
