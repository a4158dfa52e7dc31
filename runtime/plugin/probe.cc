// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/plugin/plugin.h"

namespace hekla::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKeptOutput = 4096;  // of what the library prints, the end
constexpr size_t kMaxReport = 65536;  // of what the child reports
constexpr char kSeparator = '\x1f';   // between the fields of a report

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
  void close_write() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
  ~Pipe() {
    if (read_end >= 0) close(read_end);
    close_write();
  }
};

// The fields of a report: code, message, API minor, platform, device count, kind of the first.
using Report = std::array<std::string, 6>;

Status examine(const std::string& path, const Options& options, Report& report) {
  HEKLA_ASSIGN_OR_RETURN(auto plugin, Plugin::load("probe", path));
  report[2] = std::to_string(plugin->api_minor());
  const std::vector<PJRT_NamedValue> values = to_named_values(options);
  HEKLA_PJRT_ARGS(PJRT_Client_Create_Args, create, kv_try_get_user_arg);
  create.create_options = values.data();
  create.num_options = values.size();
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Client_Create, &create));
  if (create.client == nullptr) return internal_error("PJRT_Client_Create gave a null client");
  HEKLA_PJRT_ARGS(PJRT_Client_PlatformName_Args, platform, platform_name_size);
  platform.client = create.client;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Client_PlatformName, &platform));
  report[3] = std::string(platform.platform_name, platform.platform_name_size);
  HEKLA_PJRT_ARGS(PJRT_Client_AddressableDevices_Args, devices, num_addressable_devices);
  devices.client = create.client;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Client_AddressableDevices, &devices));
  report[4] = std::to_string(devices.num_addressable_devices);
  if (devices.num_addressable_devices == 0) return not_found("the plugin found no device");
  HEKLA_PJRT_ARGS(PJRT_Device_GetDescription_Args, description, device_description);
  description.device = devices.addressable_devices[0];
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_Device_GetDescription, &description));
  HEKLA_PJRT_ARGS(PJRT_DeviceDescription_Kind_Args, kind, device_kind_size);
  kind.device_description = description.device_description;
  HEKLA_RETURN_IF_ERROR(HEKLA_PJRT_CALL(*plugin, PJRT_DeviceDescription_Kind, &kind));
  report[5] = std::string(kind.device_kind, kind.device_kind_size);
  return ok_status();
}

[[noreturn]] void run_child(const std::string& path, const Options& options, int report_fd,
                            int output_fd, pid_t parent) {
  setpgid(0, 0);  // so that the parent can end it with everything it starts
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  dup2(output_fd, STDOUT_FILENO);
  dup2(output_fd, STDERR_FILENO);
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) dup2(null, STDIN_FILENO);
  // A core file of a foreign library helps nobody; a handler of this process must not run.
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE}) signal(number, SIG_DFL);
  prctl(PR_SET_DUMPABLE, 0);

  Report report;
  const Status status = examine(path, options, report);
  report[0] = std::to_string(static_cast<int>(status.code()));
  report[1] = status.message();
  std::string text;
  for (const std::string& field : report) text.append(field).push_back(kSeparator);
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = write(report_fd, text.data() + sent, text.size() - sent);
    if (count <= 0 && errno != EINTR) break;
    sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  _exit(0);  // without destructors: the answer is there, and they may hang
}

// Reads what is there; false at the end of the stream.
bool drain(int fd, std::string& text, size_t keep_end, size_t stop_at) {
  char chunk[4096];
  const ssize_t count = read(fd, chunk, sizeof(chunk));
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  if (count == 0) return false;
  if (text.size() < stop_at) text.append(chunk, static_cast<size_t>(count));
  if (text.size() > keep_end) text.erase(0, text.size() - keep_end);
  return true;
}

// The last line with text in it.
std::string last_line(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  const size_t start = text.rfind('\n');
  return std::string(text.substr(start == std::string_view::npos ? 0 : start + 1)).substr(0, 500);
}

// Stack traces follow the reason: the first line that sounds like one, else the last line.
std::string telling_line(const std::string& text) {
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    for (const std::string_view word :
         {"what():", "fatal", "FATAL", "F0000", "Check failed", "rror:"}) {
      if (line.find(word) != std::string_view::npos) return std::string(line).substr(0, 500);
    }
    start = end + 1;
  }
  return last_line(text);
}

int to_int(const std::string& text) {
  int value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool parse_report(const std::string& text, ProbeResult& result) {
  Report report;
  size_t start = 0;
  for (std::string& field : report) {
    const size_t end = text.find(kSeparator, start);
    if (end == std::string::npos) return false;
    field = text.substr(start, end - start);
    start = end + 1;
  }
  result.code = static_cast<StatusCode>(to_int(report[0]));
  result.outcome =
      result.code == StatusCode::kOk ? ProbeResult::Outcome::kWorks : ProbeResult::Outcome::kError;
  result.message = report[1];
  result.api_minor = to_int(report[2]);
  result.platform = report[3];
  result.device_count = to_int(report[4]);
  result.device_kind = report[5];
  return true;
}

ProbeResult failed(std::string message) {
  ProbeResult result;
  result.message = std::move(message);
  return result;
}

}  // namespace

std::chrono::milliseconds default_probe_limit() {
  const char* text = std::getenv("HEKLA_PROBE_SECONDS");
  const int seconds = text == nullptr ? 0 : to_int(text);
  return std::chrono::seconds(seconds > 0 ? seconds : 60);
}

std::string ProbeResult::to_string() const {
  switch (outcome) {
    case Outcome::kWorks:
      return fmt::format("works: platform {}, {} device{} ({}), C API 0.{}", platform, device_count,
                         device_count == 1 ? "" : "s", device_kind, api_minor);
    case Outcome::kError:
      return fmt::format("{}: {}", status_code_name(code), message);
    case Outcome::kCrashed:
      return "crashed: " + message;
    case Outcome::kTimedOut:
      return "timed out: " + message;
  }
  return message;
}

ProbeResult probe_plugin(const std::string& path, const Options& options,
                         std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  Pipe report;
  Pipe output;
  if (!report.open() || !output.open()) {
    return failed(fmt::format("no pipe for the child process: {}", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  // glibc makes malloc and the dynamic linker usable in the child of a process with threads.
  const pid_t child = fork();
  if (child < 0) return failed(fmt::format("no child process: {}", std::strerror(errno)));
  if (child == 0) run_child(path, options, report.write_end, output.write_end, parent);
  setpgid(child, child);  // whoever comes first
  report.close_write();
  output.close_write();
  fcntl(output.read_end, F_SETFL, O_NONBLOCK);

  std::string report_text;
  std::string output_text;
  bool timed_out = false;
  int wait_status = 0;
  // The report's pipe closes when the child ends, unless a process that it started holds it; so the
  // child itself is looked at too.
  bool ended = false;
  bool report_open = true;
  bool output_open = true;
  while (!ended) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      timed_out = true;
      break;
    }
    pollfd fds[2] = {{report_open ? report.read_end : -1, POLLIN, 0},
                     {output_open ? output.read_end : -1, POLLIN, 0}};
    poll(fds, 2, static_cast<int>(std::min<int64_t>(left.count(), 50)));
    if (fds[0].revents != 0) {
      report_open = drain(report.read_end, report_text, kMaxReport, kMaxReport);
    }
    if (fds[1].revents != 0) {
      output_open = drain(output.read_end, output_text, kKeptOutput, 2 * kKeptOutput);
    }
    if (!report_open && !output_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended = waitpid(child, &wait_status, WNOHANG) == child;
  }
  kill(-child, SIGKILL);  // the child at its limit, and what it started in any case
  if (!ended) waitpid(child, &wait_status, 0);
  // What was written before the end is still in the pipes.
  fcntl(report.read_end, F_SETFL, O_NONBLOCK);
  for (size_t before = ~size_t{0}; report_text.size() != before;) {
    before = report_text.size();
    drain(report.read_end, report_text, kMaxReport, kMaxReport);
  }
  for (int i = 0; i < 64 && drain(output.read_end, output_text, kKeptOutput, 2 * kKeptOutput);
       ++i) {
  }

  ProbeResult result;
  if (parse_report(report_text, result)) return result;
  const std::string line = telling_line(output_text);
  const std::string printed = line.empty() ? "" : fmt::format("; it printed: {}", line);
  if (timed_out) {
    result.outcome = ProbeResult::Outcome::kTimedOut;
    result.code = StatusCode::kDeadlineExceeded;
    result.message = fmt::format("no answer within {} s{}", limit.count() / 1000.0, printed);
    return result;
  }
  result.outcome = ProbeResult::Outcome::kCrashed;
  result.code = StatusCode::kAborted;
  result.message = WIFSIGNALED(wait_status) ? fmt::format("signal {} ({}){}", WTERMSIG(wait_status),
                                                          strsignal(WTERMSIG(wait_status)), printed)
                                            : fmt::format("it ended the process with status {}{}",
                                                          WEXITSTATUS(wait_status), printed);
  return result;
}

}  // namespace hekla::runtime
