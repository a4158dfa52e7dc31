// SPDX-License-Identifier: Apache-2.0
// NetworkCard: how other processes reach a NetworkTransport; text for a store. A plain value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace hekla::collectives {

struct NetworkCard {
  std::string engine;  // carrier::Table::description
  std::string host, address;
  std::string token;  // who says it has read the card
  int64_t pid = 0;
  int64_t rank = 0, size = 0;
  std::map<int, std::string> names;  // of the end that waits for each process

  static constexpr size_t kTokenBytes = 32;

  std::string text() const;
  // INVALID_ARGUMENT: malformed.
  static Result<NetworkCard> read(std::string_view text);
};

}  // namespace hekla::collectives
