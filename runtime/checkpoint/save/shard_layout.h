// SPDX-License-Identifier: Apache-2.0
// ShardLayout: what stays the same from save to save while the layout of the state does. The plan,
// the images of the files that this rank writes into, and where every piece of the step lies. It
// holds names, boxes and offsets, never an address of an array.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/shard_image.h"
#include "runtime/checkpoint/sharding/save_plan.h"

namespace hekla::checkpoint {

struct ShardLayout {
  struct File {
    int32_t number = 0;
    ShardKind kind = ShardKind::kPlain;
    bool is_owner = false;  // this rank creates it and writes its metadata
    // The others that write pieces into it.
    std::vector<int32_t> others;
    ShardImage image;
    std::vector<size_t> mine;  // pieces of the image that this rank writes
  };

  std::shared_ptr<const SavePlan> plan;
  uint64_t hash = 0;
  std::string text;  // the plan's, cut short: for messages when hashes differ
  std::vector<File> files;
  int64_t my_bytes = 0;
  int64_t logical_bytes = 0;  // of all tensors
  // On the coordinator: pieces of all files, with offsets; of packed files as they are planned.
  std::vector<Piece> all_pieces;

  static Result<std::shared_ptr<ShardLayout>> make(std::shared_ptr<const SavePlan> plan,
                                                   int32_t rank);
};

}  // namespace hekla::checkpoint
