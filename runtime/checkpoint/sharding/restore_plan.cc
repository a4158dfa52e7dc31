// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/sharding/restore_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// Sorting what a well-made index has in order already would be a good part of opening a step.
template <typename Range, typename Less>
void sort_if_needed(Range& range, const Less& less) {
  if (!std::is_sorted(range.begin(), range.end(), less))
    std::sort(range.begin(), range.end(), less);
}

constexpr int64_t kLongRunBytes = int64_t{64} << 10;

std::string piece_text(const TensorInfo& tensor, const Piece& piece) {
  return fmt::format("piece {} of tensor \"{}\" ({})", box_text(piece.box), tensor.name,
                     shape_string(tensor.dtype, tensor.shape));
}

Status check_piece(const std::vector<TensorInfo>& tensors, const Piece& piece, int32_t file_count,
                   std::span<const int64_t> file_sizes) {
  if (piece.tensor < 0 || piece.tensor >= static_cast<int32_t>(tensors.size())) {
    return data_loss("a piece belongs to tensor {} of {}", piece.tensor, tensors.size());
  }
  const TensorInfo& tensor = tensors[piece.tensor];
  const Status box = check_box(tensor.shape, piece.box);
  if (!box.ok()) return data_loss("a piece of tensor \"{}\": {}", tensor.name, box.message());
  if (piece.file < 0 || piece.file >= file_count) {
    return data_loss("{} lies in file {} of {}", piece_text(tensor, piece), piece.file, file_count);
  }
  const int64_t bytes = stored_bytes(tensor.dtype, box_elements(piece.box));
  if (piece.bytes != bytes) {
    return data_loss("{} is said to have {} bytes; its box has {}", piece_text(tensor, piece),
                     piece.bytes, bytes);
  }
  const int64_t end = file_sizes.empty() ? INT64_MAX : file_sizes[piece.file];
  if (piece.offset < 0 || piece.first_block < 0 || !lies_within(piece, end)) {
    return data_loss("{} lies at offset {}, digest block {} of file {}, which has {} bytes",
                     piece_text(tensor, piece), piece.offset, piece.first_block, piece.file, end);
  }
  return ok_status();
}

// Part of a piece to be read; offsets in its file.
struct Part {
  int32_t file;
  int64_t begin;
  int64_t end;
  int32_t piece;
  ReadMethod method;
};

class RestorePlanner {
 public:
  RestorePlanner(const PieceIndex& index, std::span<const Wanted> wanted,
                 const RestoreOptions& options)
      : index_(index), wanted_(wanted) {
    plan_.options = options;
  }

  Result<RestorePlan> plan() {
    for (size_t w = 0; w < wanted_.size(); ++w) {
      HEKLA_RETURN_IF_ERROR(find_regions(static_cast<int32_t>(w)));
    }
    std::sort(plan_.regions.begin(), plan_.regions.end(), [](const Region& a, const Region& b) {
      return a.piece != b.piece ? a.piece < b.piece : a.wanted < b.wanted;
    });
    for (size_t first = 0; first < plan_.regions.size();) {
      size_t end = first + 1;
      while (end < plan_.regions.size() && plan_.regions[end].piece == plan_.regions[first].piece) {
        ++end;
      }
      add_parts(std::span<const Region>(plan_.regions).subspan(first, end - first));
      first = end;
    }
    add_reads();
    add_packed_reads();
    return std::move(plan_);
  }

 private:
  Status find_regions(int32_t number) {
    const Wanted& wanted = wanted_[number];
    if (wanted.tensor < 0 || wanted.tensor >= static_cast<int32_t>(index_.tensors().size())) {
      return invalid_argument("tensor {} is wanted of {}", wanted.tensor, index_.tensors().size());
    }
    const TensorInfo& tensor = index_.tensors()[wanted.tensor];
    const Status box = check_box(tensor.shape, wanted.box);
    if (!box.ok()) {
      return invalid_argument("tensor \"{}\" of shape {}: {}", tensor.name,
                              shape_string(tensor.dtype, tensor.shape), box.message());
    }
    const Dims& dims = wanted.dims.empty() ? wanted.box.size : wanted.dims;
    bool fits = dims.size() == wanted.box.size.size() && checked_bytes(tensor.dtype, dims).ok();
    for (size_t d = 0; fits && d < dims.size(); ++d) fits = dims[d] >= wanted.box.size[d];
    if (!fits) {
      return invalid_argument("box {} of tensor \"{}\" does not fit into an array of [{}]",
                              box_text(wanted.box), tensor.name, fmt::join(dims, ","));
    }
    const int64_t elements = box_elements(wanted.box);
    plan_.wanted_bytes += stored_bytes(tensor.dtype, elements);
    if (elements == 0) return ok_status();
    found_.clear();
    index_.find_overlaps(wanted.tensor, wanted.box, &found_);
    int64_t covered = 0;
    Box common;
    for (int32_t number_of_piece : found_) {
      const Piece& piece = index_.pieces()[number_of_piece];
      intersect(piece.box, wanted.box, &common);
      covered += box_elements(common);
      plan_.regions.push_back(
          {number, number_of_piece, BoxCopy(tensor.dtype, piece.box, wanted.box, dims, common)});
    }
    if (covered == elements) return ok_status();
    std::vector<Box> boxes;
    for (int32_t number_of_piece : found_) boxes.push_back(index_.pieces()[number_of_piece].box);
    const std::vector<Box> hole = uncovered(wanted.box, boxes);
    return data_loss("no piece holds {} of tensor \"{}\" ({})",
                     hole.empty() ? "a part" : box_text(hole[0]), tensor.name,
                     shape_string(tensor.dtype, tensor.shape));
  }

  ReadMethod choose_method(std::span<const Region> regions, const Piece& piece) const {
    int64_t covered = 0;
    int64_t shortest = INT64_MAX;
    const DType dtype = index_.tensors()[piece.tensor].dtype;
    for (const Region& region : regions) {
      shortest = std::min(shortest, region.copy.run_bytes());
      // Replicas of one process want the same bytes again.
      const bool is_copy = &region != regions.data() &&
                           wanted_[region.wanted].box == wanted_[(&region - 1)->wanted].box;
      if (!is_copy) covered += stored_bytes(dtype, region.copy.elements());
    }
    if (covered >= piece.bytes - covered) return ReadMethod::kWholeBlocks;
    return shortest >= kLongRunBytes ? ReadMethod::kLongRuns : ReadMethod::kStrided;
  }

  void add_parts(std::span<const Region> regions) {
    const int32_t number = regions[0].piece;
    const Piece& piece = index_.pieces()[number];
    const RestoreOptions& options = plan_.options;
    // Cuts fall where an element ends, also in types of 6 bits, and on a border of blocks.
    const int64_t bits = stored_bits(index_.tensors()[piece.tensor].dtype);
    const int64_t whole = bits < 8 ? bits / std::gcd(bits, int64_t{8}) : 1;
    const int64_t unit = std::lcm(options.whole_blocks ? options.block_bytes : 1, whole);
    const int64_t longest = std::max<int64_t>(options.max_read_bytes / unit, 1) * unit;
    // No read fits into a gap that is read over: each feeds somebody.
    const int64_t merge_gap = std::min(options.merge_gap, longest);
    ranges_.clear();
    for (const Region& region : regions) region.copy.add_ranges(merge_gap, &ranges_);
    if (piece.chunks != nullptr) return add_chunks(number, piece);
    if (options.whole_blocks) {
      for (StoredRange& range : ranges_) {
        range.begin -= range.begin % options.block_bytes;
        const int64_t over = range.end % options.block_bytes;
        if (over != 0) range.end += std::min(options.block_bytes - over, piece.bytes - range.end);
      }
    }
    std::sort(ranges_.begin(), ranges_.end(),
              [](const StoredRange& a, const StoredRange& b) { return a.begin < b.begin; });
    const ReadMethod method = choose_method(regions, piece);
    for (size_t i = 0; i < ranges_.size();) {
      StoredRange range = ranges_[i++];
      while (i < ranges_.size() &&
             (ranges_[i].begin <= range.end || ranges_[i].begin - range.end < merge_gap)) {
        range.end = std::max(range.end, ranges_[i++].end);
      }
      while (range.begin < range.end) {
        int64_t end = range.end;
        if (end - range.begin > longest) end = (range.begin + longest) / unit * unit;
        parts_.push_back(
            {piece.file, piece.offset + range.begin, piece.offset + end, number, method});
        range.begin = end;
      }
    }
  }

  // The chunks that ranges_ touch.
  void add_chunks(int32_t number, const Piece& piece) {
    const ChunkGrid& grid = piece.chunks->grid;
    std::sort(ranges_.begin(), ranges_.end(),
              [](const StoredRange& a, const StoredRange& b) { return a.begin < b.begin; });
    int64_t next = 0;
    for (const StoredRange& range : ranges_) {
      const int64_t last = grid.chunk_of(range.end - 1);
      for (next = std::max(next, grid.chunk_of(range.begin)); next <= last; ++next) {
        const Chunk& chunk = piece.chunks->chunks[static_cast<size_t>(next)];
        packed_.push_back({piece.file, chunk.offset, chunk.offset + chunk.bytes, {number, next}});
      }
    }
  }

  // Chunks that lie near each other are read together.
  void add_packed_reads() {
    std::sort(packed_.begin(), packed_.end(), [](const PackedPart& a, const PackedPart& b) {
      return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    });
    for (size_t first = 0; first < packed_.size();) {
      PlannedRead read;
      read.file = packed_[first].file;
      read.offset = packed_[first].begin;
      read.method = ReadMethod::kPacked;
      read.first_block = static_cast<uint32_t>(plan_.blocks.size());
      read.first_copy = static_cast<uint32_t>(plan_.copies.size());
      int64_t end = read.offset;
      for (; first < packed_.size(); ++first) {
        const PackedPart& part = packed_[first];
        if (part.file != read.file || part.begin - end > plan_.options.merge_gap ||
            (end > read.offset && part.end - read.offset > plan_.options.max_read_bytes)) {
          break;
        }
        end = std::max(end, part.end);
        plan_.blocks.push_back(part.chunk);
      }
      read.bytes = end - read.offset;
      read.block_count = static_cast<uint32_t>(plan_.blocks.size()) - read.first_block;
      plan_.read_bytes += read.bytes;
      plan_.reads.push_back(read);
    }
    if (packed_.empty()) return;
    std::sort(plan_.reads.begin(), plan_.reads.end(),
              [](const PlannedRead& a, const PlannedRead& b) {
                return a.file != b.file ? a.file < b.file : a.offset < b.offset;
              });
  }

  void add_reads() {
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
      return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    });
    for (size_t first = 0; first < parts_.size();) {
      const Part& start = parts_[first];
      size_t end = first + 1;
      while (end < parts_.size()) {
        const Part& next = parts_[end];
        const int64_t gap = next.begin - parts_[end - 1].end;
        if (next.file != start.file || next.method != start.method ||
            (gap > 0 && gap >= plan_.options.merge_gap) ||
            next.end - start.begin > plan_.options.max_read_bytes) {
          break;
        }
        ++end;
      }
      add_read(std::span<const Part>(parts_).subspan(first, end - first));
      first = end;
    }
  }

  // The bounds of the parts of one piece, which follow each other in a read.
  void add_read(std::span<const Part> parts) {
    PlannedRead read;
    read.file = parts.front().file;
    read.offset = parts.front().begin;
    read.bytes = parts.back().end - read.offset;
    read.method = parts.front().method;
    read.first_block = static_cast<uint32_t>(plan_.blocks.size());
    read.first_copy = static_cast<uint32_t>(plan_.copies.size());
    for (size_t i = 0; i < parts.size();) {
      const int32_t number = parts[i].piece;
      const Piece& piece = index_.pieces()[number];
      const int64_t begin = parts[i].begin - piece.offset;
      while (i + 1 < parts.size() && parts[i + 1].piece == number) ++i;
      const int64_t end = parts[i++].end - piece.offset;
      if (plan_.options.whole_blocks) {
        const int64_t size = plan_.options.block_bytes;
        for (int64_t b = begin / size; b * size < end; ++b) plan_.blocks.push_back({number, b});
      }
      const auto regions = std::lower_bound(
          plan_.regions.begin(), plan_.regions.end(), number,
          [](const Region& region, int32_t value) { return region.piece < value; });
      for (auto region = regions; region != plan_.regions.end() && region->piece == number;
           ++region) {
        const StoredRange range = region->copy.stored_range();
        if (range.begin >= end || range.end <= begin) continue;
        plan_.copies.push_back(static_cast<uint32_t>(region - plan_.regions.begin()));
      }
    }
    read.block_count = static_cast<uint32_t>(plan_.blocks.size()) - read.first_block;
    read.copy_count = static_cast<uint32_t>(plan_.copies.size()) - read.first_copy;
    plan_.read_bytes += read.bytes;
    plan_.reads.push_back(read);
  }

  const PieceIndex& index_;
  std::span<const Wanted> wanted_;
  RestorePlan plan_;
  struct PackedPart {
    int32_t file;
    int64_t begin;
    int64_t end;
    BlockRef chunk;
  };

  std::vector<Part> parts_;
  std::vector<PackedPart> packed_;
  std::vector<int32_t> found_;
  std::vector<StoredRange> ranges_;
};

}  // namespace

std::string_view read_method_name(ReadMethod method) {
  switch (method) {
    case ReadMethod::kWholeBlocks:
      return "whole blocks";
    case ReadMethod::kLongRuns:
      return "long runs";
    case ReadMethod::kStrided:
      return "strided";
    case ReadMethod::kPacked:
      return "compressed chunks";
  }
  return "unknown";
}

Result<PieceIndex> PieceIndex::make(std::vector<TensorInfo> tensors, std::vector<Piece> pieces,
                                    int32_t file_count, std::span<const int64_t> file_sizes) {
  if (tensors.size() > INT32_MAX || pieces.size() > INT32_MAX) {
    return data_loss("{} tensors in {} pieces", tensors.size(), pieces.size());
  }
  if (!file_sizes.empty() && file_sizes.size() != static_cast<size_t>(file_count)) {
    return data_loss("sizes of {} files are known of {}", file_sizes.size(), file_count);
  }
  for (const TensorInfo& tensor : tensors) {
    const Status status = check_shape(tensor.dtype, tensor.shape);
    if (!status.ok()) return data_loss("tensor \"{}\": {}", tensor.name, status.message());
  }
  for (const Piece& piece : pieces) {
    HEKLA_RETURN_IF_ERROR(check_piece(tensors, piece, file_count, file_sizes));
  }
  PieceIndex index;
  index.tensors_ = std::move(tensors);
  index.pieces_ = std::move(pieces);
  std::vector<Piece>& sorted = index.pieces_;
  sort_if_needed(sorted, [](const Piece& a, const Piece& b) {
    return a.tensor != b.tensor ? a.tensor < b.tensor : box_less(a.box, b.box);
  });

  index.first_piece_.assign(index.tensors_.size() + 1, static_cast<int32_t>(sorted.size()));
  index.longest_first_.assign(index.tensors_.size(), 0);
  for (size_t p = sorted.size(); p-- > 0;) {
    index.first_piece_[sorted[p].tensor] = static_cast<int32_t>(p);
    if (sorted[p].box.size.empty()) continue;
    int64_t& longest = index.longest_first_[sorted[p].tensor];
    longest = std::max(longest, sorted[p].box.size[0]);
  }
  for (size_t t = index.tensors_.size(); t-- > 0;) {
    index.first_piece_[t] = std::min(index.first_piece_[t], index.first_piece_[t + 1]);
  }
  std::vector<Box> boxes;
  for (size_t t = 0; t < index.tensors_.size(); ++t) {
    const std::span<const Piece> pieces_of = index.pieces_of(static_cast<int32_t>(t));
    if (pieces_of.size() < 2) continue;
    boxes.clear();
    for (const Piece& piece : pieces_of) boxes.push_back(piece.box);
    const Status status = check_disjoint(boxes);
    if (!status.ok()) {
      return data_loss("tensor \"{}\": {}", index.tensors_[t].name, status.message());
    }
  }

  std::vector<int32_t> by_offset(sorted.size());
  std::iota(by_offset.begin(), by_offset.end(), 0);
  // Chunks that overlap would not have their digests.
  std::erase_if(by_offset,
                [&](int32_t p) { return sorted[p].bytes == 0 || sorted[p].chunks != nullptr; });
  sort_if_needed(by_offset, [&](int32_t a, int32_t b) {
    return sorted[a].file != sorted[b].file ? sorted[a].file < sorted[b].file
                                            : sorted[a].offset < sorted[b].offset;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const Piece& a = sorted[by_offset[i - 1]];
    const Piece& b = sorted[by_offset[i]];
    if (a.file == b.file && b.offset - a.offset < a.bytes) {
      return data_loss("{} and {} overlap in file {} at offset {}",
                       piece_text(index.tensors_[a.tensor], a),
                       piece_text(index.tensors_[b.tensor], b), a.file, b.offset);
    }
  }
  index.by_name_.resize(index.tensors_.size());
  std::iota(index.by_name_.begin(), index.by_name_.end(), 0);
  std::sort(index.by_name_.begin(), index.by_name_.end(),
            [&](int32_t a, int32_t b) { return index.tensors_[a].name < index.tensors_[b].name; });
  for (size_t i = 1; i < index.by_name_.size(); ++i) {
    const std::string& name = index.tensors_[index.by_name_[i]].name;
    if (name == index.tensors_[index.by_name_[i - 1]].name) {
      return data_loss("two tensors are called \"{}\"", name);
    }
  }
  return index;
}

std::span<const Piece> PieceIndex::pieces_of(int32_t tensor) const {
  const int32_t first = first_piece_[tensor];
  return std::span<const Piece>(pieces_).subspan(first, first_piece_[tensor + 1] - first);
}

int32_t PieceIndex::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](int32_t t, std::string_view value) { return tensors_[t].name < value; });
  return found != by_name_.end() && tensors_[*found].name == name ? *found : -1;
}

void PieceIndex::find_overlaps(int32_t tensor, const Box& box, std::vector<int32_t>* found) const {
  const auto begin = pieces_.begin() + first_piece_[tensor];
  const auto end = pieces_.begin() + first_piece_[tensor + 1];
  auto piece = begin;
  if (!box.start.empty()) {
    const int64_t lowest = box.start[0] - longest_first_[tensor];
    piece = std::partition_point(begin, end,
                                 [lowest](const Piece& one) { return one.box.start[0] <= lowest; });
  }
  Box common;
  for (; piece != end; ++piece) {
    if (!box.start.empty() && piece->box.start[0] >= box.start[0] + box.size[0]) break;
    if (intersect(piece->box, box, &common)) {
      found->push_back(static_cast<int32_t>(piece - pieces_.begin()));
    }
  }
}

Result<RestorePlan> plan_restore(const PieceIndex& index, std::span<const Wanted> wanted,
                                 const RestoreOptions& options) {
  if (options.block_bytes < 1 || options.merge_gap < 0 || options.max_read_bytes < 1) {
    return invalid_argument("block_bytes {}, merge_gap {}, max_read_bytes {} of a restore",
                            options.block_bytes, options.merge_gap, options.max_read_bytes);
  }
  return RestorePlanner(index, wanted, options).plan();
}

std::span<const std::byte> block_in_read(const PieceIndex& index, const RestorePlan& plan,
                                         const PlannedRead& read, const BlockRef& block,
                                         std::span<const std::byte> bytes) {
  const Piece& piece = index.pieces()[block.piece];
  if (piece.chunks != nullptr) {
    const Chunk& chunk = piece.chunks->chunks[static_cast<size_t>(block.block)];
    return bytes.subspan(static_cast<size_t>(chunk.offset - read.offset),
                         static_cast<size_t>(chunk.bytes));
  }
  const int64_t begin = block.block * plan.options.block_bytes;
  const int64_t size = std::min(plan.options.block_bytes, piece.bytes - begin);
  return bytes.subspan(static_cast<size_t>(piece.offset + begin - read.offset),
                       static_cast<size_t>(size));
}

void scatter(const PieceIndex& index, const RestorePlan& plan, const PlannedRead& read,
             std::span<const std::byte> bytes, std::span<std::byte* const> targets) {
  for (uint32_t i = 0; i < read.copy_count; ++i) {
    const Region& region = plan.regions[plan.copies[read.first_copy + i]];
    const Piece& piece = index.pieces()[region.piece];
    const int64_t begin = std::max(read.offset, piece.offset);
    const int64_t end = std::min(read.offset + read.bytes, piece.offset + piece.bytes);
    region.copy.load(
        bytes.subspan(static_cast<size_t>(begin - read.offset), static_cast<size_t>(end - begin)),
        begin - piece.offset, targets[region.wanted]);
  }
}

void scatter_chunk(const PieceIndex& index, const RestorePlan& plan, const BlockRef& chunk,
                   std::span<const std::byte> bytes, std::span<std::byte* const> targets) {
  const ChunkGrid& grid = index.pieces()[chunk.piece].chunks->grid;
  const int64_t begin = grid.begin(chunk.block);
  const int64_t end = grid.end(chunk.block);
  const auto first =
      std::lower_bound(plan.regions.begin(), plan.regions.end(), chunk.piece,
                       [](const Region& region, int32_t value) { return region.piece < value; });
  for (auto region = first; region != plan.regions.end() && region->piece == chunk.piece;
       ++region) {
    const StoredRange range = region->copy.stored_range();
    if (range.begin >= end || range.end <= begin) continue;
    region->copy.load(bytes.first(static_cast<size_t>(end - begin)), begin,
                      targets[region->wanted]);
  }
}

Status assemble(const PieceIndex& index, const RestorePlan& plan,
                std::span<const std::span<const std::byte>> files,
                std::span<std::byte* const> targets, const VerifyBlock& verify) {
  for (const PlannedRead& read : plan.reads) {
    if (read.method == ReadMethod::kPacked) {
      return unimplemented("compressed pieces are read from a step, not assembled");
    }
    if (read.file >= static_cast<int32_t>(files.size()) ||
        read.offset + read.bytes > static_cast<int64_t>(files[read.file].size())) {
      return data_loss("file {} ends before byte {}", read.file, read.offset + read.bytes);
    }
    const std::span<const std::byte> bytes =
        files[read.file].subspan(static_cast<size_t>(read.offset), static_cast<size_t>(read.bytes));
    for (uint32_t i = 0; verify != nullptr && i < read.block_count; ++i) {
      const BlockRef& block = plan.blocks[read.first_block + i];
      HEKLA_RETURN_IF_ERROR(verify(block, block_in_read(index, plan, read, block, bytes)));
    }
    scatter(index, plan, read, bytes, targets);
  }
  return ok_status();
}

}  // namespace hekla::checkpoint
