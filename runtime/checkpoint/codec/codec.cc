// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/codec/codec.h"

#include <zstd.h>

#include <cstring>

namespace hekla::checkpoint {
namespace {

// The byte k of element i goes to k * count + i. Bytes behind the last whole element stay, as HDF5
// leaves them.
template <int64_t kElement>
void shuffle_fixed(const std::byte* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < kElement; ++k) to[k * count + i] = from[i * kElement + k];
  }
}

template <int64_t kElement>
void unshuffle_fixed(const std::byte* from, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t k = 0; k < kElement; ++k) to[i * kElement + k] = from[k * count + i];
  }
}

void shuffle_elements(const std::byte* from, int64_t count, int64_t element, std::byte* to) {
  switch (element) {
    case 2:
      return shuffle_fixed<2>(from, count, to);
    case 4:
      return shuffle_fixed<4>(from, count, to);
    case 8:
      return shuffle_fixed<8>(from, count, to);
    default:
      for (int64_t k = 0; k < element; ++k) {
        for (int64_t i = 0; i < count; ++i) to[k * count + i] = from[i * element + k];
      }
  }
}

void unshuffle(const std::byte* from, int64_t count, int64_t element, std::byte* to) {
  switch (element) {
    case 2:
      return unshuffle_fixed<2>(from, count, to);
    case 4:
      return unshuffle_fixed<4>(from, count, to);
    case 8:
      return unshuffle_fixed<8>(from, count, to);
    default:
      for (int64_t k = 0; k < element; ++k) {
        for (int64_t i = 0; i < count; ++i) to[i * element + k] = from[k * count + i];
      }
  }
}

}  // namespace

void shuffle(std::span<const std::byte> bytes, int64_t element_bytes, std::span<std::byte> to) {
  shuffle_elements(bytes.data(), static_cast<int64_t>(bytes.size()) / element_bytes, element_bytes,
                   to.data());
}

struct Coder::Contexts {
  ZSTD_CCtx* compress = ZSTD_createCCtx();
  ZSTD_DCtx* decompress = ZSTD_createDCtx();
  ~Contexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
};

Coder::Coder() : contexts_(std::make_unique<Contexts>()) {}
Coder::~Coder() = default;

Result<std::unique_ptr<Coder>> Coder::create() {
  std::unique_ptr<Coder> coder(new Coder());
  if (coder->contexts_->compress == nullptr || coder->contexts_->decompress == nullptr) {
    return resource_exhausted("no memory for a zstd context");
  }
  return coder;
}

Result<std::span<const std::byte>> Coder::encode(std::span<const std::byte> bytes,
                                                 int64_t element_bytes) {
  if (bytes.empty()) return std::span<const std::byte>();
  const std::byte* source = bytes.data();
  if (element_bytes > 1) {
    shuffled_.resize(bytes.size());
    shuffle(bytes, element_bytes, shuffled_);
    source = shuffled_.data();
  }
  coded_.resize(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compressCCtx(contexts_->compress, coded_.data(), coded_.size(), source,
                                        bytes.size(), kZstdLevel);
  if (ZSTD_isError(size)) return internal_error("zstd: {}", ZSTD_getErrorName(size));
  if (size >= bytes.size()) return std::span<const std::byte>();
  return std::span<const std::byte>(coded_.data(), size);
}

Status Coder::decode(std::span<const std::byte> coded, int64_t element_bytes,
                     std::span<std::byte> into) {
  const auto elements = static_cast<size_t>(element_bytes);
  if (element_bytes < 1 || into.empty() || into.size() % elements != 0) {
    return invalid_argument("{} bytes are no whole elements of {}", into.size(), element_bytes);
  }
  std::byte* target = into.data();
  if (element_bytes > 1) {
    shuffled_.resize(into.size());
    target = shuffled_.data();
  }
  // It never writes behind the target, whatever the frame says of its size.
  const size_t size =
      ZSTD_decompressDCtx(contexts_->decompress, target, into.size(), coded.data(), coded.size());
  if (ZSTD_isError(size)) {
    return data_loss("{} bytes are not compressed as they should be: {}", coded.size(),
                     ZSTD_getErrorName(size));
  }
  if (size != into.size()) {
    return data_loss("{} compressed bytes hold {} bytes, not {}", coded.size(), size, into.size());
  }
  if (element_bytes > 1) {
    unshuffle(shuffled_.data(), static_cast<int64_t>(into.size()) / element_bytes, element_bytes,
              into.data());
  }
  return ok_status();
}

}  // namespace hekla::checkpoint
