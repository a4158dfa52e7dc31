// SPDX-License-Identifier: Apache-2.0
// A plain HDF5 file with whole tensors under their names: contiguous datasets or chunks, no pieces,
// nothing of Hekla's but the attribute logical_dtype. Its bytes around the payload are made in
// memory; whoever writes it puts each tensor's stored bytes at its offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

struct PlainFile {
  std::vector<std::byte> head;  // from offset 0
  int64_t tail_offset = 0;
  std::vector<std::byte> tail;   // to the end of the file; holds the places of small tensors
  std::vector<int64_t> offsets;  // of each tensor's bytes; 0 where it has none
  int64_t file_size = 0;
};

// Where the payload of a plain file begins.
inline constexpr int64_t kPlainPayloadBegin = 4096;

// Tensors below it are never in chunks.
inline constexpr int64_t kMinPlainChunked = int64_t{64} << 10;

// Errors as ShardImage::make.
Result<PlainFile> make_plain_file(std::span<const TensorInfo> tensors);

// Where tensors of kMinPlainChunked bytes and more lie in chunks: written before, one behind the
// other from kPlainPayloadBegin to `payload_end`. Chunks that are coded went through HDF5's shuffle
// and deflate of `gzip_level`; 0: none did, and readers need no filter. `chunks` has an entry for
// each tensor, null where it is not in chunks; `offsets` are of those alone.
Result<PlainFile> make_chunked_file(std::span<const TensorInfo> tensors,
                                    std::span<const std::shared_ptr<const PieceChunks>> chunks,
                                    int64_t payload_end, int gzip_level);

}  // namespace hekla::checkpoint
