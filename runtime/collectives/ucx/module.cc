// SPDX-License-Identifier: Apache-2.0
// carrier.h by UCX: tagged messages over TCP, or over RDMA where the machines have it.
//
// UCX believes what others send to its ports: for networks whose machines trust each other.
#include <ucp/api/ucp.h>

#include <cstring>
#include <memory>
#include <string>

#include "runtime/collectives/carrier.h"
#include "runtime/collectives/carrier_guard.h"
#include "runtime/collectives/ucx/device.h"
#include "runtime/collectives/ucx/pair.h"

namespace hekla::collectives::carrier {
namespace {

struct PairObject {
  std::shared_ptr<Pair> pair;
};

Pair& pair_of(void* pair) { return *static_cast<PairObject*>(pair)->pair; }
PairBuffer& buffer_of(void* buffer) { return *static_cast<PairBuffer*>(buffer); }

const char* description() {
  static const std::string text = std::string("UCX ") + ucp_get_version_string();
  return text.c_str();
}

void* open(const char* address, Error* error) {
  return guarded<void*>(error, nullptr, [&] { return new Device(address); });
}

void close(void* device) { delete static_cast<Device*>(device); }

void* make_pair(void* device, int64_t connect_ms, char* name, size_t* name_bytes, Error* error) {
  return guarded<void*>(error, nullptr, [&] {
    Device& own = *static_cast<Device*>(device);
    auto made = std::make_unique<PairObject>();
    made->pair = std::make_shared<Pair>(own, std::chrono::milliseconds(connect_ms));
    own.add(made->pair);
    const std::string& text = made->pair->name();
    std::memcpy(name, text.data(), text.size());
    *name_bytes = text.size();
    return made.release();
  });
}

void free_pair(void* pair) {
  pair_of(pair).close();
  delete static_cast<PairObject*>(pair);
}

bool connect(void* pair, const char* name, size_t name_bytes, Error* error) {
  return guarded(error, false, [&] {
    pair_of(pair).connect({name, name_bytes});
    return true;
  });
}

void shut(void* pair) { pair_of(pair).shut(); }

bool is_open(void* pair, Error* error) {
  const std::string why = pair_of(pair).why_closed();
  if (!why.empty()) say(error, why.c_str());
  return why.empty();
}

void* make_buffer(void* pair, void* data, size_t bytes, Error* error) {
  return guarded<void*>(error, nullptr, [&] {
    return new PairBuffer(static_cast<PairObject*>(pair)->pair,
                          {static_cast<std::byte*>(data), bytes});
  });
}

void free_buffer(void* buffer) { delete &buffer_of(buffer); }

bool send(void* buffer, uint64_t channel, size_t offset, size_t bytes, Error* error) {
  return guarded(error, false, [&] {
    buffer_of(buffer).send(channel, offset, bytes);
    return true;
  });
}

bool receive(void* buffer, uint64_t channel, size_t offset, size_t bytes, Error* error) {
  return guarded(error, false, [&] {
    buffer_of(buffer).receive(channel, offset, bytes);
    return true;
  });
}

Waited wait_sent(void* buffer, Error* error) {
  return guarded(error, kFailed, [&] { return buffer_of(buffer).wait_sent(); });
}

Waited wait_received(void* buffer, Error* error) {
  return guarded(error, kFailed, [&] { return buffer_of(buffer).wait_received(); });
}

Waited last_sent(void* buffer, int64_t milliseconds, Error* error) {
  return guarded(error, kFailed, [&] {
    buffer_of(buffer).last_sent(std::chrono::milliseconds(milliseconds));
    return kDone;
  });
}

Waited last_received(void* buffer, int64_t milliseconds, Error* error) {
  return guarded(error, kFailed, [&] {
    buffer_of(buffer).last_received(std::chrono::milliseconds(milliseconds));
    return kDone;
  });
}

void wake_sender(void* buffer) { buffer_of(buffer).wake_sender(); }
void wake_receiver(void* buffer) { buffer_of(buffer).wake_receiver(); }

constexpr Table kTable = {kTableVersion, description,   open,        close,        make_pair,
                          free_pair,     connect,       shut,        is_open,      make_buffer,
                          free_buffer,   send,          receive,     wait_sent,    wait_received,
                          last_sent,     last_received, wake_sender, wake_receiver};

}  // namespace
}  // namespace hekla::collectives::carrier

extern "C" __attribute__((visibility("default"))) const hekla::collectives::carrier::Table*
hekla_carrier_table() {
  return &hekla::collectives::carrier::kTable;
}
