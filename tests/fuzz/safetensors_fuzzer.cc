// SPDX-License-Identifier: Apache-2.0
// Any bytes as the header of a safetensors file. What is accepted must survive writing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "runtime/checkpoint/format/names.h"
#include "tools/ckpt/safetensors.h"

using namespace hekla;
using namespace hekla::tools;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  for (const int64_t data_bytes : {0, 1, 4, 8, 64}) {
    const Result<SafetensorsHeader> header = parse_safetensors_header(json, data_bytes);
    if (!header.ok()) {
      const StatusCode code = header.status().code();
      if (code == StatusCode::kDataLoss || code == StatusCode::kUnimplemented) continue;
      std::fprintf(stderr, "not a clear error: %s\n", header.status().to_string().c_str());
      std::abort();
    }
    const Result<std::string> written = safetensors_header(*header);
    const Result<SafetensorsHeader> again =
        written.ok() ? parse_safetensors_header(std::string_view(*written).substr(8), data_bytes)
                     : Result<SafetensorsHeader>(written.status());
    if (!again.ok() || again->tensors.size() != header->tensors.size() ||
        again->metadata != header->metadata) {
      std::fprintf(stderr, "does not survive writing: %s\n", again.status().to_string().c_str());
      std::abort();
    }
  }
  return 0;
}
