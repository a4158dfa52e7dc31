// SPDX-License-Identifier: Apache-2.0
// Store: a few small values under keys that all processes of a job see.
//
// What ranks agree through while they save: plans, results, decisions. Never payload. Every call
// returns within a bounded time; who waits for somebody else does so with a deadline (group.h).
// Single calls are atomic and all processes see them in one order. A process may die at any moment,
// also within a call: the call then has happened or not.
//
// Members say who is alive: a process joins under a name, and others may ask whether it died.
// Implementations: in-process (threads of one process as ranks), `file:DIR` (file_store.h),
// `tcp:HOST:PORT` (tcp_store.h), a framework's (log_store.h). Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/async/deadline.h"
#include "runtime/base/status.h"

namespace hekla::rendezvous {

inline constexpr std::chrono::seconds kOpenPatience{60};

class Store {
 public:
  // Longest key and value.
  static constexpr size_t kMaxKeyBytes = 120;
  static constexpr size_t kMaxValueBytes = size_t{16} << 20;

  struct Swap {
    bool swapped = false;
    std::optional<std::string> value;  // what is there now
  };

  virtual ~Store() = default;

  // Errors of all calls: UNAVAILABLE (the store cannot be reached or does not answer in time),
  // INVALID_ARGUMENT (limits above, an empty key), and those of the file system.
  virtual Status set(std::string_view key, std::string_view value) = 0;
  virtual Result<std::optional<std::string>> get(std::string_view key) = 0;
  // Adds to a decimal number, 0 when absent; the sum. FAILED_PRECONDITION: not a number.
  virtual Result<int64_t> add(std::string_view key, int64_t delta) = 0;
  // Sets `desired` when the value is `expected` (nullopt: absent).
  virtual Result<Swap> compare_set(std::string_view key, std::optional<std::string_view> expected,
                                   std::string_view desired) = 0;
  virtual Status remove(std::string_view key) = 0;  // absent is fine
  // Keys that begin with `prefix`, with their values; not one moment's picture.
  virtual Result<std::map<std::string, std::string>> get_all(std::string_view prefix) = 0;
  virtual Status remove_all(std::string_view prefix) = 0;

  // This process lives under that name from now on, until it leaves or dies or this object does.
  // ALREADY_EXISTS: another live process has it.
  virtual Status join(std::string_view member) = 0;
  virtual Status leave(std::string_view member) = 0;
  // It joined, and died without leaving. False when it never joined or nobody can tell.
  virtual Result<bool> is_lost(std::string_view member) = 0;

  // For waiting: take a ticket, look, and wait_change returns at the first change after the ticket,
  // or at the deadline, or earlier for no reason.
  virtual uint64_t ticket() = 0;
  virtual void wait_change(uint64_t ticket, Deadline deadline) = 0;

 protected:
  static Status check_key(std::string_view key);
  static Status check_value(std::string_view key, std::string_view value);
};

// Values in this process; for one rank, or for ranks that are threads.
class LocalStore : public Store {
 public:
  LocalStore();
  ~LocalStore() override;

  // As if the member's process had died.
  void lose(std::string_view member);

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
  struct State;
  std::unique_ptr<State> state_;
};

// "file:DIR" (a folder that all processes see), "tcp:[TOKEN@]HOST:PORT" (a TcpStoreServer, which
// may come until the deadline), or "local:" for a store of this process alone. INVALID_ARGUMENT
// names the forms there are.
Result<std::shared_ptr<Store>> open_store(std::string_view address,
                                          Deadline deadline = Deadline::in(kOpenPatience));

}  // namespace hekla::rendezvous
