// SPDX-License-Identifier: Apache-2.0
// PutOnce: a key-value service as frameworks have it, in this process, with faults on demand.
// Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "runtime/rendezvous/key_value_store.h"

namespace hekla::rendezvous::testing {

class PutOnce : public KeyValueStore {
 public:
  bool overwrites = false;  // takes a second value
  bool has_try_get = true;
  bool loses_answers = false;  // puts and then says that it could not
  bool is_down = false;

  Result<std::string> get(std::string_view key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (is_down) return unavailable("the coordinator is gone");
    if (!changed_.wait_for(lock, timeout, [&] { return values_.count(std::string(key)) != 0; })) {
      return deadline_exceeded("no value of {}", key);
    }
    return values_[std::string(key)];
  }
  Result<std::string> try_get(std::string_view key) override {
    const std::lock_guard lock(mutex_);
    if (is_down) return unavailable("the coordinator is gone");
    if (!has_try_get) return unimplemented("no try_get");
    const auto found = values_.find(std::string(key));
    if (found == values_.end()) return not_found("no value of {}", key);
    return found->second;
  }
  Status put(std::string_view key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    if (is_down) return unavailable("the coordinator is gone");
    const bool is_new = values_.emplace(key, value).second;
    if (!is_new && !overwrites) return already_exists("{} has a value", key);
    values_[std::string(key)] = value;
    changed_.notify_all();
    return loses_answers ? unavailable("the answer was lost") : ok_status();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;  // guarded by mutex_
};

}  // namespace hekla::rendezvous::testing
