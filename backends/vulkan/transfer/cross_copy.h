// SPDX-License-Identifier: Apache-2.0
// CrossLink: bytes from one physical device to another, through host memory.
//
// Where the host has full access to either side one transfer does it. Else pieces go down from the
// source and up to the target through a few buffers on the host, each piece on its own way, so that
// both devices move at once. All copies of a link share these buffers, first come first served, so
// that host memory is bounded by kCrossPieces pieces however many copies wait. It never waits on
// the caller's thread. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "backends/vulkan/transfer/transfers.h"

namespace hekla::vulkan {

inline constexpr int64_t kCrossPieceBytes = int64_t{4} << 20;
inline constexpr int64_t kCrossPieces = 3;

class CrossLink : public std::enable_shared_from_this<CrossLink> {
 public:
  // Keeps the transfers of both devices, and with them what their pointers own; a copy under way
  // keeps the link. So the last owner may be a thread of either device.
  static std::shared_ptr<CrossLink> create(std::shared_ptr<Transfers> from,
                                           std::shared_ptr<Transfers> to,
                                           int64_t piece_bytes = kCrossPieceBytes);

  // `done` is called once, from any thread, when nothing reads or writes either side any more: with
  // ok, or with the first error; the loss of either device is one. RESOURCE_EXHAUSTED: the host has
  // no memory for a piece.
  void copy(AllocationRef source, AllocationRef target, int64_t bytes, Transfers::Done done);

  // Of the buffers that there are.
  int64_t host_bytes();

 private:
  struct Copy;
  using CopyRef = std::shared_ptr<Copy>;
  // A buffer, and whoever is on the way through it.
  struct Way {
    std::unique_ptr<std::byte[]> buffer;
    int64_t bytes = 0;
  };
  using WayRef = std::shared_ptr<Way>;

  CrossLink(std::shared_ptr<Transfers> from, std::shared_ptr<Transfers> to, int64_t piece_bytes)
      : from_(std::move(from)), to_(std::move(to)), piece_bytes_(piece_bytes) {}
  // The next piece by this way; where none waits the way ends, and its buffer goes.
  void next(const WayRef& way);
  void end_piece(const CopyRef& copy, const Status& status);
  Status make_room(Way& way, int64_t bytes);
  // Of both devices.
  Status health() const;

  const std::shared_ptr<Transfers> from_, to_;
  const int64_t piece_bytes_;
  std::mutex mutex_;
  std::deque<CopyRef> waiting_;  // guarded by mutex_; those with pieces that have not begun
  int64_t ways_ = 0;             // guarded by mutex_; at most kCrossPieces
  int64_t host_bytes_ = 0;       // guarded by mutex_
};

}  // namespace hekla::vulkan
