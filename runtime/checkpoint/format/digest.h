// SPDX-License-Identifier: Apache-2.0
// The two digests of a checkpoint: XXH3-64 per block of payload, XXH3-128 over everything that is
// verified as a whole. They find accidents (torn writes, bit flips, mixed files), not forgeries.
// Pure functions; a Hasher is used by one thread at a time. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace hekla::checkpoint {

inline constexpr int64_t kMiB = int64_t{1} << 20;

// Payload is verified in blocks of this size; the last block of a piece may be shorter.
inline constexpr int64_t kBlockBytes = kMiB;

inline constexpr int64_t block_count(int64_t bytes) {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0);
}

uint64_t block_digest(std::span<const std::byte> block);

// XXH3-128 as 32 hexadecimal digits, most significant first.
std::string digest_text(std::span<const std::byte> bytes);
std::string digest_text(std::string_view text);
// Whether `text` is 32 digits 0-9a-f.
bool is_digest_text(std::string_view text);

// XXH3-128 of bytes that come in several parts.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hekla::checkpoint
