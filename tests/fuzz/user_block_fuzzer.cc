// SPDX-License-Identifier: Apache-2.0
// Any bytes as the user block of a shard: as they are, and with the magic and digest that make the
// rest of the reader see them. What is read must survive writing.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "runtime/checkpoint/format/digest.h"
#include "runtime/checkpoint/format/user_block.h"

namespace {

using namespace hekla;
using namespace hekla::checkpoint;

void check(std::span<const std::byte> bytes) {
  const Result<UserBlock> block = parse_user_block(bytes);
  if (!block.ok()) {
    const StatusCode code = block.status().code();
    if (code == StatusCode::kDataLoss || code == StatusCode::kUnimplemented) return;
    std::fprintf(stderr, "not a clear error: %s\n", block.status().to_string().c_str());
    std::abort();
  }
  int64_t covered = kUserBlockBytes;
  for (const ByteRange& range : metadata_ranges(*block)) covered += range.end - range.begin;
  for (const ByteRange& area : block->areas) covered += area.end - area.begin;
  const Result<UserBlockBytes> written = encode_user_block(*block);
  if (covered != block->file_size || !written.ok() || *parse_user_block(*written) != *block) {
    std::fprintf(stderr, "does not survive writing: %s\n", written.status().to_string().c_str());
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::as_bytes(std::span(data, size)));
  // Fields from the input, the rest as it must be.
  UserBlockBytes block{};
  std::memcpy(block.data(), "HEKLASHD", 8);
  if (size > 0) std::memcpy(block.data() + 8, data, std::min<size_t>(size, kUserBlockBytes - 24));
  const std::string digest = digest_text(std::span(block).first(kUserBlockBytes - 16));
  for (size_t i = 0; i < 16; ++i) {
    block[kUserBlockBytes - 16 + i] =
        static_cast<std::byte>(std::stoi(digest.substr(2 * i, 2), nullptr, 16));
  }
  check(block);
  return 0;
}
