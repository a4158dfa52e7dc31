// SPDX-License-Identifier: Apache-2.0
#include "runtime/collectives/network_transport.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/async/deadline.h"
#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"
#include "runtime/collectives/network_peer.h"

namespace hekla::collectives {

struct NetworkTransport::State {
  ~State() {
    keeper = std::jthread();
    peers.clear();
    if (device != nullptr) base.carrier().close(device);
  }

  NetworkBase base;
  void* device = nullptr;
  std::vector<std::unique_ptr<NetworkPeer>>
      peers;  // by rank; of this process's own nothing is used
  std::jthread keeper;

  NetworkPeer& peer(int process) const { return *peers[static_cast<size_t>(process)]; }
};

Result<std::unique_ptr<NetworkTransport>> NetworkTransport::create(int rank, int size,
                                                                   const std::vector<int>& peers,
                                                                   Events events,
                                                                   const NetworkOptions& options) {
  if (rank < 0 || rank >= size) {
    return invalid_argument("process {} of {} in a transport", rank, size);
  }
  auto state = std::make_shared<State>();
  NetworkBase& base = state->base;
  base.options = options;
  base.events = std::move(events);
  base.own = {options.carrier->description(),
              host_name(),
              options.address,
              random_hex(NetworkCard::kTokenBytes / 2),
              ::getpid(),
              rank,
              size,
              {}};
  carrier::Error error;
  const auto failed = [&](std::string_view what) {
    return unavailable("{} {} at {}: {}", base.own.engine, what, options.address, error.text);
  };
  const SignalsBlocked blocked;  // for the library's thread
  state->device = base.carrier().open(options.address.c_str(), &error);
  if (state->device == nullptr) return failed("cannot listen");
  for (int p = 0; p < size; ++p) {
    void* pair = nullptr;
    if (p != rank && std::ranges::find(peers, p) != peers.end()) {
      std::string name(carrier::kMaxNameBytes, '\0');
      size_t bytes = 0;
      pair = base.carrier().make_pair(state->device, options.patience.count(), name.data(), &bytes,
                                      &error);
      if (pair == nullptr) return failed("cannot listen");
      name.resize(bytes);
      base.own.names[p] = std::move(name);
    }
    state->peers.push_back(std::make_unique<NetworkPeer>(base, p, pair));
  }
  try {
    state->keeper =
        start_heartbeat(options.beat, [own = state.get(), last = Deadline::Clock::now()]() mutable {
          const Deadline::Clock::time_point now = Deadline::Clock::now();
          for (const auto& peer : own->peers) peer->look_after(now - last);
          last = now;
          return true;
        });
  } catch (const std::system_error& thrown) {
    return resource_exhausted("no thread for messages between processes: {}", thrown.what());
  }
  return std::unique_ptr<NetworkTransport>(new NetworkTransport(std::move(state)));
}

NetworkTransport::~NetworkTransport() {
  state_->base.is_over = true;
  state_->base.gate.close();
  for (const auto& peer : state_->peers) peer->leave();
  for (const auto& peer : state_->peers) peer->join();
}

std::string NetworkTransport::card() const { return state_->base.own.text(); }
int NetworkTransport::rank() const { return static_cast<int>(state_->base.own.rank); }
int NetworkTransport::size() const { return static_cast<int>(state_->base.own.size); }
std::string NetworkTransport::name(int process) const { return state_->peer(process).name(); }
Status NetworkTransport::status(int process) const { return state_->peer(process).status(); }
std::chrono::nanoseconds NetworkTransport::silent_for(int process) const {
  return state_->peer(process).silent_for();
}

void NetworkTransport::send(int process, Message message, CompletionRef sent) {
  state_->peer(process).send(std::move(message), std::move(sent));
}

void NetworkTransport::abandon(int process, const Status& why) {
  state_->peer(process).abandon(why);
}

Status NetworkTransport::connect(int process, std::string_view text) {
  if (process < 0 || process >= size() || process == rank()) {
    return invalid_argument("process {} cannot connect to process {} of {}", rank(), process,
                            size());
  }
  HEKLA_ASSIGN_OR_RETURN(const NetworkCard card, NetworkCard::read(text));
  return state_->peer(process).connect(card, state_);
}

}  // namespace hekla::collectives
