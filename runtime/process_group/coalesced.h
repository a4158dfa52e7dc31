// SPDX-License-Identifier: Apache-2.0
// Coalesced: calls of a group that go together, and how: packs of small ones, each one exchange.
//
// Which calls make a pack follows from the calls alone, so that all ranks that make the same ones
// agree; the pack's signature has those of its calls. Owned by the group, used by one thread; packs
// are run by the thread of the member.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/process_group/exchange.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

// What of a call goes to each rank, and what is done with what comes: it goes to `from`, by rank,
// or, for reductions, is folded into `out`.
struct CoalescedParts {
  std::vector<ConstElements> to;
  std::vector<Elements> from;
  std::optional<Reduction> by = {};
  Elements out = {};
  ConstElements own = {};  // of a reduction
};

class Coalesced {
 public:
  using Run = std::function<Status(Exchange&)>;
  struct Member {
    Call call;
    CoalescedParts parts;  // `to` empty: it goes by itself
    Run run;
    std::shared_ptr<Work::State> state;
  };
  // A call to be made, for the members of those numbers.
  struct Pack {
    Call call;
    Run run;
    std::vector<size_t> members;
  };

  // Not made since `why`; with it nothing of the block is.
  void refuse(const Status& why) {
    if (refused_.ok()) refused_ = why;
  }
  const Status& refused() const { return refused_; }
  // The work is done when the one of its pack is.
  Work add(Member member);
  void add(const Work& point) { points_.push_back(point); }

  const std::vector<Member>& members() const { return members_; }
  const std::vector<Work>& points() const { return points_; }
  // In the order in which they are to be made. They hold what they need of the members.
  std::vector<Pack> packs(int64_t most_bytes) const;
  // "3 calls at once: all_reduce(sum) of f32[8], ...".
  std::string to_string() const;

 private:
  std::vector<Member> members_;
  std::vector<Work> points_;
  Status refused_;
};

}  // namespace hekla::process_group
