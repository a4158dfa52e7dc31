// SPDX-License-Identifier: Apache-2.0
// ProcessTransport: the transport between the processes of a run, wherever they are: shared memory
// (shared_memory.h) between those that see each other's, the network (network_transport.h) between
// the others. Which of the two is decided for each pair of processes by what both say of
// themselves, so both come to the same.
//
// Processes find each other through a key-value store. Thread-safe; connecting may wait for others.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/collectives/event_gate.h"
#include "runtime/collectives/network_transport.h"
#include "runtime/collectives/shared_memory.h"
#include "runtime/rendezvous/key_value_store.h"

namespace hekla::collectives {

inline constexpr std::array<const char*, 5> kProcessEngines = {"auto", "auto_ucx", "shm", "gloo",
                                                               "ucx"};
// Never through shared memory.
inline bool is_network_alone(std::string_view engine) {
  return engine == "gloo" || engine == "ucx";
}

struct ProcessTransportOptions {
  // For all processes: shared memory ("shm"), the network by Gloo ("gloo") or UCX ("ucx"), or
  // shared memory where it reaches and else Gloo ("auto") or UCX ("auto_ucx").
  std::string engine = "auto";
  std::string address;  // own_network_address's `wanted` and `coordinator`
  std::string coordinator;
  std::chrono::nanoseconds silence = std::chrono::seconds(60);  // 0: for ever
};

class ProcessTransport final : public Transport {
 public:
  // Puts into the store, under `prefix`, how process `rank` of `size` is found. UNAVAILABLE,
  // FAILED_PRECONDITION, RESOURCE_EXHAUSTED: the engine cannot be had; or the store's error.
  static Result<std::unique_ptr<ProcessTransport>> create(
      std::shared_ptr<rendezvous::KeyValueStore> store, std::string prefix, int rank, int size,
      Events events, const ProcessTransportOptions& options);
  ~ProcessTransport() override;

  // For all processes to call when all have been created: those of other machines begin to watch
  // each other. What is wrong with one is connect's to say.
  void meet();
  // From now on there are messages to and from a process. Waits two minutes at most for one that
  // has not been created. FAILED_PRECONDITION: it cannot be reached, for a reason in words.
  Status connect(int process);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int process) const override;
  Status status(int process) const override;
  std::chrono::nanoseconds silent_for(int process) const override;
  void send(int process, Message message, CompletionRef sent) override;
  void abandon(int process, const Status& why) override;

 private:
  // What a process says of itself.
  struct Card {
    std::string engine, host;
    std::string memory, network;  // of the engines, where there are
    std::string problem;          // why there are none
    std::string text() const;
    static Result<Card> read(std::string_view text);
  };
  enum class Way { kMemory, kNetwork };

  ProcessTransport() = default;
  Result<Card> card_of(int process);
  Result<Way> way_to(const Card& card) const;
  Status open_engine();
  Status open_network(const std::vector<int>& peers);
  // Of connect_mutex_.
  Status reach(int process);
  Status put_network_card();
  Status reach_over_network(int process, const Card& card);
  Transport* engine_of(int process) const;
  std::string key(std::string_view what, int process) const;

  std::shared_ptr<rendezvous::KeyValueStore> store_;
  std::string prefix_;
  int rank_ = 0, size_ = 1;
  ProcessTransportOptions options_;
  Events events_;
  int generation_ = 0;  // of this transport among those of the process
  Card own_;

  std::mutex connect_mutex_;
  std::map<int, Card> cards_;     // guarded by connect_mutex_, as the next two
  bool has_put_network_ = false;  // the second card, where machines differ
  Status network_status_;         // why there is no network
  mutable std::mutex mutex_;
  std::vector<Transport*> engines_;  // guarded by mutex_; by process; null: not connected
  std::shared_ptr<EventGate> gate_;  // shared with the engines' events
  // Last: their events use the rest.
  std::unique_ptr<SharedMemory> memory_;       // set by create alone
  std::unique_ptr<NetworkTransport> network_;  // guarded by connect_mutex_; set once
};

}  // namespace hekla::collectives
