// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/step_parts.h"

#include <algorithm>
#include <utility>

#include "runtime/checkpoint/commit/names.h"
#include "runtime/checkpoint/commit/steps.h"
#include "runtime/checkpoint/sharding/box.h"
#include "runtime/checkpoint/sharding/box_copy.h"

namespace hekla::tools {

using checkpoint::Box;
using checkpoint::FileRecord;

namespace {

constexpr int64_t kMaxIndexBytes = int64_t{4} << 30;

// Booleans take a byte in both places.
bool is_packed(DType dtype) { return checkpoint::stored_bits(dtype) < 8; }

}  // namespace

Result<std::string> find_step(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(const auto commit, find_file(io, join_path(path, "COMMIT")));
  if (commit) return path;
  HEKLA_ASSIGN_OR_RETURN(const auto folder, find_file(io, path));
  if (!folder) return not_found("{} is not there", path);
  HEKLA_ASSIGN_OR_RETURN(const int64_t newest, checkpoint::newest_step(io, path));
  if (newest < 0) return not_found("{} has no COMMIT and no committed step below it", path);
  return join_path(path, checkpoint::step_name(newest));
}

Result<StepPointer> open_step(Io& io, const std::string& path) {
  HEKLA_ASSIGN_OR_RETURN(const std::string folder, find_step(io, path));
  // Deleters leave it alone meanwhile, where the file system lets us say so.
  std::shared_ptr<const void> keep;
  const size_t slash = folder.rfind('/');
  const std::string root = slash == folder.npos ? "." : folder.substr(0, slash);
  if (const auto step = checkpoint::parse_step_name(folder.substr(slash + 1))) {
    auto lease = checkpoint::StepLease::acquire(io, root, *step);
    if (lease.ok()) keep = std::make_shared<checkpoint::StepLease>(*std::move(lease));
  }
  return checkpoint::StepReader::open(io, folder, {}, std::move(keep));
}

Result<checkpoint::StepIndex> read_step_index(Io& io, const checkpoint::StepReader& step) {
  for (const FileRecord& file : step.commit().files) {
    if (file.path != "index.h5") continue;
    HEKLA_ASSIGN_OR_RETURN(
        const std::string bytes,
        hekla::read_file(io, join_path(step.folder(), file.path), kMaxIndexBytes));
    return checkpoint::read_index(std::as_bytes(std::span(bytes)), file);
  }
  return data_loss("{}: COMMIT lists no index.h5", step.folder());
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
    const checkpoint::StepReader& step, int32_t tensor, int64_t max_bytes,
    const std::function<Status(const Box& part, std::span<const std::byte> bytes)>& take) {
  const checkpoint::TensorInfo& info = step.index().tensors()[static_cast<size_t>(tensor)];
  const int64_t element = dtype_bytes(info.dtype);
  std::vector<std::byte> bytes;
  for (const Box& part : row_major_parts(checkpoint::whole_box(info.shape),
                                         std::max<int64_t>(1, max_bytes / element))) {
    bytes.resize(static_cast<size_t>(element_count(part.size) * element));
    const checkpoint::Wanted wanted{tensor, part, {}};
    std::byte* const target = bytes.data();
    HEKLA_RETURN_IF_ERROR(step.read(std::span(&wanted, 1), std::span(&target, 1)));
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
  if (!is_packed(dtype_)) return elements;
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
