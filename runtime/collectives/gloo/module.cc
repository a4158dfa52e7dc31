// SPDX-License-Identifier: Apache-2.0
// carrier.h by Gloo: pairs over TCP and its unbound buffers. Nothing else of Gloo is used: its
// collectives' sums depend on sizes and their defects reach callers.
//
// Each pair has a context of its own, since a context whose wait runs out of time closes all of its
// pairs: no wait here has a time that can run out while the pair is wanted.
#include <gloo/config.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "runtime/collectives/carrier.h"
#include "runtime/collectives/carrier_guard.h"
#include "runtime/collectives/gloo/loop.h"

namespace hekla::collectives::carrier {
namespace {

using GlooBuffer = gloo::transport::UnboundBuffer;

constexpr int kOwn = 0, kPartner = 1, kPairSize = 2;
// Nothing is ever sent on it: what waits there sees the pair fail.
constexpr uint64_t kProbeChannel = UINT64_MAX;
// Gloo adds it to a clock, so no more than a clock holds.
constexpr std::chrono::hours kForever{24 * 365};
// Of the time that is set Gloo waits this multiple for a connection.
constexpr int64_t kConnectFactor = 5;

struct DeviceObject {
  std::shared_ptr<gloo::transport::Device> device;
};

struct PairObject {
  std::shared_ptr<gloo::transport::Context> context;
  char probed = 0;
  std::unique_ptr<GlooBuffer> probe;

  gloo::transport::Pair& pair() const { return *context->getPair(kPartner); }
};

struct BufferObject {
  std::unique_ptr<GlooBuffer> buffer;
};

const char* description() {
  static const std::string text = "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." +
                                  std::to_string(GLOO_VERSION_MINOR) + "." +
                                  std::to_string(GLOO_VERSION_PATCH) + " (tcp)";
  return text.c_str();
}

void* open(const char* address, Error* error) {
  return guarded<void*>(error, nullptr, [&] {
    const gloo::transport::tcp::attr attributes(address);
    return new DeviceObject{gloo::transport::tcp::CreateDevice(attributes)};
  });
}

void close(void* device) { delete static_cast<DeviceObject*>(device); }

void* make_pair(void* device, int64_t connect_ms, char* name, size_t* name_bytes, Error* error) {
  return guarded<void*>(error, nullptr, [&] {
    auto made = std::make_unique<PairObject>();
    made->context = static_cast<DeviceObject*>(device)->device->createContext(kOwn, kPairSize);
    made->context->setTimeout(
        std::chrono::milliseconds(std::max<int64_t>(1, connect_ms / kConnectFactor)));
    const std::vector<char> bytes = made->context->createPair(kPartner)->address().bytes();
    if (bytes.size() > kMaxNameBytes) throw std::length_error("an address of too many bytes");
    std::memcpy(name, bytes.data(), bytes.size());
    *name_bytes = bytes.size();
    return made.release();
  });
}

void free_pair(void* pair) {
  auto* const object = static_cast<PairObject*>(pair);
  const void* const freed = &object->pair();
  delete object;
  forget_broken(freed);
}

bool connect(void* pair, const char* name, size_t name_bytes, Error* error) {
  auto* const object = static_cast<PairObject*>(pair);
  const bool is_connected = guarded(error, false, [&] {
    object->pair().connect(std::vector<char>(name, name + name_bytes));
    object->probe = object->context->createUnboundBuffer(&object->probed, 1);
    object->probe->recv(kPartner, kProbeChannel);
    return true;
  });
  if (const std::string why = why_broken(&object->pair()); !is_connected && !why.empty()) {
    say(error, ("something else has spoken to its port: " + why).c_str());
  }
  return is_connected;
}

void shut(void* pair) {
  Error error;
  guarded(&error, false, [&] {
    static_cast<PairObject*>(pair)->pair().close();
    return true;
  });
}

bool is_open(void* pair, Error* error) {
  auto* const object = static_cast<PairObject*>(pair);
  return guarded(error, false, [&] {
    // Throws where the pair has failed, before it looks whether it was woken.
    object->probe->abortWaitRecv();
    object->probe->waitRecv(nullptr, kForever);
    const std::string why = why_broken(&object->pair());
    if (!why.empty()) say(error, why.c_str());
    return why.empty();
  });
}

void* make_buffer(void* pair, void* data, size_t bytes, Error* error) {
  return guarded<void*>(error, nullptr, [&] {
    return new BufferObject{
        static_cast<PairObject*>(pair)->context->createUnboundBuffer(data, bytes)};
  });
}

void free_buffer(void* buffer) { delete static_cast<BufferObject*>(buffer); }

bool send(void* buffer, uint64_t channel, size_t offset, size_t bytes, Error* error) {
  return guarded(error, false, [&] {
    static_cast<BufferObject*>(buffer)->buffer->send(kPartner, channel, offset, bytes);
    return true;
  });
}

bool receive(void* buffer, uint64_t channel, size_t offset, size_t bytes, Error* error) {
  return guarded(error, false, [&] {
    static_cast<BufferObject*>(buffer)->buffer->recv(kPartner, channel, offset, bytes);
    return true;
  });
}

Waited wait_sent(void* buffer, Error* error) {
  return guarded(error, kFailed, [&] {
    return static_cast<BufferObject*>(buffer)->buffer->waitSend(nullptr, kForever) ? kDone : kWoken;
  });
}

Waited wait_received(void* buffer, Error* error) {
  return guarded(error, kFailed, [&] {
    return static_cast<BufferObject*>(buffer)->buffer->waitRecv(nullptr, kForever) ? kDone : kWoken;
  });
}

Waited last_sent(void* buffer, int64_t milliseconds, Error* error) {
  return guarded(error, kFailed, [&] {
    GlooBuffer& waits = *static_cast<BufferObject*>(buffer)->buffer;
    const std::chrono::milliseconds most(milliseconds);
    // Twice: somebody may have woken it before.
    return waits.waitSend(nullptr, most) || waits.waitSend(nullptr, most) ? kDone : kFailed;
  });
}

Waited last_received(void* buffer, int64_t milliseconds, Error* error) {
  return guarded(error, kFailed, [&] {
    GlooBuffer& waits = *static_cast<BufferObject*>(buffer)->buffer;
    const std::chrono::milliseconds most(milliseconds);
    return waits.waitRecv(nullptr, most) || waits.waitRecv(nullptr, most) ? kDone : kFailed;
  });
}

void wake_sender(void* buffer) { static_cast<BufferObject*>(buffer)->buffer->abortWaitSend(); }
void wake_receiver(void* buffer) { static_cast<BufferObject*>(buffer)->buffer->abortWaitRecv(); }

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
