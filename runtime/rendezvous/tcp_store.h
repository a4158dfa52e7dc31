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

  // Tries until the deadline, since the server may start later. An answer that takes longer than
  // `patience` ends the connection. INVALID_ARGUMENT: no such host; UNAVAILABLE: nobody answers;
  // UNAUTHENTICATED: the token is another.
  static Result<std::unique_ptr<TcpStore>> connect(
      const std::string& host, int port, const std::string& token, Deadline deadline,
      std::chrono::milliseconds patience = kAnswerPatience);
  ~TcpStore() override;

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
    int socket = -1;        // guarded by mutex; -1: gone
    std::string in;         // guarded by mutex
    bool is_asked = false;  // guarded by mutex; an answer is still to come
  };
  TcpStore(std::string name, std::chrono::milliseconds patience)
      : name_(std::move(name)), patience_(patience) {}
  // Needs the line's mutex.
  Status say(Line& line, const TcpRequest& request);
  Result<TcpAnswer> hear(Line& line, Deadline deadline);
  Result<TcpAnswer> ask(const TcpRequest& request);

  const std::string name_;  // "host:port"
  const std::chrono::milliseconds patience_;
  Line calls_, waits_;
};

}  // namespace hekla::rendezvous
