// SPDX-License-Identifier: Apache-2.0
// What the comparison with the evaluator allows and what it finds: sums in any order, and nothing
// that is wrong.
#include "tests/random/tolerance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "backends/reference/evaluator.h"
#include "runtime/program/stablehlo/read_program.h"

namespace hekla::testing {
namespace {

constexpr int64_t kRows = 24, kColumns = 20, kDepth = 300;

using Floats = std::vector<float>;

float as_bf16(float x) {
  return static_cast<float>(
      float_from_bits(DType::kBF16, float_to_bits(DType::kBF16, static_cast<double>(x))));
}

class Tolerance : public ::testing::Test {
 protected:
  // One operation on `inputs`; empty when `got` passes.
  static std::string compared(const std::string& text, const std::vector<HostArray>& inputs,
                              const HostArray& got, DType pieces = DType::kF32) {
    auto module = stablehlo::read_program(text);
    if (!module.ok()) die_of_bad_result(module.status());
    const ir::Operation& op =
        *(*module)->entry()->body().front().terminator()->operand(0)->defining_op();
    const auto wrong = difference(passes::isolate_operation(**module, op), inputs, {got}, {},
                                  /*is_cut=*/false, pieces);
    return wrong.ok() ? *wrong : wrong.status().to_string();
  }

  Floats random_floats(int64_t count) {
    std::normal_distribution<float> normal;
    Floats values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }

  // How one element is summed from its products' factors.
  using Summation = std::function<float(const Floats& a, const Floats& b)>;

  // A product of kRows x kDepth by kDepth x kColumns whose elements are `sum`.
  std::string product(const Summation& sum) {
    const Floats x = random_floats(kRows * kDepth), y = random_floats(kDepth * kColumns);
    Floats out;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        Floats a, b;
        for (int64_t d = 0; d < kDepth; ++d) {
          a.push_back(x[static_cast<size_t>(r * kDepth + d)]);
          b.push_back(y[static_cast<size_t>(d * kColumns + c)]);
        }
        out.push_back(sum(a, b));
      }
    }
    return compared(
        "func.func @main(%x: tensor<24x300xf32>, %y: tensor<300x20xf32>) -> tensor<24x20xf32> {\n"
        "  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<24x300xf32>, "
        "tensor<300x20xf32>) -> tensor<24x20xf32>\n  return %r : tensor<24x20xf32>\n}\n",
        {HostArray::from<float>(DType::kF32, {kRows, kDepth}, x),
         HostArray::from<float>(DType::kF32, {kDepth, kColumns}, y)},
        HostArray::from<float>(DType::kF32, {kRows, kColumns}, out));
  }

  std::mt19937 random_{1};
};

// (1 + 2^-9)^2 without the product of second pieces of bf16, as matrix units may form it.
TEST_F(Tolerance, AllowsPiecesWhereTheProgramAndTheDeviceHaveThem) {
  const auto three_products = [](const std::string& words, DType pieces) {
    const HostArray x = HostArray::from<float>(DType::kF32, {1, 1}, Floats{1 + 0x1p-9F});
    return compared(
        "func.func @main(%x: tensor<1x1xf32>, %y: tensor<1x1xf32>) -> tensor<1x1xf32> {\n"
        "  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]" +
            words +
            " : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>\n"
            "  return %r : tensor<1x1xf32>\n}\n",
        {x, x}, HostArray::from<float>(DType::kF32, {1, 1}, Floats{1 + 0x1p-8F}), pieces);
  };
  const std::string high = ", precision = [HIGH, HIGH]";
  EXPECT_EQ(three_products(high, DType::kBF16), "");
  EXPECT_NE(three_products(high, DType::kF32), "") << "the device has no pieces";
  EXPECT_NE(three_products("", DType::kBF16), "") << "f32 is f32";
}

float in_order(const Floats& a, const Floats& b) {
  float sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum = std::fma(a[d], b[d], sum);
  return sum;
}

float backwards(const Floats& a, const Floats& b) {
  float sum = 0;
  for (size_t d = a.size(); d-- > 0;) sum += a[d] * b[d];
  return sum;
}

// Pairs, pairs of pairs and so on.
float by_a_tree(const Floats& a, const Floats& b) {
  Floats terms;
  for (size_t d = 0; d < a.size(); ++d) terms.push_back(a[d] * b[d]);
  while (terms.size() > 1) {
    const size_t half = (terms.size() + 1) / 2;
    for (size_t i = half; i < terms.size(); ++i) terms[i - half] += terms[i];
    terms.resize(half);
  }
  return terms[0];
}

TEST_F(Tolerance, SumsMayBeInAnyOrder) {
  EXPECT_EQ(product(in_order), "");
  EXPECT_EQ(product(backwards), "");
  EXPECT_EQ(product(by_a_tree), "");
  // The three greatest of the products of bf16 pieces are not f32: few elements show it, so nothing
  // is said of them here. What an algorithm allows is asked of kernel::allows_pieces.
}

TEST_F(Tolerance, MistakesInSumsAreFound) {
  const auto without = [](size_t which) {
    return [which](Floats a, const Floats& b) {
      a[which] = 0;
      return by_a_tree(a, b);
    };
  };
  EXPECT_NE(product(without(0)), "") << "the first product is missing";
  EXPECT_NE(product(without(255)), "") << "one product is missing";
  EXPECT_NE(product(without(kDepth - 1)), "") << "the last product is missing";
  EXPECT_NE(product([](const Floats& a, const Floats& b) {
              return std::fma(a[7], b[7], in_order(a, b));
            }),
            "")
      << "a product is there twice";
  EXPECT_NE(product([](Floats a, const Floats& b) {
              std::swap(a[10], a[11]);
              return in_order(a, b);
            }),
            "")
      << "factors are swapped";
  EXPECT_NE(product([](Floats a, Floats b) {
              for (float& value : a) value = as_bf16(value);
              for (float& value : b) value = as_bf16(value);
              return in_order(a, b);
            }),
            "")
      << "operands are rounded to bf16";
  EXPECT_NE(product([](const Floats& a, const Floats& b) {
              float sum = 0;
              for (size_t d = 0; d < a.size(); ++d) sum = as_bf16(std::fma(a[d], b[d], sum));
              return sum;
            }),
            "")
      << "sums are kept in bf16";
  EXPECT_NE(product([](const Floats& a, const Floats& b) { return in_order(a, b) * 1.001F; }), "")
      << "the result is off by a thousandth";
  EXPECT_NE(product([](const Floats&, const Floats&) { return std::nanf(""); }), "");
}

TEST_F(Tolerance, ReductionsOfFloatsTooAndOthersToTheBit) {
  const Floats x = random_floats(kRows * kDepth);
  const HostArray input = HostArray::from<float>(DType::kF32, {kRows, kDepth}, x);
  const auto reduced = [&](const std::string& reducer, float start, const auto& row) {
    Floats out;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(r * kDepth);
      out.push_back(row(Floats(first, first + static_cast<std::ptrdiff_t>(kDepth))));
    }
    return compared(
        "func.func @main(%x: tensor<24x300xf32>, %i: tensor<f32>) -> tensor<24xf32> {\n"
        "  %r = stablehlo.reduce(%x init: %i) applies stablehlo." +
            reducer +
            " across dimensions = [1] : (tensor<24x300xf32>, tensor<f32>) -> "
            "tensor<24xf32>\n  return %r : tensor<24xf32>\n}\n",
        {input, HostArray::scalar<float>(DType::kF32, start)},
        HostArray::from<float>(DType::kF32, {kRows}, out));
  };
  const auto sum = [](const Floats& row) { return by_a_tree(row, Floats(row.size(), 1)); };
  EXPECT_EQ(reduced("add", 0, sum), "");
  EXPECT_NE(reduced("add", 0,
                    [&](Floats row) {
                      row[123] = 0;
                      return sum(row);
                    }),
            "");
  const auto greatest = [](const Floats& row) { return *std::max_element(row.begin(), row.end()); };
  const float low = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(reduced("maximum", low, greatest), "");
  EXPECT_NE(reduced("maximum", low,
                    [&](const Floats& row) { return std::nextafter(greatest(row), 100.0F); }),
            "");
}

// A format of two bits: the evaluator's sum of 1,155 times 56 stands still at 4,096, and so does
// that of the sizes; whoever adds in f32 has 64,680, which is beyond the greatest number.
TEST_F(Tolerance, SumsThatOverflowWhereTheEvaluatorStandsStill) {
  const auto sum_of = [](int64_t count, uint8_t bits) {
    HostArray row(DType::kF8E5M2FNUZ, {count}), got(DType::kF8E5M2FNUZ, {});
    std::fill_n(row.mutable_data(), count, std::byte{0x57});
    got.mutable_data()[0] = std::byte{bits};
    return compared(
        fmt::format("func.func @main(%x: tensor<{0}xf8E5M2FNUZ>, %i: tensor<f8E5M2FNUZ>) -> "
                    "tensor<f8E5M2FNUZ> {{\n"
                    "  %r = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions "
                    "= [0] : (tensor<{0}xf8E5M2FNUZ>, tensor<f8E5M2FNUZ>) -> "
                    "tensor<f8E5M2FNUZ>\n  return %r : tensor<f8E5M2FNUZ>\n}}\n",
                    count),
        {row, HostArray(DType::kF8E5M2FNUZ, {})}, got);
  };
  EXPECT_EQ(sum_of(1155, 0x70), "");  // 4,096
  EXPECT_EQ(sum_of(1155, 0x80), "");  // NaN: the format has no infinity
  EXPECT_NE(sum_of(5, 0x80), "");
}

}  // namespace
}  // namespace hekla::testing
