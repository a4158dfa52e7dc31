// SPDX-License-Identifier: Apache-2.0
// What UCX makes of peers that are none, without a transport above it.
#include "runtime/collectives/carrier.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "runtime/base/hash.h"
#include "runtime/collectives/carrier_library.h"

namespace hekla::collectives {
namespace {

constexpr int kDescriptors = 1024;

sockaddr_in address_of(int socket) {
  sockaddr_in address = {};
  socklen_t bytes = sizeof(address);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  return address;
}

// In the order of their bytes on the network.
std::set<in_port_t> listening_ports() {
  std::set<in_port_t> ports;
  for (int socket = 0; socket < kDescriptors; ++socket) {
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    if (::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens != 0) {
      ports.insert(address_of(socket).sin_port);
    }
  }
  return ports;
}

// A UCX name: a hash of the address, a word of tags, the address.
std::string with_port(const std::string& name, in_port_t from, in_port_t to) {
  constexpr size_t kHead = 2 * sizeof(uint64_t);
  std::string address = name.substr(kHead);
  const std::string old(reinterpret_cast<const char*>(&from), sizeof(from));
  for (size_t at = address.find(old); at != std::string::npos; at = address.find(old, at + 1)) {
    std::memcpy(&address[at], &to, sizeof(to));
  }
  const uint64_t hash = fnv1a(address);
  return std::string(reinterpret_cast<const char*>(&hash), sizeof(hash)) +
         name.substr(sizeof(hash), kHead - sizeof(hash)) + address;
}

// A port of 127.0.0.1 that resets its first connection at once and takes no other.
class Resetter {
 public:
  Resetter() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    port_ = address_of(socket_).sin_port;
    thread_ = std::thread([this] { run(); });
  }
  ~Resetter() {
    is_over_ = true;
    thread_.join();
  }
  in_port_t port() const { return port_; }

 private:
  // Does not sleep, so as to be there before the first bytes are sent.
  void run() {
    int connection = -1;
    while (connection < 0 && !is_over_) connection = ::accept(socket_, nullptr, nullptr);
    ::close(socket_);
    if (connection < 0) return;
    const linger at_once = {1, 0};
    ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    ::close(connection);
  }

  const int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  in_port_t port_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

struct End {
  End(const carrier::Table& table, void* device) : table(table) {
    carrier::Error error;
    char text[carrier::kMaxNameBytes];
    size_t bytes = 0;
    const std::set<in_port_t> before = listening_ports();
    pair = table.make_pair(device, 2000, text, &bytes, &error);
    EXPECT_NE(pair, nullptr) << error.text;
    name.assign(text, bytes);
    for (const in_port_t one : listening_ports()) {
      if (!before.contains(one)) port = one;
    }
  }
  ~End() { table.free_pair(pair); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  const carrier::Table& table;
  void* pair = nullptr;
  std::string name;
  in_port_t port = 0;
};

TEST(UcxCarrier, ConnectionsThatAreResetAtOnceFail) {
  const Result<const carrier::Table*> found = carrier_table(CarrierKind::kUcx);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const carrier::Table& table = **found;
  carrier::Error error;
  void* const device = table.open("127.0.0.1", &error);
  ASSERT_NE(device, nullptr) << error.text;
  {
    const End other(table, device);
    for (int connected = 0; connected < 100;) {
      const Resetter resetter;
      const End own(table, device);
      const std::string name = with_port(other.name, other.port, resetter.port());
      if (name < own.name) continue;  // the lesser one connects
      ++connected;
      ASSERT_FALSE(table.connect(own.pair, name.data(), name.size(), &error));
      ASSERT_STRNE(error.text, "the other end does not answer");
    }
  }
  table.close(device);
}

}  // namespace
}  // namespace hekla::collectives
