// SPDX-License-Identifier: Apache-2.0
// ExchangeMessage: what devices of one process bring to those of another, on its way between their
// exchanges. Pure; what is read was written by another process, so nothing in it is believed beyond
// its form: whose devices they are and whether they fit is the exchange's to check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/host_array.h"
#include "runtime/base/status.h"

namespace hekla::reference {

struct ExchangeMessage {
  struct Part {
    int64_t device = 0;
    std::vector<HostArray> arrays;
  };

  enum class Kind : uint8_t {
    kParts,  // to a meeting
    kMail,   // from the device of the only part to `target`
    kState,  // of the process: `where` is a ProcessState's text
  };

  Kind kind = Kind::kParts;
  uint64_t site = 0;  // of a meeting, or of a channel that is an operation's own
  std::string where;  // the operation's name, for messages
  // Of a meeting.
  std::vector<int64_t> members;
  int64_t round = 0;
  // Of mail.
  int64_t channel = 0;
  int64_t target = 0;
  std::vector<Part> parts;

  // What goes before the arrays' bytes.
  std::string head() const;
  std::vector<HostArray> blocks() const;
  // INVALID_ARGUMENT: malformed, or blocks of other sizes than the arrays that the head tells of.
  static Result<ExchangeMessage> read(std::string_view head, std::vector<HostArray> blocks);
};

}  // namespace hekla::reference
