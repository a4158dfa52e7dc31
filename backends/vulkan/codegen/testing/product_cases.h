// SPDX-License-Identifier: Apache-2.0
// Contractions for tests of products on matrix units, and what they give by kernel::Contraction's
// own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/compiler/kernel/contraction.h"

namespace hekla::vulkan::testing {

struct ProductCase {
  std::string name;
  kernel::Contraction contraction;
};

// Products of matrices with any of the four transpositions, batches, several axes a side, results
// that are transposed, slices, reversals, broadcasts, and convolutions with padding, strides and
// dilations; of sizes from 1 on, multiples of units of memory and not.
std::vector<ProductCase> product_cases(DType operands);
// The same of f32 operands, by pieces.
kernel::Contraction by_pieces(kernel::Contraction contraction, const kernel::Pieces& pieces);
// One of random sizes and strides.
kernel::Contraction random_product(DType operands, uint64_t seed);

struct ProductData {
  std::vector<std::byte> lhs, rhs;
  std::vector<std::byte> out;  // a pattern of bytes, which stays where no sum is written
};
// Operands whose sums are exact in f32 in whatever order they are taken; else any floats around 1.
ProductData product_data(const kernel::Contraction& contraction, uint64_t seed, bool is_exact);

// Writes the sums to data.out: floats in f64, rounded once to f32 and then to the result's type.
// `magnitudes`: of each element of the result the sum of its products' magnitudes, 0 where there is
// none.
void reference_product(const kernel::Contraction& contraction, ProductData& data,
                       std::vector<double>* magnitudes = nullptr);

}  // namespace hekla::vulkan::testing
