// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/save/shard_save.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/meshes.h"
#include "runtime/checkpoint/format/step_index.h"
#include "runtime/checkpoint/format/view.h"
#include "runtime/checkpoint/save/shard_parts.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// A save that nobody waits for is spread over this long at most, where the disk is that fast.
constexpr std::chrono::duration<double> kLongestSpread = std::chrono::minutes(1);
constexpr std::string_view kIndexFile = "index.h5";
constexpr std::string_view kViewFile = "model.h5";

std::string_view view_of(const std::vector<uint64_t>& digests) {
  return {reinterpret_cast<const char*>(digests.data()), digests.size() * sizeof(uint64_t)};
}

// A chunk as it goes to the store.
struct ChunkText {
  int64_t offset = 0;
  int64_t bytes = 0;  // twice, plus one when it is coded
};

std::string chunks_text(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    for (const Chunk& chunk : piece.chunks->chunks) {
      const ChunkText one{chunk.offset, 2 * chunk.bytes + (chunk.is_coded ? 1 : 0)};
      text.append(reinterpret_cast<const char*>(&one), sizeof one);
    }
  }
  return text;
}

Result<std::vector<uint64_t>> digests_of(const std::string& text, int64_t blocks) {
  if (text.size() != static_cast<size_t>(blocks) * sizeof(uint64_t)) {
    return internal_error("{} bytes of digests for {} blocks", text.size(), blocks);
  }
  std::vector<uint64_t> digests(static_cast<size_t>(blocks));
  if (!digests.empty()) std::memcpy(digests.data(), text.data(), text.size());
  return digests;
}

}  // namespace

ShardSave::ShardSave(rendezvous::Group& group, WriterPool& pool,
                     std::shared_ptr<ShardLayout> layout, std::string id, const SaveChecks& checks)
    : group_(group), pool_(pool), layout_(std::move(layout)), id_(std::move(id)), checks_(checks) {}

ShardSave::~ShardSave() = default;

ShardSave::PieceSource ShardSave::source_of(const LocalArray& array, DType dtype,
                                            const Piece& piece) {
  PieceSource source;
  source.source = array.source;
  source.kind = array.source->host_data() == nullptr ? Kind::kElsewhere
                : array.source->is_mutable()         ? Kind::kMutable
                                                     : Kind::kInPlace;
  if (piece.bytes == 0) return source;
  const Dims& dims = array.dims.empty() ? array.box.size : array.dims;
  source.copy.emplace(dtype, piece.box, array.box, dims, piece.box);
  const int64_t element = dtype_bytes(dtype);
  if (stored_bits(dtype) == 8 * element && source.copy->run_bytes() == piece.bytes) {
    int64_t at = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      at = at * dims[d] + piece.box.start[d] - array.box.start[d];
    }
    source.contiguous_at = at * element;
  }
  return source;
}

Result<std::unique_ptr<ShardSave>> ShardSave::make(rendezvous::Group& group, WriterPool& pool,
                                                   std::shared_ptr<ShardLayout> layout, State state,
                                                   std::string id, const SaveChecks& checks) {
  std::unique_ptr<ShardSave> save(
      new ShardSave(group, pool, std::move(layout), std::move(id), checks));
  save->items_ = std::move(state.items);
  save->extra_files_ = std::move(state.files);
  HEKLA_RETURN_IF_ERROR(save->find_replicas(state));
  HEKLA_RETURN_IF_ERROR(save->find_sources(std::move(state)));
  return save;
}

Status ShardSave::find_sources(State state) {
  // The plan's tensors are in order of names, as the state's are.
  const std::vector<TensorInfo>& tensors = layout_->plan->tensors;
  if (state.tensors.size() != tensors.size()) {
    return invalid_argument("{} tensors for a plan of {}", state.tensors.size(), tensors.size());
  }
  for (const StateTensor& tensor : state.tensors) {
    for (const LocalArray& array : tensor.arrays) {
      const Dims& dims = array.dims.empty() ? array.box.size : array.dims;
      HEKLA_RETURN_IF_ERROR(check_box(tensor.info.shape, array.box));
      HEKLA_ASSIGN_OR_RETURN(const int64_t bytes, checked_bytes(tensor.info.dtype, dims));
      bool fits = dims.size() == array.box.size.size() && array.source->size_bytes() >= bytes;
      for (size_t d = 0; fits && d < dims.size(); ++d) fits = dims[d] >= array.box.size[d];
      if (!fits) {
        return invalid_argument(
            "tensor \"{}\": the array for {} has {} bytes, dimensions {} need {}", tensor.info.name,
            box_text(array.box), array.source->size_bytes(), shape_string(tensor.info.dtype, dims),
            bytes);
      }
    }
  }
  for (const ShardLayout::File& file : layout_->files) {
    auto target = std::make_unique<Target>();
    for (const size_t i : file.mine) {
      const Piece& piece = file.image.pieces()[i];
      const StateTensor& tensor = state.tensors[static_cast<size_t>(piece.tensor)];
      const LocalArray* found = find_array(tensor, piece.box);
      if (found == nullptr) {
        return invalid_argument("rank {} is to write {} of tensor \"{}\" and has no array for it",
                                group_.rank(), box_text(piece.box), tensor.info.name);
      }
      PieceSource source = source_of(*found, tensor.info.dtype, piece);
      if (source.kind == Kind::kMutable && piece.bytes > 0) {
        mutable_bytes_ += piece.bytes;
        if (file.kind == ShardKind::kFrozen) has_to_compare_ = true;
        if (!file.image.is_small(i) && file.kind != ShardKind::kFrozen) {
          for (int64_t at = 0; at < piece.bytes; at += item_bytes(piece, at)) ++staging_buffers_;
        }
      }
      target->sources.push_back(std::move(source));
    }
    target->small.resize(file.mine.size());
    targets_.push_back(std::move(target));
  }
  return ok_status();
}

Status ShardSave::fill(PieceSource& source, const Piece& piece, int64_t at,
                       std::span<std::byte> into, std::stop_token stop) {
  const std::byte* memory = source.source->host_data();
  if (source.contiguous_at >= 0) {
    return source.source->read(source.contiguous_at + at, into, std::move(stop));
  }
  if (memory == nullptr) {
    if (source.fetched.empty()) {
      source.fetched.resize(static_cast<size_t>(source.source->size_bytes()));
      HEKLA_RETURN_IF_ERROR(source.source->read(0, source.fetched, std::move(stop)));
    }
    memory = source.fetched.data();
  }
  std::memset(into.data(), 0, into.size());
  source.copy->store(memory, into, at);
  if (at + static_cast<int64_t>(into.size()) == piece.bytes) {
    source.fetched = std::vector<std::byte>();
  }
  return ok_status();
}

Status ShardSave::fill_hashed(PieceSource& source, const Piece& piece, const Staged& staged,
                              FileWriter& writer, std::stop_token stop) {
  const std::byte* memory = source.source->host_data() + source.contiguous_at;
  for (int64_t at = 0; at < staged.bytes; at += kBlockBytes) {
    const auto bytes = static_cast<size_t>(std::min(kBlockBytes, staged.bytes - at));
    const int64_t from = staged.at + at;
    HEKLA_RETURN_IF_ERROR(fill(source, piece, from, {staged.buffer.data() + at, bytes}, stop));
    writer.set_digest(piece.first_block + from / kBlockBytes, block_digest({memory + from, bytes}));
  }
  return ok_status();
}

Status ShardSave::stage(Kind kind, std::stop_token stop, const std::function<void(Staged)>& take) {
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    const ShardLayout::File& file = layout_->files[f];
    Target& target = *targets_[f];
    if (target.link || (file.kind == ShardKind::kFrozen && !is_allocated_)) continue;
    for (size_t k = 0; k < file.mine.size(); ++k) {
      PieceSource& source = target.sources[k];
      const Piece& piece = file.image.pieces()[file.mine[k]];
      if (piece.bytes == 0 || source.kind != kind || source.source == nullptr ||
          source.is_written_in_place) {
        continue;
      }
      if (file.image.is_small(file.mine[k])) {
        target.small[k].resize(static_cast<size_t>(piece.bytes));
        HEKLA_RETURN_IF_ERROR(fill(source, piece, 0, target.small[k], stop));
      } else {
        int64_t next = 0;
        for (int64_t at = 0; at < piece.bytes; at = next) {
          Staged staged{f, file.mine[k], at, item_bytes(piece, at), {}};
          next = at + staged.bytes;
          HEKLA_ASSIGN_OR_RETURN(staged.buffer, pool_.staging().acquire(stop));
          // Before the save has begun the caller waits for every copy: the writer hashes those.
          staged.is_hashed = target.writer != nullptr && piece.chunks == nullptr &&
                             source.contiguous_at >= 0 && source.source->host_data() != nullptr;
          HEKLA_RETURN_IF_ERROR(
              staged.is_hashed
                  ? fill_hashed(source, piece, staged, *target.writer, stop)
                  : fill(source, piece, at,
                         {staged.buffer.data(), static_cast<size_t>(staged.bytes)}, stop));
          take(std::move(staged));
        }
      }
      source.source.reset();
    }
  }
  return ok_status();
}

Status ShardSave::stage_now(std::stop_token stop) {
  return stage(Kind::kMutable, std::move(stop),
               [this](Staged staged) { early_.push_back(std::move(staged)); });
}

void ShardSave::staged() {
  if (std::exchange(is_staged_, true)) return;
  if (on_staged) on_staged();
}

int64_t ShardSave::bytes_done() const { return bytes_done_.load(std::memory_order_relaxed); }

Status ShardSave::open_writer(size_t f, const SaveSite& site, FileUse use) {
  const ShardLayout::File& file = layout_->files[f];
  const std::string& path = layout_->plan->files[static_cast<size_t>(file.number)];
  const bool is_packed = file.kind == ShardKind::kPacked;
  HEKLA_ASSIGN_OR_RETURN(
      targets_[f]->writer,
      FileWriter::create(pool_, join_path(site.folder, path), file.image.file_size(),
                         is_packed ? 0 : file.image.blocks(), site.stop, use));
  if (!is_rate_limited()) targets_[f]->writer->do_not_pace();
  if (!is_packed) {
    targets_[f]->writer->count_into(&bytes_done_);
    return ok_status();
  }
  std::vector<Compressor::PieceTarget> pieces;
  for (const Piece& piece : file.image.pieces()) {
    const Compression how = layout_->plan->compression[static_cast<size_t>(piece.tensor)];
    pieces.push_back({piece.chunks->grid, piece.first_block, how == Compression::kAuto});
  }
  HEKLA_ASSIGN_OR_RETURN(
      targets_[f]->compressor,
      Compressor::create(pool_, *targets_[f]->writer, file.image.payload().front().begin,
                         file.image.blocks(), std::move(pieces), site.stop, &bytes_done_));
  return ok_status();
}

int64_t ShardSave::item_bytes(const Piece& piece, int64_t at) const {
  const int64_t item = pool_.staging().buffer_bytes();
  if (piece.chunks == nullptr) return std::min(item, piece.bytes - at);
  // An item holds at least one chunk.
  const ChunkGrid& grid = piece.chunks->grid;
  const int64_t last = grid.chunk_of(std::min(at + item, piece.bytes) - 1);
  return (grid.end(last) - at <= item ? grid.end(last) : grid.begin(last)) - at;
}

void ShardSave::add_chunks(Target& target, size_t piece_number, const Piece& piece, int64_t at,
                           int64_t bytes, const std::byte* data, StagingPool::Buffer buffer) {
  const ChunkGrid& grid = piece.chunks->grid;
  const int64_t first = grid.chunk_of(at);
  target.compressor->add(piece_number, first, grid.chunk_of(at + bytes - 1) + 1 - first, data,
                         std::move(buffer));
}

Status ShardSave::allocate(const SaveSite& site) {
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    if (!layout_->files[f].is_owner) continue;
    if (layout_->files[f].kind == ShardKind::kFrozen && site.parent) {
      HEKLA_RETURN_IF_ERROR(link_frozen(f, site));
    }
    if (!targets_[f]->link) HEKLA_RETURN_IF_ERROR(open_writer(f, site, FileUse::kNew));
  }
  is_allocated_ = true;
  return ok_status();
}

void ShardSave::add_staged(Staged staged) {
  const Piece& piece = layout_->files[staged.file].image.pieces()[staged.piece];
  if (piece.chunks != nullptr) {
    const std::byte* data = staged.buffer.data();
    return add_chunks(*targets_[staged.file], staged.piece, piece, staged.at, staged.bytes, data,
                      std::move(staged.buffer));
  }
  targets_[staged.file]->writer->add(
      std::move(staged.buffer), staged.bytes, piece.offset + staged.at,
      staged.is_hashed ? -1 : piece.first_block + staged.at / kBlockBytes);
}

// Compressing takes ten times the processor time of writing: to write slowly would spare nothing.
bool ShardSave::is_rate_limited() const {
  return pool_.rate_limiter() != nullptr &&
         std::ranges::none_of(layout_->files, [](const ShardLayout::File& file) {
           return file.kind == ShardKind::kPacked;
         });
}

Status ShardSave::snapshot(const SaveSite& site) {
  if (is_rate_limited()) {
    pool_.rate_limiter()->at_least(static_cast<double>(layout_->my_bytes) / kLongestSpread.count());
  }
  HEKLA_RETURN_IF_ERROR(hash_replicas(site));
  // Their owners have made them: all ranks are past P1.
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    if (!layout_->files[f].is_owner) HEKLA_RETURN_IF_ERROR(open_writer(f, site, FileUse::kShared));
  }
  for (Staged& staged : early_) add_staged(std::move(staged));
  early_.clear();
  const auto take = [this](Staged staged) { add_staged(std::move(staged)); };
  HEKLA_RETURN_IF_ERROR(stage(Kind::kMutable, site.stop, take));
  // Host memory goes out by itself while other memories are fetched.
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    const ShardLayout::File& file = layout_->files[f];
    Target& target = *targets_[f];
    if (target.link) continue;
    for (size_t k = 0; k < file.mine.size(); ++k) {
      PieceSource& source = target.sources[k];
      const Piece& piece = file.image.pieces()[file.mine[k]];
      if (source.kind != Kind::kInPlace || source.contiguous_at < 0 || piece.bytes == 0 ||
          file.image.is_small(file.mine[k])) {
        continue;
      }
      const std::byte* data = source.source->host_data() + source.contiguous_at;
      source.is_written_in_place = true;
      if (piece.chunks == nullptr) {
        target.writer->add({data, piece.bytes, piece.offset, piece.first_block});
        continue;
      }
      for (int64_t at = 0; at < piece.bytes; at += item_bytes(piece, at)) {
        add_chunks(target, file.mine[k], piece, at, item_bytes(piece, at), data + at);
      }
    }
  }
  HEKLA_RETURN_IF_ERROR(stage(Kind::kElsewhere, site.stop, take));
  staged();
  return ok_status();
}

std::string ShardSave::key(std::string_view what, int32_t file, int32_t rank) const {
  return group_.key(fmt::format("s/{}/{}/{}/{}", id_, what, file, rank));
}

Result<std::vector<FileRecord>> ShardSave::write(const SaveSite& site) {
  // Their syncs are over while the payload is still on its way.
  HEKLA_ASSIGN_OR_RETURN(std::vector<FileRecord> extras, write_extras(site));
  // What remains: host arrays that are cut or packed on their way, and small ones.
  const auto take = [this](Staged staged) { add_staged(std::move(staged)); };
  HEKLA_RETURN_IF_ERROR(stage(Kind::kInPlace, site.stop, take));
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    Target& target = *targets_[f];
    if (target.link) continue;
    if (target.compressor) HEKLA_RETURN_IF_ERROR(target.compressor->drain());
    HEKLA_RETURN_IF_ERROR(target.writer->drain());
    for (PieceSource& source : targets_[f]->sources) source.source.reset();
  }
  std::vector<FileRecord> records;
  // First what others wait for, then what waits for others.
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    const ShardLayout::File& file = layout_->files[f];
    Target& target = *targets_[f];
    if (file.is_owner) continue;
    for (size_t k = 0; k < file.mine.size(); ++k) {
      if (target.small[k].empty()) continue;
      HEKLA_RETURN_IF_ERROR(
          target.writer->write(target.small[k], file.image.pieces()[file.mine[k]].offset));
    }
    const std::vector<uint64_t> digests = target.writer->digests();
    HEKLA_RETURN_IF_ERROR(target.writer->close());
    HEKLA_RETURN_IF_ERROR(
        group_.store().set(key("part", file.number, group_.rank()), view_of(digests)));
  }
  for (size_t f = 0; f < layout_->files.size(); ++f) {
    if (!layout_->files[f].is_owner) continue;
    HEKLA_ASSIGN_OR_RETURN(FileRecord record, write_metadata(f, site));
    records.push_back(std::move(record));
  }
  if (!replicas_.empty()) {
    HEKLA_RETURN_IF_ERROR(group_.store().set(key("replicas", 0, group_.rank()), replica_digests_));
  }
  records.insert(records.end(), extras.begin(), extras.end());
  return records;
}

// The digests of the others' blocks, and the bytes of their small pieces.
Status ShardSave::take_parts(size_t f, std::vector<uint64_t>* digests, const SaveSite& site) {
  ShardLayout::File& file = layout_->files[f];
  if (file.others.empty()) return ok_status();
  const std::string path =
      join_path(site.folder, layout_->plan->files[static_cast<size_t>(file.number)]);
  std::map<int32_t, std::vector<uint64_t>> parts;
  for (const int32_t rank : file.others) {
    rendezvous::Group::Wait wait;
    wait.what = fmt::format("waiting for the part of rank {} in {}", rank, path);
    wait.stop = site.stop;  // the save's deadline is the coordinator's
    HEKLA_ASSIGN_OR_RETURN(
        const rendezvous::Group::Waited waited,
        group_.wait_key(fmt::format("s/{}/part/{}/{}", id_, file.number, rank), rank, wait));
    HEKLA_ASSIGN_OR_RETURN(parts[rank], digests_of(waited.values.at(rank), file.image.blocks()));
  }
  HEKLA_ASSIGN_OR_RETURN(const File opened, File::open(pool_.io(), path, 0));
  for (size_t i = 0; i < file.image.pieces().size(); ++i) {
    const Piece& piece = file.image.pieces()[i];
    if (piece.writer == group_.rank() || piece.bytes == 0) continue;
    if (file.image.is_small(i)) {
      HEKLA_RETURN_IF_ERROR(opened.read(file.image.small_piece(i), piece.offset));
      continue;
    }
    const std::vector<uint64_t>& part = parts.at(piece.writer);
    std::copy_n(part.begin() + piece.first_block, block_count(piece.bytes),
                digests->begin() + piece.first_block);
  }
  return ok_status();
}

Result<FileRecord> ShardSave::write_metadata(size_t f, const SaveSite& site) {
  ShardLayout::File& file = layout_->files[f];
  Target& target = *targets_[f];
  if (target.link) {
    HEKLA_RETURN_IF_ERROR(
        group_.store().set(key("digests", file.number, 0), view_of(target.link_digests)));
    ShardImage::Finished linked;
    linked.digests = target.link_digests;
    linked.pieces = file.image.pieces();
    HEKLA_RETURN_IF_ERROR(read_back(f, site, linked));
    return *target.link;
  }
  std::vector<uint64_t> digests = target.writer->digests();
  HEKLA_RETURN_IF_ERROR(take_parts(f, &digests, site));
  for (size_t k = 0; k < file.mine.size(); ++k) {
    if (target.small[k].empty()) continue;
    std::ranges::copy(target.small[k], file.image.small_piece(file.mine[k]).begin());
  }
  const ShardIdentity identity{site.run_uuid, site.nonce, site.step};
  HEKLA_ASSIGN_OR_RETURN(ShardImage::Finished finished,
                         target.compressor
                             ? file.image.finish_packed(identity, target.compressor->digests(),
                                                        target.compressor->take_chunks())
                             : file.image.finish(identity, digests));
  for (const Extent& extent : finished.extents) {
    HEKLA_RETURN_IF_ERROR(target.writer->write(extent.bytes, extent.offset));
  }
  if (target.compressor) {
    HEKLA_RETURN_IF_ERROR(target.writer->truncate(finished.record.size));
    HEKLA_RETURN_IF_ERROR(
        group_.store().set(key("chunks", file.number, 0), chunks_text(finished.pieces)));
  }
  HEKLA_RETURN_IF_ERROR(target.writer->close());
  HEKLA_RETURN_IF_ERROR(read_back(f, site, finished));
  HEKLA_RETURN_IF_ERROR(
      group_.store().set(key("digests", file.number, 0), view_of(finished.digests)));
  FileRecord record = std::move(finished.record);
  record.path = layout_->plan->files[static_cast<size_t>(file.number)];
  record.writer = group_.rank();
  return record;
}

Result<std::vector<FileRecord>> ShardSave::write_extras(const SaveSite& site) {
  std::vector<FileRecord> records;
  const auto write_one = [&](const std::string& name, const std::string& bytes) -> Status {
    const std::string path = join_path(site.folder, name);
    const std::string folder = parent_path(path);
    HEKLA_RETURN_IF_ERROR(make_folders(pool_.io(), folder));
    HEKLA_RETURN_IF_ERROR(create_file(pool_.io(), path, bytes));
    HEKLA_RETURN_IF_ERROR(read_back(path, bytes));
    HEKLA_RETURN_IF_ERROR(sync_folder(pool_.io(), folder));
    records.push_back(
        {name, static_cast<int64_t>(bytes.size()), digest_text(bytes), "", group_.rank()});
    return ok_status();
  };
  if (group_.is_coordinator() && !items_.empty()) {
    HEKLA_RETURN_IF_ERROR(write_one(std::string(kItemsFile), items_text(items_)));
  }
  for (const ExtraFile& file : extra_files_) {
    if (!file.per_rank && !group_.is_coordinator()) continue;
    std::string name = fmt::format("extra/{}", file.name);
    if (file.per_rank) name += fmt::format(".rank-{:05}", group_.rank());
    HEKLA_RETURN_IF_ERROR(check_path(name));
    HEKLA_RETURN_IF_ERROR(write_one(name, file.bytes));
  }
  return records;
}

Result<std::vector<Piece>> ShardSave::placed_pieces() const {
  std::vector<Piece> pieces = layout_->all_pieces;  // by file, as each file's image has them
  std::map<int32_t, std::string> texts;
  std::map<int32_t, size_t> taken;
  for (Piece& piece : pieces) {
    if (piece.chunks == nullptr) continue;
    auto text = texts.find(piece.file);
    if (text == texts.end()) {
      HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> said,
                             group_.store().get(key("chunks", piece.file, 0)));
      text = texts.emplace(piece.file, said.value_or("")).first;
    }
    size_t& at = taken[piece.file];
    std::vector<Chunk> chunks(piece.chunks->chunks.size());
    if (text->second.size() - at < chunks.size() * sizeof(ChunkText)) {
      return internal_error("the places of the chunks of file {} came with {} bytes", piece.file,
                            text->second.size());
    }
    for (Chunk& chunk : chunks) {
      ChunkText one;
      std::memcpy(&one, text->second.data() + at, sizeof one);
      at += sizeof one;
      chunk = {one.offset, one.bytes >> 1, (one.bytes & 1) != 0};
    }
    piece.chunks =
        std::make_shared<const PieceChunks>(PieceChunks{piece.chunks->grid, std::move(chunks)});
  }
  return pieces;
}

Result<std::vector<FileRecord>> ShardSave::finish(const SaveSite& site,
                                                  const std::vector<FileRecord>& files,
                                                  CommitRecord* record) {
  HEKLA_RETURN_IF_ERROR(compare_replicas());
  const SavePlan& plan = *layout_->plan;
  std::vector<FileRecord> shards(plan.files.size());
  for (size_t number = 0; number < plan.files.size(); ++number) {
    const auto found = std::find_if(files.begin(), files.end(), [&](const FileRecord& file) {
      return file.path == plan.files[number];
    });
    if (found == files.end()) return internal_error("nobody wrote {}", plan.files[number]);
    shards[number] = *found;
    if (found->origin) record->parent_step = site.parent->step;
  }
  // COMMIT lists shards by their numbers, so that the index can be made again without it.
  std::vector<FileRecord> ordered = shards;
  for (const FileRecord& file : files) {
    if (file.table_digest.empty()) ordered.push_back(file);
  }
  int64_t blocks = 0;
  for (const Piece& piece : layout_->all_pieces) blocks += piece_blocks(piece);
  std::vector<std::vector<uint64_t>> digests;
  if (blocks * static_cast<int64_t>(sizeof(uint64_t)) <= kMaxIndexedDigestBytes) {
    std::vector<int64_t> blocks_of(plan.files.size());
    for (const Piece& piece : layout_->all_pieces) {
      blocks_of[static_cast<size_t>(piece.file)] += piece_blocks(piece);
    }
    for (size_t number = 0; number < plan.files.size(); ++number) {
      HEKLA_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                             group_.store().get(key("digests", static_cast<int32_t>(number), 0)));
      HEKLA_ASSIGN_OR_RETURN(std::vector<uint64_t> table,
                             digests_of(text.value_or(""), blocks_of[number]));
      digests.push_back(std::move(table));
    }
  }
  HEKLA_ASSIGN_OR_RETURN(std::vector<Piece> pieces, placed_pieces());
  HEKLA_ASSIGN_OR_RETURN(const StepIndex index,
                         make_index(site.step, plan.tensors, std::move(pieces), std::move(shards),
                                    std::move(digests)));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<std::byte> index_bytes, write_index(index));
  HEKLA_ASSIGN_OR_RETURN(const std::vector<std::byte> view_bytes, make_view(index));
  std::vector<FileRecord> more;
  for (const auto& [name, bytes] :
       {std::pair(kIndexFile, &index_bytes), std::pair(kViewFile, &view_bytes)}) {
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    HEKLA_RETURN_IF_ERROR(create_file(pool_.io(), join_path(site.folder, name), text));
    HEKLA_RETURN_IF_ERROR(read_back(join_path(site.folder, name), text));
    more.push_back({std::string(name), static_cast<int64_t>(bytes->size()), digest_text(*bytes), "",
                    group_.rank()});
  }
  record->mesh = meshes_text(index.meshes);
  record->tensors = static_cast<int64_t>(plan.tensors.size());
  record->logical_bytes = layout_->logical_bytes;
  record->files = std::move(ordered);
  return more;
}

void ShardSave::abandon() {
  early_.clear();
  targets_.clear();  // waits for items under way, whose file has failed or was stopped
  staged();
}

}  // namespace hekla::checkpoint
