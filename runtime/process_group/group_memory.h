// SPDX-License-Identifier: Apache-2.0
// GroupMemory: the memory that all ranks of a group on one host share, through which their
// collectives go (shared_call.h).
//
// One anonymous file of the kernel's (collectives/shared_segment.h) that rank 0 makes and the
// others open: it has no name and is gone with the last process that maps it, however that ends.
// All of it is reserved when it is made, so a host without room is an error then. Each rank writes
// its own part alone, save for bells:
//   - two announcements, of its last two calls: the call, and up to flat_bytes that it brings
//   along;
//   - two channels of slots for what is larger, with counts of the rounds that it has written and
//     read. They grow for ever, so a process may die between any two instructions.
// A rank that comes to call s + 2 has seen all others come to s + 1, so nobody reads what it said
// of call s any more. Nothing that a peer writes is trusted but as data: counts are only compared.
//
// Owned by the member of the group; used by one thread of a rank at a time but for wake and
// last_call, which are thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/memory_room.h"
#include "runtime/collectives/shared_segment.h"
#include "runtime/process_group/call.h"

namespace hekla::process_group {

inline constexpr int kChannels = 2;
inline constexpr uint64_t kSlots = 4;  // of a channel of a rank

// What a rank says of a call. `stamp` is the number of the call plus one.
struct Announcement {
  alignas(64) std::atomic<uint64_t> stamp{0};
  std::array<std::atomic<uint64_t>, 4> call{};
  std::atomic<uint64_t> rounds{0};  // of its channel 0, where ranks have different ones
  // What it brings follows, so that a short call is one line of the cache.
};
inline constexpr size_t kBroughtAt = 48;
static_assert(offsetof(Announcement, rounds) + sizeof(uint64_t) == kBroughtAt);

struct RankState {
  struct alignas(64) {
    std::array<std::atomic<uint64_t>, kChannels> written{}, read{};
  } rounds;
  // Grows when a sleeper is to look again.
  alignas(64) std::atomic<uint32_t> bell{0};
  std::atomic<uint32_t> sleeps{0};
};

std::array<uint64_t, 4> words_of(const Call& call);
// Whatever the words are.
Call call_of_words(const std::array<uint64_t, 4>& words);

class GroupMemory {
 public:
  struct Sizes {
    int ranks = 1;
    int64_t flat_bytes = 0;  // that a call brings along
    int64_t slot_bytes = 64;
  };

  // UNAVAILABLE: the kernel gives no such memory, or it is too much of what there is.
  static Result<std::unique_ptr<GroupMemory>> create(const Sizes& sizes,
                                                     const MemoryRoom& room = memory_room());
  // Rank 0's. Errors: see collectives::open_shared_file.
  static Result<std::unique_ptr<GroupMemory>> open(const collectives::SegmentCard& card,
                                                   const Sizes& sizes);
  ~GroupMemory();
  GroupMemory(const GroupMemory&) = delete;
  GroupMemory& operator=(const GroupMemory&) = delete;

  collectives::SegmentCard card() const;  // until close_file
  void close_file();                      // when all have opened it

  int64_t flat_bytes() const { return sizes_.flat_bytes; }
  int64_t slot_bytes() const { return sizes_.slot_bytes; }
  RankState& state(int rank) const { return *reinterpret_cast<RankState*>(part(rank)); }
  Announcement& announcement(int rank, uint64_t sequence) const {
    return *reinterpret_cast<Announcement*>(part(rank) + sizeof(RankState) +
                                            (sequence & 1) * announcement_bytes_);
  }
  std::byte* brought(int rank, uint64_t sequence) const {
    return reinterpret_cast<std::byte*>(&announcement(rank, sequence)) + kBroughtAt;
  }
  std::byte* slot(int rank, int channel, uint64_t round) const {
    return part(rank) + slots_at_ +
           (static_cast<size_t>(channel) * kSlots + round % kSlots) *
               static_cast<size_t>(sizes_.slot_bytes);
  }
  // Of this process: how many rounds there have been in each channel, on all ranks alike.
  std::array<uint64_t, kChannels>& rounds() { return rounds_; }

  // After something was written that `rank` may wait for.
  void ring(int rank) const;
  // Whatever it does.
  void wake(int rank) const;
  // Until `rank`'s bell is no longer `seen`, or for that long, or for no reason.
  void sleep(int rank, uint32_t seen, int64_t nanoseconds) const;

  // The last call that a rank has come to through this memory.
  std::optional<std::pair<uint64_t, Call>> last_call(int rank) const;

 private:
  explicit GroupMemory(const Sizes& sizes);
  Status map(int file);
  std::byte* part(int rank) const { return ranks_ + static_cast<size_t>(rank) * part_bytes_; }

  const Sizes sizes_;
  size_t announcement_bytes_, slots_at_, part_bytes_, bytes_;
  int file_ = -1;
  uint64_t token_[2] = {0, 0};
  std::byte* memory_ = nullptr;
  std::byte* ranks_ = nullptr;
  std::array<uint64_t, kChannels> rounds_ = {};
};

}  // namespace hekla::process_group
