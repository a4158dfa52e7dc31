// SPDX-License-Identifier: Apache-2.0
// What a store over TCP promises beside what all stores do (store_test.cc).
#include "runtime/rendezvous/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/testing/child.h"
#include "runtime/rendezvous/store_key_values.h"
#include "runtime/rendezvous/tcp_store_server.h"

namespace hekla::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<TcpStore> client(const TcpStoreServer& server, const std::string& token = "t") {
  return *TcpStore::connect("127.0.0.1", server.port(), token, Deadline::in(seconds(20)));
}

sockaddr_in here(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return address;
}

// A connection, or -1.
int connect_raw(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in to = here(port);
  if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
    return socket;
  }
  ::close(socket);
  return -1;
}

void write_raw(int port, std::string_view bytes) {
  const int socket = connect_raw(port);
  ASSERT_GE(socket, 0);
  static_cast<void>(!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ::close(socket);
}

// Listens and answers nothing but what it is told to.
class DumbServer {
 public:
  DumbServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = here(0);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
  }
  DumbServer(const DumbServer&) = delete;
  ~DumbServer() {
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }
  int port() const { return port_; }
  void welcome() {
    sockets_.push_back(::accept(listener_, nullptr, nullptr));
    const std::string frame = tcp_frame(TcpAnswer().text());
    EXPECT_EQ(::send(sockets_.back(), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }
  // Connections whose other ends are open.
  int open_ones() const {
    int count = 0;
    for (const int socket : sockets_) {
      char bytes[4096];
      ssize_t got = 1;
      while (got > 0) got = ::recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
      count += got < 0 ? 1 : 0;
    }
    return count;
  }

 private:
  int listener_, port_ = 0;
  std::vector<int> sockets_;
};

TEST(TcpStore, AMemberIsLostWithItsProcess) {
  int port[2];
  ASSERT_EQ(::pipe(port), 0);
  const pid_t child = start_child([&] {
    int number = 0;
    if (::read(port[0], &number, sizeof(number)) != sizeof(number)) return 1;
    const auto store = TcpStore::connect("127.0.0.1", number, "t", Deadline::in(seconds(20)));
    if (!store.ok() || !(*store)->join("m").ok() || !(*store)->set("joined", "1").ok()) return 1;
    ::pause();
    return 0;
  });
  const auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
  const int number = server->port();
  ASSERT_EQ(::write(port[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  const auto store = client(*server);
  StoreKeyValues values(std::shared_ptr<Store>(store.get(), [](Store*) {}), "");
  ASSERT_TRUE(values.get("joined", milliseconds(20000)).ok());
  EXPECT_FALSE(*store->is_lost("m"));
  const uint64_t ticket = store->ticket();
  ::kill(child, SIGKILL);
  const Deadline deadline = Deadline::in(seconds(20));
  while (!*store->is_lost("m") && !deadline.expired()) store->wait_change(ticket, deadline);
  EXPECT_TRUE(*store->is_lost("m"));
  EXPECT_TRUE(store->join("m").ok());
  wait_for_child(child);
  ::close(port[0]);
  ::close(port[1]);
}

TEST(TcpStore, WhoEndsHasLeft) {
  const auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
  const auto store = client(*server);
  ASSERT_TRUE(client(*server)->join("m").ok());
  EXPECT_FALSE(*store->is_lost("m"));
}

TEST(TcpStore, StrangersAreNotServed) {
  const auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
  const auto refused =
      TcpStore::connect("127.0.0.1", server->port(), "x", Deadline::in(seconds(20)));
  EXPECT_EQ(refused.status().code(), StatusCode::kUnauthenticated) << refused.status().to_string();
  const auto store = client(*server);
  ASSERT_TRUE(store->set("a", "1").ok());
  // A request without a token, and bytes that are none, whole and cut.
  TcpRequest request = {TcpRequest::What::kSet, "a", "2"};
  write_raw(server->port(), tcp_frame(request.text()));
  write_raw(server->port(), std::string(5, '\xff'));
  std::mt19937 random(7);
  request = {TcpRequest::What::kHello, std::string(kTcpProtocol), "t"};
  const std::string hello = tcp_frame(request.text());
  for (int i = 0; i < 200; ++i) {
    std::string bytes = hello;
    for (int k = 0; k < 40; ++k) bytes += static_cast<char>(random());
    if (i % 2 == 0) bytes = hello + tcp_frame(bytes);
    if (i % 3 == 0) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(bytes.size() - random() % 8);
    write_raw(server->port(), bytes);
  }
  EXPECT_EQ(**store->get("a"), "1");
}

TEST(TcpStore, AServerThatIsGoneIsSaid) {
  auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
  const auto taken = TcpStoreServer::start("127.0.0.1", server->port(), "t");
  EXPECT_EQ(taken.status().code(), StatusCode::kAlreadyExists) << taken.status().to_string();
  const auto store = client(*server);
  const int port = server->port();
  server.reset();
  EXPECT_EQ(store->get("a").status().code(), StatusCode::kUnavailable);
  store->wait_change(0, Deadline::in(milliseconds(1)));
  const auto late = TcpStore::connect("127.0.0.1", port, "t", Deadline::in(milliseconds(1)));
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable) << late.status().to_string();
}

TEST(TcpStore, ClientsMayComeBeforeTheServer) {
  int port = 0;
  { port = (*TcpStoreServer::start("127.0.0.1", 0, ""))->port(); }
  std::thread early([port] {
    const auto store = open_store(fmt::format("tcp:127.0.0.1:{}", port));
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_TRUE((*store)->set("came", "1").ok());
  });
  std::this_thread::sleep_for(milliseconds(20));
  const auto server = *TcpStoreServer::start("127.0.0.1", port, "");
  early.join();
  EXPECT_EQ(**client(*server, "")->get("came"), "1");
}

TEST(TcpStore, AServerThatSaysNothingIsNone) {
  const DumbServer server;
  const auto start = std::chrono::steady_clock::now();
  const auto store =
      TcpStore::connect("127.0.0.1", server.port(), "t", Deadline::in(milliseconds(200)));
  EXPECT_EQ(store.status().code(), StatusCode::kUnavailable) << store.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, TcpStore::kAnswerPatience / 2);
}

// The server's word that a member is lost is to mean that it does not run any more.
TEST(TcpStore, WhoGetsNoAnswerKeepsItsConnections) {
  DumbServer server;
  std::thread welcome([&] {
    server.welcome();
    server.welcome();
  });
  auto store = *TcpStore::connect("127.0.0.1", server.port(), "t", Deadline::in(seconds(20)),
                                  milliseconds(500));
  welcome.join();
  EXPECT_EQ(store->get("a").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(store->get("a").status().code(), StatusCode::kUnavailable);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(server.open_ones(), 2);
  store.reset();
  for (int i = 0; i < 1000 && server.open_ones() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(server.open_ones(), 0);
}

TEST(TcpStore, StrangersDoNotExhaustTheServer) {
  // In a process of its own, which may have few files open.
  EXPECT_EQ(run_child([] {
              const rlimit few = {40, 80};
              if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
              const auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
              const int port = server->port();
              // Who holds its half of the connections open is another process.
              const pid_t stranger = start_child([port] {
                const rlimit more = {80, 80};
                if (::setrlimit(RLIMIT_NOFILE, &more) != 0) return 1;
                for (int i = 0; i < 50; ++i) connect_raw(port);
                ::pause();
                return 0;
              });
              std::this_thread::sleep_for(milliseconds(300));
              const std::clock_t used = std::clock();
              const auto store =
                  TcpStore::connect("127.0.0.1", port, "t", Deadline::in(seconds(30)));
              const double busy_s = static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC;
              ::kill(stranger, SIGKILL);
              wait_for_child(stranger);
              if (!store.ok()) return 2;
              return busy_s < 0.5 ? 0 : 3;
            }),
            0);
}

TEST(TcpStore, StrangersAreNotKept) {
  const auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
  std::vector<int> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_raw(server->port()));
  EXPECT_TRUE(client(*server)->set("a", "1").ok());
  for (const int socket : strangers) {
    pollfd polled = {socket, POLLIN, 0};
    EXPECT_EQ(::poll(&polled, 1, 20'000), 1) << "it is still there";
    ::close(socket);
  }
}

TEST(TcpStore, AllAddressesAreOfBothKinds) {
  const auto server = *TcpStoreServer::start("", 0, "t");
  for (const char* host : {"127.0.0.1", "::1"}) {
    if (!TcpStoreServer::start(host, 0, "").ok()) continue;  // the machine has none
    const auto store = TcpStore::connect(host, server->port(), "t", Deadline::in(seconds(5)));
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_EQ((*store)->server_id(), server->id());
  }
  EXPECT_NE((*TcpStoreServer::start("", 0, "t"))->id(), server->id());
}

TEST(TcpStore, LargeValuesAndManyWaiters) {
  const auto server = *TcpStoreServer::start("127.0.0.1", 0, "t");
  const auto store = client(*server);
  const std::string large(Store::kMaxValueBytes, 'x');
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      StoreKeyValues values(client(*server), "p/");
      EXPECT_EQ(*values.get("large", milliseconds(20000)), large);
    });
  }
  StoreKeyValues values(client(*server), "p/");
  EXPECT_EQ(values.get("large", milliseconds(1)).status().code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(values.put("large", large).ok());
  EXPECT_EQ(values.put("large", "x").code(), StatusCode::kAlreadyExists);
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(store->get_all("p/")->size(), 1U);
}

}  // namespace
}  // namespace hekla::rendezvous
