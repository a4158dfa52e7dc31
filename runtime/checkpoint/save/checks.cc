// SPDX-License-Identifier: Apache-2.0
// ShardSave: whether the disk gives back what was written, and whether copies on several ranks
// agree.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/io/reader.h"
#include "runtime/checkpoint/save/shard_parts.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

constexpr int64_t kSampledBlocks = 16;  // of a file
constexpr int64_t kReadBackBudget = int64_t{16} << 20;
constexpr size_t kNamedReplicas = 10;  // in a message

// One entry of what a rank says about its copies.
struct ReplicaDigest {
  uint64_t piece = 0;
  uint64_t digest = 0;
};

uint64_t number_of(std::string_view text) {
  return block_digest(std::as_bytes(std::span(text.data(), text.size())));
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

// ---- what was written ----

Status ShardSave::read_back(size_t f, const SaveSite& site, const ShardImage::Finished& written) {
  if (checks_.verify_after_write == HowMuch::kNone) return ok_status();
  const ShardLayout::File& file = layout_->files[f];
  const std::string path =
      join_path(site.folder, layout_->plan->files[static_cast<size_t>(file.number)]);
  const auto lost = [](const Status& status) {
    return status.with_context("read back after it was written");
  };
  {
    HEKLA_ASSIGN_OR_RETURN(const File opened, File::open(pool_.io(), path, O_RDONLY));
    // Synced pages are clean: what is dropped comes from the disk again.
    pool_.io().drop_cache(opened.fd(), 0, file.image.file_size());
    std::vector<std::byte> found;
    for (const Extent& extent : written.extents) {
      found.resize(extent.bytes.size());
      HEKLA_RETURN_IF_ERROR(lost(opened.read(found, extent.offset)));
      const auto differs = std::mismatch(found.begin(), found.end(), extent.bytes.begin());
      if (differs.first == found.end()) continue;
      return lost(data_loss("{}: the byte at offset {} is not the one that was written", path,
                            extent.offset + (differs.first - found.begin())));
    }
  }
  // Blocks by their numbers in the file; small pieces have been looked at with the metadata.
  struct Block {
    const Piece* piece;
    int64_t number;
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < written.pieces.size(); ++i) {
    const Piece& piece = written.pieces[i];
    if (file.image.is_small(i)) continue;
    for (int64_t b = 0; b < piece_blocks(piece); ++b) blocks.push_back({&piece, b});
  }
  if (checks_.verify_after_write == HowMuch::kSample &&
      static_cast<int64_t>(blocks.size()) > kSampledBlocks) {
    // Others each time; the nonce is random.
    std::mt19937_64 random(number_of(site.nonce) + static_cast<uint64_t>(file.number));
    std::vector<Block> drawn;
    std::sample(blocks.begin(), blocks.end(), std::back_inserter(drawn), kSampledBlocks, random);
    blocks = std::move(drawn);
  }
  std::vector<ReadRequest> requests;
  for (const Block& block : blocks) {
    const Piece& piece = *block.piece;
    const auto digests = std::span(written.digests)
                             .subspan(static_cast<size_t>(piece.first_block),
                                      static_cast<size_t>(piece_blocks(piece)));
    if (piece.chunks != nullptr) {
      const Chunk& chunk = piece.chunks->chunks[static_cast<size_t>(block.number)];
      ReadRequest request;
      request.offset = chunk.offset;
      request.bytes = chunk.bytes;
      request.digests = digests.subspan(static_cast<size_t>(block.number), 1);
      requests.push_back(std::move(request));
      continue;
    }
    // Neighbours become one request: large reads.
    if (!requests.empty() && requests.back().offset == piece.offset &&
        requests.back().first_block + requests.back().blocks == block.number) {
      ++requests.back().blocks;
      continue;
    }
    ReadRequest request;
    request.offset = piece.offset;
    request.bytes = piece.bytes;
    request.first_block = block.number;
    request.blocks = 1;
    request.digests = digests;
    requests.push_back(std::move(request));
  }
  ReaderOptions options;
  options.budget_bytes = kReadBackBudget;
  options.direct = pool_.options().direct;
  HEKLA_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader, Reader::create(pool_.io(), options));
  return lost(reader->read({&path, 1}, requests, site.stop));
}

Status ShardSave::read_back(const std::string& path, std::string_view text) {
  if (checks_.verify_after_write == HowMuch::kNone) return ok_status();
  return expect_text(pool_.io(), path, text);
}

// ---- copies ----

Status ShardSave::find_replicas(const State& state) {
  if (checks_.check_replicas == HowMuch::kNone) return ok_status();
  const SavePlan& plan = *layout_->plan;
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    const Piece& piece = plan.pieces[p];
    if (piece.bytes == 0) continue;
    const StateTensor& tensor = state.tensors[static_cast<size_t>(piece.tensor)];
    const auto held =
        std::find_if(tensor.boxes->begin(), tensor.boxes->end(), [&](const HeldBox& box) {
          return contains(box.box, piece.box) &&
                 std::binary_search(box.ranks.begin(), box.ranks.end(), piece.writer);
        });
    if (held == tensor.boxes->end() || held->ranks.size() < 2 ||
        !std::binary_search(held->ranks.begin(), held->ranks.end(), group_.rank())) {
      continue;
    }
    const LocalArray* array = find_array(tensor, piece.box);
    if (array == nullptr) {
      return invalid_argument("rank {} holds {} of tensor \"{}\" and has no array for it",
                              group_.rank(), box_text(piece.box), tensor.info.name);
    }
    replicas_.push_back({p, source_of(*array, tensor.info.dtype, piece)});
    if (replicas_.back().source.kind == Kind::kMutable) has_to_compare_ = true;
  }
  return ok_status();
}

Status ShardSave::hash_replicas(const SaveSite& site) {
  std::vector<ReplicaDigest> digests;
  for (Replica& replica : replicas_) {
    const Piece& piece = layout_->plan->pieces[replica.piece];
    BlockRange range{0, block_count(piece.bytes)};
    if (checks_.check_replicas == HowMuch::kSample) {
      // The same on all ranks, another one at each save.
      range.first = static_cast<int64_t>((number_of(site.nonce) + replica.piece) %
                                         static_cast<uint64_t>(range.count));
      range.count = 1;
    }
    std::vector<uint64_t> blocks;
    HEKLA_RETURN_IF_ERROR(
        visit_blocks(replica.source, piece, range, site.stop, [&](int64_t, uint64_t digest) {
          blocks.push_back(digest);
          return true;
        }));
    digests.push_back({replica.piece, block_digest(std::as_bytes(std::span(blocks)))});
    replica.source = {};
  }
  const auto bytes = std::as_bytes(std::span(digests));
  replica_digests_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return ok_status();
}

Status ShardSave::compare_replicas() const {
  if (checks_.check_replicas == HowMuch::kNone || group_.world() == 1) return ok_status();
  const SavePlan& plan = *layout_->plan;
  // By piece, then by what is held, the ranks.
  std::map<uint64_t, std::map<uint64_t, std::vector<int>>> holders;
  for (int rank = 0; rank < group_.world(); ++rank) {
    HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                           group_.store().get(key("replicas", 0, rank)));
    if (!text) continue;  // it holds no copies
    if (text->size() % sizeof(ReplicaDigest) != 0) {
      return internal_error("rank {} sent {} bytes about its copies", rank, text->size());
    }
    for (size_t at = 0; at < text->size(); at += sizeof(ReplicaDigest)) {
      ReplicaDigest one;
      std::memcpy(&one, text->data() + at, sizeof one);
      if (one.piece >= plan.pieces.size()) {
        return internal_error("rank {} holds a copy of piece {} of {}", rank, one.piece,
                              plan.pieces.size());
      }
      holders[one.piece][one.digest].push_back(rank);
    }
  }
  std::string message;
  size_t found = 0;
  for (const auto& [number, by_digest] : holders) {
    if (by_digest.size() < 2) continue;
    if (++found > kNamedReplicas) continue;
    const Piece& piece = plan.pieces[number];
    std::string sides;
    for (const auto& [digest, ranks] : by_digest) {
      sides += (sides.empty() ? "" : " | ") + ranks_text(ranks);
    }
    message +=
        fmt::format("{}{} of tensor \"{}\": {}", message.empty() ? "" : "; ", box_text(piece.box),
                    plan.tensors[static_cast<size_t>(piece.tensor)].name, sides);
  }
  if (found == 0) return ok_status();
  if (found > kNamedReplicas) message += fmt::format("; and {} more", found - kNamedReplicas);
  return data_loss("copies of the same box hold different values: {}", message);
}

}  // namespace hekla::checkpoint
