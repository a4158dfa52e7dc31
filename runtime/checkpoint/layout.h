// SPDX-License-Identifier: Apache-2.0
// Boxes, tensors and pieces: the words that every part of the checkpoint shares.
//
// A checkpoint knows tensors by global shape and cuts them into boxes, whoever holds them. A piece
// is a box as it lies in one file of a step. Plain values; functions here are pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/host_array.h"
#include "runtime/program/sharding/sharding.h"

namespace hekla::checkpoint {

using sharding::Box;

struct TensorInfo {
  std::string name;  // UTF-8, '/' between levels: "state/layers/3/attn/wq"
  DType dtype = DType::kInvalid;
  Dims shape;        // global
  std::string spec;  // "mesh=(data:2,model:4) spec=(data,None)", for people; empty: unknown

  bool operator==(const TensorInfo&) const = default;
};

struct PieceChunks;  // chunks.h

// A box of tensor number `tensor` of a step, stored row major at `offset` of file number `file`, or
// compressed in chunks of it.
struct Piece {
  int32_t tensor = 0;
  Box box;
  int32_t writer = 0;                                   // the rank that writes it
  int32_t file = 0;                                     // index in the step's list of files
  int64_t offset = 0;                                   // bytes, from the file's first byte
  int64_t bytes = 0;                                    // stored_bytes(dtype, elements of the box)
  int64_t first_block = 0;                              // of the file's table of digests
  std::shared_ptr<const PieceChunks> chunks = nullptr;  // of a compressed piece

  bool operator==(const Piece&) const = default;
};

// Bits that an element takes in a file: 1-byte booleans, types of 2, 4 and 6 bits packed (first
// element in the lowest bits), the rest as in host memory.
int stored_bits(DType dtype);
// Bytes of `elements` of them, the last one filled up with zero bits.
int64_t stored_bytes(DType dtype, int64_t elements);

}  // namespace hekla::checkpoint
