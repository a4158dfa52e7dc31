// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/cross_copy.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hekla::vulkan {

struct CrossLink::Copy {
  AllocationRef source, target;
  const int64_t bytes;
  Transfers::Done done;
  // Guarded by the link's mutex.
  int64_t next = 0;       // where the piece begins that has not begun
  int64_t under_way = 0;  // pieces
  Status status;
};

std::shared_ptr<CrossLink> CrossLink::create(std::shared_ptr<Transfers> from,
                                             std::shared_ptr<Transfers> to, int64_t piece_bytes) {
  return std::shared_ptr<CrossLink>(new CrossLink(std::move(from), std::move(to), piece_bytes));
}

Status CrossLink::health() const {
  HEKLA_RETURN_IF_ERROR(from_->health());
  return to_->health();
}

int64_t CrossLink::host_bytes() {
  std::lock_guard lock(mutex_);
  return host_bytes_;
}

void CrossLink::copy(AllocationRef source, AllocationRef target, int64_t bytes,
                     Transfers::Done done) {
  if (bytes == 0) return done(ok_status());
  // Until the end no launch may take the source's memory over.
  ++source->unordered_readers;
  Transfers::Done released = [held = source, done = std::move(done)](const Status& status) mutable {
    --held->unordered_readers;
    held.reset();
    done(status);
  };
  // Through memory of the host's own: one transfer, which asks one device alone.
  const auto asking_both = [self = shared_from_this()](Transfers::Done told) -> Transfers::Done {
    return [self, told = std::move(told)](const Status& status) {
      told(status.ok() ? self->health() : status);
    };
  };
  if (std::byte* host = target->host(); host != nullptr) {
    from_->download(std::move(source), 0, host, bytes,
                    asking_both([target = std::move(target),
                                 released = std::move(released)](const Status& status) mutable {
                      target.reset();
                      released(status);
                    }));
    return;
  }
  if (const std::byte* host = source->host(); host != nullptr) {
    source.reset();  // `released` holds it
    to_->upload(host, std::move(target), 0, bytes, asking_both(std::move(released)));
    return;
  }
  auto waiting = std::make_shared<Copy>(
      Copy{std::move(source), std::move(target), bytes, std::move(released), 0, 0, ok_status()});
  const int64_t pieces = (bytes + piece_bytes_ - 1) / piece_bytes_;
  int64_t more = 0;
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(waiting));
    more = std::min(kCrossPieces - ways_, pieces);
    ways_ += more;
  }
  for (; more > 0; --more) next(std::make_shared<Way>());
}

void CrossLink::next(const WayRef& way) {
  while (true) {
    CopyRef copy;
    int64_t at = 0, part = 0;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        --ways_;
        host_bytes_ -= way->bytes;
        way->bytes = 0;
        way->buffer.reset();
        return;
      }
      copy = waiting_.front();
      at = copy->next;
      part = std::min(piece_bytes_, copy->bytes - at);
      copy->next += part;
      ++copy->under_way;
      if (copy->next == copy->bytes) waiting_.pop_front();
    }
    if (const Status room = make_room(*way, part); !room.ok()) {
      end_piece(copy, room);
      continue;
    }
    from_->download(copy->source, at, way->buffer.get(), part,
                    [self = shared_from_this(), way, copy, at, part](const Status& status) {
                      if (!status.ok()) {
                        self->end_piece(copy, status);
                        return self->next(way);
                      }
                      self->to_->upload(way->buffer.get(), copy->target, at, part,
                                        [self, way, copy](const Status& sent) {
                                          self->end_piece(copy, sent);
                                          self->next(way);
                                        });
                    });
    return;
  }
}

Status CrossLink::make_room(Way& way, int64_t bytes) {
  if (way.bytes >= bytes) return ok_status();
  way.buffer.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  std::lock_guard lock(mutex_);
  host_bytes_ -= way.bytes;
  way.bytes = way.buffer == nullptr ? 0 : bytes;
  host_bytes_ += way.bytes;
  if (way.buffer != nullptr) return ok_status();
  return resource_exhausted(
      "the host has no memory for {} bytes through which a copy goes from one device to another",
      bytes);
}

void CrossLink::end_piece(const CopyRef& copy, const Status& status) {
  Status all;
  {
    std::lock_guard lock(mutex_);
    if (!status.ok() && copy->status.ok()) {
      copy->status = status;
      if (copy->next < copy->bytes) std::erase(waiting_, copy);
      copy->next = copy->bytes;
    }
    if (--copy->under_way > 0 || copy->next < copy->bytes) return;
    all = copy->status;
  }
  // Who hears of the end may count what is in use.
  copy->source.reset();
  copy->target.reset();
  std::exchange(copy->done, nullptr)(all);
}

}  // namespace hekla::vulkan
