// SPDX-License-Identifier: Apache-2.0
// CrossLink: bytes from one physical device to another.
//
// Where the host has full access to either side one transfer does it. Else pieces go one after the
// other through a few buffers, each on its own way, so that both devices move at once. What the
// buffers are, CrossWay says: memory of the target's that the source writes, memory of the host's
// that both use in place, or two staging buffers between which the host copies. The first two need
// drivers that share memory; each new buffer is tried with a pattern first, and where a driver
// refuses or the pattern does not arrive, the link goes on by the next way, with a line in the log.
// Small copies are always staged.
//
// All copies of a link share the buffers, first come first served, so that kCrossPieces pieces
// bound them however many copies wait. Shared ones stay with the link. It never waits on the
// caller's thread. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/vulkan/transfer/shared_piece.h"
#include "backends/vulkan/transfer/transfers.h"

namespace hekla::vulkan {

inline constexpr int64_t kCrossPieceBytes = int64_t{4} << 20;
inline constexpr int64_t kCrossPieces = 3;
// Of the pattern that goes through each shared buffer first.
inline constexpr int64_t kCrossTrialBytes = 4096 - 64;

struct CrossOptions {
  int64_t piece_bytes = kCrossPieceBytes;
  // Smaller copies are staged: the host's copy costs them less than one more submission.
  int64_t shared_from_bytes = int64_t{256} << 10;
};

class CrossLink : public std::enable_shared_from_this<CrossLink> {
 public:
  // Keeps the transfers of both devices, and with them what their pointers own; a copy under way
  // keeps the link. So the last owner may be a thread of either device.
  static std::shared_ptr<CrossLink> create(std::shared_ptr<Transfers> from,
                                           std::shared_ptr<Transfers> to,
                                           CrossOptions options = {});

  // `done` is called once, from any thread, when nothing reads or writes either side any more: with
  // ok, or with the first error; the loss of either device is one. RESOURCE_EXHAUSTED: the host has
  // no memory for a piece.
  void copy(AllocationRef source, AllocationRef target, int64_t bytes, Transfers::Done done);

  // Of the staging buffers that there are.
  int64_t host_bytes();
  // How the next large copy goes.
  CrossWay way();

 private:
  struct Copy;
  using CopyRef = std::shared_ptr<Copy>;
  // A lane of pieces through one buffer of each kind that its copies need.
  struct Pipe {
    std::unique_ptr<std::byte[]> buffer;
    int64_t bytes = 0;
    SharedPiece piece;
    bool is_short = false;  // there was no memory for one
  };
  using PipeRef = std::shared_ptr<Pipe>;

  CrossLink(std::shared_ptr<Transfers> from, std::shared_ptr<Transfers> to, CrossOptions options);
  // The next piece through this pipe; where none waits the pipe ends, and its staging buffer goes.
  void next(const PipeRef& pipe);
  void move_staged(const PipeRef& pipe, const CopyRef& copy, int64_t at, int64_t bytes);
  void move_shared(const PipeRef& pipe, const CopyRef& copy, int64_t at, int64_t bytes);
  void end_piece(const CopyRef& copy, const Status& status);
  Status make_room(Pipe& pipe, int64_t bytes);
  // Makes and tries a shared buffer by `way`, then goes on with next(). Without one the link turns
  // to the way after it.
  void make_piece(const PipeRef& pipe, CrossWay way);
  void try_piece(const PipeRef& pipe, std::function<void(const Status&)> done);
  void give_up(CrossWay way, const Status& reason);
  // Of both devices.
  Status health() const;

  const std::shared_ptr<Transfers> from_, to_;
  const CrossOptions options_;
  std::mutex mutex_;
  std::vector<CrossWay> ways_;     // guarded by mutex_; the first is taken, the last is kStaged
  std::vector<SharedPiece> idle_;  // guarded by mutex_; by ways_.front()
  std::deque<CopyRef> waiting_;    // guarded by mutex_; those with pieces that have not begun
  int64_t pipes_ = 0;              // guarded by mutex_; at most kCrossPieces
  int64_t host_bytes_ = 0;         // guarded by mutex_
};

}  // namespace hekla::vulkan
