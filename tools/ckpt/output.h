// SPDX-License-Identifier: Apache-2.0
// Files that the tools write: under another name until they are complete, tensors streamed in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/base/io/file.h"
#include "runtime/base/status.h"
#include "tools/ckpt/progress.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {

// Removed when it is not finished. One thread.
class NewOutput {
 public:
  static Result<NewOutput> create(Io& io, std::string path);
  NewOutput(NewOutput&&) noexcept = default;
  ~NewOutput();

  const File& file() const { return file_; }
  // Durable, under its name.
  Status finish();

 private:
  NewOutput() = default;
  Io* io_ = nullptr;
  std::string path_, temporary_;
  File file_;
};

int64_t tensor_bytes(const checkpoint::TensorInfo& tensor);  // as stored

// Hands the stored bytes of a whole tensor to `take`, in order, in parts of some MiB.
Status stream_tensor(const checkpoint::StepReader& step, int32_t id, Progress& progress,
                     const std::function<Status(std::span<const std::byte> bytes)>& take);
// They go to the file from `offset` on.
Status write_tensor(const checkpoint::StepReader& step, int32_t id, const File& file,
                    int64_t offset, Progress& progress);

}  // namespace hekla::tools
