// SPDX-License-Identifier: Apache-2.0
// Group: the ranks of a job that save together, and how they wait for each other.
//
// Forming a group gives it an epoch that no earlier one of the same store had, and all its keys
// begin with it: what a job left that was killed cannot be taken for news of this one. Waiting ends
// with the values, with a key that stops it, with the death of a rank, or with the deadline; errors
// name the ranks that are missing. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/rendezvous/store.h"

namespace hekla::rendezvous {

// "0, 3, 7-12"; at most a line.
std::string rank_list(const std::vector<int>& ranks);

class Group {
 public:
  // Waits until `world` processes have called with the same store, each with its own rank.
  // DEADLINE_EXCEEDED names those that did not come. INVALID_ARGUMENT: rank or world out of range.
  // Every member must live on while the group is used.
  static Result<std::unique_ptr<Group>> form(std::shared_ptr<Store> store, int rank, int world,
                                             Deadline deadline);
  // One rank, a store of its own.
  static std::unique_ptr<Group> alone();
  // RANK, WORLD_SIZE and HEKLA_STORE of the environment; alone without WORLD_SIZE or with 1.
  static Result<std::unique_ptr<Group>> from_environment(Deadline deadline);
  ~Group();

  int rank() const { return rank_; }
  int world() const { return world_; }
  bool is_coordinator() const { return rank_ == 0; }
  const std::string& epoch() const { return epoch_; }
  Store& store() const { return *store_; }
  // The store's key for a name of this group.
  std::string key(std::string_view name) const;

  // Ranks whose processes have died.
  Result<std::vector<int>> lost() const;

  struct Wait {
    std::string what;  // "READY of step 1200", for messages
    Deadline deadline = Deadline::never();
    std::string stop_key;  // of this group; when it appears the wait ends; may be empty
    std::stop_token stop;  // CANCELLED
    std::string
        notice_key;  // of this group; when it appears `notice` is called, once; may be empty
    std::function<void()> notice;
    bool mind_lost = true;  // a dead rank that is waited for ends the wait: UNAVAILABLE
    // Called every `report_every` with what is missing.
    std::function<void(const std::vector<int>& missing)> report;
    std::chrono::nanoseconds report_every = std::chrono::seconds(10);
  };
  struct Waited {
    std::map<int, std::string> values;   // by rank; all when not stopped
    std::optional<std::string> stopped;  // the value of the stop key
  };
  // Until prefix + "<rank>" exists for all ranks.
  Result<Waited> wait_ranks(std::string_view prefix, const Wait& wait) const;
  // Until the key exists, which `owner` is to set.
  Result<Waited> wait_key(std::string_view name, int owner, const Wait& wait) const;

 private:
  Group(std::shared_ptr<Store> store, int rank, int world, std::string epoch)
      : store_(std::move(store)), rank_(rank), world_(world), epoch_(std::move(epoch)) {}
  std::string member(int rank) const;
  Result<Waited> wait_for(const std::map<int, std::string>& keys, const Wait& wait) const;

  const std::shared_ptr<Store> store_;  // shared with whoever opened it
  const int rank_;
  const int world_;
  const std::string epoch_;
};

}  // namespace hekla::rendezvous
