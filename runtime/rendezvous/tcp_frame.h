// SPDX-License-Identifier: Apache-2.0
// What a TcpStore and its server say to each other: requests and answers as protobuf fields, each
// with four bytes of length, little-endian, in front. Read from strangers: nothing is believed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/rendezvous/store.h"

namespace hekla::rendezvous {

struct TcpRequest {
  enum class What : uint8_t {
    kHello,  // key: the protocol, value: the token
    kSet,
    kGet,
    kAdd,
    kCompareSet,
    kRemove,
    kGetAll,
    kRemoveAll,
    kJoin,
    kLeave,
    kIsLost,
    kTicket,
    kWait,  // answered when the ticket is not `number` any more
    kBye,   // all members leave
  };
  static constexpr int kCount = static_cast<int>(What::kBye) + 1;
  static constexpr size_t kMaxBytes = Store::kMaxValueBytes * 2 + 1024;

  What what = What::kHello;
  std::string key, value;
  int64_t number = 0;
  std::optional<std::string> expected = {};

  std::string text() const;
  static Result<TcpRequest> read(std::string_view text);
};
inline constexpr std::string_view kTcpProtocol = "hekla-store-1";

struct TcpAnswer {
  Status status = {};
  std::optional<std::string> value = {};
  int64_t number = 0;
  std::map<std::string, std::string> values = {};

  std::string text() const;
  static Result<TcpAnswer> read(std::string_view text);
};

// With its length in front.
std::string tcp_frame(std::string_view text);
// Takes a whole frame from the front of `bytes`; nullopt: it has not come yet. DATA_LOSS: longer
// than `limit`.
Result<std::optional<std::string>> take_tcp_frame(std::string& bytes, size_t limit);

}  // namespace hekla::rendezvous
