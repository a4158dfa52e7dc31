// SPDX-License-Identifier: Apache-2.0
// Payload out of files: whole blocks by direct I/O, verified before anybody sees them.
//
// A request names a piece of a file, the digests of its blocks and which of them are wanted. Worker
// threads read runs of blocks into aligned memory, compare each block's XXH3-64, and hand the bytes
// on: to a function, or straight into the caller's memory. At most `budget_bytes` are in flight.
//
// The first error ends the call: DATA_LOSS names file, offset, block and both digests; file errors
// as in file.h. What was handed on before stays handed on. A Reader may serve several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"

namespace hekla::checkpoint {

struct ReaderOptions {
  int threads = 0;                           // 0: as WriterOptions
  int64_t item_bytes = int64_t{8} << 20;     // whole blocks, 1 to 64 MiB
  int64_t budget_bytes = int64_t{64} << 20;  // staging memory of one call
  int64_t bandwidth_limit = 0;               // bytes per second; 0: none
  bool direct = true;                        // try O_DIRECT
};

struct ReadRequest {
  int32_t file = 0;    // index into the paths of the call
  int64_t offset = 0;  // of the piece, in the file
  int64_t bytes = 0;   // of the piece
  // Wanted blocks of the piece: [first_block, first_block + blocks); blocks < 0: to its end.
  int64_t first_block = 0;
  int64_t blocks = -1;
  // One per block of the piece, valid during the call; empty: nothing is verified.
  std::span<const uint64_t> digests;
  // Where the first wanted byte goes, the rest behind it; null: nowhere.
  std::byte* into = nullptr;
  // Through the page cache, where other processes of this machine that read the same find it.
  bool cached = false;
  // Called from worker threads, several at once, with verified bytes that begin at byte `at` of the
  // piece; with `into` they lie there already. An error ends the call. May be empty.
  std::function<Status(int64_t at, std::span<const std::byte> bytes)> take;
};

class Reader {
 public:
  static Result<std::unique_ptr<Reader>> create(Io& io, const ReaderOptions& options);

  // Serves all requests, by file and offset; CANCELLED when `stop` is requested.
  Status read(std::span<const std::string> paths, std::span<const ReadRequest> requests,
              std::stop_token stop = {});
  // Of all calls, what was asked of the file system.
  int64_t bytes_read() const;

 private:
  struct Counters;
  Reader(Io& io, const ReaderOptions& options);

  Io& io_;
  ReaderOptions options_;
  std::shared_ptr<Counters> counters_;  // shared with worker threads of a call
};

}  // namespace hekla::checkpoint
