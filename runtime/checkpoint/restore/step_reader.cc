// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/restore/step_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "runtime/base/io/file.h"
#include "runtime/checkpoint/chunks.h"
#include "runtime/checkpoint/codec/codec.h"
#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/shard_reader.h"
#include "runtime/checkpoint/restore/verify.h"
#include "runtime/checkpoint/sharding/box.h"

namespace hekla::checkpoint {
namespace {

// Twelve blocks: a multiple of the three that types of 6 bits need, large enough for any disk.
constexpr int64_t kItemBytes = 12 * kBlockBytes;
// Two descriptors a file: a process with 64 of them can restore.
constexpr size_t kFilesAtOnce = 16;

constexpr uintptr_t kLargePage = uintptr_t{2} << 20;

// What a plan reads, neighbours joined.
std::vector<ShardRange> ranges_of(const RestorePlan& plan) {
  std::vector<ShardRange> ranges;
  for (const PlannedRead& read : plan.reads) {
    const int64_t end = read.offset + read.bytes;
    if (!ranges.empty() && ranges.back().file == read.file && ranges.back().end == read.offset) {
      ranges.back().end = end;
    } else {
      ranges.push_back({read.file, read.offset, end});
    }
  }
  return ranges;
}

}  // namespace

Result<HostArray> allocate_array(DType dtype, Dims dims, bool zero) {
  HEKLA_ASSIGN_OR_RETURN(HostArray array, HostArray::allocate(dtype, std::move(dims), zero));
  const auto begin = reinterpret_cast<uintptr_t>(array.data());
  const uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t end =
      (begin + static_cast<uintptr_t>(array.size_bytes())) / kLargePage * kLargePage;
  // Advice: what the kernel makes of it changes no result.
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  return array;
}

Result<std::shared_ptr<const StepReader>> StepReader::open(Io& io, std::string folder,
                                                           const StepReaderOptions& options,
                                                           std::shared_ptr<const void> keep) {
  std::shared_ptr<StepReader> reader(new StepReader(io, std::move(folder)));
  reader->keep_ = std::move(keep);
  HEKLA_RETURN_IF_ERROR(reader->load(options));
  return std::shared_ptr<const StepReader>(std::move(reader));
}

Status StepReader::load(const StepReaderOptions& options) {
  if (options.threads < 0 || options.budget_bytes < 0 || options.bandwidth_limit < 0) {
    return invalid_argument("a reader with {} threads, {} bytes of memory, {} bytes/s",
                            options.threads, options.budget_bytes, options.bandwidth_limit);
  }
  verify_ = options.verify;
  HEKLA_ASSIGN_OR_RETURN(commit_, read_commit(io_, folder_));
  std::map<std::string_view, const FileRecord*> listed;
  for (const FileRecord& file : commit_.files) {
    HEKLA_RETURN_IF_ERROR(check_size(io_, folder_, file));
    listed[file.path] = &file;
  }
  const auto index_file = listed.find("index.h5");
  if (index_file == listed.end()) {
    return data_loss("{}/COMMIT lists no index.h5", folder_);
  }
  const std::string index_path = join_path(folder_, "index.h5");
  HEKLA_ASSIGN_OR_RETURN(
      const std::string bytes,
      hekla::read_file(io_, index_path, std::max<int64_t>(index_file->second->size, 1)));
  other_bytes_ += static_cast<int64_t>(bytes.size());
  Result<StepIndex> index = read_index(std::as_bytes(std::span(bytes)), *index_file->second);
  if (!index.ok()) return index.status().with_context(folder_);
  if (index->step != commit_.step) {
    return data_loss("{} is of step {}, COMMIT of step {}", index_path, index->step, commit_.step);
  }
  shards_ = std::move(index->files);
  states_ = std::make_unique<Shard[]>(shards_.size());
  std::vector<int64_t> sizes;
  for (size_t f = 0; f < shards_.size(); ++f) {
    const auto found = listed.find(shards_[f].path);
    if (found != listed.end()) shards_[f].origin = found->second->origin;
    if (found == listed.end() || *found->second != shards_[f]) {
      return data_loss("{} says other things of {} than COMMIT", index_path, shards_[f].path);
    }
    paths_.push_back(join_path(folder_, shards_[f].path));
    sizes.push_back(shards_[f].size);
    if (!index->digests.empty()) states_[f].digests = std::move(index->digests[f]);
  }
  Result<PieceIndex> pieces = PieceIndex::make(std::move(index->tensors), std::move(index->pieces),
                                               static_cast<int32_t>(shards_.size()), sizes);
  if (!pieces.ok()) return pieces.status().with_context(index_path);
  index_ = std::move(*pieces);

  ReaderOptions reader;
  reader.threads = options.threads;
  reader.budget_bytes = options.budget_bytes;
  reader.bandwidth_limit = options.bandwidth_limit;
  reader.direct = options.direct;
  // One item a read: what shares a read is verified and handed on together.
  reader.item_bytes = std::clamp(options.budget_bytes / (3 * kBlockBytes) * (3 * kBlockBytes),
                                 3 * kBlockBytes, kItemBytes);
  plan_options_.max_read_bytes = reader.item_bytes;
  plan_options_.whole_blocks = verify_ != Verify::kNone;
  HEKLA_ASSIGN_OR_RETURN(reader_, Reader::create(io_, reader));
  if (verify_ != Verify::kFull) return ok_status();
  VerifyOptions all;
  all.reader = reader;
  all.max_problems = 1;
  HEKLA_ASSIGN_OR_RETURN(const VerifyReport report, verify_step(io_, folder_, all));
  other_bytes_ += report.bytes;
  if (report.problems.empty()) return ok_status();
  return data_loss("{}/{}: {}", folder_, report.problems[0].file, report.problems[0].what);
}

// What must hold before anything of a shard is used: its user block is of this save, and its block
// digests are known.
Status StepReader::check_shard(int32_t file) const {
  Shard& shard = states_[static_cast<size_t>(file)];
  const std::lock_guard lock(shard.mutex);
  if (shard.is_checked) return ok_status();
  const FileRecord& record = shards_[static_cast<size_t>(file)];
  HEKLA_ASSIGN_OR_RETURN(const UserBlock block,
                         read_user_block(io_, folder_, commit_, record, file));
  other_bytes_ += kUserBlockBytes;
  const std::string& path = paths_[static_cast<size_t>(file)];
  if (shard.digests.empty() && block.blocks > 0) {
    if (block.table_offset > record.size || block.blocks > (record.size - block.table_offset) / 8) {
      return data_loss("{}: a table of {} digests at offset {} of {} bytes", path, block.blocks,
                       block.table_offset, record.size);
    }
    std::vector<std::byte> bytes(static_cast<size_t>(block.blocks) * 8);
    HEKLA_ASSIGN_OR_RETURN(const File opened, File::open(io_, path, O_RDONLY));
    HEKLA_RETURN_IF_ERROR(opened.read(bytes, block.table_offset));
    other_bytes_ += static_cast<int64_t>(bytes.size());
    Result<std::vector<uint64_t>> table = read_block_table(block, bytes);
    if (!table.ok()) return table.status().with_context(path);
    shard.digests = std::move(*table);
  }
  for (const Piece& piece : index_.pieces()) {
    if (piece.file != file) continue;
    if (piece.first_block > static_cast<int64_t>(shard.digests.size()) - piece_blocks(piece)) {
      return data_loss("{}: a piece of tensor \"{}\" has digests from {} on, there are {}", path,
                       index_.tensors()[static_cast<size_t>(piece.tensor)].name, piece.first_block,
                       shard.digests.size());
    }
  }
  shard.is_checked = true;
  return ok_status();
}

Status StepReader::unpack(const RestorePlan& plan, const PlannedRead& read,
                          std::span<const std::byte> bytes,
                          std::span<std::byte* const> targets) const {
  HEKLA_ASSIGN_OR_RETURN(const std::unique_ptr<Coder> coder, Coder::create());
  std::vector<std::byte> whole;
  for (uint32_t i = 0; i < read.block_count; ++i) {
    const BlockRef& ref = plan.blocks[read.first_block + i];
    const Piece& piece = index_.pieces()[static_cast<size_t>(ref.piece)];
    const ChunkGrid& grid = piece.chunks->grid;
    const Chunk& chunk = piece.chunks->chunks[static_cast<size_t>(ref.block)];
    std::span<const std::byte> stored = block_in_read(index_, plan, read, ref, bytes);
    if (chunk.is_coded) {
      whole.resize(static_cast<size_t>(grid.full_bytes()));
      const Status status = coder->decode(stored, grid.element_bytes(), whole);
      if (!status.ok()) {
        return status.with_context(
            fmt::format("{}: chunk {} of piece {} of tensor \"{}\" at offset {}",
                        paths_[static_cast<size_t>(read.file)], ref.block, box_text(piece.box),
                        index_.tensors()[static_cast<size_t>(piece.tensor)].name, chunk.offset));
      }
      stored = whole;
    }
    scatter_chunk(index_, plan, ref, stored, targets);
  }
  return ok_status();
}

Result<LazyTensor> StepReader::tensor(std::string_view name) const {
  const int32_t found = index_.find(name);
  if (found < 0) return not_found("{} has no tensor \"{}\"", folder_, name);
  return LazyTensor(shared_from_this(), found);
}

std::vector<LazyTensor> StepReader::tensors() const {
  std::vector<LazyTensor> all;
  for (size_t t = 0; t < index_.tensors().size(); ++t) {
    all.push_back(LazyTensor(shared_from_this(), static_cast<int32_t>(t)));
  }
  return all;
}

Status StepReader::read(std::span<const Wanted> wanted, std::span<std::byte* const> targets,
                        std::stop_token stop, const ShareReads& share) const {
  if (targets.size() != wanted.size()) {
    return invalid_argument("{} arrays for {} wanted boxes", targets.size(), wanted.size());
  }
  Result<RestorePlan> planned = plan_restore(index_, wanted, plan_options_);
  if (!planned.ok()) return planned.status().with_context(folder_);
  const RestorePlan& plan = *planned;
  std::vector<ShardRange> shared;
  size_t next_shared = 0;
  if (share) {
    HEKLA_ASSIGN_OR_RETURN(shared, share(ranges_of(plan)));
  }
  // Where a read's bytes go as they are, all of them to one place: no copy is needed then.
  const auto in_place = [&, this](const PlannedRead& read) -> std::byte* {
    if (read.copy_count != 1 || read.method == ReadMethod::kPacked) return nullptr;
    const Region& region = plan.regions[plan.copies[read.first_copy]];
    const int64_t begin = read.offset - index_.pieces()[static_cast<size_t>(region.piece)].offset;
    const int64_t at = region.copy.memory_offset({begin, begin + read.bytes});
    return at < 0 ? nullptr : targets[static_cast<size_t>(region.wanted)] + at;
  };
  const auto take = [&, this](const PlannedRead& read, std::span<const std::byte> bytes,
                              bool is_in_place) {
    const std::vector<uint64_t>& digests = states_[static_cast<size_t>(read.file)].digests;
    for (uint32_t i = 0; verify_ != Verify::kNone && i < read.block_count; ++i) {
      const BlockRef& ref = plan.blocks[read.first_block + i];
      const Piece& piece = index_.pieces()[static_cast<size_t>(ref.piece)];
      const std::span<const std::byte> block = block_in_read(index_, plan, read, ref, bytes);
      const uint64_t found = block_digest(block);
      const uint64_t expected = digests[static_cast<size_t>(piece.first_block + ref.block)];
      if (found == expected) continue;
      return data_loss(
          "{}: block {} of piece {} of tensor \"{}\" ({} bytes at offset {}) has the digest "
          "{:016x}, not {:016x}: it is corrupt",
          paths_[static_cast<size_t>(read.file)], ref.block, box_text(piece.box),
          index_.tensors()[static_cast<size_t>(piece.tensor)].name, block.size(),
          read.offset + (block.data() - bytes.data()), found, expected);
    }
    if (read.method == ReadMethod::kPacked) return unpack(plan, read, bytes, targets);
    if (!is_in_place) scatter(index_, plan, read, bytes, targets);
    return ok_status();
  };
  const auto is_before = [](const ShardRange& range, const PlannedRead& read) {
    return range.file < read.file || (range.file == read.file && range.end <= read.offset);
  };
  // Reads are sorted by file; a few files at a time are open.
  for (size_t next = 0; next < plan.reads.size();) {
    std::vector<std::string> paths;
    std::vector<ReadRequest> requests;
    for (; next < plan.reads.size(); ++next) {
      const PlannedRead& read = plan.reads[next];
      const std::string& path = paths_[static_cast<size_t>(read.file)];
      if (paths.empty() || paths.back() != path) {
        if (paths.size() == kFilesAtOnce) break;
        if (verify_ != Verify::kNone) HEKLA_RETURN_IF_ERROR(check_shard(read.file));
        paths.push_back(path);
      }
      ReadRequest request;
      request.file = static_cast<int32_t>(paths.size()) - 1;
      request.offset = read.offset;
      request.bytes = read.bytes;
      request.into = in_place(read);
      while (next_shared < shared.size() && is_before(shared[next_shared], read)) ++next_shared;
      request.cached = next_shared < shared.size() && shared[next_shared].file == read.file &&
                       shared[next_shared].begin < read.offset + read.bytes;
      request.take = [&take, &read, is_in_place = request.into != nullptr](
                         int64_t, std::span<const std::byte> bytes) {
        return take(read, bytes, is_in_place);
      };
      requests.push_back(std::move(request));
    }
    HEKLA_RETURN_IF_ERROR(reader_->read(paths, requests, stop));
  }
  return ok_status();
}

Result<HostArray> StepReader::read(int32_t tensor, std::stop_token stop) const {
  if (tensor < 0 || static_cast<size_t>(tensor) >= index_.tensors().size()) {
    return invalid_argument("tensor {} is wanted of {}", tensor, index_.tensors().size());
  }
  return read(tensor, whole_box(index_.tensors()[static_cast<size_t>(tensor)].shape),
              std::move(stop));
}

Result<HostArray> StepReader::read(int32_t tensor, const Box& box, std::stop_token stop) const {
  if (tensor < 0 || static_cast<size_t>(tensor) >= index_.tensors().size()) {
    return invalid_argument("tensor {} is wanted of {}", tensor, index_.tensors().size());
  }
  const TensorInfo& info = index_.tensors()[static_cast<size_t>(tensor)];
  if (const Status status = check_box(info.shape, box); !status.ok()) {
    return invalid_argument("tensor \"{}\" ({}): {}", info.name,
                            shape_string(info.dtype, info.shape), status.message());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray array, allocate_array(info.dtype, box.size, false));
  const Wanted wanted{tensor, box, {}};
  std::byte* const target = array.mutable_data();
  HEKLA_RETURN_IF_ERROR(read({&wanted, 1}, {&target, 1}, std::move(stop)));
  return array;
}

Result<std::string> StepReader::read_file(std::string_view path) const {
  const auto found = std::find_if(commit_.files.begin(), commit_.files.end(),
                                  [path](const FileRecord& file) { return file.path == path; });
  if (found == commit_.files.end()) return not_found("{} has no file \"{}\"", folder_, path);
  if (!found->table_digest.empty()) {
    return invalid_argument("\"{}\" is a shard; its tensors are read by name", path);
  }
  const std::string full = join_path(folder_, found->path);
  HEKLA_ASSIGN_OR_RETURN(std::string bytes, hekla::read_file(io_, full, found->size));
  other_bytes_ += static_cast<int64_t>(bytes.size());
  if (static_cast<int64_t>(bytes.size()) == found->size &&
      digest_text(bytes) == found->metadata_digest) {
    return bytes;
  }
  return data_loss("{} is not what COMMIT lists: it is corrupt", full);
}

int64_t StepReader::bytes_read() const { return other_bytes_ + reader_->bytes_read(); }

}  // namespace hekla::checkpoint
