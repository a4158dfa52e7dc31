// SPDX-License-Identifier: Apache-2.0
// The first 4096 bytes of a shard file, which HDF5 leaves to us: whose save the file belongs to,
// where its payload lies, and the digests that let a reader verify everything else before libhdf5
// sees a byte of it. Little endian.
//
//   0  magic "HEKLASHD"          8  u32 major, u32 minor       16  run uuid, 48 bytes, NUL padded
//  64  save nonce, 48 bytes    112  i64 step                  120  i32 file number
// 124  u32 number of areas     128  i64 file size             136  i64 offset of the block table
// 144  i64 number of blocks    152  metadata digest, 16       168  table digest, 16
// 184  zeros                   256  areas: i64 start, i64 length, at most 200
// 4080 XXH3-128 of the bytes before it; digests have their most significant byte first
//
// Pure functions. What cannot be right is DATA_LOSS, a higher major version UNIMPLEMENTED.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace hekla::checkpoint {

inline constexpr int64_t kUserBlockBytes = 4096;
inline constexpr size_t kMaxAreas = 200;
inline constexpr size_t kMaxIdentityBytes = 47;

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;  // behind the last byte

  bool operator==(const ByteRange&) const = default;
};

// Which save a shard belongs to. The texts have 1 to 47 characters of [0-9A-Za-z_.-].
struct ShardIdentity {
  std::string run_uuid;
  std::string nonce;
  int64_t step = 0;

  bool operator==(const ShardIdentity&) const = default;
};

struct UserBlock {
  ShardIdentity identity;
  int32_t file = 0;  // number of this file in the step
  int64_t file_size = 0;
  int64_t table_offset = 0;  // of the digests of all blocks, 8 bytes each
  int64_t blocks = 0;
  std::string metadata_digest;   // XXH3-128 over metadata_ranges, in their order
  std::string table_digest;      // XXH3-128 over the table
  std::vector<ByteRange> areas;  // payload: ascending, disjoint, multiples of 4096

  bool operator==(const UserBlock&) const = default;
};

using UserBlockBytes = std::array<std::byte, kUserBlockBytes>;

// INVALID_ARGUMENT when a field is not one that parse_user_block would accept.
Result<UserBlockBytes> encode_user_block(const UserBlock& block);
// `bytes`: the start of the file, at least kUserBlockBytes.
Result<UserBlock> parse_user_block(std::span<const std::byte> bytes);

// What lies between user block, payload areas and the file's end.
std::vector<ByteRange> metadata_ranges(const UserBlock& block);

}  // namespace hekla::checkpoint
