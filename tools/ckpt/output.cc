// SPDX-License-Identifier: Apache-2.0
#include "tools/ckpt/output.h"

#include <fcntl.h>

#include <utility>

#include "runtime/base/host.h"

namespace hekla::tools {

Result<NewOutput> NewOutput::create(Io& io, std::string path) {
  NewOutput output;
  output.io_ = &io;
  output.path_ = std::move(path);
  HEKLA_RETURN_IF_ERROR(make_folders(io, parent_path(output.path_)));
  output.temporary_ = output.path_ + ".tmp-" + random_hex(4);
  HEKLA_ASSIGN_OR_RETURN(output.file_,
                         File::open(io, output.temporary_, O_WRONLY | O_CREAT | O_EXCL));
  return output;
}

NewOutput::~NewOutput() {
  if (file_.is_open()) (void)unlink_file(*io_, temporary_);
}

Status NewOutput::finish() {
  HEKLA_RETURN_IF_ERROR(file_.sync());
  HEKLA_RETURN_IF_ERROR(rename_path(*io_, temporary_, path_));
  HEKLA_RETURN_IF_ERROR(file_.close());
  return sync_folder(*io_, parent_path(path_));
}

int64_t tensor_bytes(const checkpoint::TensorInfo& tensor) {
  return checkpoint::stored_bytes(tensor.dtype, element_count(tensor.shape));
}

Status stream_tensor(const checkpoint::StepReader& step, int32_t id, Progress& progress,
                     const std::function<Status(std::span<const std::byte> bytes)>& take) {
  constexpr int64_t kPartBytes = int64_t{8} << 20;
  Packer packer(step.index().tensors()[static_cast<size_t>(id)].dtype);
  const auto put = [&](std::span<const std::byte> bytes) -> Status {
    HEKLA_RETURN_IF_ERROR(take(bytes));
    progress.add(static_cast<int64_t>(bytes.size()));
    return ok_status();
  };
  HEKLA_RETURN_IF_ERROR(for_each_part(
      step, id, kPartBytes, [&](const checkpoint::Box&, std::span<const std::byte> bytes) {
        return put(packer.add(bytes));
      }));
  return put(packer.finish());
}

Status write_tensor(const checkpoint::StepReader& step, int32_t id, const File& file,
                    int64_t offset, Progress& progress) {
  return stream_tensor(step, id, progress, [&](std::span<const std::byte> bytes) -> Status {
    HEKLA_RETURN_IF_ERROR(file.write(bytes, offset));
    offset += static_cast<int64_t>(bytes.size());
    return ok_status();
  });
}

}  // namespace hekla::tools
