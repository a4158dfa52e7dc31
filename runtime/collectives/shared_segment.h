// SPDX-License-Identifier: Apache-2.0
// SharedSegment: what processes of one machine share: for each process one segment of memory, which
// it made and the others write to.
//
// A segment is an anonymous file of the kernel's (memfd), sealed so that its size cannot change.
// It has no name in any folder, so /dev/shm and its size do not matter: it is gone with the last
// process that maps it, however that ends.
// Others open it through /proc/<pid>/fd/<number>; a random token says that it is the one meant.
//
// Its first page says whose it is and has the owner's bells and signs of life; then comes for each
// process a ring of bytes from that process to the owner. A process maps its own segment whole, and
// of another's the first page and its own ring. Positions in a ring count all bytes ever written
// and read, and are never set back: a process may die between any two instructions. Nothing read
// from shared memory is trusted: who uses a position keeps a copy of its own and checks the
// other's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace hekla::collectives {

inline constexpr size_t kSharedPageBytes = 4096;

// Whom to wake: a number that grows with each event and whether somebody waits for it to change.
struct alignas(64) Bell {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> waiting{0};

  // From any process.
  void ring();
  // Until count is no longer `seen`, or for `nanoseconds`, or for no reason.
  void wait(uint32_t seen, int64_t nanoseconds);
};

struct SegmentHead {
  static constexpr uint64_t kMagic = 0x31306c6c65486b65;
  uint64_t magic = 0;
  uint64_t token[2] = {0, 0};
  uint64_t ring_bytes = 0;
  uint32_t size = 0;
  uint32_t rank = 0;
  Bell inbox;  // others have written to one of the owner's rings
  Bell
      outbox;  // others have read from a ring that the owner writes, or the owner has more to write
  struct alignas(64) {
    std::atomic<uint64_t> beats{0};  // the owner lives
    std::atomic<uint32_t> has_left{0};
  } life;
};
static_assert(sizeof(SegmentHead) <= kSharedPageBytes);

struct RingHead {
  alignas(64) std::atomic<uint64_t> written{0};  // by the sender
  alignas(64) std::atomic<uint64_t> read{0};     // by the owner of the segment
  std::atomic<uint32_t> is_closed{0};            // by the owner: it has given up on the sender
};
static_assert(sizeof(RingHead) <= kSharedPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// A ring as one side sees it.
struct Ring {
  RingHead* head = nullptr;
  std::byte* bytes = nullptr;
  uint64_t size = 0;  // a power of two

  // Bytes at position `at`, up to the end of the memory.
  std::span<std::byte> from(uint64_t at) const {
    return {bytes + (at & (size - 1)), static_cast<size_t>(size - (at & (size - 1)))};
  }
};

// Anonymous memory that other processes can open. UNAVAILABLE: the kernel gives none; with
// `is_reserved` that is known now, not when it is written.
Result<int> create_shared_file(uint64_t bytes, bool is_reserved);
struct SegmentCard;
// Another process's, of that size. FAILED_PRECONDITION: it is not reachable, in words; DATA_LOSS:
// it is not what the card says.
Result<int> open_shared_file(const SegmentCard& card, uint64_t bytes);

// How another process finds a segment; text for a store.
struct SegmentCard {
  std::string boot_id, host, pid_namespace;
  int64_t pid = 0;
  int64_t file = 0;
  uint64_t token[2] = {0, 0};
  uint64_t ring_bytes = 0;

  // This process, without any memory yet.
  static SegmentCard of_this_process();
  std::string text() const;
  // Its process runs on the same machine and sees the other's, so that both may share memory.
  bool is_near(const SegmentCard& other) const {
    return !boot_id.empty() && boot_id == other.boot_id && pid_namespace == other.pid_namespace;
  }
  // INVALID_ARGUMENT: malformed.
  static Result<SegmentCard> read(std::string_view text);
};

// A mapping, or several, of one segment. Movable; unmaps.
class SharedSegment {
 public:
  // This process's own, with rings of `ring_bytes`, a power of two and whole pages, from each of
  // `size` processes. UNAVAILABLE: the kernel gives no such memory.
  static Result<SharedSegment> create(int rank, int size, uint64_t ring_bytes);
  // Process `rank`'s, as process `own` sees it. FAILED_PRECONDITION: it is not reachable, in words;
  // DATA_LOSS: it is not what the card says.
  static Result<SharedSegment> open(const SegmentCard& card, int rank, int own, int size);

  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept { *this = std::move(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  SegmentHead& head() const { return *head_; }
  // From process `sender`; of another's segment only the own one.
  Ring ring(int sender) const;
  SegmentCard card() const;  // of an own one

 private:
  int file_ = -1;  // of an own one
  SegmentHead* head_ = nullptr;
  std::byte* rings_ = nullptr;  // of an own one all; else one
  size_t rings_bytes_ = 0;
  int first_ = 0;  // whose ring stands first
  uint64_t ring_bytes_ = 0;
};

}  // namespace hekla::collectives
