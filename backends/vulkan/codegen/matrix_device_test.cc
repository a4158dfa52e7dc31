// SPDX-License-Identifier: Apache-2.0
// Products on matrix units on the system's Vulkan device, beside sums in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "backends/vulkan/codegen/matrix_layout.h"
#include "backends/vulkan/codegen/matrix_product.h"
#include "backends/vulkan/codegen/testing/on_device.h"
#include "backends/vulkan/codegen/testing/product_cases.h"
#include "backends/vulkan/codegen/testing/sums_kernel.h"

namespace hekla::vulkan {
namespace {

using kernel::Contraction;
using testing::ProductCase;
using testing::ProductData;

class MatrixUnits : public testing::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && target_.matrix_shapes.empty()) GTEST_SKIP() << "no matrix units";
  }

  // What the device gives, or why there is no result.
  static Result<std::vector<std::byte>> run(const Contraction& c, const ProductData& data,
                                            const Target& target,
                                            const testing::RunOptions& options = {}) {
    HEKLA_ASSIGN_OR_RETURN(const Shader shader, generate_product(c, target));
    kernel::testing::Buffers operands{data.lhs, data.rhs, data.out};
    HEKLA_RETURN_IF_ERROR(runner_->run(shader, operands, options));
    return operands[2];
  }

  // Of operands whose sums are exact in any order: all bits, and nothing else is written.
  static void expect_exact(const Contraction& c, const Target& target, uint64_t seed,
                           const std::string& name, const testing::RunOptions& options = {}) {
    ProductData data = testing::product_data(c, seed, /*is_exact=*/true);
    const auto actual = run(c, data, target, options);
    ASSERT_TRUE(actual.ok()) << name << ": " << actual.status().message();
    testing::reference_product(c, data);
    const auto bytes = static_cast<size_t>(dtype_bytes(c.out_dtype));
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < data.out.size(); i += bytes) {
      if (std::memcmp(&data.out[i], &(*actual)[i], bytes) == 0) continue;
      if (wrong++ == 0) first = i / bytes;
    }
    EXPECT_EQ(wrong, 0u) << name << ": " << kernel::to_string(c) << ", first at " << first << " of "
                         << data.out.size() / bytes;
  }

  static std::vector<MatrixTile> tiles(const MatrixShape& shape) {
    return codegen::matrix_tiles(shape, target_);
  }
};

TEST_F(MatrixUnits, GiveExactSumsOfEveryForm) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    // Software takes a second to compile one; types differ in little.
    const std::vector<ProductCase> cases = testing::product_cases(shape.operands);
    const bool is_first = &shape == target_.matrix_shapes.data();
    for (size_t i = 0; i < cases.size(); i += is_first || !target_.is_cpu ? 1 : 4) {
      expect_exact(cases[i].contraction, target_, 1, cases[i].name);
    }
  }
}

TEST_F(MatrixUnits, GiveExactSumsWithEveryTile) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    for (const MatrixTile& tile : tiles(shape)) {
      Target target = target_;
      target.matrix_tile = tile;
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        expect_exact(testing::random_product(shape.operands, seed), target, seed, "random");
      }
    }
  }
}

TEST_F(MatrixUnits, GiveExactSumsOfRandomForms) {
  uint64_t count = 8;
  if (const char* asked = std::getenv("HEKLA_RANDOM_KERNELS")) {
    count = std::strtoull(asked, nullptr, 10);
  }
  for (const MatrixShape& shape : target_.matrix_shapes) {
    for (uint64_t seed = 100; seed < 100 + count; ++seed) {
      Target target = target_;
      target.schedule_seed = seed;
      expect_exact(testing::random_product(shape.operands, seed), target, seed,
                   "seed " + std::to_string(seed));
    }
  }
}

// As a launch of many groups is, and one of operands that 32 bits do not reach.
TEST_F(MatrixUnits, GiveTheSameInPiecesAndWithWideAddresses) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    for (const ProductCase& c : testing::product_cases(shape.operands)) {
      if (c.name != "many tiles" && c.name != "reversed" && c.name != "channels first") continue;
      Target target = target_;
      target.max_narrow_bytes = 0;
      expect_exact(c.contraction, target, 3, c.name, {.max_groups = 5, .max_x = 3});
    }
  }
}

// Within the bound of sums in f32 in whatever order, and the same bits with every tile.
TEST_F(MatrixUnits, RoundAsSumsInF32DoWhateverTheTile) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Contraction c = testing::random_product(shape.operands, seed);
      c.out_dtype = DType::kF32;
      const ProductData data = testing::product_data(c, seed, /*is_exact=*/false);
      ProductData expected = data;
      std::vector<double> magnitudes;
      testing::reference_product(c, expected, &magnitudes);
      const auto depth = static_cast<double>(kernel::axes_size(c.depth));
      std::vector<std::byte> first;
      for (const MatrixTile& tile : tiles(shape)) {
        Target target = target_;
        target.matrix_tile = tile;
        const auto actual = run(c, data, target);
        ASSERT_TRUE(actual.ok()) << actual.status().message();
        if (first.empty()) first = *actual;
        EXPECT_EQ(*actual, first) << kernel::to_string(c) << ": other bits with another tile";
      }
      for (size_t i = 0; i < magnitudes.size(); ++i) {
        if (magnitudes[i] == 0) continue;
        float wanted = 0, got = 0;
        std::memcpy(&wanted, &expected.out[i * 4], 4);
        std::memcpy(&got, &first[i * 4], 4);
        ASSERT_LE(std::abs(double{wanted} - double{got}), depth * 0x1p-23 * magnitudes[i])
            << kernel::to_string(c) << ", element " << i;
      }
    }
  }
}

// Rounded at once they are what a conversion of the f32 sums gives.
TEST_F(MatrixUnits, RoundSumsToNearestEven) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      Contraction c = testing::random_product(shape.operands, seed);
      c.out_dtype = DType::kF32;
      ProductData data = testing::product_data(c, seed, /*is_exact=*/false);
      const auto wide = run(c, data, target_);
      c.out_dtype = shape.operands;
      data.out.resize(data.out.size() / 2);
      const auto narrow = run(c, data, target_);
      ASSERT_TRUE(wide.ok() && narrow.ok());
      for (size_t i = 0; i < narrow->size() / 2; ++i) {
        float sum = 0;
        uint16_t got = 0;
        std::memcpy(&sum, &(*wide)[i * 4], 4);
        std::memcpy(&got, &(*narrow)[i * 2], 2);
        if (got == 0x5a5a) continue;  // nobody's
        ASSERT_EQ(got, float_to_bits(shape.operands, double{sum}))
            << kernel::to_string(c) << ", element " << i << ": " << sum;
      }
    }
  }
}

// f32 operands in pieces of whatever floats the device has matrices of.
TEST_F(MatrixUnits, GiveExactSumsByPieces) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    const std::vector<ProductCase> cases = testing::product_cases(shape.operands);
    for (size_t i = 0; i < cases.size(); i += target_.is_cpu ? 5 : 1) {
      constexpr int32_t kProducts[] = {3, 4, 6, 9};
      const kernel::Pieces pieces{shape.operands, kProducts[i % 4]};
      expect_exact(testing::by_pieces(cases[i].contraction, pieces), target_, 1,
                   cases[i].name + ", " + std::to_string(pieces.products) + " products");
    }
    for (uint64_t seed = 100; seed < 103; ++seed) {
      Target target = target_;
      target.schedule_seed = seed;
      if (seed % 2 == 0) target.max_narrow_bytes = 0;
      const kernel::Pieces pieces{shape.operands, seed % 3 == 0 ? 6 : 3};
      expect_exact(testing::by_pieces(testing::random_product(shape.operands, seed), pieces),
                   target, seed, "by pieces, seed " + std::to_string(seed));
    }
  }
}

// Within what sums in f32 in whatever order may be off by, and what the products leave out; the
// same bits with every tile.
TEST_F(MatrixUnits, RoundByPiecesAsTheirProductsSayWhateverTheTile) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    for (const int32_t products : {3, 6, 9}) {
      const kernel::Pieces pieces{shape.operands, products};
      Contraction c = testing::by_pieces(testing::random_product(shape.operands, 7), pieces);
      c.out_dtype = DType::kF32;
      const ProductData data = testing::product_data(c, 7, /*is_exact=*/false);
      ProductData expected = data;
      std::vector<double> magnitudes;
      testing::reference_product(c, expected, &magnitudes);
      const auto depth = static_cast<double>(kernel::axes_size(c.depth));
      std::vector<std::byte> first;
      std::vector<MatrixTile> some = codegen::matrix_tiles(shape, target_, pieces);
      if (target_.is_cpu && some.size() > 2) some.resize(2);
      for (const MatrixTile& tile : some) {
        Target target = target_;
        target.matrix_tile = tile;
        const auto actual = run(c, data, target);
        ASSERT_TRUE(actual.ok()) << actual.status().message();
        if (first.empty()) first = *actual;
        EXPECT_EQ(*actual, first) << kernel::to_string(c) << ": other bits with another tile";
      }
      // Two pieces of bf16 have 16 digits. Elements below 2^-14, of which there are few, have less
      // of f16 than their digits.
      const double left_out = products > 3                     ? 0x1p-22
                              : shape.operands == DType::kBF16 ? 0x3p-16
                                                               : 0x3p-22;
      double worst = 0;
      for (size_t i = 0; i < magnitudes.size(); ++i) {
        if (magnitudes[i] == 0) continue;
        float wanted = 0, got = 0;
        std::memcpy(&wanted, &expected.out[i * 4], 4);
        std::memcpy(&got, &first[i * 4], 4);
        const double error = std::abs(double{wanted} - double{got});
        worst = std::max(worst, error / magnitudes[i]);
        if (error <= (depth * 0x1p-23 + left_out) * magnitudes[i] + depth * 0x1p-24) continue;
        ADD_FAILURE() << kernel::to_string(c) << ", element " << i << " is off by " << error;
        break;
      }
      RecordProperty(std::to_string(products), std::to_string(worst * 0x1p24));
    }
  }
}

// Infinity and NaN reach the sums that they are part of, and no others: not by what fills tiles up,
// nor by pieces that are zeros.
TEST_F(MatrixUnits, KeepInfinityAndNanToTheirRowsAndColumns) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    for (const ProductCase& each : testing::product_cases(shape.operands)) {
      if (each.name.find("30x70x45") == std::string::npos && each.name != "of 3 features") continue;
      for (const int32_t products : {1, 3, 6}) {
        // Software takes a second to compile one.
        if (target_.is_cpu && products > 1 && each.name[0] == 't') continue;
        const Contraction c =
            products == 1 ? each.contraction
                          : testing::by_pieces(each.contraction, {shape.operands, products});
        ProductData data = testing::product_data(c, 5, /*is_exact=*/true);
        const auto width = static_cast<size_t>(dtype_bytes(c.lhs_dtype));
        const auto put = [&](std::vector<std::byte>& memory, size_t at, double value) {
          const uint64_t bits = float_to_bits(c.lhs_dtype, value);
          std::memcpy(&memory[at * width], &bits, width);
        };
        // The last elements are those that are repeated.
        put(data.lhs, data.lhs.size() / width - 1, std::numeric_limits<double>::quiet_NaN());
        put(data.lhs, 7, std::numeric_limits<double>::infinity());
        put(data.rhs, data.rhs.size() / width - 1, std::numeric_limits<double>::infinity());
        const auto actual = run(c, data, target_);
        ASSERT_TRUE(actual.ok()) << actual.status().message();
        testing::reference_product(c, data);
        const auto bytes = static_cast<size_t>(dtype_bytes(c.out_dtype));
        for (size_t i = 0; i < data.out.size(); i += bytes) {
          uint64_t wanted = 0, got = 0;
          std::memcpy(&wanted, &data.out[i], bytes);
          std::memcpy(&got, &(*actual)[i], bytes);
          const double w = float_from_bits(c.out_dtype, wanted);
          const double g = float_from_bits(c.out_dtype, got);
          ASSERT_TRUE(w == g || (std::isnan(w) && std::isnan(g)))
              << each.name << ", " << products << " products, element " << i / bytes << ": " << g
              << " in place of " << w;
        }
      }
    }
  }
}

// Sums that teams own, scaled row by row, by the interpreter.
TEST_F(MatrixUnits, GiveExactSumsToTeams) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    for (const testing::SumsCase& c : testing::sums_cases(shape)) {
      for (uint64_t seed = 0; seed < 4; ++seed) {
        testing::SumsKernel test = testing::sums_kernel(c, target_.matrix_subgroup_size, seed);
        kernel::testing::Buffers expected = test.contents;
        ASSERT_TRUE(kernel::verify(test.kernel.body).ok());
        const Status interpreted = kernel::interpret(test.kernel, kernel::testing::spans(expected));
        ASSERT_TRUE(interpreted.ok()) << interpreted.message();
        Target target = target_;
        target.schedule_seed = seed;
        const auto shader = generate(test.kernel, target);
        ASSERT_TRUE(shader.ok()) << shader.status().message();
        const Status ran = runner_->run(*shader, test.contents, {});
        ASSERT_TRUE(ran.ok()) << ran.message();
        EXPECT_EQ(test.contents[3], expected[3])
            << dtype_name(c.dtype) << ", " << c.rows << " x " << c.columns << " x " << c.depth
            << ", by column " << c.is_by_column << ", seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace hekla::vulkan
