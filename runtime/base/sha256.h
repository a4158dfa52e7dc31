// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for naming content: programs, constants, files. Not for keeping secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hekla {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  // The digest of everything so far, 64 hexadecimal digits; more may be added afterwards.
  std::string hex() const;

 private:
  void compress(const std::byte* block);
  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> pending_;
  size_t pending_size_ = 0;
  uint64_t size_bytes_ = 0;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace hekla
