// SPDX-License-Identifier: Apache-2.0
// NetworkTransport: the transport between processes of several machines, over a library that moves
// bytes (carrier.h).
//
// A short message is copied into a piece of up to 64 KiB, by the caller where there is room; large
// blocks go from the sender's memory into the receiver's, a megabyte at a time. Each process counts
// what it has received, and what the other has counted is sent: it arrives even if the sender ends,
// which the kernel's buffers do not promise. A process that ends or dies closes its connection; one
// that is stopped, or cut off, is noticed by its silence. Connections are made in the background.
//
// Who connects must say what stands in the card alone, so a stranger at the port is refused; but
// who can reach the port can cut the connection, and what it says is not hidden from the network.
//
// Two threads for each connected process, two for the transport.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/collectives/carrier.h"
#include "runtime/collectives/transport.h"

namespace hekla::collectives {

struct NetworkOptions {
  const carrier::Table* carrier = nullptr;  // of carrier_table()
  std::string address;                      // numeric, of an interface
  std::chrono::nanoseconds beat = std::chrono::milliseconds(100);
  // Time in which this process does not run itself does not count; 0: for ever.
  std::chrono::nanoseconds silence = std::chrono::seconds(60);
  // How long a process may take to answer a connection.
  std::chrono::milliseconds patience = std::chrono::minutes(2);
};

class NetworkTransport final : public Transport {
 public:
  // Process `rank` of `size`, which can be reached by `peers` alone; nobody is connected.
  // UNAVAILABLE: the address cannot be listened at; RESOURCE_EXHAUSTED: no threads.
  static Result<std::unique_ptr<NetworkTransport>> create(int rank, int size,
                                                          const std::vector<int>& peers,
                                                          Events events,
                                                          const NetworkOptions& options);
  // Takes a second where another process does not answer.
  ~NetworkTransport() override;

  // How the others find this process; bytes for a store.
  std::string card() const;
  // From now on there are messages to and from it; where it cannot be reached it is lost. Ok again
  // where it is connected or was. INVALID_ARGUMENT: the card is wrong, or not one for this process;
  // FAILED_PRECONDITION: it has another engine; RESOURCE_EXHAUSTED: no thread.
  Status connect(int process, std::string_view card);

  int rank() const override;
  int size() const override;
  std::string name(int process) const override;
  Status status(int process) const override;
  std::chrono::nanoseconds silent_for(int process) const override;
  void send(int process, Message message, CompletionRef sent) override;
  void abandon(int process, const Status& why) override;

 private:
  struct State;
  explicit NetworkTransport(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace hekla::collectives
