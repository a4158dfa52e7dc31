// SPDX-License-Identifier: Apache-2.0
// Two functions of Gloo's with one difference: what somebody does at the other end of a connection
// ends the pair and not the process. Gloo's own thread lets exceptions out when a peer sends what
// it asserts against, or has reset the connection before it is accepted.
//
// The dynamic loader takes these definitions for those of libgloo.so, which calls them through its
// table of symbols: both are loaded together, this library first, and it exports them (gloo.map).
#include "runtime/collectives/gloo/loop.h"

#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/loop.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <exception>
#include <map>
#include <mutex>

namespace hekla::collectives::carrier {
namespace {

struct Broken {
  std::mutex mutex;
  std::map<const void*, std::string> pairs;  // guarded by mutex; why
};

// Gloo's threads may run as long as the process.
Broken& broken() {
  static auto* const all = new Broken;
  return *all;
}

void break_pair(gloo::transport::tcp::Handler* handler, const char* why) {
  auto* const pair = dynamic_cast<gloo::transport::Pair*>(handler);
  if (pair == nullptr) return;
  {
    Broken& all = broken();
    const std::lock_guard lock(all.mutex);
    all.pairs.emplace(static_cast<const void*>(pair), why);
  }
  pair->close();
}

}  // namespace

std::string why_broken(const void* pair) {
  Broken& all = broken();
  const std::lock_guard lock(all.mutex);
  const auto found = all.pairs.find(pair);
  return found == all.pairs.end() ? std::string() : found->second;
}

void forget_broken(const void* pair) {
  Broken& all = broken();
  const std::lock_guard lock(all.mutex);
  all.pairs.erase(pair);
}

}  // namespace hekla::collectives::carrier

namespace gloo::transport::tcp {

// Those who take a descriptor away wait for the next turn, so a turn is never longer than this.
constexpr int kTurnMs = 10;

__attribute__((visibility("default"))) void Loop::run() {
  std::array<epoll_event, capacity_> events;
  while (!done_) {
    cv_.notify_all();
    const int count = ::epoll_wait(fd_, events.data(), static_cast<int>(events.size()), kTurnMs);
    for (int i = 0; i < count; ++i) {
      auto* const handler = static_cast<Handler*>(events[static_cast<size_t>(i)].data.ptr);
      try {
        handler->handleEvents(static_cast<int>(events[static_cast<size_t>(i)].events));
      } catch (const std::exception& error) {
        hekla::collectives::carrier::break_pair(handler, error.what());
      }
    }
  }
}

// What a pair calls the other end, in messages alone.
__attribute__((visibility("default"))) Address Address::fromPeerName(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) address = {};
  return Address(address);
}

}  // namespace gloo::transport::tcp
