// SPDX-License-Identifier: Apache-2.0
// What a ShardSave holds of each piece and file while it runs. Internal to this folder.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/checkpoint/save/compressor.h"
#include "runtime/checkpoint/save/shard_save.h"

namespace hekla::checkpoint {

// Where the bytes of one piece come from.
struct ShardSave::PieceSource {
  std::shared_ptr<ArraySource> source;
  std::optional<BoxCopy> copy;  // none for pieces without elements
  int64_t contiguous_at = -1;   // in the array's bytes, where the piece lies as it is stored
  Kind kind = Kind::kInPlace;
  bool is_written_in_place = false;  // the writer reads it until drain
  std::vector<std::byte> fetched;  // an array of another memory that has to be cut, while it is cut
};

// One file that this rank writes into.
struct ShardSave::Target {
  std::vector<PieceSource> sources;           // beside File::mine
  std::vector<std::vector<std::byte>> small;  // likewise; bytes of pieces that go with metadata
  std::unique_ptr<FileWriter> writer;         // null when it is linked
  std::unique_ptr<Compressor> compressor;     // of a packed file
  std::optional<FileRecord> link;             // of the parent's file, which is this one
  std::vector<uint64_t> link_digests;
};

// A piece of the plan that this rank and others hold.
struct ShardSave::Replica {
  size_t piece = 0;  // of the plan
  PieceSource source;
};

inline bool contains(const Box& outer, const Box& inner) {
  for (size_t d = 0; d < outer.size.size(); ++d) {
    if (inner.start[d] < outer.start[d] ||
        inner.start[d] + inner.size[d] > outer.start[d] + outer.size[d]) {
      return false;
    }
  }
  return true;
}

// The array that holds all of a box; null: none of them does.
inline const LocalArray* find_array(const StateTensor& tensor, const Box& box) {
  const LocalArray* found = nullptr;
  for (const LocalArray& array : tensor.arrays) {
    if (contains(array.box, box)) found = &array;
  }
  return found;
}

}  // namespace hekla::checkpoint
