// SPDX-License-Identifier: Apache-2.0
// LocalRanks: the ranks of one attempt on this machine: started, watched, ended together.
//
// The first that fails ends the others. Owned and used by the thread that launches.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/launch/rank_process.h"

namespace hekla::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;

// The rank that ended first without success.
struct Failure {
  int rank = 0;
  ProcessEnd end;
  double seconds = 0;  // after its start
  std::string words;   // the last that it wrote to standard error, a line each
};

int exit_code_of(const ProcessEnd& end);
// "with exit code 3; the others were ended; its last words: ..."
std::string how_it_failed(const Failure& failure);

// One line of the launcher's own, to standard error when there is room (outbox.h).
void say(const std::string& text);
// Kills what ranks have started and left behind, which has become this process's child.
void kill_strays();

class LocalRanks {
 public:
  // `flight`: HEKLA_FLIGHT_DIR of the ranks, where how they end is noted; empty: nowhere.
  LocalRanks(bool has_prefix, std::chrono::milliseconds grace, std::string flight = {})
      : has_prefix_(has_prefix), grace_(grace), flight_(std::move(flight)) {}

  // Ranks first .. first + count - 1 of `size`; `common`: variables of all of them. On errors those
  // that have been started are killed.
  Status start(const std::vector<std::string>& command, int first, int count, int size,
               const Variables& common);

  bool is_any_alive() const;
  // Until something has happened to them or to the files in `others`, or for `most`.
  void wait(std::vector<pollfd> others, std::chrono::milliseconds most) const;
  // Passes on what they have written, sees who has ended, kills who had to end and has not.
  void look();
  // Tells all to end; what they end with from now on is no failure. SIGKILL after `grace`.
  void end(int signal) { end(signal, grace_); }
  void end(int signal, std::chrono::milliseconds grace);

  const std::optional<Failure>& first_failure() const { return first_; }
  // All that ended without success and without being told to ended with kPreempted.
  bool all_saved() const { return all_saved_; }

 private:
  const bool has_prefix_;
  const std::chrono::milliseconds grace_;
  const std::string flight_;
  std::vector<RankProcess> ranks_;
  std::optional<std::chrono::steady_clock::time_point> kill_at_;
  std::optional<Failure> first_;
  bool all_saved_ = true;
  bool was_told_ = false;
};

}  // namespace hekla::launch
