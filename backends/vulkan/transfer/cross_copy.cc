// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/cross_copy.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace hekla::vulkan {
namespace {

// One copy; lives as long as a transfer of it is under way.
class PieceCopy : public std::enable_shared_from_this<PieceCopy> {
 public:
  PieceCopy(Transfers& from, AllocationRef source, Transfers& to, AllocationRef target,
            int64_t bytes, Transfers::Done done, int64_t piece_bytes)
      : from_(from),
        to_(to),
        source_(std::move(source)),
        target_(std::move(target)),
        bytes_(bytes),
        piece_bytes_(piece_bytes),
        done_(std::move(done)) {}

  void start() {
    const int64_t pieces = (bytes_ + piece_bytes_ - 1) / piece_bytes_;
    const int64_t ways = std::min(kCrossPieces, pieces);
    under_way_ = ways;
    for (int64_t way = 0; way < ways; ++way) {
      auto buffer = std::make_shared<std::vector<std::byte>>(
          static_cast<size_t>(std::min(piece_bytes_, bytes_)));
      next(std::move(buffer));
    }
  }

 private:
  using Buffer = std::shared_ptr<std::vector<std::byte>>;

  // The next piece by way of the buffer; where there is none the way ends.
  void next(Buffer buffer) {
    int64_t at = 0;
    {
      std::lock_guard lock(mutex_);
      at = next_;
      if (status_.ok() && at < bytes_) next_ += piece_bytes_;
      if (!status_.ok()) at = bytes_;
    }
    if (at >= bytes_) return end_way();
    const int64_t part = std::min(piece_bytes_, bytes_ - at);
    from_.download(source_, at, buffer->data(), part,
                   [self = shared_from_this(), buffer, at, part](const Status& status) {
                     self->arrived(buffer, at, part, status);
                   });
  }

  void arrived(const Buffer& buffer, int64_t at, int64_t part, const Status& status) {
    if (!status.ok()) {
      fail(status);
      return end_way();
    }
    to_.upload(buffer->data(), target_, at, part,
               [self = shared_from_this(), buffer](const Status& sent) {
                 if (!sent.ok()) self->fail(sent);
                 self->next(buffer);
               });
  }

  void fail(const Status& status) {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
  }

  void end_way() {
    Status status;
    {
      std::lock_guard lock(mutex_);
      if (--under_way_ > 0) return;
      status = status_;
    }
    // Who hears of the end may count what is in use.
    source_.reset();
    target_.reset();
    done_(status);
  }

  Transfers& from_;
  Transfers& to_;
  AllocationRef source_, target_;
  const int64_t bytes_, piece_bytes_;
  const Transfers::Done done_;
  std::mutex mutex_;
  Status status_;          // guarded by mutex_
  int64_t next_ = 0;       // guarded by mutex_
  int64_t under_way_ = 0;  // guarded by mutex_
};

}  // namespace

void cross_copy(Transfers& from, AllocationRef source, Transfers& to, AllocationRef target,
                int64_t bytes, Transfers::Done done, int64_t piece_bytes) {
  if (bytes == 0) return done(ok_status());
  // Until the end no launch may take the source's memory over.
  ++source->unordered_readers;
  Transfers::Done released = [held = source, done = std::move(done)](const Status& status) mutable {
    --held->unordered_readers;
    held.reset();
    done(status);
  };
  if (std::byte* host = target->host(); host != nullptr) {
    from.download(
        std::move(source), 0, host, bytes,
        [target = std::move(target), released = std::move(released)](const Status& status) mutable {
          target.reset();
          released(status);
        });
    return;
  }
  if (const std::byte* host = source->host(); host != nullptr) {
    to.upload(host, std::move(target), 0, bytes, std::move(released));
    return;
  }
  std::make_shared<PieceCopy>(from, std::move(source), to, std::move(target), bytes,
                              std::move(released), piece_bytes)
      ->start();
}

}  // namespace hekla::vulkan
