// SPDX-License-Identifier: Apache-2.0
// Which rank writes which box into which file.
//
// Every rank makes the same plan from the same layout, without talking to the others; ranks compare
// layout_hash and, where it differs, show diff_plans of their plan_texts. Boxes that several ranks
// hold are written once: large ones are split among the holders, small ones go whole to the one
// with the least to write. Which boxes are copies follows from the sharding, never from contents.
//
// A plan holds names, boxes and files, never addresses of memory, so it may be kept as long as the
// layout stays. Plans are plain values; make_save_plan is pure; a SavePlanner is used by one thread
// at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/sharding/mesh.h"

namespace hekla::checkpoint {

struct TensorLayout {
  TensorInfo info;
  std::shared_ptr<const HeldBoxes> boxes;  // from held_boxes with the tensor's shape
};

// Tensors whose name matches `pattern` ('*' any characters, '?' one) are stored in tiles of at most
// `tile` elements in each dimension (0 or a missing dimension: not cut). An empty `tile` switches
// tiling off for them. The first hint that matches counts.
struct TileHint {
  std::string pattern;
  Dims tile;

  bool operator==(const TileHint&) const = default;
};

enum class Compression : uint8_t {
  kNone,
  kZstd,
  kAuto,  // where it makes the first chunks smaller by a third
};

// The first hint that matches a tensor's name counts; none: not compressed.
struct CompressHint {
  std::string pattern;
  Compression compression = Compression::kNone;

  bool operator==(const CompressHint&) const = default;
};

struct SaveOptions {
  int32_t world_size = 1;
  // Host of each rank, for balance among hosts; empty: each rank has its own.
  std::vector<int32_t> host_of_rank;
  // A box of at least twice this is split among its holders into parts of at least this.
  int64_t min_slice_bytes = int64_t{8} << 20;
  // Ranks that share a file; 0: one file a rank as long as that gives at most max_files, else one
  // a host, else as few consecutive ranks as it takes.
  int32_t ranks_per_file = 0;
  int32_t max_files = 128;
  std::vector<TileHint> tile_hints;
  // Whether tensors cut in another dimension than the first are stored in tiles without a hint.
  bool tile_by_spec = true;
  int64_t min_tile_bytes = int64_t{4} << 20;  // tiles are not made smaller than this
  // Patterns of names (as TileHint's) of tensors that are not expected to change from save to save:
  // each rank writes them into a file of their own, which later steps may link.
  std::vector<std::string> frozen;
  // Frozen tensors and pieces below min_compressed_bytes are never compressed; the others lie in a
  // file of their own for each rank.
  std::vector<CompressHint> compress;
  int64_t min_compressed_bytes = int64_t{64} << 10;

  bool operator==(const SaveOptions&) const = default;
};

enum class ShardKind : uint8_t {
  kPlain,   // data/shard-00000.h5
  kFrozen,  // data/frozen-00000.h5; one rank writes it
  kPacked,  // data/packed-00000.h5: compressed pieces; likewise
};

struct SavePlan {
  std::vector<TensorInfo> tensors;       // ascending by name
  std::vector<Compression> compression;  // of each tensor
  // Those that have pieces, no others: first all plain ones, then frozen and packed ones.
  std::vector<std::string> files;
  std::vector<ShardKind> file_kinds;
  std::vector<int32_t> file_owners;  // the lowest rank that writes into each; ascending in a kind
  // Ascending by tensor and box start. offset and first_block are 0 until the file's image is made.
  std::vector<Piece> pieces;
};

// The tensors must come in strictly ascending order of names, the same on every rank.
// INVALID_ARGUMENT: a bad name, one that is also the folder of another, bad shapes or options, a
// holder outside of the world.
Result<SavePlan> make_save_plan(std::span<const TensorLayout> tensors, const SaveOptions& options);

// Keeps the last plan and gives it again as long as layout and options stay equal. Tensors that
// bring the same `boxes` object as last time are compared fastest.
class SavePlanner {
 public:
  // make_save_plan's errors; a failure forgets the plan.
  Result<std::shared_ptr<const SavePlan>> plan(std::span<const TensorLayout> tensors,
                                               const SaveOptions& options);
  int64_t plans_made() const { return plans_made_; }

 private:
  std::vector<TensorLayout> tensors_;
  SaveOptions options_;
  std::shared_ptr<const SavePlan> plan_;
  int64_t plans_made_ = 0;
};

// XXH3-64 of everything in the plan but offsets and first blocks.
uint64_t layout_hash(const SavePlan& plan);
// One line for each tensor with its dtype, shape, spec, and its pieces with writer and file; what
// the hash covers.
std::string plan_text(const SavePlan& plan);
// What differs between two plan_texts, for people; empty: nothing. At most `max_lines` lines.
std::string diff_plans(std::string_view ours, std::string_view theirs, std::string_view our_name,
                       std::string_view their_name, size_t max_lines = 20);

// Bytes that each rank writes.
std::vector<int64_t> bytes_by_rank(const SavePlan& plan, int32_t world_size);

}  // namespace hekla::checkpoint
