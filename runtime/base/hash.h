// SPDX-License-Identifier: Apache-2.0
// Fast hashes, the same everywhere and no protection against anybody: FNV-1a of 64 bits (G. Fowler,
// L. C. Noll, K.-P. Vo) of texts, splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014) of numbers. Digests of contents are sha256.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hekla {

inline constexpr uint64_t kFnv1aBasis = 0xcbf29ce484222325;

// Of the bytes behind those whose hash is `hash`.
inline uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t hash = kFnv1aBasis) {
  for (const std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3;
  return hash;
}
inline uint64_t fnv1a(std::string_view text, uint64_t hash = kFnv1aBasis) {
  return fnv1a(std::as_bytes(std::span(text)), hash);
}

// Counters give a sequence of random numbers.
inline uint64_t splitmix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace hekla
