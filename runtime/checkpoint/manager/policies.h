// SPDX-License-Identifier: Apache-2.0
// When to save, and what to keep: the rules of a manager as plain values and pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

// A save is due when any of these says so.
struct SavePolicy {
  int64_t every_steps = 0;                   // multiples of it; 0: no
  std::set<int64_t> steps;                   // these
  std::chrono::nanoseconds every_time{0};    // since the last one began; 0: no
  bool continuous = false;                   // as soon as the last one is committed ...
  std::chrono::nanoseconds min_interval{0};  // ... and this has passed since it began

  // Rules that need no clock, and so no agreement among ranks.
  bool is_due_at(int64_t step) const {
    return (every_steps > 0 && step % every_steps == 0) || steps.count(step) != 0;
  }
  bool needs_clock() const { return every_time.count() > 0 || continuous; }
};

// The best steps by a number that the training hands over.
struct KeepBest {
  std::string metric;
  int64_t count = 1;
  bool is_lowest_best = false;
  bool keep_without_metric = false;  // steps that do not have it
};

// A step stays when any of these says so; the newest always does. Nothing said: all stay.
struct Retention {
  std::optional<int64_t> last;         // so many of the newest
  int64_t every_steps = 0;             // multiples of it
  std::chrono::seconds every_time{0};  // one of each so many seconds
  std::chrono::seconds newer_than{0};  // younger than this
  std::set<int64_t> steps;             // these
  std::optional<KeepBest> best;
  int64_t min_valid = 1;  // never fewer than this

  bool keeps_all() const {
    return !last && every_steps == 0 && every_time.count() == 0 && newer_than.count() == 0 &&
           steps.empty() && !best;
  }
};

struct KeptStep {
  int64_t step = 0;
  int64_t seconds = 0;  // since 1970, when it was saved
  std::map<std::string, double> metrics;
  bool is_pinned = false;
};

// Steps that may go, oldest first. `steps` in ascending order.
std::vector<int64_t> deletable(std::span<const KeptStep> steps, const Retention& retention,
                               int64_t now_seconds);

}  // namespace hekla::checkpoint
