// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/format/digest.h"

#include <fmt/core.h>
#ifdef HEKLA_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>  // the same functions and values with the processor's widest vectors
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <new>

namespace hekla::checkpoint {
namespace {

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", uint64_t{hash.high64}, uint64_t{hash.low64});
}

}  // namespace

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
};

uint64_t block_digest(std::span<const std::byte> block) {
  return XXH3_64bits(block.data(), block.size());
}

std::string digest_text(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string digest_text(std::string_view text) {
  return digest_text(std::as_bytes(std::span(text)));
}

bool is_digest_text(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Hasher::text() const { return hex(XXH3_128bits_digest(state_->xxh)); }

}  // namespace hekla::checkpoint
