// SPDX-License-Identifier: Apache-2.0
// StepAgreement: all ranks do something at the same training step, asked for by any of them at any
// moment, while all go on training.
//
// Who is asked first tells all ranks through the store. A thread of each rank answers with the step
// that its rank has come to; the agreed step is the greatest of them plus one. A rank that has
// answered does not pass the step after its answer before it knows the result, so no rank can run
// past the agreed step, however far apart they are. Ranks count the steps that they have
// dispatched.
//
// Rounds may follow each other. reached() is called by the training thread; request() by any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "runtime/base/status.h"
#include "runtime/rendezvous/group.h"

namespace hekla::checkpoint {

class StepAgreement {
 public:
  // `name`: equal on all ranks, one object of each name in a group, which outlives it.
  StepAgreement(rendezvous::Group& group, std::string name,
                std::chrono::nanoseconds deadline = std::chrono::minutes(5));
  ~StepAgreement() = default;

  // Asks for an agreed step, unless one is asked for already. Not from a signal handler.
  void request();
  // The training has come to `step`, which grows from call to call. True once, at the agreed step
  // (later, should the steps jump over it); the next round may begin then. UNAVAILABLE and
  // DEADLINE_EXCEEDED: the others cannot be asked, with their ranks.
  Result<bool> reached(int64_t step);
  bool is_requested() const;

 private:
  void watch(std::stop_token stop);
  std::string key(std::string_view what) const;

  rendezvous::Group& group_;
  const std::string name_;
  const std::chrono::nanoseconds deadline_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t round_ = 0;                // guarded by mutex_, as all below
  int64_t step_ = -1;                // this rank's
  bool is_wanted_ = false;           // request() was called in this round
  bool is_requested_ = false;        // by anybody
  std::optional<int64_t> answered_;  // what this rank said
  std::optional<int64_t> agreed_;
  Status status_;
  std::jthread watcher_;
};

}  // namespace hekla::checkpoint
