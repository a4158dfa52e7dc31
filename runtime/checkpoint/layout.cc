// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/layout.h"

namespace hekla::checkpoint {

int stored_bits(DType dtype) {
  const int bits = dtype_bits(dtype);
  return bits == 1 ? 8 : bits;
}

int64_t stored_bytes(DType dtype, int64_t elements) {
  const int64_t bits = stored_bits(dtype);
  // Whole bytes first: elements * bits may be above 2^63 where the bytes are not.
  return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
}

}  // namespace hekla::checkpoint
