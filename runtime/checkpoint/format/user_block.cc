// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/user_block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "runtime/checkpoint/format/commit_record.h"
#include "runtime/checkpoint/format/digest.h"

namespace hekla::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the fields are copied as they are");

constexpr std::string_view kMagic = "HEKLASHD";
constexpr size_t kIdentityField = kMaxIdentityBytes + 1;
constexpr size_t kAreas = 256;
constexpr size_t kSelfDigest = kUserBlockBytes - 16;
static_assert(kAreas + kMaxAreas * 16 <= kSelfDigest);

template <typename T>
void put(UserBlockBytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <typename T>
T get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

bool is_identity(std::string_view text) {
  return !text.empty() && text.size() <= kMaxIdentityBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_' || c == '.';
         });
}

void put_digest(UserBlockBytes& bytes, size_t at, std::string_view text) {
  for (size_t i = 0; i < 16; ++i) {
    const auto digit = [&text](size_t k) {
      return text[k] <= '9' ? text[k] - '0' : text[k] - 'a' + 10;
    };
    bytes[at + i] = static_cast<std::byte>(digit(2 * i) * 16 + digit(2 * i + 1));
  }
}

std::string get_digest(std::span<const std::byte> bytes, size_t at) {
  std::string text;
  for (size_t i = 0; i < 16; ++i) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[at + i]));
  }
  return text;
}

std::string get_identity(std::span<const std::byte> bytes, size_t at) {
  const char* text = reinterpret_cast<const char*>(bytes.data() + at);
  return std::string(text, strnlen(text, kIdentityField));
}

// Why the fields cannot be right; ok when they can.
Status check(const UserBlock& block) {
  if (!is_identity(block.identity.run_uuid) || !is_identity(block.identity.nonce)) {
    return invalid_argument("run '{}' or nonce '{}' is not 1 to {} characters of [0-9A-Za-z_.-]",
                            block.identity.run_uuid, block.identity.nonce, kMaxIdentityBytes);
  }
  if (block.identity.step < 0 || block.file < 0) {
    return invalid_argument("step {} or file number {} is negative", block.identity.step,
                            block.file);
  }
  if (block.file_size < kUserBlockBytes || block.file_size % kUserBlockBytes != 0) {
    return invalid_argument("file size {} is not a multiple of {} above 0", block.file_size,
                            kUserBlockBytes);
  }
  if (block.areas.size() > kMaxAreas) {
    return invalid_argument("{} payload areas are above the limit {}", block.areas.size(),
                            kMaxAreas);
  }
  if (!is_digest_text(block.metadata_digest) || !is_digest_text(block.table_digest)) {
    return invalid_argument("a digest is not 32 hexadecimal digits");
  }
  int64_t end = kUserBlockBytes;
  for (const ByteRange& area : block.areas) {
    if (area.begin < end || area.end <= area.begin || area.end > block.file_size ||
        area.begin % kUserBlockBytes != 0 || area.end % kUserBlockBytes != 0) {
      return invalid_argument("payload area {} to {} is not in order within {} bytes", area.begin,
                              area.end, block.file_size);
    }
    end = area.end;
  }
  if (block.blocks < 0 || block.blocks > block.file_size / 8 || block.table_offset < 0 ||
      block.table_offset > block.file_size - block.blocks * 8) {
    return invalid_argument("{} block digests at offset {} do not fit into {} bytes", block.blocks,
                            block.table_offset, block.file_size);
  }
  if (block.blocks > 0) {
    const auto ranges = metadata_ranges(block);
    const bool inside = std::any_of(ranges.begin(), ranges.end(), [&block](const ByteRange& range) {
      return block.table_offset >= range.begin &&
             block.table_offset + block.blocks * 8 <= range.end;
    });
    if (!inside) return invalid_argument("the table of block digests lies within payload");
  }
  return ok_status();
}

}  // namespace

Result<UserBlockBytes> encode_user_block(const UserBlock& block) {
  HEKLA_RETURN_IF_ERROR(check(block).with_context("user block of a shard"));
  UserBlockBytes bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put(bytes, 8, uint32_t{kFormatMajor});
  put(bytes, 12, uint32_t{kFormatMinor});
  std::memcpy(bytes.data() + 16, block.identity.run_uuid.data(), block.identity.run_uuid.size());
  std::memcpy(bytes.data() + 64, block.identity.nonce.data(), block.identity.nonce.size());
  put(bytes, 112, block.identity.step);
  put(bytes, 120, block.file);
  put(bytes, 124, static_cast<uint32_t>(block.areas.size()));
  put(bytes, 128, block.file_size);
  put(bytes, 136, block.table_offset);
  put(bytes, 144, block.blocks);
  put_digest(bytes, 152, block.metadata_digest);
  put_digest(bytes, 168, block.table_digest);
  for (size_t i = 0; i < block.areas.size(); ++i) {
    put(bytes, kAreas + 16 * i, block.areas[i].begin);
    put(bytes, kAreas + 16 * i + 8, block.areas[i].end - block.areas[i].begin);
  }
  put_digest(bytes, kSelfDigest, digest_text(std::span(bytes).first(kSelfDigest)));
  return bytes;
}

Result<UserBlock> parse_user_block(std::span<const std::byte> bytes) {
  if (bytes.size() < kUserBlockBytes) {
    return data_loss("a shard file has {} bytes, less than its user block of {}", bytes.size(),
                     kUserBlockBytes);
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return data_loss("the file does not begin with '{}': it is no shard of a checkpoint", kMagic);
  }
  if (get_digest(bytes, kSelfDigest) != digest_text(bytes.first(kSelfDigest))) {
    return data_loss("the user block does not match its digest: it is corrupt");
  }
  if (const auto major = get<uint32_t>(bytes, 8); major != kFormatMajor) {
    return unimplemented(
        "the shard has format version {}, this program reads {}; use a newer Hekla", major,
        kFormatMajor);
  }
  UserBlock block;
  block.identity = {get_identity(bytes, 16), get_identity(bytes, 64), get<int64_t>(bytes, 112)};
  block.file = get<int32_t>(bytes, 120);
  block.file_size = get<int64_t>(bytes, 128);
  block.table_offset = get<int64_t>(bytes, 136);
  block.blocks = get<int64_t>(bytes, 144);
  block.metadata_digest = get_digest(bytes, 152);
  block.table_digest = get_digest(bytes, 168);
  const auto areas = get<uint32_t>(bytes, 124);
  if (areas > kMaxAreas)
    return data_loss("user block: {} payload areas, limit {}", areas, kMaxAreas);
  for (size_t i = 0; i < areas; ++i) {
    const auto begin = get<int64_t>(bytes, kAreas + 16 * i);
    const auto length = get<int64_t>(bytes, kAreas + 16 * i + 8);
    if (begin < 0 || length < 0 || begin > INT64_MAX - length) {
      return data_loss("user block: payload area {} of length {}", begin, length);
    }
    block.areas.push_back({begin, begin + length});
  }
  if (const Status status = check(block); !status.ok()) {
    return data_loss("user block: {}", status.message());
  }
  return block;
}

std::vector<ByteRange> metadata_ranges(const UserBlock& block) {
  std::vector<ByteRange> ranges;
  int64_t begin = kUserBlockBytes;
  for (const ByteRange& area : block.areas) {
    if (area.begin > begin) ranges.push_back({begin, area.begin});
    begin = area.end;
  }
  if (block.file_size > begin) ranges.push_back({begin, block.file_size});
  return ranges;
}

}  // namespace hekla::checkpoint
