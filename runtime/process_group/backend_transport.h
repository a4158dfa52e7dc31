// SPDX-License-Identifier: Apache-2.0
// BackendTransport: messages over a backend of others (plugin_api/hekla_group_backend.h), which has
// streams of bytes alone.
//
// A process is lost when its stream ends or brings what is no message. One that is stopped is not
// noticed here: deadlines of calls name it. Two threads for each other process. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "plugin_api/hekla_group_backend.h"
#include "runtime/collectives/event_gate.h"
#include "runtime/collectives/frame.h"
#include "runtime/collectives/transport.h"
#include "runtime/process_group/backend_registry.h"

namespace hekla::process_group {

class BackendTransport final : public collectives::Transport {
 public:
  // UNAVAILABLE: what the backend says; or the store's error. All processes are connected then.
  static Result<std::unique_ptr<collectives::Transport>> create(const hekla_backend_table* table,
                                                                BackendArgs args);
  // What has been sent goes out first, unless that takes longer than a few seconds.
  ~BackendTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int process) const override;
  Status status(int process) const override;
  void send(int process, collectives::Message message, CompletionRef sent) override;

 private:
  struct Peer {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<collectives::OutgoingMessage> queue;  // guarded by mutex, as the next two
    bool is_sending = false;
    Status status;  // why it is lost
    std::jthread sender, receiver;
  };
  BackendTransport(const hekla_backend_table* table, const BackendArgs& args);
  void send_all(int process, std::stop_token stop);
  void receive_all(int process, std::stop_token stop);
  void lose(int process, const Status& why);

  const hekla_backend_table* const table_;
  const int rank_, size_;
  void* backend_ = nullptr;  // may be null when it is made
  bool is_made_ = false;
  std::shared_ptr<collectives::EventGate> gate_;  // shared with the events
  Events events_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank
};

}  // namespace hekla::process_group
