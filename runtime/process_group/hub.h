// SPDX-License-Identifier: Apache-2.0
// Hub: the transport of a group and of all groups that came from it, and who gets which message.
//
// Owned by the groups. What comes for a group that this process has yet to make waits for it; what
// comes for one that it has left is dropped. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/collectives/transport.h"
#include "runtime/process_group/call.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::process_group {

class Member;
struct Options;

class Hub {
 public:
  // Reaches all processes, which are waited for until the deadline. The transport's errors name
  // those that cannot be reached.
  static Result<std::shared_ptr<Hub>> create(std::shared_ptr<rendezvous::KeyValueStore> store,
                                             int rank, int size, const Options& options,
                                             Deadline deadline);
  Hub() = default;
  // Without events of the transport's: a caller that has them delivers to members itself.
  explicit Hub(std::unique_ptr<collectives::Transport> transport)
      : transport_(std::move(transport)) {}
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Messages of that group go to `member` from now on, and first what has come already.
  void add(uint64_t group, const std::shared_ptr<Member>& member);
  void remove(uint64_t group);
  void send(int process, const Head& head, std::vector<HostArray> blocks, CompletionRef sent);
  std::string name(int process) const { return transport_->name(process); }
  std::chrono::nanoseconds silent_for(int process) const { return transport_->silent_for(process); }
  // Transport::abandon.
  void abandon(int process, const Status& why) { transport_->abandon(process, why); }

 private:
  struct Early {
    int from;
    Head head;
    std::vector<HostArray> blocks;
  };
  void received(int from, collectives::Message message);
  std::shared_ptr<void> place(int from, const collectives::Message& begun, int64_t bytes);
  void lost(int process, const Status& why);
  bool beat();
  std::vector<std::shared_ptr<Member>> members() const;

  mutable std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Member>> members_;  // guarded by mutex_, as the next three
  std::map<uint64_t, std::vector<Early>> early_;
  std::set<uint64_t> left_;
  std::map<int, Status> lost_;
  std::unique_ptr<collectives::Transport> transport_;  // its events use the above
  std::jthread beat_;                                  // last: uses the rest
};

}  // namespace hekla::process_group
