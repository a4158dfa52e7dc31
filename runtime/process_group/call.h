// SPDX-License-Identifier: Apache-2.0
// Call, Head: what a rank says of a call of a process group, and in front of each message.
//
// A Call is what all ranks of a group must say alike before data move: operation, type, count,
// reduction, root. Heads are read from other processes: nothing in them is believed. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/process_group/reduction.h"

namespace hekla::process_group {

enum class Operation : uint8_t {
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kNewGroup,
  kAllGatherUneven,
  kCoalesced,  // several calls as one exchange; `count` of them
};
inline constexpr int kOperationCount = static_cast<int>(Operation::kCoalesced) + 1;
std::string_view operation_name(Operation operation);

struct Call {
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kInvalid;
  ReduceOp reduce = ReduceOp::kSum;
  int32_t root = -1;
  // Elements: of the whole array for broadcasts and reductions, of one rank's part for the others;
  // of all_to_all, whose parts differ, none; of all_gather_uneven of all parts.
  int64_t count = 0;
  uint64_t factor = 0;   // bits of Reduction::factor
  uint64_t detail = 0;   // what else must agree: sizes that choose how it is done, members
  uint32_t refused = 0;  // calls that the rank has refused before: it is in step with those alone
                         // that have refused as many

  bool operator==(const Call&) const = default;
  // "all_reduce(sum) of f32[1000]", "broadcast(root 2) of ui8[7]".
  std::string to_string() const;
};

struct Head {
  enum class Kind : uint8_t {
    kCall,     // a rank comes to a collective, and brings what is small
    kData,     // what is large, piece by piece
    kPoint,    // from one rank to another
    kAbort,    // the group has failed, for the reason in `text`
    kLeave,    // the rank is in the group no more
    kRefused,  // the rank has not made a collective, for the reason in `text`
  };

  Kind kind = Kind::kCall;
  uint64_t group = 0;
  uint64_t sequence = 0;  // of the collective; of kPoint the tag
  uint64_t step = 0;      // of kData; of kRefused what has been refused before
  int64_t part = 0;       // of kCall: elements that it has for the receiver
  Call call;              // of kCall; of kPoint its dtype and count
  std::string text = {};  // of kPoint: why its elements are not sent

  std::string bytes() const;
  // DATA_LOSS: no head of ours.
  static Result<Head> read(std::string_view bytes);
};

// By call, who makes it: "rank 1 calls broadcast(root 0) of f32[8]; ranks 0, 2-3 call ...".
std::string who_calls_what(const std::map<int, Call>& calls);

}  // namespace hekla::process_group
