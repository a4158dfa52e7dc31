// SPDX-License-Identifier: Apache-2.0
// What a store over TCP promises beside what all stores do (store_test.cc).
#include "runtime/rendezvous/tcp_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

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

void write_raw(int port, std::string_view bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  static_cast<void>(!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ::close(socket);
}

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
