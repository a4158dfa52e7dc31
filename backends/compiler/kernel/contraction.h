// SPDX-License-Identifier: Apache-2.0
// Contraction: a sum of products over strided operands, as plain data.
//
//   out[b, r, c] = sum over d of lhs[b, r, d] * rhs[b, d, c]
//
// Each of b, r, c and d stands for a list of axes, outermost first: a dot_general has any number of
// each, a convolution's rows are batch and positions, its depth is the window and the features.
// Sums are in f32, of f64 and complex numbers in their type; those of integers wrap in 32 bits, i32
// or ui32. Their order is the device's, fixed by shapes and types, so that no bit depends on how a
// contraction is cut; a device that may run generated kernels too keeps theirs: from 0 on, one
// product after the other in the row-major order of the depth axes, fused where the machine can;
// with a vector, several such sums (`chains`); and of a long depth the sums of its chunks, added.
// Transposes and reshapes of the result are the strides of `out`. Nothing fails.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/compiler/kernel/algorithm.h"
#include "runtime/base/dtype.h"

namespace hekla::kernel {

// Partial sums of an element of a product with a vector: as many as the widest vectors have lanes.
inline constexpr int64_t kDotChains = 16;

// Products of a chunk that devices with SumChunks take at most.
inline constexpr int64_t kMostOfChunk = 512;

// How a long sum is cut: each chunk of adjacent products is summed up from 0 on, and the sums of
// the chunks are added in their order, so that n products have an error of some c + n / c units
// instead of n (the blocked algorithm of Higham, "The accuracy of floating point summation", 1993).
struct SumChunks {
  // The axis that is cut: a chunk has those behind it as a whole, and each index of those before it
  // has chunks of its own. -1: all is one chunk.
  int32_t axis = -1;
  int64_t length = 0;  // indices of the axis in a chunk
  // Index i of the axis counts as first + i * step.
  int64_t first = 0;
  int64_t step = 1;
  bool operator==(const SumChunks&) const = default;
};
// Of a sum over axes of `sizes`, outermost first, in chunks of at most `most` products: as equal as
// can be, with more than `most` / 4 on average. One chunk where there are no more than `most`.
SumChunks cut_sum(std::span<const int64_t> sizes, int64_t most);
// Why there can be no such chunks of a sum over `axes` axes; empty: there can.
std::string why_no_chunks(const SumChunks& chunks, size_t axes);

struct Contraction {
  // Strides count elements; 0 where an operand does not have the axis. They may be negative.
  struct Axis {
    int64_t size = 1;
    int64_t lhs = 0;
    int64_t rhs = 0;
    int64_t out = 0;
    bool operator==(const Axis&) const = default;
  };
  // A dimension of lhs that a window slides over: element `at * stride + tap * dilation - low` of
  // the dimension after its base dilation, where `at` is the index along rows[row] and `tap` that
  // along depth[depth]. Elements outside and between those of the input are zeros.
  struct Window {
    int32_t row = 0;
    int32_t depth = 0;
    int64_t stride = 1;
    int64_t dilation = 1;
    int64_t low = 0;
    int64_t extent = 1;  // of the input, without padding
    int64_t base_dilation = 1;
    int64_t lhs = 0;  // stride of the input's dimension
    bool operator==(const Window&) const = default;
  };

  // f32, bf16, f16: widened exactly. Or both f64, both c64, both c128, or both of i8, u8, i16.
  DType lhs_dtype = DType::kF32;
  DType rhs_dtype = DType::kF32;
  // f32, of f64, c64 and c128 the same, of integers i32 or ui32; bf16 or f16: the f32 sum rounded
  // to nearest even, as a conversion rounds.
  DType out_dtype = DType::kF32;
  // Elements of the whole buffers, and where index 0 of all axes
  // lies in them.
  int64_t lhs_elements = 0;
  int64_t rhs_elements = 0;
  int64_t out_elements = 0;
  int64_t lhs_offset = 0;
  int64_t rhs_offset = 0;
  int64_t out_offset = 0;
  std::vector<Axis> batch;
  std::vector<Axis> rows;
  std::vector<Axis> columns;
  std::vector<Axis> depth;
  std::vector<Window> windows;
  // 1, or kDotChains: product d then goes to partial sum d % kDotChains, and the upper half of the
  // partial sums is added to the lower half until one is left. Only without windows, where rows or
  // columns are one, with f32 operands and one depth axis.
  int64_t chains = 1;
  // Of complex numbers. A product adds to the real part x.re * y.re, then -(x.im * y.im), and to
  // the imaginary one x.re * y.im, then x.im * y.re: four products and sums of real numbers. x is
  // that of lhs, or here of rhs.
  bool rhs_first = false;
  // Of the depth. With chains each chunk has its own, which become one before it is added. Not of
  // integers.
  SumChunks chunks;
  // What the program asks for; its roundings of the operands are done, and `out` has its sums or
  // better ones.
  Algorithm algorithm;
  // How matrix units form the products of f32 operands: by pieces, which `algorithm` allows.
  Pieces pieces;

  bool has_integers() const { return is_integer(lhs_dtype); }
  bool has_complex() const { return is_complex(lhs_dtype); }
  bool operator==(const Contraction&) const = default;
};

// A contraction whose windows have base dilations, as contractions without: elements of `out` at
// the same distance from the elements of the input have the same taps that are no zeros between
// them. The sums leave those zeros out, which changes them only if `rhs` is not finite there (and
// the sign of a zero, if the products underflow). Where no tap is left the depth has a size of 0:
// zeros. The contraction itself when there is no base dilation.
std::vector<Contraction> split_base_dilation(const Contraction& contraction);

// Where the chunks of the depth end, in the row-major numbers of its axes; the last end is the size
// of the depth. One where all is one chunk.
std::vector<int64_t> chunk_ends(const Contraction& contraction);

// Product of the sizes.
int64_t axes_size(const std::vector<Contraction::Axis>& axes);
// Multiply-adds.
double contraction_work(const Contraction& contraction);
// One line for people: "4 x 128 x 256 x 512 f32, windows 3x3".
std::string to_string(const Contraction& contraction);

}  // namespace hekla::kernel
