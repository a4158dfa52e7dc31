// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/compressor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/checkpoint/codec/codec.h"
#include "runtime/checkpoint/format/digest.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kSampledChunks = 4;

}  // namespace

Compressor::Compressor(WriterPool& pool, FileWriter& writer, int64_t offset, int64_t blocks,
                       std::vector<PieceTarget> pieces, std::stop_token stop,
                       std::atomic<int64_t>* bytes_done)
    : pool_(pool),
      writer_(writer),
      stop_(std::move(stop)),
      bytes_done_(bytes_done),
      pieces_(std::move(pieces)),
      digests_(static_cast<size_t>(blocks)),
      buffer_offset_(offset),
      end_(offset) {
  for (const PieceTarget& piece : pieces_) {
    chunks_.emplace_back(static_cast<size_t>(piece.grid.chunks()));
    choices_.push_back(piece.is_auto ? Choice::kOpen : Choice::kCode);
  }
}

Result<std::unique_ptr<Compressor>> Compressor::create(WriterPool& pool, FileWriter& writer,
                                                       int64_t offset, int64_t blocks,
                                                       std::vector<PieceTarget> pieces,
                                                       std::stop_token stop,
                                                       std::atomic<int64_t>* bytes_done) {
  std::unique_ptr<Compressor> made(
      new Compressor(pool, writer, offset, blocks, std::move(pieces), std::move(stop), bytes_done));
  // Not the pool's own: those wait for this.
  const int64_t item = pool.options().item_bytes;
  HEKLA_ASSIGN_OR_RETURN(made->buffers_, StagingPool::create(2 * item, item));
  // Like the pool's own: a set of low priority and one for when somebody waits.
  const int threads =
      std::min(pool.options().threads, static_cast<int>(std::thread::hardware_concurrency()) + 1);
  const bool is_background = pool.options().background;
  for (int i = 0; i < (is_background ? 2 : 1) * threads; ++i) {
    const bool is_lowered = is_background && i < threads;
    made->threads_.push_back(
        start_thread([raw = made.get(), is_lowered] { raw->work(is_lowered); }));
  }
  made->watch_.emplace(pool.priority(), [raw = made.get()] {
    const std::lock_guard lock(raw->mutex_);
    raw->changed_.notify_all();
  });
  return made;
}

Compressor::~Compressor() {
  watch_.reset();
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    if (status_.ok()) status_ = cancelled("the save was given up");
    changed_.notify_all();
  }
  for (std::jthread& thread : threads_) thread.join();
  filling_ = {};
  static_cast<void>(writer_.drain());  // it may still hold a buffer of ours
}

void Compressor::add(size_t piece, int64_t first, int64_t count, const std::byte* data,
                     StagingPool::Buffer buffer) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back({piece, first, count, data, std::move(buffer)});
  ++outstanding_;
  changed_.notify_all();
}

void Compressor::work(bool is_lowered) {
  if (is_lowered) lower_this_thread();
  std::vector<std::byte> padded;
  std::unique_ptr<Coder> coder;  // made with the first job: half of the threads may get none
  while (true) {
    Job job;
    Status status;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(
          lock, [&] { return is_closing_ || (!jobs_.empty() && pool_.is_scheduled(is_lowered)); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      if (!status_.ok()) status = status_;
    }
    if (status.ok() && stop_.stop_requested()) status = cancelled("the save was given up");
    if (status.ok() && coder == nullptr) {
      Result<std::unique_ptr<Coder>> made = Coder::create();
      if (made.ok()) coder = *std::move(made);
      if (!made.ok()) status = made.status();
    }
    if (status.ok()) status = run(job, *coder, padded);
    job.buffer = {};
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    --outstanding_;
    changed_.notify_all();
  }
}

std::span<const std::byte> Compressor::whole(const Job& job, int64_t chunk,
                                             std::vector<std::byte>& padded) {
  const ChunkGrid& grid = pieces_[job.piece].grid;
  const std::byte* data = job.data + (grid.begin(chunk) - grid.begin(job.first));
  const auto bytes = static_cast<size_t>(grid.end(chunk) - grid.begin(chunk));
  const auto full = static_cast<size_t>(grid.full_bytes());
  if (bytes == full) return {data, full};
  padded.assign(full, std::byte{0});
  std::memcpy(padded.data(), data, bytes);
  return padded;
}

Result<bool> Compressor::choose(const Job& job, Coder& coder, std::vector<std::byte>& padded) {
  {
    std::unique_lock lock(mutex_);
    // Jobs are begun in order: somebody has the first one of the piece.
    if (job.first > 0) {
      changed_.wait(lock, [&] { return choices_[job.piece] != Choice::kOpen || !status_.ok(); });
      if (!status_.ok()) return status_;
    }
    if (choices_[job.piece] != Choice::kOpen) return choices_[job.piece] == Choice::kCode;
  }
  const ChunkGrid& grid = pieces_[job.piece].grid;
  int64_t before = 0, after = 0;
  for (int64_t k = 0; k < std::min(job.count, kSampledChunks); ++k) {
    const std::span<const std::byte> bytes = whole(job, k, padded);
    HEKLA_ASSIGN_OR_RETURN(const std::span<const std::byte> coded,
                           coder.encode(bytes, grid.element_bytes()));
    before += static_cast<int64_t>(bytes.size());
    after += static_cast<int64_t>(coded.empty() ? bytes.size() : coded.size());
  }
  const bool codes = static_cast<double>(before) >= kAutoRatio * static_cast<double>(after);
  const std::lock_guard lock(mutex_);
  choices_[job.piece] = codes ? Choice::kCode : Choice::kStore;
  changed_.notify_all();
  return codes;
}

Status Compressor::run(const Job& job, Coder& coder, std::vector<std::byte>& padded) {
  const PieceTarget& piece = pieces_[job.piece];
  HEKLA_ASSIGN_OR_RETURN(const bool codes, choose(job, coder, padded));
  for (int64_t k = job.first; k < job.first + job.count; ++k) {
    const std::span<const std::byte> bytes = whole(job, k, padded);
    std::span<const std::byte> stored;
    if (codes) {
      HEKLA_ASSIGN_OR_RETURN(stored, coder.encode(bytes, piece.grid.element_bytes()));
    }
    Chunk& chunk = chunks_[job.piece][static_cast<size_t>(k)];
    chunk.is_coded = !stored.empty();
    if (!chunk.is_coded) stored = bytes;
    chunk.bytes = static_cast<int64_t>(stored.size());
    digests_[static_cast<size_t>(piece.first_block + k)] = block_digest(stored);
    HEKLA_RETURN_IF_ERROR(append(stored, &chunk.offset));
    bytes_done_->fetch_add(piece.grid.end(k) - piece.grid.begin(k), std::memory_order_relaxed);
  }
  return ok_status();
}

Status Compressor::append(std::span<const std::byte> bytes, int64_t* offset) {
  const std::lock_guard lock(append_mutex_);
  *offset = end_;
  while (!bytes.empty()) {
    if (filling_.data() == nullptr) {
      HEKLA_ASSIGN_OR_RETURN(filling_, buffers_->acquire(stop_));
    }
    const size_t count =
        std::min(bytes.size(), static_cast<size_t>(buffers_->buffer_bytes() - filled_));
    std::memcpy(filling_.data() + filled_, bytes.data(), count);
    filled_ += static_cast<int64_t>(count);
    end_ += static_cast<int64_t>(count);
    bytes = bytes.subspan(count);
    if (filled_ == buffers_->buffer_bytes()) flush();
  }
  return ok_status();
}

void Compressor::flush() {
  if (filled_ == 0) return;
  writer_.add(std::move(filling_), filled_, buffer_offset_, -1);
  filling_ = {};
  buffer_offset_ += filled_;
  filled_ = 0;
}

Status Compressor::drain() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outstanding_ == 0; });
    HEKLA_RETURN_IF_ERROR(status_);
  }
  const std::lock_guard lock(append_mutex_);
  flush();
  return ok_status();
}

}  // namespace hekla::checkpoint
