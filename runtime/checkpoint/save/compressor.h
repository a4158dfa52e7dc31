// SPDX-License-Identifier: Apache-2.0
// Compressor: chunks of pieces on their way into a file whose places follow from their sizes.
//
// Runs of chunks are given in uncompressed bytes; threads of its own code and hash them and append
// them to the file, in whatever order they are done. What is appended is gathered in buffers and
// written by the file's writer like any payload. Memory: two items and, for each thread, some five
// chunks. A chunk that coding does not make smaller is stored as it is.
//
// With `is_auto` a piece is coded only if its first chunks, at most four that came with the first
// run, become smaller by kAutoRatio: coding takes ten times the processor time of writing.
//
// add and drain are called by one thread. The first error ends the work and is what drain returns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/io/writer.h"

namespace hekla::checkpoint {

inline constexpr double kAutoRatio = 1.3;

class Compressor {
 public:
  struct PieceTarget {
    ChunkGrid grid;
    int64_t first_block = 0;
    bool is_auto = false;
  };

  // Appends to `writer` from `offset` on. `pieces` in the order that add counts in. Uncompressed
  // bytes that are done are added to `bytes_done`, which outlives it.
  static Result<std::unique_ptr<Compressor>> create(WriterPool& pool, FileWriter& writer,
                                                    int64_t offset, int64_t blocks,
                                                    std::vector<PieceTarget> pieces,
                                                    std::stop_token stop,
                                                    std::atomic<int64_t>* bytes_done);
  ~Compressor();

  // Chunks [first, first + count) of a piece, from its first one on in order; `data` are their
  // uncompressed bytes and live until drain, or are a buffer that goes back when they are coded.
  void add(size_t piece, int64_t first, int64_t count, const std::byte* data,
           StagingPool::Buffer buffer = {});

  // Until everything is coded and handed to the writer, which is drained next.
  Status drain();
  // After drain.
  std::vector<std::vector<Chunk>> take_chunks() { return std::move(chunks_); }  // by piece
  const std::vector<uint64_t>& digests() const { return digests_; }
  int64_t end() const { return end_; }  // behind the last byte

 private:
  struct Job {
    size_t piece = 0;
    int64_t first = 0, count = 0;
    const std::byte* data = nullptr;
    StagingPool::Buffer buffer;
  };
  enum class Choice : uint8_t { kOpen, kCode, kStore };

  Compressor(WriterPool& pool, FileWriter& writer, int64_t offset, int64_t blocks,
             std::vector<PieceTarget> pieces, std::stop_token stop,
             std::atomic<int64_t>* bytes_done);
  void work(bool is_lowered);
  Status run(const Job& job, class Coder& coder, std::vector<std::byte>& padded);
  Result<bool> choose(const Job& job, class Coder& coder, std::vector<std::byte>& padded);
  // The full bytes of a chunk, filled up in `padded` where it is cut.
  std::span<const std::byte> whole(const Job& job, int64_t chunk, std::vector<std::byte>& padded);
  Status append(std::span<const std::byte> bytes, int64_t* offset);
  void flush();  // append_mutex_ held

  WriterPool& pool_;
  FileWriter& writer_;
  const std::stop_token stop_;
  std::atomic<int64_t>* const bytes_done_;
  std::vector<PieceTarget> pieces_;
  std::vector<std::vector<Chunk>> chunks_;  // each entry written by one thread, read after drain
  std::vector<uint64_t> digests_;           // likewise
  std::unique_ptr<StagingPool> buffers_;

  std::mutex append_mutex_;
  StagingPool::Buffer filling_;  // guarded by append_mutex_, as the next three
  int64_t filled_ = 0;
  int64_t buffer_offset_ = 0;
  int64_t end_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;         // guarded by mutex_, as all below
  std::vector<Choice> choices_;  // by piece
  int64_t outstanding_ = 0;
  bool is_closing_ = false;
  Status status_;
  std::vector<std::jthread> threads_;
  std::optional<Priority::Watch> watch_;
};

}  // namespace hekla::checkpoint
