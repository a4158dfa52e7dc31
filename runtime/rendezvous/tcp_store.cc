// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous/tcp_store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace hekla::rendezvous {
namespace {

using What = TcpRequest::What;

constexpr std::chrono::milliseconds kTryAgain(50);
// Each try has this long at least and at most until there is a connection.
constexpr std::chrono::milliseconds kLeastTry(1000), kConnecting(5000);

int poll_timeout(Deadline deadline) {
  if (deadline.is_never()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  return static_cast<int>(std::min<int64_t>(left, 1 << 30));
}

timeval as_timeval(std::chrono::milliseconds time) {
  return {time.count() / 1000, time.count() % 1000 * 1000};
}

// A socket, or -1 where nobody listens.
Result<int> open_connection(const std::string& host, int port, std::chrono::milliseconds most,
                            std::chrono::milliseconds answer) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error == EAI_AGAIN) return -1;
  if (error != 0) return invalid_argument("store at {}: {}", host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int socket = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    // Bounded, where packets vanish.
    const timeval patience = as_timeval(std::min<std::chrono::milliseconds>(most, kConnecting));
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (::connect(socket, one->ai_addr, one->ai_addrlen) == 0) {
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const timeval longer = as_timeval(answer);
      ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &longer, sizeof(longer));
      return socket;
    }
    ::close(socket);
  }
  return -1;
}

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::connect(const std::string& host, int port,
                                                    const std::string& token, Deadline deadline,
                                                    std::chrono::milliseconds patience) {
  std::unique_ptr<TcpStore> store(new TcpStore(fmt::format("{}:{}", host, port), patience));
  for (Line* line : {&store->calls_, &store->waits_}) {
    const std::lock_guard lock(line->mutex);
    for (;;) {
      const auto left = std::max<std::chrono::nanoseconds>(deadline.left(), kLeastTry);
      const Status status =
          store->open(*line, host, port, token,
                      std::min(patience, std::chrono::floor<std::chrono::milliseconds>(left)));
      if (status.ok()) break;
      if (status.code() != StatusCode::kUnavailable || deadline.expired()) return status;
      std::this_thread::sleep_for(kTryAgain);
    }
  }
  return store;
}

Status TcpStore::open(Line& line, const std::string& host, int port, const std::string& token,
                      std::chrono::milliseconds most) {
  if (line.socket >= 0) ::close(std::exchange(line.socket, -1));
  line.in.clear();
  HEKLA_ASSIGN_OR_RETURN(line.socket, open_connection(host, port, most, patience_));
  line.is_gone = line.socket < 0;
  if (line.is_gone) {
    return unavailable(
        "nobody answers at {}, where the store should be: does the launcher or rank 0 that hosts "
        "it run there, and is the port reached from here?",
        name_);
  }
  TcpRequest hello;
  hello.key = kTcpProtocol;
  hello.value = token;
  Status said = say(line, hello);
  Result<TcpAnswer> answer = said.ok() ? hear(line, Deadline::in(most)) : Result<TcpAnswer>(said);
  if (answer.ok()) {
    server_id_ = answer->value.value_or("");
    line.is_gone = !answer->status.ok();
    return answer->status.with_context("store at " + name_);
  }
  // A server drops those that it has no room for.
  line.is_gone = true;
  return unavailable("{}", answer.status().message());
}

TcpStore::~TcpStore() {
  TcpRequest bye;
  bye.what = What::kBye;
  static_cast<void>(ask(bye));
  for (Line* line : {&calls_, &waits_}) {
    if (line->socket >= 0) ::close(line->socket);
  }
}

Status TcpStore::say(Line& line, const TcpRequest& request) {
  const std::string frame = tcp_frame(request.text());
  for (size_t at = 0; !line.is_gone && at < frame.size();) {
    const ssize_t count = ::send(line.socket, frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    line.is_gone = count < 0;
    at += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  if (!line.is_gone) return ok_status();
  return unavailable("the store at {} is gone", name_);
}

Result<TcpAnswer> TcpStore::hear(Line& line, Deadline deadline) {
  while (!line.is_gone) {
    Result<std::optional<std::string>> frame = take_tcp_frame(line.in, size_t{1} << 31);
    if (frame.ok() && *frame) return TcpAnswer::read(**frame);
    char bytes[65536];
    pollfd polled = {line.socket, POLLIN, 0};
    ssize_t count = -1;
    if (frame.ok()) {
      const int ready = ::poll(&polled, 1, poll_timeout(deadline));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return deadline_exceeded("the store at {} does not answer", name_);
      count = ::recv(line.socket, bytes, sizeof(bytes), 0);
      if (count < 0 && errno == EINTR) continue;
    }
    line.is_gone = count <= 0;
    if (!line.is_gone) line.in.append(bytes, static_cast<size_t>(count));
  }
  return unavailable("the store at {} is gone", name_);
}

Result<TcpAnswer> TcpStore::ask(const TcpRequest& request) {
  const std::lock_guard lock(calls_.mutex);
  HEKLA_RETURN_IF_ERROR(say(calls_, request));
  Result<TcpAnswer> answer = hear(calls_, Deadline::in(patience_));
  if (!answer.ok()) {
    // What comes late would be taken for another call's answer.
    calls_.is_gone = true;
    return unavailable("{}", answer.status().message());
  }
  HEKLA_RETURN_IF_ERROR(answer->status);
  return answer;
}

Status TcpStore::set(std::string_view key, std::string_view value) {
  HEKLA_RETURN_IF_ERROR(check_value(key, value));
  return ask({What::kSet, std::string(key), std::string(value)}).status();
}

Result<std::optional<std::string>> TcpStore::get(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  HEKLA_ASSIGN_OR_RETURN(TcpAnswer answer, ask({What::kGet, std::string(key), {}}));
  return std::move(answer.value);
}

Result<int64_t> TcpStore::add(std::string_view key, int64_t delta) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  HEKLA_ASSIGN_OR_RETURN(const TcpAnswer answer, ask({What::kAdd, std::string(key), {}, delta}));
  return answer.number;
}

Result<Store::Swap> TcpStore::compare_set(std::string_view key,
                                          std::optional<std::string_view> expected,
                                          std::string_view desired) {
  HEKLA_RETURN_IF_ERROR(check_value(key, desired));
  TcpRequest request = {What::kCompareSet, std::string(key), std::string(desired)};
  if (expected) request.expected = std::string(*expected);
  HEKLA_ASSIGN_OR_RETURN(TcpAnswer answer, ask(request));
  return Swap{answer.number != 0, std::move(answer.value)};
}

Status TcpStore::remove(std::string_view key) {
  HEKLA_RETURN_IF_ERROR(check_key(key));
  return ask({What::kRemove, std::string(key), {}}).status();
}

Result<std::map<std::string, std::string>> TcpStore::get_all(std::string_view prefix) {
  HEKLA_ASSIGN_OR_RETURN(TcpAnswer answer, ask({What::kGetAll, std::string(prefix), {}}));
  return std::move(answer.values);
}

Status TcpStore::remove_all(std::string_view prefix) {
  return ask({What::kRemoveAll, std::string(prefix), {}}).status();
}

Status TcpStore::join(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  return ask({What::kJoin, std::string(member), {}}).status();
}

Status TcpStore::leave(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  return ask({What::kLeave, std::string(member), {}}).status();
}

Result<bool> TcpStore::is_lost(std::string_view member) {
  HEKLA_RETURN_IF_ERROR(check_key(member));
  HEKLA_ASSIGN_OR_RETURN(const TcpAnswer answer, ask({What::kIsLost, std::string(member), {}}));
  return answer.number != 0;
}

uint64_t TcpStore::ticket() {
  const Result<TcpAnswer> answer = ask({What::kTicket, {}, {}});
  return answer.ok() ? static_cast<uint64_t>(answer->number) : 0;
}

void TcpStore::wait_change(uint64_t ticket, Deadline deadline) {
  const std::lock_guard lock(waits_.mutex);
  // One question at a time: the answer to one whose deadline was over before is news of a change,
  // which may be past for this ticket; then it is asked again by whoever waits.
  if (!waits_.is_asked) {
    TcpRequest request;
    request.what = What::kWait;
    request.number = static_cast<int64_t>(ticket);
    waits_.is_asked = say(waits_, request).ok();
  }
  // Not for long: other threads may have nearer deadlines.
  const auto left = std::min<std::chrono::nanoseconds>(deadline.left(), kTryAgain);
  const Result<TcpAnswer> answer = hear(waits_, Deadline::in(left));
  if (answer.ok()) waits_.is_asked = false;
  // A store that is gone must not make its callers spin.
  if (waits_.is_gone) std::this_thread::sleep_for(left);
}

}  // namespace hekla::rendezvous
