// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/shard_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// Enough to see what differs; the store and a message carry it.
constexpr size_t kMaxText = 64 << 10;

}  // namespace

Result<std::shared_ptr<ShardLayout>> ShardLayout::make(std::shared_ptr<const SavePlan> plan,
                                                       int32_t rank) {
  auto layout = std::make_shared<ShardLayout>();
  layout->hash = layout_hash(*plan);
  layout->text = plan_text(*plan).substr(0, kMaxText);
  for (const TensorInfo& tensor : plan->tensors) {
    layout->logical_bytes += stored_bytes(tensor.dtype, element_count(tensor.shape));
  }
  const auto file_count = static_cast<int32_t>(plan->files.size());
  std::vector<std::set<int32_t>> writers_of(plan->files.size());
  for (const Piece& piece : plan->pieces) {
    writers_of[static_cast<size_t>(piece.file)].insert(piece.writer);
  }
  for (int32_t number = 0; number < file_count; ++number) {
    std::set<int32_t>& writers = writers_of[static_cast<size_t>(number)];
    const int32_t owner = plan->file_owners[static_cast<size_t>(number)];
    const bool is_mine = owner == rank || writers.count(rank) != 0;
    if (!is_mine && rank != 0) continue;
    const bool is_packed = plan->file_kinds[static_cast<size_t>(number)] == ShardKind::kPacked;
    HEKLA_ASSIGN_OR_RETURN(ShardImage image,
                           is_packed ? ShardImage::make_packed(plan->tensors, plan->pieces, number)
                                     : ShardImage::make(plan->tensors, plan->pieces, number));
    if (rank == 0) {
      layout->all_pieces.insert(layout->all_pieces.end(), image.pieces().begin(),
                                image.pieces().end());
    }
    if (!is_mine) continue;
    File file;
    file.number = number;
    file.kind = plan->file_kinds[static_cast<size_t>(number)];
    file.is_owner = owner == rank;
    writers.erase(rank);
    file.others.assign(writers.begin(), writers.end());
    for (size_t i = 0; i < image.pieces().size(); ++i) {
      if (image.pieces()[i].writer != rank) continue;
      file.mine.push_back(i);
      layout->my_bytes += image.pieces()[i].bytes;
    }
    file.image = std::move(image);
    layout->files.push_back(std::move(file));
  }
  layout->plan = std::move(plan);
  return layout;
}

}  // namespace hekla::checkpoint
