// SPDX-License-Identifier: Apache-2.0
// A plain HDF5 file with whole tensors under their names: contiguous datasets, no pieces, nothing
// of Hekla's but the attribute logical_dtype. Its bytes around the payload are made in memory;
// whoever writes it puts each tensor's stored bytes at its offset.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Errors as ShardImage::make.
Result<PlainFile> make_plain_file(std::span<const TensorInfo> tensors);

}  // namespace hekla::checkpoint
