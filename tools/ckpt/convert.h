// SPDX-License-Identifier: Apache-2.0
// Steps to other forms and back: `hekla ckpt convert`, `consolidate` and `reshard`. All stream:
// memory is bounded whatever the size. Files appear under their names when they are complete.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/io/io.h"
#include "runtime/base/status.h"
#include "tools/ckpt/step_parts.h"

namespace hekla::tools {

struct Conversion {
  std::vector<std::string> files;  // that were written
  int64_t tensors = 0;
  int64_t bytes = 0;  // of tensors, as stored
  // Names of tensors that the other form has no dtype for; they went as bytes, with their dtype and
  // shape in the metadata, and come back whole.
  std::vector<std::string> as_bytes;
};

// `to`: a name that ends with .safetensors, or a folder for model.safetensors, or, above
// `max_file_bytes`, model-00001-of-0000N.safetensors and model.safetensors.index.json.
Result<Conversion> to_safetensors(const checkpoint::StepReader& step, const std::string& to,
                                  int64_t max_file_bytes);
// `from`: a .safetensors file, or a folder of them. Writes step `step` into the run's folder `to`.
Result<Conversion> from_safetensors(Io& io, const std::string& from, const std::string& to,
                                    int64_t step);

inline constexpr int64_t kMinChunkBytes = 4096;

struct Consolidation {
  // Tensors of 64 KiB and more in chunks of at most so many bytes, kMinChunkBytes to 1 MiB (readers
  // keep chunks above 1 MiB in no cache); 0: contiguous, or 1 MiB where gzip_level is given.
  int64_t chunk_bytes = 0;
  int gzip_level = 0;  // 1 to 9: chunks shuffled and deflated, which every HDF5 reads; 0: not
};
// One plain HDF5 file.
Result<Conversion> consolidate(const checkpoint::StepReader& step, const std::string& to,
                               const Consolidation& how = {});

struct Resharding {
  std::string mesh;  // "(data:2,model:4)"
  // "(data,None)", or "PATTERN=(data,None)" for names that match ('*' any characters, '?' one); the
  // first that matches counts. Tensors of fewer dimensions than a spec without a pattern are whole.
  std::vector<std::string> specs;
};
// The same step, cut for another mesh, in the run's folder `to`. Extra files are copied, metrics
// kept.
Result<Conversion> reshard(const checkpoint::StepReader& step, const std::string& to,
                           const Resharding& how);

}  // namespace hekla::tools
