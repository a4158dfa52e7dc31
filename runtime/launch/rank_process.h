// SPDX-License-Identifier: Apache-2.0
// RankProcess: one rank of a launch as a child process in a process group of its own, with pipes
// for what it writes. Owned and used by the thread that launches.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::launch {

// How a process ended.
struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // that ended it, or 0
  bool is_well() const { return exit_code == 0 && signal == 0; }
  // "exit code 3", "signal 9 (Killed)".
  std::string to_string() const;
};

class RankProcess {
 public:
  // UNAVAILABLE, NOT_FOUND, PERMISSION_DENIED: it could not be started, and why. It dies with the
  // calling thread.
  static Result<RankProcess> start(const std::vector<std::string>& command,
                                   const std::vector<std::pair<std::string, std::string>>& added,
                                   int rank);
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  // Kills what is left of its process group.
  ~RankProcess();

  int rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  // Set once it has ended; then nothing is left of its process group.
  const std::optional<ProcessEnd>& end() const { return end_; }
  std::chrono::steady_clock::time_point started() const { return started_; }

  // Looks whether it has ended.
  void look();
  // To all of its process group.
  void signal(int number) const;

  // For poll; -1: closed.
  int output() const { return streams_[0].pipe; }
  int errors() const { return streams_[1].pipe; }
  // Passes on whole lines of what has come, unless the outbox is full; at the end all of it.
  void pass_on(bool has_prefix, bool is_end);
  // The last lines of standard error.
  const std::deque<std::string>& last_words() const { return last_words_; }

 private:
  struct Stream {
    int pipe = -1;
    std::string text = {};  // not passed on yet
  };
  RankProcess() = default;
  void pass_on(Stream& stream, int to, bool has_prefix, bool is_end);

  int rank_ = 0;
  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
  std::chrono::steady_clock::time_point started_;
  Stream streams_[2];
  std::deque<std::string> last_words_;
};

}  // namespace hekla::launch
