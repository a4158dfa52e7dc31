// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/io/reader.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/async/thread.h"
#include "runtime/base/io/file.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/io/staging.h"

namespace hekla::checkpoint {
namespace {

// Below this a read of its own for the last, unaligned bytes costs more than copying all.
constexpr int64_t kInPlaceMinimum = int64_t{64} << 10;

int64_t up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

struct Source {
  File buffered;
  File direct;
  int64_t memory_alignment = kDirectAlignment;
  bool tried_direct = false;
  std::atomic<bool> direct_ok{false};
};

// A run of blocks of one request.
struct Item {
  const ReadRequest* request = nullptr;
  int64_t at = 0;  // in the piece; the start of a block
  int64_t bytes = 0;
};

}  // namespace

struct Reader::Counters {
  std::atomic<int64_t> bytes{0};
};

namespace {

// One call of Reader::read.
class Run {
 public:
  Run(Io& io, const ReaderOptions& options, std::atomic<int64_t>& bytes_read, std::stop_token stop)
      : io_(io), options_(options), bytes_read_(bytes_read), stop_(std::move(stop)) {}

  Status prepare(std::span<const std::string> paths, std::span<const ReadRequest> requests) {
    sources_ = std::vector<Source>(paths.size());
    for (const ReadRequest& request : requests) HEKLA_RETURN_IF_ERROR(add(paths, request));
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return std::pair(a.request->file, a.request->offset + a.at) <
             std::pair(b.request->file, b.request->offset + b.at);
    });
    return ok_status();
  }

  Status serve() {
    if (items_.empty()) return ok_status();
    // Room for an unaligned start and end around the blocks; small reads touch little memory.
    int64_t longest = 0;
    for (const Item& item : items_) longest = std::max(longest, item.bytes);
    const int64_t buffer_bytes = up(longest, kDirectAlignment) + 2 * kDirectAlignment;
    const int64_t buffers = std::max<int64_t>(1, options_.budget_bytes / buffer_bytes);
    const int64_t threads =
        std::min({int64_t{options_.threads}, buffers, static_cast<int64_t>(items_.size())});
    // Not touched: most of it stays unused where bytes go straight into the caller's memory.
    HEKLA_ASSIGN_OR_RETURN(pool_, StagingPool::create(threads * buffer_bytes, buffer_bytes, false));
    std::vector<std::jthread> workers;
    for (int64_t i = 0; i < threads; ++i) workers.push_back(start_thread([this] { work(); }));
    for (std::jthread& worker : workers) worker.join();
    return status_;
  }

 private:
  Status add(std::span<const std::string> paths, const ReadRequest& request) {
    const int64_t all = block_count(request.bytes);
    const int64_t blocks = request.blocks < 0 ? all - request.first_block : request.blocks;
    if (request.file < 0 || static_cast<size_t>(request.file) >= paths.size() ||
        request.offset < 0 || request.bytes < 0 || request.offset > INT64_MAX - request.bytes ||
        request.first_block < 0 || blocks < 0 || request.first_block > all - blocks) {
      return invalid_argument(
          "a read of blocks [{}, +{}) of {} bytes at offset {} of file {} of {}",
          request.first_block, blocks, request.bytes, request.offset, request.file, paths.size());
    }
    if (!request.digests.empty() && request.digests.size() != static_cast<size_t>(all)) {
      return invalid_argument("{} digests for the {} blocks of {} bytes in {}",
                              request.digests.size(), all, request.bytes,
                              paths[static_cast<size_t>(request.file)]);
    }
    if (blocks == 0) return ok_status();
    Source& source = sources_[static_cast<size_t>(request.file)];
    const std::string& path = paths[static_cast<size_t>(request.file)];
    if (!source.buffered.is_open()) {
      HEKLA_ASSIGN_OR_RETURN(source.buffered, File::open(io_, path, O_RDONLY));
    }
    if (options_.direct && !request.cached && !source.tried_direct) {
      source.tried_direct = true;
      Result<File> direct = File::open(io_, path, O_RDONLY | O_DIRECT);
      if (direct.ok()) {
        source.direct = std::move(*direct);
        int64_t offset_alignment = 1;
        io_.direct_alignment(source.direct.fd(), &source.memory_alignment, &offset_alignment);
        source.direct_ok = offset_alignment <= kDirectAlignment;
      }
    }
    const int64_t end = std::min(request.bytes, (request.first_block + blocks) * kBlockBytes);
    for (int64_t at = request.first_block * kBlockBytes; at < end; at += options_.item_bytes) {
      items_.push_back({&request, at, std::min(options_.item_bytes, end - at)});
    }
    return ok_status();
  }

  void work() {
    Result<StagingPool::Buffer> buffer = pool_->acquire({});  // one per worker: never waits
    while (true) {
      const size_t next = next_.fetch_add(1);
      if (next >= items_.size() || failed_) return;
      Status status;
      if (stop_.stop_requested() || !wait_for_bandwidth(items_[next].bytes)) {
        status = cancelled("reading was cancelled");
      } else {
        status = serve(items_[next], buffer->data());
      }
      if (!status.ok()) {
        const std::lock_guard lock(mutex_);
        if (status_.ok()) status_ = std::move(status);
        failed_ = true;
      }
    }
  }

  Status serve(const Item& item, std::byte* scratch) {
    const ReadRequest& request = *item.request;
    std::byte* const into = request.into == nullptr
                                ? nullptr
                                : request.into + (item.at - request.first_block * kBlockBytes);
    HEKLA_ASSIGN_OR_RETURN(const std::byte* bytes, fetch(item, into, scratch));
    for (int64_t at = 0; at < item.bytes && !request.digests.empty(); at += kBlockBytes) {
      const int64_t size = std::min(kBlockBytes, item.bytes - at);
      const auto block = static_cast<size_t>((item.at + at) / kBlockBytes);
      const uint64_t found = block_digest({bytes + at, static_cast<size_t>(size)});
      if (found != request.digests[block]) {
        return data_loss(
            "{}: {} bytes at offset {} (block {} of the piece at {}) have the digest {:016x}, not "
            "{:016x}",
            sources_[static_cast<size_t>(request.file)].buffered.path(), size,
            request.offset + item.at + at, block, request.offset, found, request.digests[block]);
      }
    }
    const auto size = static_cast<size_t>(item.bytes);
    if (into != nullptr && bytes != into) std::memcpy(into, bytes, size);
    if (request.take) return request.take(item.at, {into != nullptr ? into : bytes, size});
    return ok_status();
  }

  // The item's bytes, in `into` where that is possible without a copy, else in `scratch`.
  Result<const std::byte*> fetch(const Item& item, std::byte* into, std::byte* scratch) {
    Source& source = sources_[static_cast<size_t>(item.request->file)];
    const int64_t offset = item.request->offset + item.at;
    const int64_t whole = round_down(item.bytes, kDirectAlignment);
    const bool direct = source.direct_ok && !item.request->cached;
    if (direct && into != nullptr && whole >= kInPlaceMinimum && offset % kDirectAlignment == 0 &&
        reinterpret_cast<uintptr_t>(into) % static_cast<uintptr_t>(source.memory_alignment) == 0) {
      HEKLA_ASSIGN_OR_RETURN(int64_t have, read_direct(source, into, offset, whole));
      const int64_t rest = item.bytes - whole;
      if (have == whole && rest > 0) {
        HEKLA_ASSIGN_OR_RETURN(const int64_t more,
                               read_direct(source, scratch, offset + whole, kDirectAlignment));
        std::memcpy(into + whole, scratch, static_cast<size_t>(std::min(more, rest)));
        have += more;
      }
      if (have >= item.bytes) return into;
      // The rest, and the message when there is none, by the other way.
    } else if (direct) {
      const int64_t start = round_down(offset, kDirectAlignment);
      const int64_t end = up(offset + item.bytes, kDirectAlignment);
      HEKLA_ASSIGN_OR_RETURN(const int64_t have, read_direct(source, scratch, start, end - start));
      if (have >= offset + item.bytes - start) return scratch + (offset - start);
    }
    std::byte* target = into != nullptr ? into : scratch;
    const std::span<std::byte> wanted(target, static_cast<size_t>(item.bytes));
    HEKLA_RETURN_IF_ERROR(source.buffered.read(wanted, offset));
    bytes_read_.fetch_add(item.bytes, std::memory_order_relaxed);
    return target;
  }

  // Bytes read from `offset` on, fewer than asked for at the end of the file or when direct reads
  // turn out to be refused.
  Result<int64_t> read_direct(Source& source, std::byte* data, int64_t offset, int64_t bytes) {
    int64_t have = 0;
    while (have < bytes) {
      const int64_t moved = io_.pread(source.direct.fd(), data + have, bytes - have, offset + have);
      if (moved == -EINTR) continue;
      if (moved == -EINVAL) {
        source.direct_ok = false;
        return int64_t{0};
      }
      if (moved < 0) {
        return io_error(
            static_cast<int>(-moved),
            fmt::format("direct pread of {} bytes at offset {}", bytes - have, offset + have),
            source.direct.path());
      }
      bytes_read_.fetch_add(moved, std::memory_order_relaxed);
      have += moved;
      if (moved % kDirectAlignment != 0 || moved == 0) break;  // the end of the file
    }
    return have;
  }

  bool wait_for_bandwidth(int64_t bytes) {
    if (options_.bandwidth_limit == 0) return true;
    using std::chrono::steady_clock;
    std::unique_lock lock(mutex_);
    const steady_clock::time_point start = std::max(steady_clock::now(), bandwidth_free_);
    bandwidth_free_ =
        start + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(
                    static_cast<double>(bytes) / static_cast<double>(options_.bandwidth_limit)));
    bandwidth_changed_.wait_until(lock, stop_, start, [] { return false; });
    return !stop_.stop_requested();
  }

  Io& io_;
  const ReaderOptions& options_;
  std::atomic<int64_t>& bytes_read_;
  const std::stop_token stop_;
  std::vector<Source> sources_;
  std::vector<Item> items_;
  std::unique_ptr<StagingPool> pool_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable_any bandwidth_changed_;
  std::chrono::steady_clock::time_point bandwidth_free_;  // guarded by mutex_
  Status status_;                                         // guarded by mutex_
};

}  // namespace

Reader::Reader(Io& io, const ReaderOptions& options)
    : io_(io), options_(options), counters_(std::make_shared<Counters>()) {}

Result<std::unique_ptr<Reader>> Reader::create(Io& io, const ReaderOptions& options) {
  if (options.item_bytes <= 0 || options.item_bytes > kMostItemBytes ||
      options.item_bytes % kBlockBytes != 0 || options.threads < 0 || options.threads > 256 ||
      options.bandwidth_limit < 0) {
    return invalid_argument("a reader with items of {} bytes, {} threads, {} bytes/s",
                            options.item_bytes, options.threads, options.bandwidth_limit);
  }
  std::unique_ptr<Reader> reader(new Reader(io, options));
  if (reader->options_.threads == 0) {
    // Reads of equal size begin and end together; two more than keep the disk busy verify.
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    reader->options_.threads = std::clamp(cores / 8 + 4, 5, 7);
  }
  return reader;
}

Status Reader::read(std::span<const std::string> paths, std::span<const ReadRequest> requests,
                    std::stop_token stop) {
  Run run(io_, options_, counters_->bytes, std::move(stop));
  HEKLA_RETURN_IF_ERROR(run.prepare(paths, requests));
  return run.serve();
}

int64_t Reader::bytes_read() const { return counters_->bytes.load(); }

}  // namespace hekla::checkpoint
