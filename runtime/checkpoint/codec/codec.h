// SPDX-License-Identifier: Apache-2.0
// The one codec of checkpoints: bytes of elements shuffled (all first bytes, then all second ones),
// then zstd, as HDF5's filters 2 and 32015 do it. What one side writes the other reads.
//
// A Coder holds memory and contexts and serves one thread. Decoding is given any bytes: it ends in
// DATA_LOSS when they are not exactly what was asked for, in bounded time and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

// Numbers of HDF5's filters.
inline constexpr int kShuffleFilter = 2;
inline constexpr int kZstdFilter = 32015;
inline constexpr int kZstdLevel = 1;

// HDF5's shuffle of `bytes`, whole elements, into `to` of the same size.
void shuffle(std::span<const std::byte> bytes, int64_t element_bytes, std::span<std::byte> to);

class Coder {
 public:
  static Result<std::unique_ptr<Coder>> create();
  ~Coder();

  // The coded bytes, valid until the next call. Empty: they would not be fewer. `bytes` are whole
  // elements.
  Result<std::span<const std::byte>> encode(std::span<const std::byte> bytes,
                                            int64_t element_bytes);
  // Fills `into` exactly.
  Status decode(std::span<const std::byte> coded, int64_t element_bytes, std::span<std::byte> into);

 private:
  struct Contexts;
  Coder();
  std::unique_ptr<Contexts> contexts_;
  std::vector<std::byte> shuffled_, coded_;
};

}  // namespace hekla::checkpoint
