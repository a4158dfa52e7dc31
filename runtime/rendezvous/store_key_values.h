// SPDX-License-Identifier: Apache-2.0
// StoreKeyValues: a Store as a KeyValueStore, for those that ask no more of it: transports, process
// groups. Keys begin with a prefix. A key takes a value once. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/rendezvous/key_value_store.h"
#include "runtime/rendezvous/store.h"

namespace hekla::rendezvous {

class StoreKeyValues final : public KeyValueStore {
 public:
  StoreKeyValues(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  Result<std::string> get(std::string_view key, std::chrono::milliseconds timeout) override;
  Result<std::string> try_get(std::string_view key) override;
  Status put(std::string_view key, std::string_view value) override;

 private:
  const std::shared_ptr<Store> store_;  // shared with whoever opened it
  const std::string prefix_;
};

}  // namespace hekla::rendezvous
