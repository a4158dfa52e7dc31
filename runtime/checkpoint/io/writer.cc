// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/io/copy.h"

namespace hekla::checkpoint {
namespace {

// Below this an extent is not worth a page of its own: it goes through the page cache.
constexpr int64_t kDirectMinimum = int64_t{64} << 10;
// Buffered items of a file that the device may still be busy with.
constexpr size_t kBehind = 2;

bool aligned(const std::byte* data, int64_t unit) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(unit) == 0;
}

std::span<const std::byte> span_of(const std::byte* data, int64_t bytes) {
  return {data, static_cast<size_t>(bytes)};
}

}  // namespace

Result<std::unique_ptr<WriterPool>> WriterPool::create(Io& io, const WriterOptions& options) {
  if (options.item_bytes <= 0 || options.item_bytes > kMostItemBytes ||
      options.item_bytes % kBlockBytes != 0) {
    return invalid_argument("write items of {} bytes: whole blocks of {} up to {} are needed",
                            options.item_bytes, kBlockBytes, kMostItemBytes);
  }
  if (options.threads < 0 || options.threads > 256 || options.bandwidth_limit < 0) {
    return invalid_argument("{} writer threads, bandwidth limit {} bytes/s", options.threads,
                            options.bandwidth_limit);
  }
  std::unique_ptr<WriterPool> pool(new WriterPool(io, options));
  if (options.background && options.background_bandwidth != 0) {
    pool->rate_limiter_.emplace(
        options.background_bandwidth < 0 ? background_bandwidth() : options.background_bandwidth,
        pool->priority_);
  }
  int& threads = pool->options_.threads;
  if (threads == 0) {
    // Writes of equal size begin and end together, as the disk shares itself out: with fewer
    // threads it would then wait for the next items to be copied and hashed.
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    threads = std::clamp(cores / 8 + 4, 5, 7);
  }
  HEKLA_ASSIGN_OR_RETURN(pool->staging_,
                         StagingPool::create(options.staging_bytes, options.item_bytes));
  const int sets = options.background ? 2 : 1;
  // Not touched: only arrays that begin within a page and are written from where they lie need it.
  HEKLA_ASSIGN_OR_RETURN(
      pool->scratch_, StagingPool::create(threads * options.item_bytes, options.item_bytes, false));
  for (int i = 0; i < sets * threads; ++i) {
    const bool is_lowered = options.background && i < threads;
    pool->threads_.push_back(
        start_thread([pool = pool.get(), is_lowered] { pool->work(is_lowered); }));
  }
  pool->watch_.emplace(pool->priority_, [pool = pool.get()] {
    const std::lock_guard lock(pool->mutex_);
    pool->work_.notify_all();
  });
  return pool;
}

WriterPool::~WriterPool() {
  watch_.reset();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_.notify_all();
  for (std::jthread& thread : threads_) thread.join();
}

void WriterPool::push(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  work_.notify_all();  // a large extent is work for all of them
}

void WriterPool::work(bool is_lowered) {
  if (is_lowered) lower_this_thread();
  while (true) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return closing_ || (!tasks_.empty() && is_scheduled(is_lowered)); });
      if (tasks_.empty()) return;
      Task& task = tasks_.front();
      FileWriter* file = task.file;
      item.file = file;
      item.extent = task.extent;
      item.extent.bytes = std::min(task.extent.bytes, options_.item_bytes);
      task.extent.data += item.extent.bytes;
      task.extent.offset += item.extent.bytes;
      task.extent.bytes -= item.extent.bytes;
      if (task.extent.first_block >= 0) {
        task.extent.first_block += block_count(item.extent.bytes);
      }
      if (task.extent.bytes == 0) {
        // A staged buffer is one item: it goes with it. The task's own count becomes the item's.
        item.keep_alive = std::move(task.keep_alive);
        tasks_.pop_front();
      } else {
        const std::lock_guard file_lock(file->mutex_);
        ++file->outstanding_;
      }
    }
    Status status;
    if (!item.file->failed()) {
      std::optional<RateLimiter::Permit> permit;
      if (rate_limiter_ && item.file->is_rate_limited_)
        permit.emplace(*rate_limiter_, item.extent.bytes, item.file->stop_);
      if (item.file->stop_.stop_requested() ||
          !wait_for_bandwidth(item.extent.bytes, item.file->stop_)) {
        status = cancelled("writing {} was cancelled", item.file->path());
      } else {
        status = item.file->run(item.extent);
      }
    }
    item.keep_alive.reset();
    item.file->finish(std::move(status));
  }
}

bool WriterPool::wait_for_bandwidth(int64_t bytes, const std::stop_token& stop) {
  if (options_.bandwidth_limit == 0) return true;
  using std::chrono::steady_clock;
  std::unique_lock lock(bandwidth_mutex_);
  const steady_clock::time_point now = steady_clock::now();
  const steady_clock::time_point start = std::max(now, bandwidth_free_);
  const double seconds = static_cast<double>(bytes) / static_cast<double>(options_.bandwidth_limit);
  bandwidth_free_ = start + std::chrono::duration_cast<steady_clock::duration>(
                                std::chrono::duration<double>(seconds));
  bandwidth_changed_.wait_until(lock, stop, start, [] { return false; });
  return !stop.stop_requested();
}

FileWriter::FileWriter(WriterPool& pool, std::string path, int64_t file_bytes, int64_t blocks,
                       std::stop_token stop)
    : pool_(pool),
      path_(std::move(path)),
      file_bytes_(file_bytes),
      stop_(std::move(stop)),
      digests_(static_cast<size_t>(blocks)) {}

Result<std::unique_ptr<FileWriter>> FileWriter::create(WriterPool& pool, std::string path,
                                                       int64_t file_bytes, int64_t blocks,
                                                       std::stop_token stop, FileUse use) {
  if (file_bytes < 0 || blocks < 0) {
    return invalid_argument("{}: {} bytes, {} blocks", path, file_bytes, blocks);
  }
  std::unique_ptr<FileWriter> writer(
      new FileWriter(pool, std::move(path), file_bytes, blocks, std::move(stop)));
  Io& io = pool.io();
  const int create = use == FileUse::kNew ? O_CREAT | O_EXCL : 0;
  HEKLA_ASSIGN_OR_RETURN(writer->buffered_, File::open(io, writer->path_, O_RDWR | create));
  if (use == FileUse::kNew) {
    HEKLA_RETURN_IF_ERROR(pool.options().preallocate ? writer->buffered_.allocate(file_bytes)
                                                     : writer->buffered_.truncate(file_bytes));
  }
  if (pool.options().direct) {
    Result<File> direct = File::open(io, writer->path_, O_RDWR | O_DIRECT);
    if (direct.ok()) {
      writer->direct_ = std::move(*direct);
      int64_t offset_alignment = 1;
      io.direct_alignment(writer->direct_.fd(), &writer->memory_alignment_, &offset_alignment);
      writer->direct_ok_ = offset_alignment <= kDirectAlignment;
    }
  }
  return writer;
}

FileWriter::~FileWriter() { static_cast<void>(drain()); }

bool FileWriter::failed() const {
  const std::lock_guard lock(mutex_);
  return !status_.ok();
}

void FileWriter::add(const WriteExtent& extent) {
  const int64_t blocks = extent.first_block < 0 ? 0 : block_count(extent.bytes);
  const bool fits = extent.bytes >= 0 && extent.offset >= 0 && extent.bytes <= file_bytes_ &&
                    extent.offset <= file_bytes_ - extent.bytes &&
                    extent.first_block + blocks <= static_cast<int64_t>(digests_.size());
  {
    const std::lock_guard lock(mutex_);
    if (!fits && status_.ok()) {
      status_ = invalid_argument(
          "{} bytes at offset {} (blocks from {}) do not fit into {} of {} bytes and {} blocks",
          extent.bytes, extent.offset, extent.first_block, path_, file_bytes_, digests_.size());
    }
    if (!fits || extent.bytes == 0) return;
    ++outstanding_;
  }
  pool_.push({this, extent, {}});
}

void FileWriter::add(StagingPool::Buffer buffer, int64_t bytes, int64_t offset,
                     int64_t first_block) {
  const WriteExtent extent{buffer.data(), bytes, offset, first_block};
  const int64_t blocks = first_block < 0 ? 0 : block_count(bytes);
  const bool fits = bytes > 0 && bytes <= pool_.options().item_bytes && offset >= 0 &&
                    offset <= file_bytes_ - bytes &&
                    first_block + blocks <= static_cast<int64_t>(digests_.size());
  if (!fits) {
    add(WriteExtent{extent.data, bytes < 0 ? bytes : file_bytes_ + 1, offset, first_block});
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ++outstanding_;
  }
  pool_.push({this, extent, std::move(buffer)});
}

void FileWriter::finish(Status status) {
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = std::move(status);
  --outstanding_;
  done_.notify_all();  // under the lock: a waiter may destroy this as soon as it sees the count
}

void FileWriter::count(int64_t bytes) {
  bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
  if (counter_ != nullptr) counter_->fetch_add(bytes, std::memory_order_relaxed);
}

Status FileWriter::drain() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return outstanding_ == 0; });
  return status_;
}

Status FileWriter::run(const WriteExtent& item) {
  int64_t direct_bytes = 0;
  if (direct_ok_ && item.bytes >= kDirectMinimum && item.offset % kDirectAlignment == 0) {
    direct_bytes = round_down(item.bytes, kDirectAlignment);
  }
  const bool copy = direct_bytes > 0 && !aligned(item.data, memory_alignment_);
  StagingPool::Buffer scratch;
  if (copy) {
    HEKLA_ASSIGN_OR_RETURN(scratch, pool_.scratch_->acquire({}));
  }
  const std::byte* source = copy ? scratch.data() : item.data;
  for (int64_t at = 0; at < item.bytes; at += kBlockBytes) {
    const int64_t bytes = std::min(kBlockBytes, item.bytes - at);
    // The block is hashed where the copy has just read it, not where it went past the cache.
    if (copy) copy_past_cache(scratch.data() + at, item.data + at, static_cast<size_t>(bytes));
    if (item.first_block >= 0) {
      digests_[static_cast<size_t>(item.first_block + at / kBlockBytes)] =
          block_digest(span_of(item.data + at, bytes));
    }
  }
  if (direct_bytes > 0) HEKLA_RETURN_IF_ERROR(write_direct(source, direct_bytes, item.offset));
  const int64_t rest = item.bytes - direct_bytes;
  if (rest > 0) {
    const int64_t offset = item.offset + direct_bytes;
    HEKLA_RETURN_IF_ERROR(buffered_.write(span_of(source + direct_bytes, rest), offset));
    if (rest >= kDirectMinimum) HEKLA_RETURN_IF_ERROR(write_behind(offset, rest));
  }
  count(item.bytes);
  return ok_status();
}

Status FileWriter::write_direct(const std::byte* data, int64_t bytes, int64_t offset) {
  Io& io = pool_.io();
  while (bytes > 0 && direct_ok_) {
    const int64_t moved = io.pwrite(direct_.fd(), data, bytes, offset);
    if (moved == -EINTR) continue;
    // Some file systems take the flag and refuse the transfer.
    if (moved == -EINVAL) direct_ok_ = false;
    if (moved < 0 && moved != -EINVAL) {
      return io_error(static_cast<int>(-moved),
                      fmt::format("direct pwrite of {} bytes at offset {}", bytes, offset), path_);
    }
    // What a short write leaves may begin off the grid: its last part is written again.
    const int64_t done = std::max<int64_t>(0, round_down(moved, kDirectAlignment));
    data += done;
    offset += done;
    bytes -= done;
    if (moved >= 0 && done == 0) break;  // less than one unit moved
  }
  if (bytes == 0) return ok_status();
  HEKLA_RETURN_IF_ERROR(buffered_.write(span_of(data, bytes), offset));
  return write_behind(offset, bytes);
}

Status FileWriter::write_behind(int64_t offset, int64_t bytes) {
  Io& io = pool_.io();
  // These report errors of the device, which the sync at the end would then not see again.
  const auto check = [&](int status, const Range& range) {
    if (status >= 0 || status == -EINVAL || status == -ESPIPE || status == -ENOSYS ||
        status == -EOPNOTSUPP || status == -EINTR) {
      return ok_status();
    }
    return io_error(-status,
                    fmt::format("writing out {} bytes at offset {}", range.bytes, range.offset),
                    path_);
  };
  HEKLA_RETURN_IF_ERROR(
      check(io.write_behind(buffered_.fd(), offset, bytes, false), {offset, bytes}));
  Range oldest;
  {
    const std::lock_guard lock(mutex_);
    behind_.push_back({offset, bytes});
    if (behind_.size() <= kBehind) return ok_status();
    oldest = behind_.front();
    behind_.pop_front();
  }
  HEKLA_RETURN_IF_ERROR(
      check(io.write_behind(buffered_.fd(), oldest.offset, oldest.bytes, true), oldest));
  io.drop_cache(buffered_.fd(), oldest.offset, oldest.bytes);
  return ok_status();
}

Status FileWriter::write(std::span<const std::byte> bytes, int64_t offset) {
  HEKLA_RETURN_IF_ERROR(drain());
  const auto size = static_cast<int64_t>(bytes.size());
  if (offset < 0 || size > file_bytes_ || offset > file_bytes_ - size) {
    return invalid_argument("{} bytes at offset {} do not fit into {} of {} bytes", size, offset,
                            path_, file_bytes_);
  }
  Status status = buffered_.write(bytes, offset);
  if (status.ok()) count(size);
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
  return status;
}

Status FileWriter::truncate(int64_t bytes) {
  HEKLA_RETURN_IF_ERROR(drain());
  const Status status = buffered_.truncate(bytes);
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
  return status;
}

Status FileWriter::close() {
  Status status = drain();
  if (status.ok() && buffered_.is_open()) status = buffered_.sync_data();
  if (status.ok() && buffered_.is_open() && !direct_ok_) {
    pool_.io().drop_cache(buffered_.fd(), 0, file_bytes_);
  }
  const Status closed_direct = direct_.close();
  const Status closed = buffered_.close();
  if (status.ok()) status = closed_direct.ok() ? closed : closed_direct;
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
  return status;
}

}  // namespace hekla::checkpoint
