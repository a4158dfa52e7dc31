// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/backend_transport.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/collectives/network_address.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {
namespace {

// How often a thread that receives looks whether it is to end.
constexpr int64_t kLookMs = 200;
constexpr std::chrono::seconds kLastWords(5);

// A backend may fill it to the last byte.
struct BackendError {
  char text[HEKLA_GROUP_BACKEND_ERROR_BYTES + 1] = {};
};

// The store as a backend sees it.
struct BackendStore {
  rendezvous::KeyValueStore& store;
  std::string prefix;

  static int say(const Status& status, char* error) {
    if (status.ok()) return 0;
    std::snprintf(error, HEKLA_GROUP_BACKEND_ERROR_BYTES, "%s", status.message().c_str());
    return 1;
  }
  static int get(void* context, const char* key, int64_t timeout_ms, void* value, size_t* bytes,
                 char* error) {
    const auto& own = *static_cast<const BackendStore*>(context);
    const Result<std::string> found =
        own.store.get(own.prefix + key, std::chrono::milliseconds(timeout_ms));
    if (!found.ok()) return say(found.status(), error);
    if (found->size() > *bytes) {
      return say(invalid_argument("{} bytes of key {} in room for {}", found->size(), key, *bytes),
                 error);
    }
    std::memcpy(value, found->data(), found->size());
    *bytes = found->size();
    return 0;
  }
  static int put(void* context, const char* key, const void* value, size_t bytes, char* error) {
    const auto& own = *static_cast<const BackendStore*>(context);
    return say(own.store.put(own.prefix + key, {static_cast<const char*>(value), bytes}), error);
  }
};

}  // namespace

BackendTransport::BackendTransport(const hekla_backend_table* table, const BackendArgs& args)
    : table_(table),
      rank_(args.rank),
      size_(args.size),
      gate_(std::make_shared<collectives::EventGate>()),
      events_(collectives::EventGate::guard(gate_, args.events)) {
  for (int process = 0; process < size_; ++process) peers_.push_back(std::make_unique<Peer>());
}

Result<std::unique_ptr<collectives::Transport>> BackendTransport::create(
    const hekla_backend_table* table, BackendArgs args) {
  std::unique_ptr<BackendTransport> made(new BackendTransport(table, args));
  // A process may make several groups of one name, one after the other; a store takes a key once.
  int generation = 0;
  for (;; ++generation) {
    const Status put =
        args.store->put(fmt::format("{}/backend/{}/{}", args.prefix, generation, args.rank), "");
    if (put.ok()) break;
    if (put.code() != StatusCode::kAlreadyExists) return put;
  }
  BackendStore store{*args.store, fmt::format("{}/backend/{}/of/", args.prefix, generation)};
  hekla_backend_args given = {};
  given.struct_size = sizeof(given);
  given.store = {&store, BackendStore::get, BackendStore::put};
  given.rank = args.rank;
  given.size = args.size;
  const Options& options = args.options;
  const Result<std::string> address =
      collectives::own_network_address(options.address, options.coordinator);
  if (!address.ok() && !options.address.empty()) return address.status();
  given.address = address.ok() ? address->c_str() : "";  // a backend may need none
  given.timeout_ms = std::chrono::ceil<std::chrono::milliseconds>(args.deadline.left()).count();
  BackendError error;
  {
    const SignalsBlocked blocked;  // for threads of the backend's
    if (table->create(&given, &made->backend_, error.text) != 0) {
      return unavailable("{}: {}", table->name, error.text);
    }
  }
  made->is_made_ = true;
  BackendTransport* const own = made.get();
  for (int process = 0; process < args.size; ++process) {
    if (process == args.rank) continue;
    Peer& peer = *made->peers_[static_cast<size_t>(process)];
    peer.sender = start_thread([=](std::stop_token stop) { own->send_all(process, stop); });
    peer.receiver = start_thread([=](std::stop_token stop) { own->receive_all(process, stop); });
  }
  return std::unique_ptr<collectives::Transport>(std::move(made));
}

BackendTransport::~BackendTransport() {
  gate_->close();
  const auto latest = std::chrono::steady_clock::now() + kLastWords;
  for (const auto& peer : peers_) {
    std::unique_lock lock(peer->mutex);
    peer->changed.wait_until(lock, latest, [&] {
      return !peer->status.ok() || (peer->queue.empty() && !peer->is_sending);
    });
  }
  if (is_made_) table_->shut(backend_);
  for (const auto& peer : peers_) {
    {
      const std::lock_guard lock(peer->mutex);
      peer->sender.request_stop();
      peer->receiver.request_stop();
    }
    peer->changed.notify_all();
    if (peer->sender.joinable()) peer->sender.join();
    if (peer->receiver.joinable()) peer->receiver.join();
    for (collectives::OutgoingMessage& left : peer->queue) {
      if (left.sent != nullptr) left.sent->complete(cancelled("process {} has left", rank_));
    }
  }
  if (is_made_) table_->destroy(backend_);
}

std::string BackendTransport::name(int process) const { return fmt::format("process {}", process); }

Status BackendTransport::status(int process) const {
  const Peer& peer = *peers_[static_cast<size_t>(process)];
  const std::lock_guard lock(peer.mutex);
  return peer.status;
}

void BackendTransport::send(int process, collectives::Message message, CompletionRef sent) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  Result<std::string> frame = collectives::frame_of(message);
  Status refused = frame.status();
  if (refused.ok()) {
    const std::lock_guard lock(peer.mutex);
    refused = peer.status;
    if (refused.ok()) peer.queue.push_back({*std::move(frame), std::move(message), sent});
  }
  if (refused.ok()) {
    peer.changed.notify_all();
  } else if (sent != nullptr) {
    sent->complete(refused);
  }
}

void BackendTransport::send_all(int process, std::stop_token stop) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  for (;;) {
    collectives::OutgoingMessage next;
    {
      std::unique_lock lock(peer.mutex);
      peer.is_sending = false;
      peer.changed.notify_all();
      peer.changed.wait(lock, [&] { return stop.stop_requested() || !peer.queue.empty(); });
      if (peer.queue.empty() || !peer.status.ok() || stop.stop_requested()) return;
      next = std::move(peer.queue.front());
      peer.queue.pop_front();
      peer.is_sending = true;
    }
    Status status;
    for (next.skip_empty(); status.ok() && !next.is_done(); next.skip_empty()) {
      const std::span<const std::byte> rest = next.rest();
      BackendError error;
      if (table_->send(backend_, process, rest.data(), rest.size(), error.text) != 0) {
        status = unavailable("{} cannot send to process {}: {}", table_->name, process, error.text);
      }
      next.offset += rest.size();
    }
    if (next.sent != nullptr) next.sent->complete(status);
    if (!status.ok()) return lose(process, status);
  }
}

void BackendTransport::receive_all(int process, std::stop_token stop) {
  collectives::FrameReader reader;
  while (!stop.stop_requested()) {
    const std::span<std::byte> room = reader.target();
    BackendError error;
    const int64_t count =
        table_->receive(backend_, process, room.data(), room.size(), kLookMs, error.text);
    if (count == 0) continue;
    if (count < 0 || count > static_cast<int64_t>(room.size())) {
      return lose(process, unavailable("process {} has died or left: {}: {}", process, table_->name,
                                       error.text));
    }
    auto message = reader.advance(static_cast<size_t>(count));
    if (!message.ok()) {
      return lose(process, message.status().with_context(fmt::format("process {}", process)));
    }
    if (message->has_value()) events_.received(process, **std::move(message));
  }
}

void BackendTransport::lose(int process, const Status& why) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  std::deque<collectives::OutgoingMessage> left;
  {
    const std::lock_guard lock(peer.mutex);
    if (!peer.status.ok()) return;
    peer.status = why;
    left.swap(peer.queue);
  }
  peer.changed.notify_all();
  for (collectives::OutgoingMessage& message : left) {
    if (message.sent != nullptr) message.sent->complete(why);
  }
  events_.lost(process, why);
}

}  // namespace hekla::process_group
