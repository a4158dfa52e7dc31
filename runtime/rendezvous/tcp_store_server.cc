// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/tcp_store_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/async/thread.h"
#include "runtime/base/host.h"
#include "runtime/rendezvous/tcp_frame.h"

namespace hekla::rendezvous {
namespace {

constexpr size_t kMaxConnections = 4096;
// Before the token has been said.
constexpr size_t kMaxHelloBytes = 1024;
constexpr size_t kMaxUnknown = 64;
// How long it may take; where others wait for their turn.
constexpr std::chrono::milliseconds kHelloPatience(5000), kHurriedPatience(500);
// Where there are no descriptors for more connections.
constexpr std::chrono::milliseconds kAcceptPause(200);

using LoopClock = std::chrono::steady_clock;

}  // namespace

class TcpStoreServer::Loop {
 public:
  Loop(int listener, std::string token, std::string id)
      : listener_(listener), token_(std::move(token)), id_(std::move(id)) {
    wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  }
  ~Loop() {
    for (const Connection& connection : connections_) ::close(connection.socket);
    ::close(listener_);
    if (wake_ >= 0) ::close(wake_);
  }
  bool is_well() const { return wake_ >= 0; }
  void wake() const {
    const uint64_t one = 1;
    static_cast<void>(!::write(wake_, &one, sizeof(one)));
  }
  void run(std::stop_token stop);

 private:
  struct Connection {
    int socket = -1;
    LoopClock::time_point since = LoopClock::now();
    bool is_known = false;
    bool is_over = false;
    std::string in, out;
    std::set<std::string> members;
    std::optional<uint64_t> waits_for;  // a ticket
  };
  void accept_all();
  size_t unknown_ones() const;
  // Those that are due have been dropped; how long until the next are, or it listens again; -1: for
  // ever.
  int drop_strangers();
  void receive(Connection& connection);
  static void send(Connection& connection);
  void serve(Connection& connection, const TcpRequest& request);
  TcpAnswer answer(Connection& connection, const TcpRequest& request);
  void wake_those_that_wait();
  void drop_those_that_are_over();

  const int listener_;
  const std::string token_, id_;
  std::optional<LoopClock::time_point> deaf_until_;  // accepts nobody
  int wake_ = -1;
  LocalStore values_;
  std::list<Connection> connections_;
};

void TcpStoreServer::Loop::accept_all() {
  for (size_t unknown = unknown_ones(); unknown < kMaxUnknown; ++unknown) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const bool has_no_room =
        socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (has_no_room) deaf_until_ = LoopClock::now() + kAcceptPause;
    if (socket < 0) return;
    if (connections_.size() >= kMaxConnections) {
      ::close(socket);
      continue;
    }
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    // A machine that is gone is noticed within half a minute.
    const int idle_s = 10, every_s = 5, tries = 4;
    ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
    connections_.emplace_back().socket = socket;
  }
}

size_t TcpStoreServer::Loop::unknown_ones() const {
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [](const Connection& one) { return !one.is_known; }));
}

int TcpStoreServer::Loop::drop_strangers() {
  const LoopClock::time_point now = LoopClock::now();
  if (deaf_until_ && now >= *deaf_until_) deaf_until_.reset();
  const bool is_crowded = deaf_until_ || unknown_ones() >= kMaxUnknown;
  std::optional<LoopClock::time_point> next = deaf_until_;
  for (Connection& connection : connections_) {
    if (connection.is_known) continue;
    const auto due = connection.since + (is_crowded ? kHurriedPatience : kHelloPatience);
    connection.is_over = connection.is_over || now >= due;
    if (!connection.is_over && (!next || due < *next)) next = due;
  }
  drop_those_that_are_over();
  if (!next) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(*next - now).count());
}

void TcpStoreServer::Loop::receive(Connection& connection) {
  char bytes[65536];
  for (;;) {
    const ssize_t count = ::recv(connection.socket, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      connection.is_over = true;
      break;
    }
    connection.in.append(bytes, static_cast<size_t>(count));
    const size_t limit = connection.is_known ? TcpRequest::kMaxBytes : kMaxHelloBytes;
    for (;;) {
      Result<std::optional<std::string>> frame = take_tcp_frame(connection.in, limit);
      if (frame.ok() && !*frame) break;
      const Result<TcpRequest> request =
          frame.ok() ? TcpRequest::read(**frame) : Result<TcpRequest>(frame.status());
      if (!request.ok()) {
        connection.is_over = true;
        return;
      }
      serve(connection, *request);
      if (connection.is_over) return;
    }
  }
}

void TcpStoreServer::Loop::send(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t count =
        ::send(connection.socket, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      connection.is_over = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    connection.out.erase(0, static_cast<size_t>(count));
  }
}

void TcpStoreServer::Loop::serve(Connection& connection, const TcpRequest& request) {
  if (!connection.is_known) {
    const bool is_friend = request.what == TcpRequest::What::kHello &&
                           request.key == kTcpProtocol && request.value == token_;
    TcpAnswer answer;
    if (!is_friend) {
      answer.status = Status(
          StatusCode::kUnauthenticated,
          "the store wants another token (--run-id of hekla launch, the TOKEN of HEKLA_STORE), "
          "or is of another version");
      connection.is_over = true;
    }
    connection.is_known = is_friend;
    if (is_friend) answer.value = id_;
    connection.out += tcp_frame(answer.text());
    send(connection);
    return;
  }
  if (request.what == TcpRequest::What::kWait) {
    connection.waits_for = static_cast<uint64_t>(request.number);
    return;
  }
  connection.out += tcp_frame(answer(connection, request).text());
  send(connection);
}

TcpAnswer TcpStoreServer::Loop::answer(Connection& connection, const TcpRequest& request) {
  using enum TcpRequest::What;
  TcpAnswer answer;
  switch (request.what) {
    case kHello:
    case kWait:
      break;
    case kSet:
      answer.status = values_.set(request.key, request.value);
      break;
    case kGet:
      if (Result<std::optional<std::string>> value = values_.get(request.key); value.ok()) {
        answer.value = *std::move(value);
      } else {
        answer.status = value.status();
      }
      break;
    case kAdd:
      if (const Result<int64_t> sum = values_.add(request.key, request.number); sum.ok()) {
        answer.number = *sum;
      } else {
        answer.status = sum.status();
      }
      break;
    case kCompareSet: {
      std::optional<std::string_view> expected;
      if (request.expected) expected = *request.expected;
      Result<Store::Swap> swap = values_.compare_set(request.key, expected, request.value);
      if (swap.ok()) {
        answer.number = swap->swapped;
        answer.value = std::move(swap->value);
      } else {
        answer.status = swap.status();
      }
      break;
    }
    case kRemove:
      answer.status = values_.remove(request.key);
      break;
    case kGetAll:
      answer.values = *values_.get_all(request.key);
      break;
    case kRemoveAll:
      answer.status = values_.remove_all(request.key);
      break;
    case kJoin:
      answer.status = values_.join(request.key);
      if (answer.status.ok()) connection.members.insert(request.key);
      break;
    case kLeave:
      if (connection.members.erase(request.key) != 0) answer.status = values_.leave(request.key);
      break;
    case kIsLost:
      answer.number = *values_.is_lost(request.key);
      break;
    case kTicket:
      answer.number = static_cast<int64_t>(values_.ticket());
      break;
    case kBye:
      for (const std::string& member : connection.members) {
        static_cast<void>(values_.leave(member));
      }
      connection.members.clear();
      break;
  }
  return answer;
}

void TcpStoreServer::Loop::wake_those_that_wait() {
  const uint64_t ticket = values_.ticket();
  for (Connection& connection : connections_) {
    if (!connection.waits_for || *connection.waits_for == ticket) continue;
    connection.waits_for.reset();
    TcpAnswer answer;
    answer.number = static_cast<int64_t>(ticket);
    connection.out += tcp_frame(answer.text());
    send(connection);
  }
}

void TcpStoreServer::Loop::drop_those_that_are_over() {
  std::erase_if(connections_, [&](Connection& connection) {
    if (!connection.is_over) return false;
    for (const std::string& member : connection.members) values_.lose(member);
    ::close(connection.socket);
    return true;
  });
}

void TcpStoreServer::Loop::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const int patience_ms = drop_strangers();
    const bool is_deaf = deaf_until_ || unknown_ones() >= kMaxUnknown;
    std::vector<pollfd> polled = {{is_deaf ? -1 : listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      const short events = connection.out.empty() ? POLLIN : POLLIN | POLLOUT;
      polled.push_back({connection.socket, events, 0});
    }
    if (::poll(polled.data(), polled.size(), patience_ms) < 0) continue;
    size_t at = 2;
    for (Connection& connection : connections_) {
      const short events = polled[at++].revents;
      if ((events & POLLOUT) != 0) send(connection);
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(connection);
    }
    // A loss is a change that wakes others, so it comes first.
    drop_those_that_are_over();
    wake_those_that_wait();
    if (polled[0].revents != 0) accept_all();
  }
}

TcpStoreServer::TcpStoreServer() = default;

TcpStoreServer::~TcpStoreServer() {
  thread_.request_stop();
  if (loop_ != nullptr) loop_->wake();
}

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const std::string& host, int port,
                                                              std::string token) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port_text = std::to_string(port);
  const int error =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port_text.c_str(), &hints, &found);
  if (error != 0) return invalid_argument("store on {}: {}", host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  // A socket of IPv6 for all addresses hears both.
  std::vector<const addrinfo*> order;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const bool is_first = host.empty() && one->ai_family == AF_INET6;
    order.insert(is_first ? order.begin() : order.end(), one);
  }
  int socket = -1, failure = 0;
  for (const addrinfo* one : order) {
    socket = ::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0) {
      failure = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const int off = 0;
    if (host.empty() && one->ai_family == AF_INET6) {
      ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (::bind(socket, one->ai_addr, one->ai_addrlen) == 0 && ::listen(socket, 1024) == 0) break;
    failure = errno;
    ::close(socket);
    socket = -1;
  }
  if (socket < 0 && failure == EADDRINUSE) {
    return already_exists("port {} for the store is taken: choose another, or 0 for any", port);
  }
  if (socket < 0)
    return unavailable("no socket for the store on {}:{}: errno {}", host, port, failure);
  std::unique_ptr<TcpStoreServer> server(new TcpStoreServer());
  server->id_ = random_hex(16);
  server->loop_ = std::make_unique<Loop>(socket, std::move(token), server->id_);
  if (!server->loop_->is_well()) return unavailable("no eventfd for the store: errno {}", errno);
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  server->port_ =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                        : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  Loop* const loop = server->loop_.get();
  server->thread_ = start_thread([loop](std::stop_token stop) { loop->run(stop); });
  return server;
}

}  // namespace hekla::rendezvous
