// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manager/preemption.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/async/thread.h"

namespace hekla::checkpoint {
namespace {

// All that the handler touches.
std::atomic<int> g_pipe{-1};
std::atomic<int> g_received{0};
std::atomic<bool> g_installed{false};

constexpr char kSignal = 's', kStop = 'q';

void on_signal_raw(int) {
  const int saved = errno;
  if (g_received.fetch_add(1) > 0) ::_exit(kPreemptedUnsavedExitCode);
  const int pipe = g_pipe.load();
  if (pipe >= 0) {
    [[maybe_unused]] const ssize_t written = ::write(pipe, &kSignal, 1);
  }
  errno = saved;
}

}  // namespace

struct PreemptionSignal::Before {
  std::vector<std::pair<int, struct sigaction>> actions;
  int read_end = -1, write_end = -1;
};

Result<std::unique_ptr<PreemptionSignal>> PreemptionSignal::install(
    const std::vector<int>& signals, std::function<void()> on_signal) {
  if (g_installed.exchange(true)) {
    return already_exists("this process has a handler for preemption already");
  }
  std::unique_ptr<PreemptionSignal> installed(new PreemptionSignal());
  installed->before_ = std::make_unique<Before>();
  Before& before = *installed->before_;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return resource_exhausted("a pipe for signals: {}", std::strerror(errno));
  }
  before.read_end = ends[0];
  before.write_end = ends[1];
  g_received = 0;
  g_pipe = before.write_end;
  installed->reader_ = start_thread([pipe = before.read_end, on_signal = std::move(on_signal)] {
    char word = 0;
    while (true) {
      const ssize_t got = ::read(pipe, &word, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got != 1 || word == kStop) return;
      on_signal();
    }
  });
  for (const int number : signals) {
    struct sigaction action = {}, old = {};
    action.sa_handler = on_signal_raw;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    if (::sigaction(number, &action, &old) != 0) {
      return invalid_argument("signal {} cannot be handled: {}", number, std::strerror(errno));
    }
    before.actions.emplace_back(number, old);
  }
  return installed;
}

PreemptionSignal::~PreemptionSignal() {
  for (const auto& [number, action] : before_->actions) ::sigaction(number, &action, nullptr);
  g_pipe = -1;
  if (before_->write_end >= 0) {
    [[maybe_unused]] const ssize_t written = ::write(before_->write_end, &kStop, 1);
  }
  if (reader_.joinable()) reader_.join();
  if (before_->read_end >= 0) ::close(before_->read_end);
  if (before_->write_end >= 0) ::close(before_->write_end);
  g_installed = false;
}

bool PreemptionSignal::is_received() const { return g_received.load() > 0; }

}  // namespace hekla::checkpoint
