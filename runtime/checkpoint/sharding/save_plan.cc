// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/checkpoint/format/names.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/tiles.h"

namespace hekla::checkpoint {
namespace {

// Smaller pieces travel with the metadata (format/shard_image.h).
constexpr int64_t kLeastCompressedBytes = int64_t{64} << 10;

// A box to be given to one of `ranks`, or to be split among several of them.
struct Item {
  int32_t tensor = 0;
  const HeldBox* held = nullptr;
  int64_t bytes = 0;
};

Status check_options(const SaveOptions& options) {
  if (options.world_size < 1) {
    return invalid_argument("a world of {} ranks cannot save", options.world_size);
  }
  if (!options.host_of_rank.empty() &&
      options.host_of_rank.size() != static_cast<size_t>(options.world_size)) {
    return invalid_argument("the hosts of {} ranks are given in a world of {}",
                            options.host_of_rank.size(), options.world_size);
  }
  if (options.min_slice_bytes < 1 || options.min_tile_bytes < 1 || options.max_files < 1 ||
      options.ranks_per_file < 0 || options.min_compressed_bytes < kLeastCompressedBytes) {
    return invalid_argument(
        "min_slice_bytes {}, min_tile_bytes {} and max_files {} must be positive, ranks_per_file "
        "{} not negative, min_compressed_bytes {} at least {}",
        options.min_slice_bytes, options.min_tile_bytes, options.max_files, options.ranks_per_file,
        options.min_compressed_bytes, kLeastCompressedBytes);
  }
  for (const TileHint& hint : options.tile_hints) {
    for (int64_t size : hint.tile) {
      if (size < 0) return invalid_argument("the tile of \"{}\" has size {}", hint.pattern, size);
    }
  }
  return ok_status();
}

Status check_layouts(std::span<const TensorLayout> tensors, const SaveOptions& options) {
  const HeldBoxes* checked = nullptr;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const TensorInfo& info = tensors[t].info;
    if (t > 0 && info.name < tensors[t - 1].info.name) {
      return invalid_argument("tensor \"{}\" stands behind \"{}\": names must ascend", info.name,
                              tensors[t - 1].info.name);
    }
    if (tensors[t].boxes == nullptr || tensors[t].boxes->empty()) {
      return invalid_argument("tensor \"{}\" has no boxes", info.name);
    }
    // The rank alone tells boxes of another tensor early; held_boxes has checked the rest.
    for (const HeldBox& held : *tensors[t].boxes) {
      const Status box = check_box(info.shape, held.box);
      if (!box.ok()) return box.with_context(fmt::format("tensor \"{}\"", info.name));
    }
    if (tensors[t].boxes.get() == checked) continue;
    checked = tensors[t].boxes.get();
    for (const HeldBox& held : *checked) {
      if (held.ranks.empty() || held.ranks.front() < 0 || held.ranks.back() >= options.world_size) {
        return invalid_argument("box {} of tensor \"{}\" is held by rank {} in a world of {}",
                                box_text(held.box), info.name,
                                held.ranks.empty() ? -1 : held.ranks.back(), options.world_size);
      }
    }
  }
  return ok_status();
}

// Hands boxes to ranks and remembers what each rank and host has to write.
class Balance {
 public:
  explicit Balance(const SaveOptions& options)
      : host_(options.host_of_rank), rank_bytes_(options.world_size) {
    if (host_.empty()) {
      host_.resize(options.world_size);
      std::iota(host_.begin(), host_.end(), 0);
    } else {
      // Any numbers may name hosts; indices from here on.
      std::vector<int32_t> hosts = host_;
      std::sort(hosts.begin(), hosts.end());
      hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
      for (int32_t& host : host_) {
        host = static_cast<int32_t>(std::lower_bound(hosts.begin(), hosts.end(), host) -
                                    hosts.begin());
      }
    }
    host_bytes_.resize(options.world_size);
  }

  const std::vector<int32_t>& host() const { return host_; }

  void add(int32_t rank, int64_t bytes) {
    rank_bytes_[rank] += bytes;
    host_bytes_[host_[rank]] += bytes;
  }

  bool less(int32_t a, int32_t b) const {
    const int64_t host_a = host_bytes_[host_[a]];
    const int64_t host_b = host_bytes_[host_[b]];
    if (host_a != host_b) return host_a < host_b;
    return rank_bytes_[a] != rank_bytes_[b] ? rank_bytes_[a] < rank_bytes_[b] : a < b;
  }

  int32_t least(const std::vector<int32_t>& ranks) const {
    return *std::min_element(ranks.begin(), ranks.end(),
                             [&](int32_t a, int32_t b) { return less(a, b); });
  }

 private:
  std::vector<int32_t> host_;
  std::vector<int64_t> rank_bytes_;
  std::vector<int64_t> host_bytes_;
};

// The dimension to split into `parts`: the first one that is not 1, whose parts are runs of the
// box, if it is long enough; else the longest.
size_t split_dimension(const Box& box, int64_t parts) {
  size_t first = 0;
  while (first + 1 < box.size.size() && box.size[first] == 1) ++first;
  if (box.size[first] >= parts) return first;
  return std::max_element(box.size.begin(), box.size.end()) - box.size.begin();
}

class PlanMaker {
 public:
  PlanMaker(std::span<const TensorLayout> tensors, std::vector<TensorInfo> infos,
            const SaveOptions& options)
      : tensors_(tensors), options_(options), balance_(options) {
    plan_.tensors = std::move(infos);
  }

  SavePlan make() {
    assign();
    tile();
    sort_pieces();
    name_files();
    return std::move(plan_);
  }

 private:
  void give(int32_t tensor, Box box, int32_t rank) {
    Piece piece;
    piece.tensor = tensor;
    piece.writer = rank;
    piece.bytes = stored_bytes(tensors_[tensor].info.dtype, box_elements(box));
    piece.box = std::move(box);
    balance_.add(rank, piece.bytes);
    plan_.pieces.push_back(std::move(piece));
  }

  void assign() {
    std::vector<Item> open;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      for (const HeldBox& held : *tensors_[t].boxes) {
        const int64_t bytes = stored_bytes(tensors_[t].info.dtype, box_elements(held.box));
        // What only one rank holds comes first: the rest is balanced around it.
        if (held.ranks.size() == 1) {
          give(static_cast<int32_t>(t), held.box, held.ranks[0]);
        } else {
          open.push_back({static_cast<int32_t>(t), &held, bytes});
        }
      }
    }
    std::stable_sort(open.begin(), open.end(),
                     [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
    for (const Item& item : open) {
      // A scalar cannot be split, however small the parts may be.
      if (item.bytes / 2 >= options_.min_slice_bytes && !item.held->box.size.empty()) {
        split(item);
      } else {
        give(item.tensor, item.held->box, balance_.least(item.held->ranks));
      }
    }
  }

  void split(const Item& item) {
    int64_t parts = std::min<int64_t>(static_cast<int64_t>(item.held->ranks.size()),
                                      item.bytes / options_.min_slice_bytes);
    const size_t dim = split_dimension(item.held->box, parts);
    const int64_t size = item.held->box.size[dim];
    parts = std::min(parts, size);
    std::vector<int32_t> ranks = item.held->ranks;
    std::partial_sort(ranks.begin(), ranks.begin() + parts, ranks.end(),
                      [&](int32_t a, int32_t b) { return balance_.less(a, b); });
    ranks.resize(parts);
    // Neighbouring parts for neighbouring ranks: their files then follow the tensor's order.
    std::sort(ranks.begin(), ranks.end());
    int64_t start = 0;
    for (int64_t i = 0; i < parts; ++i) {
      Box part = item.held->box;
      part.start[dim] += start;
      part.size[dim] = size / parts + (i < size % parts ? 1 : 0);
      start += part.size[dim];
      give(item.tensor, std::move(part), ranks[i]);
    }
  }

  void tile() {
    std::vector<Dims> tiles(tensors_.size());
    for (size_t t = 0; t < tensors_.size(); ++t) {
      tiles[t] = choose_tile(tensors_[t].info, *tensors_[t].boxes, options_);
    }
    std::vector<Piece> tiled;
    tiled.reserve(plan_.pieces.size());
    for (Piece& piece : plan_.pieces) {
      const DType dtype = tensors_[piece.tensor].info.dtype;
      if (tiles[piece.tensor].empty()) {
        tiled.push_back(std::move(piece));
        continue;
      }
      for (Box& box :
           cut_into_tiles(piece.box, tiles[piece.tensor], dtype, options_.min_tile_bytes)) {
        Piece part = piece;
        part.bytes = stored_bytes(dtype, box_elements(box));
        part.box = std::move(box);
        tiled.push_back(std::move(part));
      }
    }
    plan_.pieces = std::move(tiled);
  }

  void sort_pieces() {
    // Numbers are cheaper to move than pieces.
    std::vector<uint32_t> order(plan_.pieces.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [this](uint32_t i, uint32_t k) {
      const Piece& a = plan_.pieces[i];
      const Piece& b = plan_.pieces[k];
      return a.tensor != b.tensor ? a.tensor < b.tensor : box_less(a.box, b.box);
    });
    std::vector<Piece> sorted;
    sorted.reserve(order.size());
    for (uint32_t i : order) sorted.push_back(std::move(plan_.pieces[i]));
    plan_.pieces = std::move(sorted);
  }

  // Ranks of one group share a file; groups are numbered from 0.
  std::vector<int32_t> file_groups() const {
    int32_t ranks = options_.ranks_per_file;
    if (ranks == 0 && options_.world_size > options_.max_files) {
      const std::vector<int32_t>& host = balance_.host();
      const int32_t hosts = *std::max_element(host.begin(), host.end()) + 1;
      if (!options_.host_of_rank.empty() && hosts <= options_.max_files) return host;
      ranks = (options_.world_size - 1) / options_.max_files + 1;
    }
    std::vector<int32_t> groups(options_.world_size);
    for (int32_t r = 0; r < options_.world_size; ++r) groups[r] = r / std::max(ranks, 1);
    return groups;
  }

  ShardKind kind_of(const Piece& piece) const {
    const std::string& name = plan_.tensors[piece.tensor].name;
    const auto matched = [&](const std::string& pattern) { return matches(name, pattern); };
    if (std::any_of(options_.frozen.begin(), options_.frozen.end(), matched)) {
      return ShardKind::kFrozen;
    }
    return plan_.compression[piece.tensor] != Compression::kNone &&
                   piece.bytes >= options_.min_compressed_bytes
               ? ShardKind::kPacked
               : ShardKind::kPlain;
  }

  void name_files() {
    for (const TensorInfo& tensor : plan_.tensors) {
      const auto hint =
          std::find_if(options_.compress.begin(), options_.compress.end(),
                       [&](const CompressHint& one) { return matches(tensor.name, one.pattern); });
      plan_.compression.push_back(hint == options_.compress.end() ? Compression::kNone
                                                                  : hint->compression);
    }
    std::vector<ShardKind> kinds(plan_.pieces.size(), ShardKind::kPlain);
    if (!options_.frozen.empty() || !options_.compress.empty()) {
      std::transform(plan_.pieces.begin(), plan_.pieces.end(), kinds.begin(),
                     [this](const Piece& piece) { return kind_of(piece); });
    }
    name_files(ShardKind::kPlain, "shard", file_groups(), kinds);
    // Whether one can be linked, and where the chunks of the other lie, is then one rank's to know.
    std::vector<int32_t> alone(options_.world_size);
    std::iota(alone.begin(), alone.end(), 0);
    name_files(ShardKind::kFrozen, "frozen", alone, kinds);
    name_files(ShardKind::kPacked, "packed", alone, kinds);
  }

  // `kinds` of the pieces.
  void name_files(ShardKind kind, std::string_view name, const std::vector<int32_t>& group_of_rank,
                  const std::vector<ShardKind>& kinds) {
    std::vector<int32_t> owner(options_.world_size, -1);  // by group
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] != kind) continue;
      const int32_t writer = plan_.pieces[i].writer;
      int32_t& lowest = owner[group_of_rank[writer]];
      lowest = lowest < 0 ? writer : std::min(lowest, writer);
    }
    std::vector<int32_t> file_of_group(options_.world_size, -1);
    const size_t first = plan_.files.size();
    for (int32_t rank = 0; rank < options_.world_size; ++rank) {
      const int32_t group = group_of_rank[rank];
      if (owner[group] != rank) continue;
      file_of_group[group] = static_cast<int32_t>(plan_.files.size());
      plan_.files.push_back(fmt::format("data/{}-{:05}.h5", name, plan_.files.size() - first));
      plan_.file_kinds.push_back(kind);
      plan_.file_owners.push_back(rank);
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      Piece& piece = plan_.pieces[i];
      if (kinds[i] == kind) piece.file = file_of_group[group_of_rank[piece.writer]];
    }
  }

  std::span<const TensorLayout> tensors_;
  const SaveOptions& options_;
  Balance balance_;
  SavePlan plan_;
};

bool same_info(const TensorInfo& a, const TensorInfo& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.name == b.name && a.spec == b.spec;
}

bool same_layout(const TensorLayout& a, const TensorLayout& b) {
  if (!same_info(a.info, b.info)) return false;
  if (a.boxes == b.boxes) return true;
  return a.boxes != nullptr && b.boxes != nullptr && *a.boxes == *b.boxes;
}

}  // namespace

Result<SavePlan> make_save_plan(std::span<const TensorLayout> tensors, const SaveOptions& options) {
  HEKLA_RETURN_IF_ERROR(check_options(options));
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const TensorLayout& tensor : tensors) infos.push_back(tensor.info);
  HEKLA_RETURN_IF_ERROR(check_tensors(infos));
  HEKLA_RETURN_IF_ERROR(check_layouts(tensors, options));
  return PlanMaker(tensors, std::move(infos), options).make();
}

Result<std::shared_ptr<const SavePlan>> SavePlanner::plan(std::span<const TensorLayout> tensors,
                                                          const SaveOptions& options) {
  if (plan_ != nullptr && options == options_ &&
      std::equal(tensors.begin(), tensors.end(), tensors_.begin(), tensors_.end(), same_layout)) {
    return plan_;
  }
  plan_ = nullptr;
  HEKLA_ASSIGN_OR_RETURN(SavePlan plan, make_save_plan(tensors, options));
  tensors_.assign(tensors.begin(), tensors.end());
  options_ = options;
  plan_ = std::make_shared<const SavePlan>(std::move(plan));
  ++plans_made_;
  return plan_;
}

std::vector<int64_t> bytes_by_rank(const SavePlan& plan, int32_t world_size) {
  std::vector<int64_t> bytes(world_size);
  for (const Piece& piece : plan.pieces) bytes[piece.writer] += piece.bytes;
  return bytes;
}

}  // namespace hekla::checkpoint
