// SPDX-License-Identifier: Apache-2.0
// KeyValueStore: the least that a framework offers its processes to find each other through; what
// the key-value callbacks of PJRT_Client_Create do. LogStore makes a whole Store of it.
//
// Thread-safe. Calls may run code of the client's language (Python), so nobody holds a lock around
// them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::rendezvous {

// Values by key that all processes of a run see.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Waits until there is a value; the store's error (DEADLINE_EXCEEDED) when there is none in time.
  virtual Result<std::string> get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  // NOT_FOUND at once where there is none; UNIMPLEMENTED with clients before API 0.61.
  virtual Result<std::string> try_get(std::string_view key) = 0;
  // Clients may refuse a key that has a value.
  virtual Status put(std::string_view key, std::string_view value) = 0;
};

}  // namespace hekla::rendezvous
