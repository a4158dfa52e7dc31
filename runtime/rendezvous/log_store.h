// SPDX-License-Identifier: Apache-2.0
// LogStore: a Store over a service that puts a value under a fresh key and reads it back, and can
// do nothing else: the key-value callbacks of a framework's plugins.
//
// All changes are entries of one log under "<prefix>/<number>". Who wants to change something reads
// the log to its end, decides, and puts the next entry; where somebody else was first, their entry
// is read and the decision taken again. So all processes see the same entries in the same order,
// and each call is atomic. Each object keeps the values that the log comes to.
//
// Nothing is ever removed from the service: it holds whatever was set, which suits few and small
// values. The service may have a lower limit on values than a Store. Nobody can tell whether a
// member has died: is_lost() is always false, and the name of a dead one stays taken until the
// service is a new one. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/rendezvous/key_value_store.h"
#include "runtime/rendezvous/store.h"

namespace hekla::rendezvous {

class LogStore final : public Store {
 public:
  // `prefix`: equal on all processes of the store. FAILED_PRECONDITION: the service takes a second
  // value for a key, so entries could be lost; else its own errors.
  static Result<std::unique_ptr<LogStore>> open(std::shared_ptr<KeyValueStore> service,
                                                std::string prefix);

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
  enum class Change { kSet = 1, kRemove = 2, kRemoveAll = 3, kJoin = 4, kLeave = 5 };
  struct Entry {
    Change change = Change::kSet;
    std::string name;  // key, prefix or member
    std::string value;
  };

  LogStore(std::shared_ptr<KeyValueStore> service, std::string prefix)
      : service_(std::move(service)), prefix_(std::move(prefix)) {}
  std::string key_of(uint64_t number) const;
  static Result<Entry> read_entry(std::string_view text);
  // The entry of that number; nullopt where there is none yet.
  Result<std::optional<std::string>> look(uint64_t number);
  // Applies entries up to the end of the log; how many there are.
  Result<uint64_t> catch_up();
  // Appends what `decide` returns, which sees the values at the end of the log; nothing when that
  // is nullopt. Called again when another process was first.
  Status change(const std::function<Result<std::optional<Entry>>(LocalStore& values)>& decide);
  Status apply(uint64_t number, std::string_view text);

  const std::shared_ptr<KeyValueStore> service_;
  const std::string prefix_;
  std::mutex mutex_;
  LocalStore values_;   // guarded by mutex_; what the first count_ entries come to
  uint64_t count_ = 0;  // guarded by mutex_
};

}  // namespace hekla::rendezvous
