// SPDX-License-Identifier: Apache-2.0
// SharedCall: one collective on one rank, through the memory of a group (group_memory.h).
//
// A call is announced, which brings what is small along and compares the calls before anything is
// written to the caller's memory; what is larger follows in rounds of a channel's slots. Whoever
// waits spins for a while and then sleeps; deadlines, lost ranks and ends of the group are the
// member's to say, with the same errors as those of calls by messages. Used by the thread that runs
// the call.
#pragma once

#include <chrono>

#include "runtime/process_group/group_memory.h"
#include "runtime/process_group/member.h"
#include "runtime/process_group/process_group.h"

namespace hekla::process_group {

class SharedCall {
 public:
  SharedCall(Member& member, GroupMemory& memory, const Options& options, uint64_t sequence,
             const Call& call, Deadline deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Call& call() const { return call_; }
  // "call 3, all_reduce(sum) of f32[8]".
  std::string text() const { return fmt::format("call {}, {}", sequence_, call_.to_string()); }
  int64_t flat_bytes() const { return flat_bytes_; }
  int64_t slot_bytes() const { return memory_.slot_bytes(); }
  // A piece of a result of `whole` bytes, where it belongs.
  void copy_out(std::byte* to, const void* from, int64_t bytes, int64_t whole) const;

  // What this rank brings along, written before announce, and what a rank has brought, after meet.
  std::byte* brings() const { return memory_.brought(rank_, sequence_); }
  const std::byte* brought(int rank) const { return memory_.brought(rank, sequence_); }
  void announce(uint64_t rounds = 0);
  // All other ranks have come to the same call. FAILED_PRECONDITION where they differ.
  Status meet();
  // The most rounds that any rank has announced.
  uint64_t most_rounds() const;

  // Round k of this call in a channel. All ranks say how many there are, before the first.
  void begin_rounds(int channel, uint64_t count);
  // Where this rank may write, when all have read what was there.
  Result<std::byte*> open_slot(int channel, uint64_t k);
  void written(int channel, uint64_t k);  // the slot
  // All others' are written, or one's.
  Status await_all(int channel, uint64_t k);
  Status await(int channel, uint64_t k, int rank);
  const std::byte* slot(int channel, uint64_t k, int rank) const;
  // This rank has read what it needs of rounds below k.
  void read(int channel, uint64_t k);

 private:
  // Until is_there(r) for all r from `first` to `last` other than this rank.
  template <typename IsThere>
  Status wait(int first, int last, IsThere&& is_there);
  template <typename IsThere>
  Status wait_long(int first, int last, IsThere&& is_there);
  bool is_same_call(int rank) const;
  bool is_announced(int rank) const;
  Status difference() const;
  void ring_all() const;

  Member& member_;
  GroupMemory& memory_;
  const int rank_, size_;
  const uint64_t sequence_;
  const Call& call_;  // the exchange's
  const Deadline deadline_;
  const std::chrono::nanoseconds spin_;
  const int64_t flat_bytes_, stream_bytes_;
  std::array<uint64_t, kChannels> base_ = {};
};

}  // namespace hekla::process_group
