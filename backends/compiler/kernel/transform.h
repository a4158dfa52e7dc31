// SPDX-License-Identifier: Apache-2.0
// Transform: Fourier transforms of many lines along one dimension, as data for devices that have
// code of their own for it (plan::TransformStep).
//
// The arithmetic is that of the kernels which other devices run (lower/fft.cc): a pass for each
// radix, in Stockham's order, each product and sum rounded by itself. So the bits are theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace hekla::kernel {

struct Transform {
  // Element i of line (o, k) is element (o * length + i) * inner + k, of a source and a target
  // that have lines of their own lengths.
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t size = 1;  // of the transform
  // Fewer than `size`: the first half of a spectrum, size / 2 + 1 elements, whose other half is the
  // mirrored conjugate; of a source of an inverse transform to real numbers, and the target of a
  // transform of real numbers. Their `inner` is 1.
  int64_t from_size = 1;
  int64_t to_size = 1;
  DType part = DType::kF32;           // kF32 or kF64
  bool is_inverse = false;            // and divided by `size`
  bool is_from_real = false;          // the source's elements have no imaginary parts
  bool is_to_real = false;            // the target's have none
  std::vector<int64_t> radices = {};  // whose product is `passed_size`, one pass each
  bool operator==(const Transform&) const = default;

  int64_t lines() const { return outer * inner; }
  // An even number of real elements go through the passes as half as many complex ones, each made
  // of two neighbours.
  bool is_paired() const { return (is_from_real || is_to_real) && size % 2 == 0; }
  int64_t passed_size() const { return is_paired() ? size / 2 : size; }
};

// The largest radix of a pass.
inline constexpr int64_t kLargestRadix = 61;
// Elements of the longest line in its passes: two copies of sixteen lines fit a second level cache.
inline constexpr int64_t kLongestTransform = 4096;

// What a transform reads beside its source, complex numbers: for each pass but the last, of radix r
// with `blocks` = passed_size / r / (product of the radices before), r - 1 times `blocks` roots;
// then for each radix that is not 1, 2 or 4, once in the order of their first passes, the r roots
// of one; then where is_paired the first passed_size + 1 of the `size` roots of one. Where that is
// nothing, one number that nobody reads.
int64_t root_count(const Transform& transform);
// Where those of a radix begin, and those of pairs.
int64_t radix_roots_at(const Transform& transform, int64_t radix);
int64_t pair_roots_at(const Transform& transform);

// Bytes of the source, the roots and the target.
int64_t from_bytes(const Transform& transform);
int64_t root_bytes(const Transform& transform);
int64_t to_bytes(const Transform& transform);

// Whether the numbers fit each other and the limits; empty: they do.
std::string why_not_a_transform(const Transform& transform);

// "4 x 1024 x 513 f32 by 8 8 8 2".
std::string to_string(const Transform& transform);

}  // namespace hekla::kernel
