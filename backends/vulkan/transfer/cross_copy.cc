// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer/cross_copy.h"

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/base/log.h"

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

CrossLink::CrossLink(std::shared_ptr<Transfers> from, std::shared_ptr<Transfers> to,
                     CrossOptions options)
    : from_(std::move(from)),
      to_(std::move(to)),
      options_(options),
      ways_(cross_ways(*from_->memory()->device(), *to_->memory()->device())) {}

std::shared_ptr<CrossLink> CrossLink::create(std::shared_ptr<Transfers> from,
                                             std::shared_ptr<Transfers> to, CrossOptions options) {
  return std::shared_ptr<CrossLink>(new CrossLink(std::move(from), std::move(to), options));
}

Status CrossLink::health() const {
  HEKLA_RETURN_IF_ERROR(from_->health());
  return to_->health();
}

int64_t CrossLink::host_bytes() {
  std::lock_guard lock(mutex_);
  return host_bytes_;
}

CrossWay CrossLink::way() {
  std::lock_guard lock(mutex_);
  return ways_.front();
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
  const int64_t pieces = (bytes + options_.piece_bytes - 1) / options_.piece_bytes;
  int64_t more = 0;
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(waiting));
    more = std::min(kCrossPieces - pipes_, pieces);
    pipes_ += more;
  }
  for (; more > 0; --more) next(std::make_shared<Pipe>());
}

void CrossLink::next(const PipeRef& pipe) {
  while (true) {
    CopyRef copy;
    int64_t at = 0, part = 0;
    CrossWay way = CrossWay::kStaged;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        --pipes_;
        host_bytes_ -= pipe->bytes;
        pipe->bytes = 0;
        pipe->buffer.reset();
        if (pipe->piece.way != CrossWay::kStaged && pipe->piece.way == ways_.front()) {
          idle_.push_back(std::exchange(pipe->piece, {}));
        }
        return;
      }
      copy = waiting_.front();
      if (copy->bytes >= options_.shared_from_bytes && !pipe->is_short) way = ways_.front();
      if (way != CrossWay::kStaged && pipe->piece.way != way && !idle_.empty()) {
        pipe->piece = std::move(idle_.back());
        idle_.pop_back();
      }
      if (way == CrossWay::kStaged || pipe->piece.way == way) {
        at = copy->next;
        part = std::min(options_.piece_bytes, copy->bytes - at);
        copy->next += part;
        ++copy->under_way;
        if (copy->next == copy->bytes) waiting_.pop_front();
      }
    }
    if (part == 0) return make_piece(pipe, way);
    if (way != CrossWay::kStaged) return move_shared(pipe, copy, at, part);
    if (const Status room = make_room(*pipe, part); !room.ok()) {
      end_piece(copy, room);
      continue;
    }
    return move_staged(pipe, copy, at, part);
  }
}

void CrossLink::move_staged(const PipeRef& pipe, const CopyRef& copy, int64_t at, int64_t bytes) {
  from_->download(copy->source, at, pipe->buffer.get(), bytes,
                  [self = shared_from_this(), pipe, copy, at, bytes](const Status& status) {
                    if (!status.ok()) {
                      self->end_piece(copy, status);
                      return self->next(pipe);
                    }
                    self->to_->upload(pipe->buffer.get(), copy->target, at, bytes,
                                      [self, pipe, copy](const Status& sent) {
                                        self->end_piece(copy, sent);
                                        self->next(pipe);
                                      });
                  });
}

void CrossLink::move_shared(const PipeRef& pipe, const CopyRef& copy, int64_t at, int64_t bytes) {
  from_->send(copy->source, at, pipe->piece.at_source, bytes, pipe->piece.between,
              [self = shared_from_this(), pipe, copy, at, bytes](const Status& status) {
                if (!status.ok()) {
                  self->end_piece(copy, status);
                  return self->next(pipe);
                }
                self->to_->receive(pipe->piece.at_target, pipe->piece.between, copy->target, at,
                                   bytes, [self, pipe, copy](const Status& sent) {
                                     self->end_piece(copy, sent);
                                     self->next(pipe);
                                   });
              });
}

void CrossLink::make_piece(const PipeRef& pipe, CrossWay way) {
  const auto refused = [self = shared_from_this(), pipe, way](const Status& reason) {
    pipe->piece = {};
    // Want of memory passes: later copies ask again.
    pipe->is_short = reason.code() == StatusCode::kResourceExhausted;
    if (!pipe->is_short) self->give_up(way, reason);
  };
  Result<SharedPiece> made = make_shared_piece(*from_->memory(), *to_->memory(), way,
                                               std::max(options_.piece_bytes, kCrossTrialBytes));
  if (!made.ok()) {
    refused(made.status());
    return next(pipe);
  }
  pipe->piece = *std::move(made);
  try_piece(pipe, [self = shared_from_this(), pipe, refused](const Status& status) {
    if (!status.ok()) refused(status);
    self->next(pipe);
  });
}

void CrossLink::try_piece(const PipeRef& pipe, std::function<void(const Status&)> done) {
  struct Trial {
    std::vector<std::byte> sent, back;
    AllocationRef source, target;
    std::function<void(const Status&)> done;
  };
  auto trial = std::make_shared<Trial>();
  trial->sent.resize(static_cast<size_t>(kCrossTrialBytes));
  for (size_t i = 0; i < trial->sent.size(); ++i) {
    trial->sent[i] = static_cast<std::byte>(i * 37 + i / 256 + 1);
  }
  trial->back.resize(trial->sent.size());
  trial->done = std::move(done);
  const auto allocate = [](DeviceMemory& memory) { return memory.allocate(kCrossTrialBytes); };
  Result<AllocationRef> source = allocate(*from_->memory()), target = allocate(*to_->memory());
  if (!source.ok() || !target.ok()) {
    return trial->done(source.ok() ? target.status() : source.status());
  }
  trial->source = *std::move(source);
  trial->target = *std::move(target);
  const auto then = [trial](std::function<void()> go) {
    return [trial, go = std::move(go)](const Status& status) {
      status.ok() ? go() : std::exchange(trial->done, nullptr)(status);
    };
  };
  const auto self = shared_from_this();
  const auto compare = [trial] {
    const bool has_arrived = trial->sent == trial->back;
    trial->source.reset();
    trial->target.reset();
    std::exchange(trial->done, nullptr)(
        has_arrived ? ok_status() : internal_error("what was written did not arrive"));
  };
  const auto read = [self, trial, then, compare] {
    self->to_->download(trial->target, 0, trial->back.data(), kCrossTrialBytes, then(compare));
  };
  const auto receive = [self, pipe, trial, then, read] {
    self->to_->receive(pipe->piece.at_target, pipe->piece.between, trial->target, 0,
                       kCrossTrialBytes, then(read));
  };
  const auto send = [self, pipe, trial, then, receive] {
    self->from_->send(trial->source, 0, pipe->piece.at_source, kCrossTrialBytes,
                      pipe->piece.between, then(receive));
  };
  from_->upload(trial->sent.data(), trial->source, 0, kCrossTrialBytes, then(send));
}

void CrossLink::give_up(CrossWay way, const Status& reason) {
  std::vector<SharedPiece> gone;
  std::lock_guard lock(mutex_);
  if (ways_.front() != way) return;  // another pipe came first
  ways_.erase(ways_.begin());
  gone = std::exchange(idle_, {});
  log_message(LogLevel::kInfo, "copies from {} to {} go through {} from now on, as {} failed: {}",
              from_->memory()->device()->snapshot().name, to_->memory()->device()->snapshot().name,
              cross_way_name(ways_.front()), cross_way_name(way), reason.to_string());
}

Status CrossLink::make_room(Pipe& pipe, int64_t bytes) {
  if (pipe.bytes >= bytes) return ok_status();
  pipe.buffer.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  std::lock_guard lock(mutex_);
  host_bytes_ -= pipe.bytes;
  pipe.bytes = pipe.buffer == nullptr ? 0 : bytes;
  host_bytes_ += pipe.bytes;
  if (pipe.buffer != nullptr) return ok_status();
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
