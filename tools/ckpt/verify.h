// SPDX-License-Identifier: Apache-2.0
// `hekla ckpt verify`: the whole tree of digests of a step, from COMMIT down to each MiB.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/io/io.h"

namespace hekla::tools {

// Something that is not as it was written. Tensor, box and block are set for payload.
struct Damage {
  std::string file;
  std::string tensor;
  std::string box;
  int64_t block = -1;   // of the piece
  int64_t offset = -1;  // in the file
  std::string what;
};

struct VerifyOptions {
  bool payload = true;  // false: metadata alone
  int threads = 2;
  size_t max_damages = 1000;
};

struct VerifyReport {
  int64_t step = 0;
  int64_t files = 0;
  int64_t tensors = 0;
  int64_t blocks = 0;  // of payload, compared
  int64_t bytes = 0;   // read
  std::vector<Damage> damages;
};

// NOT_FOUND: not committed. A damaged COMMIT or index is a damage of the report, not an error;
// errors are those of reading files.
Result<VerifyReport> verify_step(checkpoint::Io& io, const std::string& folder,
                                 const VerifyOptions& options);

}  // namespace hekla::tools
