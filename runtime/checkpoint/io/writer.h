// SPDX-License-Identifier: Apache-2.0
// Payload into files: hashed while it is in cache, written by direct I/O from a few threads.
//
// A WriterPool has the threads, the staging memory and the bandwidth limit of a process; each
// FileWriter fills one file through it. Extents are cut into items of some MiB; a worker takes an
// item, hashes its 1 MiB blocks and writes it. Memory that direct I/O cannot take as it is goes
// through the worker's own aligned buffer. File systems without O_DIRECT get buffered writes whose
// pages are pushed out and dropped behind, so that the page cache stays small.
//
//   HEKLA_ASSIGN_OR_RETURN(auto writer, FileWriter::create(pool, path, file_bytes, blocks, stop));
//   for (const WriteExtent& extent : extents) writer->add(extent);
//   HEKLA_RETURN_IF_ERROR(writer->drain());          // digests() holds from here on
//   HEKLA_RETURN_IF_ERROR(writer->write(page, at));  // small and unaligned parts, buffered
//   HEKLA_RETURN_IF_ERROR(writer->close());          // fdatasync; the file is durable
//
// The first error of a file ends its writing and is what drain and close return; nothing is retried
// but short writes and EINTR. Threads of the pool hold no lock of the caller and get no signals.
// A pool is thread-safe and outlives its writers; a writer belongs to one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/io/file.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/io/priority.h"
#include "runtime/checkpoint/io/rate_limiter.h"
#include "runtime/checkpoint/io/staging.h"

namespace hekla::checkpoint {

struct WriterOptions {
  int threads = 0;                             // 0: min(7, cores / 8 + 4), at least 5
  int64_t item_bytes = int64_t{4} << 20;       // whole blocks, 1 to 64 MiB
  int64_t staging_bytes = int64_t{256} << 20;  // buffers for staging(); the workers' come on top
  int64_t bandwidth_limit = 0;                 // bytes per second of this process; 0: none
  bool direct = true;                          // try O_DIRECT
  bool preallocate = true;                     // false where fallocate writes zeros
  // Threads of low priority work, but while priority() is held: for what goes on behind a program.
  bool background = false;
  // Their bytes per second; < 0: background_bandwidth(), 0: as fast as it goes.
  int64_t background_bandwidth = -1;
};

// Bytes that lie in memory until drain() and go to one place of the file.
struct WriteExtent {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;        // in the file
  int64_t first_block = -1;  // where the digests of its blocks go; < 0: not hashed
};

class FileWriter;

class WriterPool {
 public:
  // INVALID_ARGUMENT for a bad size, RESOURCE_EXHAUSTED without memory. `io` outlives the pool.
  static Result<std::unique_ptr<WriterPool>> create(Io& io, const WriterOptions& options);
  ~WriterPool();

  Io& io() const { return io_; }
  const WriterOptions& options() const { return options_; }
  StagingPool& staging() { return *staging_; }
  // Hold it while somebody waits for what this pool writes.
  const std::shared_ptr<Priority>& priority() const { return priority_; }
  // Of files that are paced; null where nothing is.
  RateLimiter* rate_limiter() { return rate_limiter_ ? &*rate_limiter_ : nullptr; }
  // Whether a thread of this priority is to work now.
  bool is_scheduled(bool is_lowered) const {
    return !options_.background || is_lowered != priority_->is_raised();
  }

 private:
  friend class FileWriter;
  struct Task {
    FileWriter* file = nullptr;
    WriteExtent extent;              // what is left of it
    StagingPool::Buffer keep_alive;  // given back when the last item of it is done
  };
  struct Item {
    FileWriter* file = nullptr;
    WriteExtent extent;
    StagingPool::Buffer keep_alive;
  };

  WriterPool(Io& io, const WriterOptions& options) : io_(io), options_(options) {}
  void push(Task task);
  void work(bool is_lowered);
  // Sleeps until `bytes` may be written; false: stop was requested.
  bool wait_for_bandwidth(int64_t bytes, const std::stop_token& stop);

  Io& io_;
  WriterOptions options_;
  const std::shared_ptr<Priority> priority_ = std::make_shared<Priority>();
  std::optional<RateLimiter> rate_limiter_;
  std::unique_ptr<StagingPool> staging_;
  std::unique_ptr<StagingPool>
      scratch_;  // for items that are copied; the lowest ones are used again
  std::mutex mutex_;
  std::condition_variable_any work_;
  std::deque<Task> tasks_;  // guarded by mutex_
  bool closing_ = false;    // guarded by mutex_
  std::mutex bandwidth_mutex_;
  std::condition_variable_any bandwidth_changed_;
  std::chrono::steady_clock::time_point bandwidth_free_;  // guarded by bandwidth_mutex_
  std::vector<std::jthread> threads_;
  std::optional<Priority::Watch> watch_;
};

enum class FileUse {
  kNew,     // must not exist; gets its size and space
  kShared,  // exists with its size: another process of the group made it
};

class FileWriter {
 public:
  // `blocks`: length of the table of digests. After `stop` is requested nothing more is written and
  // drain returns CANCELLED.
  static Result<std::unique_ptr<FileWriter>> create(WriterPool& pool, std::string path,
                                                    int64_t file_bytes, int64_t blocks,
                                                    std::stop_token stop = {},
                                                    FileUse use = FileUse::kNew);
  // Waits for its items, closes without syncing.
  ~FileWriter();

  // Returns at once. An extent outside the file or the table is an INVALID_ARGUMENT of drain.
  void add(const WriteExtent& extent);
  // The first `bytes` of a buffer of the pool's staging(), which goes back when they are written.
  void add(StagingPool::Buffer buffer, int64_t bytes, int64_t offset, int64_t first_block);
  // Of a block whose bytes are added without being hashed, because they were in cache before.
  void set_digest(int64_t block, uint64_t digest) {
    digests_.at(static_cast<size_t>(block)) = digest;
  }
  // Until all that was added is written.
  Status drain();
  // One XXH3-64 per block, 0 where nothing was added; after drain.
  const std::vector<uint64_t>& digests() const { return digests_; }
  // Buffered, at once; for what is small or unaligned. After drain.
  Status write(std::span<const std::byte> bytes, int64_t offset);
  // The file's size, when less was written than there was room for. After drain.
  Status truncate(int64_t bytes);
  // drain, fdatasync, close.
  Status close();

  // Also adds what is written to `counter`, which outlives the writer. Before the first add.
  void count_into(std::atomic<int64_t>* counter) { counter_ = counter; }
  // Written as fast as it goes, also while nobody waits. Before the first add.
  void do_not_pace() { is_rate_limited_ = false; }
  int64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }
  const std::string& path() const { return path_; }
  // Whether payload goes past the page cache; may turn false at the first write.
  bool is_direct() const { return direct_ok_.load(); }

 private:
  friend class WriterPool;
  FileWriter(WriterPool& pool, std::string path, int64_t file_bytes, int64_t blocks,
             std::stop_token stop);
  void finish(Status status);
  void count(int64_t bytes);
  Status run(const WriteExtent& item);
  Status write_direct(const std::byte* data, int64_t bytes, int64_t offset);
  Status write_behind(int64_t offset, int64_t bytes);
  bool failed() const;

  WriterPool& pool_;
  const std::string path_;
  const int64_t file_bytes_;
  const std::stop_token stop_;
  File buffered_;
  File direct_;
  int64_t memory_alignment_ = kDirectAlignment;
  std::atomic<bool> direct_ok_{false};
  std::atomic<int64_t> bytes_written_{0};
  std::atomic<int64_t>* counter_ = nullptr;
  bool is_rate_limited_ = true;
  std::vector<uint64_t> digests_;  // each entry written by one thread, read after drain
  mutable std::mutex mutex_;
  std::condition_variable done_;
  int64_t outstanding_ = 0;  // extents and items under way; guarded by mutex_
  Status status_;            // the first error; guarded by mutex_
  struct Range {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  std::deque<Range> behind_;  // buffered and not yet waited for; guarded by mutex_
};

}  // namespace hekla::checkpoint
