// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/step_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/sharding/box_copy.h"

namespace hekla::tools {

using checkpoint::Box;
using checkpoint::CommitRecord;
using checkpoint::FileRecord;
using checkpoint::Io;
using checkpoint::join_path;
using checkpoint::Piece;

namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr int64_t kMaxIndexBytes = int64_t{4} << 30;

// Booleans take a byte in both places.
bool has_bits_below_byte(DType dtype) { return checkpoint::stored_bits(dtype) < 8; }

const FileRecord* find_file(const CommitRecord& commit, std::string_view path) {
  for (const FileRecord& file : commit.files) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace

Result<CommitRecord> read_commit(Io& io, const std::string& folder) {
  const std::string path = join_path(folder, "COMMIT");
  HEKLA_ASSIGN_OR_RETURN(const auto found, checkpoint::find_file(io, path));
  if (!found) return not_found("{} has no COMMIT: it is not a committed step", folder);
  HEKLA_ASSIGN_OR_RETURN(const std::string text,
                         checkpoint::read_file(io, path, checkpoint::kMaxCommitBytes));
  auto commit = checkpoint::parse_commit(text);
  if (!commit.ok()) return commit.status().with_context(folder);
  for (const FileRecord& file : commit->files) {
    HEKLA_ASSIGN_OR_RETURN(const auto info,
                           checkpoint::find_file(io, join_path(folder, file.path)));
    if (!info) return data_loss("{}: {} is missing", folder, file.path);
    if (info->size != file.size) {
      return data_loss("{}: {} has {} bytes, COMMIT says {}", folder, file.path, info->size,
                       file.size);
    }
  }
  return commit;
}

Result<std::string> find_step(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(const auto commit, checkpoint::find_file(io, join_path(path, "COMMIT")));
  if (commit) return path;
  HEKLA_ASSIGN_OR_RETURN(const auto folder, checkpoint::find_file(io, path));
  if (!folder || folder->kind != checkpoint::FileKind::kDirectory) {
    return not_found("{} is no folder", path);
  }
  HEKLA_ASSIGN_OR_RETURN(auto entries, checkpoint::list_folder(io, path));
  std::reverse(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    if (!entry.name.starts_with(kStepPrefix)) continue;
    const std::string step = join_path(path, entry.name);
    if (read_commit(io, step).ok()) return step;
  }
  return not_found("{} has no COMMIT and no committed step below it", path);
}

Result<StepReader> StepReader::open(Io& io, std::string folder) {
  StepReader step;
  step.io_ = &io;
  step.folder_ = std::move(folder);
  HEKLA_ASSIGN_OR_RETURN(step.commit_, read_commit(io, step.folder_));
  const FileRecord* record = find_file(step.commit_, "index.h5");
  if (record == nullptr) return data_loss("{}: COMMIT lists no index.h5", step.folder_);
  HEKLA_ASSIGN_OR_RETURN(
      const std::string bytes,
      checkpoint::read_file(io, join_path(step.folder_, record->path), kMaxIndexBytes));
  auto index = checkpoint::read_index(std::as_bytes(std::span(bytes)), *record);
  if (!index.ok()) return index.status().with_context(step.folder_);
  step.index_ = *std::move(index);
  for (const FileRecord& file : step.index_.files) {
    const FileRecord* listed = find_file(step.commit_, file.path);
    if (listed == nullptr || *listed != file) {
      return data_loss("{}: index.h5 and COMMIT disagree about {}", step.folder_, file.path);
    }
  }
  std::vector<int64_t> sizes;
  for (const FileRecord& file : step.index_.files) sizes.push_back(file.size);
  HEKLA_ASSIGN_OR_RETURN(auto pieces, checkpoint::PieceIndex::make(
                                          step.index_.tensors, step.index_.pieces,
                                          static_cast<int32_t>(step.index_.files.size()), sizes));
  step.pieces_ = std::make_unique<checkpoint::PieceIndex>(std::move(pieces));
  return step;
}

const checkpoint::TensorInfo& StepReader::tensor(int32_t id) const {
  return index_.tensors[static_cast<size_t>(id)];
}

std::string StepReader::path_of(int32_t file) const {
  return join_path(folder_, index_.files[static_cast<size_t>(file)].path);
}

Result<const StepReader::Shard*> StepReader::shard(int32_t number) {
  if (const auto found = shards_.find(number); found != shards_.end()) return &found->second;
  const FileRecord& record = index_.files[static_cast<size_t>(number)];
  Shard shard;
  HEKLA_ASSIGN_OR_RETURN(shard.file, checkpoint::File::open(*io_, path_of(number), O_RDONLY));
  std::vector<std::byte> head(checkpoint::kUserBlockBytes);
  HEKLA_RETURN_IF_ERROR(shard.file.read(head, 0));
  auto block = checkpoint::parse_user_block(head);
  if (!block.ok()) return block.status().with_context(shard.file.path());
  shard.block = *std::move(block);
  HEKLA_RETURN_IF_ERROR(
      checkpoint::check_belongs(shard.block, commit_, record, number).with_context(folder_));
  std::vector<std::byte> table(static_cast<size_t>(shard.block.blocks) * sizeof(uint64_t));
  HEKLA_RETURN_IF_ERROR(shard.file.read(table, shard.block.table_offset));
  auto digests = checkpoint::read_block_table(shard.block, table);
  if (!digests.ok()) return digests.status().with_context(shard.file.path());
  shard.digests = *std::move(digests);
  if (!index_.digests.empty() && index_.digests[static_cast<size_t>(number)] != shard.digests) {
    return data_loss("{}: its block digests are not those of index.h5", shard.file.path());
  }
  return &shards_.emplace(number, std::move(shard)).first->second;
}

Status StepReader::read(int32_t tensor_id, const Box& box, std::span<std::byte> memory) {
  const checkpoint::Wanted wanted{tensor_id, box, {}};
  HEKLA_ASSIGN_OR_RETURN(const checkpoint::RestorePlan plan,
                         checkpoint::plan_restore(*pieces_, std::span(&wanted, 1)));
  std::vector<std::byte> bytes;
  std::byte* const target = memory.data();
  for (const checkpoint::PlannedRead& read : plan.reads) {
    HEKLA_ASSIGN_OR_RETURN(const Shard* shard_file, shard(read.file));
    bytes.resize(static_cast<size_t>(read.bytes));
    HEKLA_RETURN_IF_ERROR(shard_file->file.read(bytes, read.offset));
    for (uint32_t i = 0; i < read.block_count; ++i) {
      const checkpoint::BlockRef& block = plan.blocks[read.first_block + i];
      const Piece& piece = pieces_->pieces()[static_cast<size_t>(block.piece)];
      const auto number = static_cast<size_t>(piece.first_block + block.block);
      if (number >= shard_file->digests.size() ||
          checkpoint::block_digest(checkpoint::block_in_read(*pieces_, plan, read, block, bytes)) !=
              shard_file->digests[number]) {
        return data_loss("{}: block {} of a piece of tensor '{}', at offset {}, is corrupt",
                         shard_file->file.path(), block.block, tensor(tensor_id).name,
                         piece.offset + block.block * checkpoint::kBlockBytes);
      }
    }
    checkpoint::scatter(*pieces_, plan, read, bytes, std::span(&target, 1));
  }
  return ok_status();
}

std::vector<Box> row_major_parts(const Box& box, int64_t max_elements) {
  const size_t rank = box.size.size();
  if (element_count(box.size) == 0) return {};
  // The first dimension whose whole rows fit.
  int64_t inner = 1;
  size_t cut = rank;
  while (cut > 0 && inner * box.size[cut - 1] <= max_elements) inner *= box.size[--cut];
  if (cut == 0) return {box};
  --cut;  // this one is cut, those before it are walked one by one
  const int64_t rows = std::max<int64_t>(1, max_elements / inner);
  std::vector<Box> parts;
  Dims at(cut, 0);
  while (true) {
    for (int64_t row = 0; row < box.size[cut]; row += rows) {
      Box part = box;
      for (size_t d = 0; d < cut; ++d) {
        part.start[d] += at[d];
        part.size[d] = 1;
      }
      part.start[cut] += row;
      part.size[cut] = std::min(rows, box.size[cut] - row);
      parts.push_back(std::move(part));
    }
    size_t d = cut;
    while (d > 0 && ++at[d - 1] == box.size[d - 1]) at[--d] = 0;
    if (d == 0) return parts;
  }
}

Status for_each_part(
    StepReader& step, int32_t tensor, const Box& box, int64_t max_bytes,
    const std::function<Status(const Box& part, std::span<const std::byte> bytes)>& take) {
  const int64_t element = dtype_bytes(step.tensor(tensor).dtype);
  std::vector<std::byte> bytes;
  for (const Box& part : row_major_parts(box, std::max<int64_t>(1, max_bytes / element))) {
    bytes.resize(static_cast<size_t>(element_count(part.size) * element));
    HEKLA_RETURN_IF_ERROR(step.read(tensor, part, bytes));
    HEKLA_RETURN_IF_ERROR(take(part, bytes));
  }
  return ok_status();
}

std::span<const std::byte> Packer::pack(std::span<const std::byte> elements) {
  const auto count = static_cast<int64_t>(elements.size());
  packed_.assign(static_cast<size_t>(checkpoint::stored_bytes(dtype_, count)), std::byte{0});
  if (count == 0) return packed_;
  const Box box{{0}, {count}};
  checkpoint::BoxCopy(dtype_, box, box, box.size, box).store(elements.data(), packed_, 0);
  return packed_;
}

std::span<const std::byte> Packer::add(std::span<const std::byte> elements) {
  if (!has_bits_below_byte(dtype_)) return elements;
  waiting_.insert(waiting_.end(), elements.begin(), elements.end());
  const size_t whole = waiting_.size() / 8 * 8;
  const auto packed = pack(std::span(waiting_).first(whole));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(whole));
  return packed;
}

std::span<const std::byte> Packer::finish() {
  if (waiting_.empty()) return {};
  const auto packed = pack(waiting_);
  waiting_.clear();
  return packed;
}

}  // namespace hekla::tools
