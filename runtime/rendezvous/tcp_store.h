// SPDX-License-Identifier: Apache-2.0
// TcpStore: the store of a TcpStoreServer, over two connections: one for calls, which also shows
// that the members of this process live, one for waiting.
//
// Once a connection is gone, the store is: all calls are UNAVAILABLE. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/rendezvous/store.h"
#include "runtime/rendezvous/tcp_frame.h"

namespace hekla::rendezvous {

class TcpStore final : public Store {
 public:
  // The server answers at once: this long means that it is stopped, or its machine is.
  static constexpr std::chrono::seconds kAnswerPatience{30};

  // Tries until the deadline, since the server may start later; a second at least. After a call
  // whose answer takes longer than `patience` all are UNAVAILABLE; the connections stay as long as
  // this, so that members of a process that cannot be reached and runs on are not taken for dead.
  // INVALID_ARGUMENT: no such host; UNAVAILABLE: nobody answers; UNAUTHENTICATED: the token is
  // another.
  static Result<std::unique_ptr<TcpStore>> connect(
      const std::string& host, int port, const std::string& token, Deadline deadline,
      std::chrono::milliseconds patience = kAnswerPatience);
  ~TcpStore() override;
  // TcpStoreServer::id() of the server.
  const std::string& server_id() const { return server_id_; }

  Status set(std::string_view key, std::string_view value) override;
  Result<std::optional<std::string>> get(std::string_view key) override;
  Result<int64_t> add(std::string_view key, int64_t delta) override;
  Result<Swap> compare_set(std::string_view key, std::optional<std::string_view> expected,
                           std::string_view desired) override;
  Status remove(std::string_view key) override;
  Result<std::map<std::string, std::string>> get_all(std::string_view prefix) override;
  Status remove_all(std::string_view prefix) override;
  Status join(std::string_view member) override;
  Status leave(std::string_view member) override;
  Result<bool> is_lost(std::string_view member) override;
  uint64_t ticket() override;
  void wait_change(uint64_t ticket, Deadline deadline) override;

 private:
  struct Line {
    std::mutex mutex;
    int socket = -1;      // guarded by mutex, as the rest
    bool is_gone = true;  // nothing is said or heard any more
    std::string in;
    bool is_asked = false;  // an answer is still to come
  };
  TcpStore(std::string name, std::chrono::milliseconds patience)
      : name_(std::move(name)), patience_(patience) {}
  // These need the line's mutex. Says the hello; UNAVAILABLE: to be tried again.
  Status open(Line& line, const std::string& host, int port, const std::string& token,
              std::chrono::milliseconds most);
  Status say(Line& line, const TcpRequest& request);
  Result<TcpAnswer> hear(Line& line, Deadline deadline);
  Result<TcpAnswer> ask(const TcpRequest& request);

  const std::string name_;  // "host:port"
  const std::chrono::milliseconds patience_;
  std::string server_id_;
  Line calls_, waits_;
};

}  // namespace hekla::rendezvous
