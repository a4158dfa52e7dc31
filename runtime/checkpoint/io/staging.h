// SPDX-License-Identifier: Apache-2.0
// StagingPool: a fixed amount of aligned host memory, handed out in buffers of one size.
//
// Made once, its pages touched unless told not to, and never grown: a save of any size passes
// through it, and whoever wants a buffer when there is none waits. A Buffer returns itself when it
// is destroyed; the pool must outlive its buffers. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

// Start of every buffer; what direct I/O wants at most.
inline constexpr int64_t kDirectAlignment = 4096;
// What a reader or a writer may move at a time at most.
inline constexpr int64_t kMostItemBytes = int64_t{64} << 20;

inline int64_t round_down(int64_t bytes, int64_t unit) { return bytes / unit * unit; }

class StagingPool {
 public:
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      if (this == &other) return *this;
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      return *this;
    }
    ~Buffer() { reset(); }
    std::byte* data() const { return data_; }
    // Gives it back now.
    void reset() {
      if (data_ != nullptr) pool_->give_back(std::exchange(data_, nullptr));
    }

   private:
    friend class StagingPool;
    Buffer(StagingPool* pool, std::byte* data) : pool_(pool), data_(data) {}
    StagingPool* pool_ = nullptr;  // borrowed
    std::byte* data_ = nullptr;    // the pool's
  };

  // total_bytes / buffer_bytes buffers, at least one. RESOURCE_EXHAUSTED: no such memory.
  // `buffer_bytes` must be a multiple of kDirectAlignment.
  // Without `touch` memory is taken when it is first used.
  static Result<std::unique_ptr<StagingPool>> create(int64_t total_bytes, int64_t buffer_bytes,
                                                     bool touch = true);
  ~StagingPool();

  // Waits for a buffer; CANCELLED when `stop` is requested before there is one.
  Result<Buffer> acquire(std::stop_token stop);

  int64_t buffer_bytes() const { return buffer_bytes_; }
  int64_t buffers() const { return buffers_; }
  int64_t in_use() const;
  // The most that were in use at once.
  int64_t peak() const;

 private:
  StagingPool(std::byte* memory, int64_t buffers, int64_t buffer_bytes);
  void give_back(std::byte* data);

  std::byte* const memory_;
  const int64_t buffers_;
  const int64_t buffer_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable_any returned_;
  std::vector<std::byte*> free_;  // guarded by mutex_
  int64_t peak_ = 0;              // guarded by mutex_
};

}  // namespace hekla::checkpoint
