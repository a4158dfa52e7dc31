// SPDX-License-Identifier: Apache-2.0
// Exchange: one collective call on one rank, through messages: what it has for each other rank goes
// there, what they have for it comes, and the calls are compared before.
//
// A part of at most Options::flat_bytes travels with the call itself, a larger one after it in
// pieces: the first ones at once, so that they are under way while ranks come to the call. Used by
// the thread of the member that runs the call.
#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/process_group/call.h"
#include "runtime/process_group/elements.h"
#include "runtime/process_group/member.h"
#include "runtime/process_group/process_group.h"
#include "runtime/process_group/shared_call.h"

namespace hekla::process_group {

class Exchange {
 public:
  Exchange(Member& member, const Options& options, uint64_t sequence, const Call& call,
           Deadline deadline);

  uint64_t sequence() const { return sequence_; }
  int rank() const { return member_.rank(); }
  int size() const { return member_.size(); }
  const HostLayout& layout() const { return member_.layout(); }
  bool is_layout_forced() const { return options_.ranks_per_host > 0; }
  bool is_flat(const ConstElements& x) const { return x.size_bytes() <= options_.flat_bytes; }

  // The call through the memory of the group, where it has one: instead of all that follows.
  std::optional<SharedCall> shared() const;

  // Comes to the call with `parts` for the ranks, and waits for all others to come with the same
  // call. `expected`: elements that come from each. FAILED_PRECONDITION where they differ.
  Status begin(const std::vector<ConstElements>& parts, const std::vector<int64_t>& expected);

  // The pieces of a part of `count` elements: how many, and where each lies. None has more than
  // Options::segment_bytes and `most_bytes`.
  struct Piece {
    int64_t first, count;
  };
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t piece_count(int64_t count, int64_t most_bytes = kNoLimit) const;
  Piece piece(int64_t count, int64_t k, int64_t most_bytes = kNoLimit) const;
  // A piece of what comes from another rank.
  Result<HostArray> take(int from, int64_t k);

  // What is sent after the parts: pieces of lanes, of which one rank sends one only once in a
  // round.
  enum class Round : uint64_t {
    kParts,     // what ranks have for each other
    kOnHost,    // what they have for each other on a host (hierarchical.h)
    kPartials,  // what a host has folded
    kResults,
  };
  Status send(const std::vector<int>& to, Round round, int lane, int64_t k,
              const ConstElements& piece);
  Result<HostArray> take(int from, Round round, int lane, int64_t k, int64_t bytes);
  // A piece that has come, or what is this rank's own, into where it belongs, which has its size.
  void deliver(const void* from, const Elements& to) const;
  void deliver(const HostArray& block, const Elements& to) const { deliver(block.data(), to); }
  // The only lane's results, of an array of `count` elements.
  Status send_result(const std::vector<int>& to, int64_t k, const ConstElements& piece);
  Result<HostArray> take_result(int from, int64_t count, int64_t k);

  // What comes in a round from a rank may be received straight into `to`, as soon as all ranks have
  // come to the call; deliver() has nothing to do then. Before begin(), or the first pieces are
  // not.
  void expect(int from, Round round, int lane, const Elements& to);

  // Waits until nobody reads the caller's memory any more.
  Status finish();

 private:
  // Pieces `begin` to `end` - 1 of the parts that do not travel with the call, each to all of `to`.
  Status send_pieces(const std::vector<ConstElements>& parts, const std::vector<int>& to,
                     int64_t begin, int64_t end);
  static uint64_t step_of(Round round, int lane, int64_t k);
  int64_t most_elements(int64_t most_bytes) const;  // of a piece
  void post(int to, Head::Kind kind, uint64_t step, int64_t part, const HostArray& block,
            bool is_callers);

  Member& member_;
  const Options& options_;
  const uint64_t sequence_;
  const Call call_;
  const Deadline deadline_;
  const int64_t width_;  // bytes of an element
  std::vector<int64_t> expected_;
  std::vector<HostArray> ridden_;                       // by rank
  std::vector<std::pair<int, CompletionRef>> sending_;  // to whom, from the caller's memory
};

// Whether what others send rank `rank` may come while `in` is still to be sent: none of it lies
// between the first and the last byte of that.
bool are_apart(const std::vector<ConstElements>& in, const std::vector<Elements>& out, int rank);

// The collectives, between begin and finish. Arguments have been checked.
Status run_barrier(Exchange& exchange);
Status run_all_reduce(Exchange& exchange, const Elements& out, const ConstElements& in,
                      const Reduction& by);
// `out` counts on the root alone.
Status run_reduce(Exchange& exchange, const Elements& out, const ConstElements& in, int root,
                  const Reduction& by);
Status run_reduce_scatter(Exchange& exchange, const Elements& out, const ConstElements& in,
                          const Reduction& by);
// What this rank has goes to all others, what rank p has comes into part p, its own too; empty:
// nothing does.
Status run_spread(Exchange& exchange, const std::vector<Elements>& out, const ConstElements& in);
// Part p of what goes out is for rank p, what comes from p goes into part p; empty: nothing does.
Status run_moves(Exchange& exchange, const std::vector<Elements>& out,
                 const std::vector<ConstElements>& in);

}  // namespace hekla::process_group
