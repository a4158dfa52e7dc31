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

// Infinity and NaN reach the sums that they are part of, and no others: not by what fills tiles up.
TEST_F(MatrixUnits, KeepInfinityAndNanToTheirRowsAndColumns) {
  for (const MatrixShape& shape : target_.matrix_shapes) {
    if (!is_float(shape.operands)) continue;
    for (const ProductCase& each : testing::product_cases(shape.operands)) {
      if (each.name.find("30x70x45") == std::string::npos && each.name != "of 3 features") continue;
      const Contraction& c = each.contraction;
      ProductData data = testing::product_data(c, 5, /*is_exact=*/true);
      const auto put = [&](std::vector<std::byte>& memory, size_t at, double value) {
        const uint64_t bits = float_to_bits(shape.operands, value);
        std::memcpy(&memory[at * 2], &bits, 2);
      };
      // The last elements are those that are repeated.
      put(data.lhs, data.lhs.size() / 2 - 1, std::numeric_limits<double>::quiet_NaN());
      put(data.lhs, 7, std::numeric_limits<double>::infinity());
      put(data.rhs, data.rhs.size() / 2 - 1, std::numeric_limits<double>::infinity());
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
            << each.name << ", element " << i / bytes << ": " << g << " in place of " << w;
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
