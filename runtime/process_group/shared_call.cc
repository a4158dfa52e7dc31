// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_group/shared_call.h"

#include <algorithm>
#include <thread>

#include "runtime/base/copy_bytes.h"
#include "runtime/process_group/call.h"

namespace hekla::process_group {
namespace {

using Clock = std::chrono::steady_clock;

// A sleeper looks by itself as often, should the one that was to wake it have died on the way.
constexpr std::chrono::milliseconds kLook(20);
constexpr int kPausesAtOnce = 64;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

SharedCall::SharedCall(Member& member, GroupMemory& memory, const Options& options,
                       uint64_t sequence, const Call& call, Deadline deadline)
    : member_(member),
      memory_(memory),
      rank_(member.rank()),
      size_(member.size()),
      sequence_(sequence),
      call_(call),
      deadline_(deadline),
      spin_(options.shared_spin),
      flat_bytes_(options.shared_flat_bytes),
      stream_bytes_(options.shared_stream_bytes) {}

void SharedCall::copy_out(std::byte* to, const void* from, int64_t bytes, int64_t whole) const {
  if (whole >= stream_bytes_) return stream_bytes(to, from, bytes);
  copy_bytes(to, from, bytes);
}

template <typename IsThere>
Status SharedCall::wait(int first, int last, IsThere&& is_there) {
  for (int pauses = 0; pauses < kPausesAtOnce; ++pauses) {
    int r = first;
    while (r < last && (r == rank_ || is_there(r))) ++r;
    if (r == last) return ok_status();
    pause_briefly();
  }
  return wait_long(first, last, is_there);
}

template <typename IsThere>
Status SharedCall::wait_long(int first, int last, IsThere&& is_there) {
  const Clock::time_point begin = Clock::now();
  RankState& own = memory_.state(rank_);
  for (;;) {
    for (int pauses = 0; pauses < kPausesAtOnce; ++pauses) {
      int r = first;
      while (r < last && (r == rank_ || is_there(r))) ++r;
      if (r == last) return ok_status();
      pause_briefly();
    }
    const auto missing = [&] {
      std::vector<int> ranks;
      for (int r = first; r < last; ++r) {
        if (r != rank_ && !is_there(r)) ranks.push_back(r);
      }
      return ranks;
    };
    const std::vector<int> seen_missing = missing();
    const Status status = member_.look(sequence_, call_, seen_missing, deadline_);
    if (!status.ok()) {
      // A rank that has left has written all that it had to before.
      return missing().empty() ? ok_status() : status;
    }
    if (Clock::now() - begin < spin_) {
      // The one that is waited for may be next on this core.
      std::this_thread::yield();
      continue;
    }
    const uint32_t seen = own.bell.load(std::memory_order_seq_cst);
    own.sleeps.store(1, std::memory_order_seq_cst);
    // What happened before is seen here, what happens later rings.
    if (!missing().empty() && member_.look(sequence_, call_, seen_missing, deadline_).ok()) {
      memory_.sleep(rank_, seen,
                    std::min<std::chrono::nanoseconds>(kLook, deadline_.left()).count());
    }
    own.sleeps.store(0, std::memory_order_seq_cst);
  }
}

void SharedCall::ring_all() const {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) memory_.ring(r);
  }
}

void SharedCall::announce(uint64_t rounds) {
  Announcement& own = memory_.announcement(rank_, sequence_);
  const std::array<uint64_t, 4> words = words_of(call_);
  for (size_t i = 0; i < words.size(); ++i) {
    own.call[i].store(words[i], std::memory_order_relaxed);
  }
  own.rounds.store(rounds, std::memory_order_relaxed);
  own.stamp.store(sequence_ + 1, std::memory_order_seq_cst);
  ring_all();
}

bool SharedCall::is_announced(int rank) const {
  return memory_.announcement(rank, sequence_).stamp.load(std::memory_order_seq_cst) ==
         sequence_ + 1;
}

bool SharedCall::is_same_call(int rank) const {
  const Announcement& theirs = memory_.announcement(rank, sequence_);
  const std::array<uint64_t, 4> words = words_of(call_);
  for (size_t i = 0; i < words.size(); ++i) {
    if (theirs.call[i].load(std::memory_order_relaxed) != words[i]) return false;
  }
  return true;
}

Status SharedCall::difference() const {
  HEKLA_RETURN_IF_ERROR(member_.refusal_of(sequence_, call_));
  std::map<int, Call> calls = {{rank_, call_}};
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || !is_announced(r)) continue;
    std::array<uint64_t, 4> words;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = memory_.announcement(r, sequence_).call[i].load(std::memory_order_relaxed);
    }
    Call theirs = call_of_words(words);
    // The line has the last eight bits; ranks are not far apart.
    theirs.refused =
        call_.refused +
        static_cast<uint32_t>(static_cast<int8_t>(theirs.refused - (call_.refused & 0xff)));
    calls.emplace(r, theirs);
  }
  HEKLA_RETURN_IF_ERROR(member_.refusal_among(sequence_, calls));
  return failed_precondition("call {} of group {} differs: {}", sequence_, member_.name(),
                             who_calls_what(calls));
}

Status SharedCall::meet() {
  bool differs = false;
  const Status status = wait(0, size_, [&](int r) {
    if (differs) return true;  // nobody is waited for any more
    if (!is_announced(r)) return false;
    differs = !is_same_call(r);
    return true;
  });
  return differs ? difference() : status;
}

uint64_t SharedCall::most_rounds() const {
  uint64_t most = 0;
  for (int r = 0; r < size_; ++r) {
    most =
        std::max(most, memory_.announcement(r, sequence_).rounds.load(std::memory_order_relaxed));
  }
  return most;
}

void SharedCall::begin_rounds(int channel, uint64_t count) {
  const auto c = static_cast<size_t>(channel);
  base_[c] = memory_.rounds()[c];
  memory_.rounds()[c] += count;
}

Result<std::byte*> SharedCall::open_slot(int channel, uint64_t k) {
  const auto c = static_cast<size_t>(channel);
  const uint64_t round = base_[c] + k;
  if (round >= kSlots) {
    HEKLA_RETURN_IF_ERROR(wait(0, size_, [&](int r) {
      return memory_.state(r).rounds.read[c].load(std::memory_order_seq_cst) >= round - kSlots + 1;
    }));
  }
  return memory_.slot(rank_, channel, round);
}

void SharedCall::written(int channel, uint64_t k) {
  const auto c = static_cast<size_t>(channel);
  memory_.state(rank_).rounds.written[c].store(base_[c] + k + 1, std::memory_order_seq_cst);
  ring_all();
}

Status SharedCall::await_all(int channel, uint64_t k) {
  const auto c = static_cast<size_t>(channel);
  return wait(0, size_, [&](int r) {
    return memory_.state(r).rounds.written[c].load(std::memory_order_seq_cst) > base_[c] + k;
  });
}

Status SharedCall::await(int channel, uint64_t k, int rank) {
  const auto c = static_cast<size_t>(channel);
  return wait(rank, rank + 1, [&](int r) {
    return memory_.state(r).rounds.written[c].load(std::memory_order_seq_cst) > base_[c] + k;
  });
}

const std::byte* SharedCall::slot(int channel, uint64_t k, int rank) const {
  return memory_.slot(rank, channel, base_[static_cast<size_t>(channel)] + k);
}

void SharedCall::read(int channel, uint64_t k) {
  const auto c = static_cast<size_t>(channel);
  memory_.state(rank_).rounds.read[c].store(base_[c] + k, std::memory_order_seq_cst);
  ring_all();
}

}  // namespace hekla::process_group
