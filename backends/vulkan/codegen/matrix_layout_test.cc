// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/codegen/matrix_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>

#include "backends/compiler/kernel/interpreter.h"
#include "backends/vulkan/codegen/matrix_elements.h"
#include "backends/vulkan/codegen/matrix_product.h"
#include "backends/vulkan/codegen/testing/product_cases.h"
#include "backends/vulkan/codegen/testing/sums_kernel.h"
#include "backends/vulkan/snapshot/snapshot.h"

namespace hekla::vulkan {
namespace {

using codegen::MatrixLayout;
using kernel::Contraction;

Target a_target() {
  Target t;
  t.device = "a GPU";
  t.int64 = t.storage_8 = t.storage_16 = true;
  t.matrix_shapes = {{DType::kBF16, DType::kF32, 16, 16, 16},
                     {DType::kI8, DType::kI32, 16, 16, 32}};
  t.matrix_subgroup_size = 32;
  t.max_workgroup_invocations = t.max_workgroup_size_x = 1024;
  t.max_shared_memory_bytes = 48 << 10;
  return t;
}

Contraction product(DType operands, int64_t rows, int64_t columns, int64_t depth) {
  Contraction c;
  c.lhs_dtype = c.rhs_dtype = operands;
  c.out_dtype = is_float(operands) ? DType::kF32 : DType::kI32;
  c.rows = {{rows, depth, 0, columns}};
  c.columns = {{columns, 0, 1, 1}};
  c.depth = {{depth, 1, columns, 0}};
  c.lhs_elements = rows * depth;
  c.rhs_elements = depth * columns;
  c.out_elements = rows * columns;
  return c;
}

MatrixLayout layout(const Contraction& c, const Target& target = a_target()) {
  auto result = codegen::matrix_layout(c, target);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return std::move(result).value();
}

TEST(MatrixLayoutTest, LargeProductsTakeLargeTilesAndSmallOnesSmall) {
  const MatrixTile large = layout(product(DType::kBF16, 4096, 4096, 4096)).tile;
  const MatrixTile small = layout(product(DType::kBF16, 128, 128, 4096)).tile;
  EXPECT_EQ(large.rows * large.columns, 128u * 128u);
  EXPECT_LT(small.rows * small.columns, 64u * 64u + 1);
}

TEST(MatrixLayoutTest, ThinProductsTakeThinTiles) {
  for (const bool has_few_rows : {false, true}) {
    const MatrixTile tile = layout(has_few_rows ? product(DType::kBF16, 16, 65536, 4096)
                                                : product(DType::kBF16, 65536, 16, 4096))
                                .tile;
    EXPECT_EQ(has_few_rows ? tile.rows : tile.columns, 32u);
    EXPECT_EQ(has_few_rows ? tile.columns : tile.rows, 128u);
  }
}

TEST(MatrixLayoutTest, UnitsGoAlongWhatIsContiguousInMemory) {
  Contraction c = product(DType::kBF16, 256, 256, 256);
  MatrixLayout l = layout(c);
  EXPECT_TRUE(l.lhs.is_vector && l.lhs.along_depth);
  EXPECT_TRUE(l.rhs.is_vector && !l.rhs.along_depth);
  EXPECT_EQ(l.store_elements, 4u);
  EXPECT_EQ(l.lhs.pitch % 2, 1u);
  c.rows[0].lhs = 1;
  c.depth[0].lhs = 256;
  l = layout(c);
  EXPECT_TRUE(l.lhs.is_vector && !l.lhs.along_depth);
}

TEST(MatrixLayoutTest, OddSizesGoElementByElement) {
  const MatrixLayout l = layout(product(DType::kBF16, 256, 255, 254));
  EXPECT_FALSE(l.lhs.is_vector);
  EXPECT_FALSE(l.rhs.is_vector);
  EXPECT_EQ(l.store_elements, 1u);
}

TEST(MatrixLayoutTest, AxesThatFollowEachOtherAreOne) {
  Contraction c = product(DType::kBF16, 64, 64, 64);
  c.rows = {{4, 1024, 0, 1024}, {1, 7, 0, 7}, {16, 64, 0, 64}};
  const MatrixLayout l = layout(c);
  ASSERT_EQ(l.rows.size(), 1u);
  EXPECT_EQ(l.rows[0].size, 64);
}

TEST(MatrixLayoutTest, EveryTileOfTheTableFitsTheDevice) {
  Target small = a_target();
  small.max_shared_memory_bytes = 16 << 10;
  small.max_workgroup_invocations = 128;
  for (const Target& target : {a_target(), small}) {
    for (const MatrixShape& shape : target.matrix_shapes) {
      for (const MatrixTile& tile : codegen::matrix_tiles(shape, target)) {
        EXPECT_EQ(codegen::why_no_matrix_tile(tile, shape, target), "");
        Target forced = target;
        forced.matrix_tile = tile;
        const MatrixLayout l = layout(product(shape.operands, 100, 100, 100), forced);
        EXPECT_LE(l.shared_units * l.unit_words * 4, target.max_shared_memory_bytes);
        EXPECT_EQ(l.tile, tile);
      }
    }
  }
}

constexpr int32_t kPieceProducts[] = {3, 4, 6, 9};

TEST(MatrixLayoutTest, PiecesHavePlacesOfTheirOwn) {
  const Contraction whole = product(DType::kBF16, 4096, 4096, 4096);
  for (const int32_t products : kPieceProducts) {
    const kernel::Pieces pieces{DType::kBF16, products};
    const MatrixLayout l = layout(testing::by_pieces(whole, pieces));
    EXPECT_EQ(l.pieces(), products < 6 ? 2u : 3u);
    EXPECT_EQ(l.sums(), 2u);
    EXPECT_EQ(l.operand_units, 2u);
    EXPECT_TRUE(l.lhs.is_vector && l.rhs.is_vector);
    EXPECT_GE(l.shared_units, l.pieces() * l.piece_units());
    EXPECT_GE(l.tile.rows * l.tile.columns, products < 9 ? 128u * 64u : 64u * 64u);
  }
}

TEST(MatrixLayoutTest, EveryTileOfPiecesFitsTheDevice) {
  Target small = a_target();
  small.max_shared_memory_bytes = 16 << 10;
  small.max_workgroup_invocations = 128;
  for (const Target& target : {a_target(), small}) {
    EXPECT_TRUE(has_pieces(target, DType::kBF16));
    EXPECT_FALSE(has_pieces(target, DType::kI8));
    for (const int32_t products : kPieceProducts) {
      const kernel::Pieces pieces{DType::kBF16, products};
      for (const MatrixTile& tile :
           codegen::matrix_tiles(target.matrix_shapes[0], target, pieces)) {
        Target forced = target;
        forced.matrix_tile = tile;
        const MatrixLayout l =
            layout(testing::by_pieces(product(DType::kBF16, 100, 100, 100), pieces), forced);
        EXPECT_LE(l.shared_units * l.unit_words * 4, target.max_shared_memory_bytes);
        EXPECT_EQ(l.tile, tile);
      }
    }
  }
  small.max_shared_memory_bytes = 8 << 10;
  EXPECT_FALSE(has_pieces(small, DType::kBF16));
}

// What is cut into pieces is their sum; each has the digits of its type, and none is infinite but
// what was.
TEST(MatrixElementsTest, PiecesOfNumbersAreTheNumbers) {
  std::vector<float> numbers = {0.0F,     -0.0F,         1.0F,        -1.0F,  3.4028235e38F,
                                -3.4e38F, 3.3961775e38F, 3.38953e38F, 1e-30F, 65504.0F};
  for (uint32_t i = 0; i < 2000; ++i) {
    // Exponents of -100 to 120, all digits drawn.
    const uint32_t bits = i * 2654435761U;
    const uint32_t exponent = 27 + i % 221;
    numbers.push_back(std::bit_cast<float>((bits & 0x807fffffU) | exponent << 23));
  }
  const size_t finite = numbers.size();
  numbers.push_back(std::numeric_limits<float>::infinity());
  numbers.push_back(-std::numeric_limits<float>::infinity());
  numbers.push_back(std::numeric_limits<float>::quiet_NaN());
  const auto bytes = static_cast<int64_t>(numbers.size() * 4);
  kernel::Builder b(1, kernel::ScalarType::kI32);
  const kernel::Value bits = b.load(kernel::ScalarType::kI32, {0, 4, false}, b.grid_index(0));
  kernel::Kernel cut;
  cut.grid = {static_cast<int64_t>(numbers.size())};
  cut.operands.push_back({bytes, true, false, false});
  const std::vector<kernel::Value> pieces = codegen::pieces_of(b, bits, DType::kBF16, 3);
  std::vector<std::vector<uint32_t>> made(3, std::vector<uint32_t>(numbers.size()));
  std::vector<std::span<std::byte>> buffers{std::as_writable_bytes(std::span(numbers))};
  for (int32_t p = 0; p < 3; ++p) {
    b.store({p + 1, 4, false}, b.grid_index(0), pieces[static_cast<size_t>(p)]);
    cut.operands.push_back({bytes, false, true, false});
    buffers.push_back(std::as_writable_bytes(std::span(made[static_cast<size_t>(p)])));
  }
  cut.body = b.finish();
  const Status status = kernel::interpret(cut, buffers);
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < numbers.size(); ++i) {
    double piece[3];
    for (size_t p = 0; p < 3; ++p) piece[p] = float_from_bits(DType::kBF16, made[p][i]);
    const double number = numbers[i];
    if (i >= finite) {
      EXPECT_TRUE(piece[0] == number || (std::isnan(piece[0]) && std::isnan(number))) << number;
      EXPECT_TRUE(piece[1] == 0 && piece[2] == 0) << number;
      continue;
    }
    EXPECT_EQ(piece[0] + piece[1] + piece[2], number) << number;
    const double left = std::abs(number) < 3.3e38 ? 0x1p-8 : 0x1p-7;
    EXPECT_LE(std::abs(number - piece[0]), left * std::abs(number)) << number;
    EXPECT_LE(std::abs(number - piece[0] - piece[1]), left * 0x1p-8 * std::abs(number)) << number;
  }
}

TEST(MatrixElementsTest, WhatIsInfiniteInFirstPiecesIsTheSum) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> first = {1.5F, kInfinity, -kInfinity, kNan, 3.0e38F};
  std::vector<float> rest = {0.25F, kNan, kInfinity, 1.0F, 1.0e38F};
  const float wanted[] = {1.75F, kInfinity, -kInfinity, kNan, kInfinity};
  std::vector<float> sums(first.size());
  const auto bytes = static_cast<int64_t>(first.size() * 4);
  kernel::Builder b(1, kernel::ScalarType::kI32);
  const auto load = [&](int32_t operand) {
    return b.load(kernel::ScalarType::kI32, {operand, 4, false}, b.grid_index(0));
  };
  const kernel::Value left = load(0), right = load(1);
  b.store({2, 4, false}, b.grid_index(0), codegen::whole_sum(b, left, right));
  kernel::Kernel sum;
  sum.grid = {static_cast<int64_t>(first.size())};
  sum.operands = {
      {bytes, true, false, false}, {bytes, true, false, false}, {bytes, false, true, false}};
  sum.body = b.finish();
  const std::span<std::byte> buffers[] = {std::as_writable_bytes(std::span(first)),
                                          std::as_writable_bytes(std::span(rest)),
                                          std::as_writable_bytes(std::span(sums))};
  ASSERT_TRUE(kernel::interpret(sum, buffers).ok());
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(sums[i] == wanted[i] || (std::isnan(sums[i]) && std::isnan(wanted[i]))) << i;
  }
}

// A device that lists matrices and has no room for the smallest tile of them has none.
TEST(MatrixLayoutTest, ShapesWithoutATileAreLeftOut) {
  DeviceSnapshot snapshot;
  snapshot.features.cooperative_matrix = snapshot.features.vulkan_memory_model = true;
  snapshot.features.subgroup_size_control = snapshot.features.compute_full_subgroups = true;
  snapshot.features.i64 = snapshot.features.f16 = snapshot.features.storage_16 = true;
  snapshot.cooperative_matrices = {{16, 16, 16, "f16", "f16", "f32", "f32", false}};
  snapshot.subgroup.size = snapshot.subgroup.min_size = snapshot.subgroup.max_size = 32;
  snapshot.limits.max_workgroup_invocations = snapshot.limits.max_workgroup_size[0] = 128;
  snapshot.limits.max_shared_memory_bytes = 16 << 10;
  EXPECT_EQ(make_target(snapshot).matrix_shapes.size(), 1u);
  snapshot.limits.max_shared_memory_bytes = 512;
  EXPECT_TRUE(make_target(snapshot).matrix_shapes.empty());
  Target forced = a_target();
  forced.max_shared_memory_bytes = 512;
  const auto none = codegen::matrix_layout(product(DType::kBF16, 64, 64, 64), forced);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("bytes of shared memory, more than 512"),
            std::string::npos);
}

// bf16 may be a type of shaders without being one of matrices.
TEST(MatrixLayoutTest, MatricesOfBf16NeedTheirFeature) {
  DeviceSnapshot snapshot;
  snapshot.features.cooperative_matrix = snapshot.features.vulkan_memory_model = true;
  snapshot.features.subgroup_size_control = snapshot.features.compute_full_subgroups = true;
  snapshot.features.i64 = snapshot.features.bf16 = snapshot.features.storage_16 = true;
  snapshot.cooperative_matrices = {{16, 16, 16, "bf16", "bf16", "f32", "f32", false}};
  snapshot.subgroup.size = snapshot.subgroup.min_size = snapshot.subgroup.max_size = 32;
  snapshot.limits.max_workgroup_invocations = snapshot.limits.max_workgroup_size[0] = 256;
  snapshot.limits.max_shared_memory_bytes = 32 << 10;
  EXPECT_TRUE(make_target(snapshot).matrix_shapes.empty());
  snapshot.features.bf16_cooperative_matrix = true;
  EXPECT_EQ(make_target(snapshot).matrix_shapes.size(), 1u);
}

// Intel's matrix instructions are as wide as a matrix, and it lists wider subgroups too.
TEST(MatrixLayoutTest, SubgroupsAreThoseOfTheMatrixInstructions) {
  DeviceSnapshot snapshot;
  snapshot.features.cooperative_matrix = snapshot.features.vulkan_memory_model = true;
  snapshot.features.subgroup_size_control = snapshot.features.compute_full_subgroups = true;
  snapshot.features.i64 = snapshot.features.f16 = snapshot.features.storage_16 = true;
  snapshot.limits.max_workgroup_invocations = snapshot.limits.max_workgroup_size[0] = 1024;
  snapshot.limits.max_shared_memory_bytes = 64 << 10;
  snapshot.subgroup.min_size = 8;
  snapshot.subgroup.max_size = 32;
  snapshot.cooperative_matrices = {{8, 8, 16, "f16", "f16", "f32", "f32", false}};
  EXPECT_EQ(make_target(snapshot).matrix_subgroup_size, 32u);
  snapshot.vendor_id = 0x8086;
  EXPECT_EQ(make_target(snapshot).matrix_subgroup_size, 8u);
  snapshot.cooperative_matrices = {{8, 16, 16, "f16", "f16", "f32", "f32", false}};
  EXPECT_EQ(make_target(snapshot).matrix_subgroup_size, 16u);
}

TEST(MatrixLayoutTest, RefusalsAreInWords) {
  const auto no_type = codegen::matrix_layout(product(DType::kF16, 64, 64, 64), a_target());
  ASSERT_FALSE(no_type.ok());
  EXPECT_NE(no_type.status().message().find("has no matrix units"), std::string::npos);
  Target forced = a_target();
  forced.matrix_tile = {128, 128, 24, 64, 64, 2};
  const auto no_tile = codegen::matrix_layout(product(DType::kBF16, 64, 64, 64), forced);
  ASSERT_FALSE(no_tile.ok());
  EXPECT_NE(no_tile.status().message().find("128 x 128 x 24"), std::string::npos);
}

TEST(MatrixProductTest, TheModuleSaysWhatItNeeds) {
  const auto shader = generate_product(product(DType::kBF16, 64, 64, 64), a_target());
  ASSERT_TRUE(shader.ok()) << shader.status().message();
  EXPECT_EQ(shader->subgroup_size, 32u);
  for (const char* feature :
       {"cooperativeMatrix", "shaderBFloat16CooperativeMatrix", "vulkanMemoryModel"}) {
    EXPECT_EQ(
        std::count(shader->required_features.begin(), shader->required_features.end(), feature), 1)
        << feature;
  }
}

// Sums of products in kernels of teams: with the subgroups of matrices, or refused in words.
TEST(SumsTest, TheModuleSaysWhatItNeeds) {
  Target target = a_target();
  target.matrix_shapes = {{DType::kBF16, DType::kF32, 16, 16, 16}};
  target.subgroup_size = 64;
  testing::SumsCase c = testing::sums_cases(target.matrix_shapes[0])[1];
  const auto shader = generate(testing::sums_kernel(c, 32, 1).kernel, target);
  ASSERT_TRUE(shader.ok()) << shader.status().message();
  EXPECT_EQ(shader->subgroup_size, 32u);
  EXPECT_EQ(shader->workgroup_size, 32 * c.subgroups);
  EXPECT_EQ(shader->group_count, c.teams);
  for (const char* feature :
       {"cooperativeMatrix", "shaderBFloat16CooperativeMatrix", "vulkanMemoryModel"}) {
    EXPECT_EQ(
        std::count(shader->required_features.begin(), shader->required_features.end(), feature), 1)
        << feature;
  }
  c.dtype = DType::kF16;
  const auto no_type = generate(testing::sums_kernel(c, 32, 1).kernel, target);
  ASSERT_FALSE(no_type.ok());
  EXPECT_NE(no_type.status().message().find("no matrix units for sums of f16"), std::string::npos);
  c.dtype = DType::kBF16;
  const auto no_points = generate(testing::sums_kernel(c, 16, 1).kernel, target);
  ASSERT_FALSE(no_points.ok());
  EXPECT_NE(no_points.status().message().find("are none of 16 x 16 x 16 matrices"),
            std::string::npos);
}

// Modules for a validator that knows their extensions, which Debian 12's does not: written where
// HEKLA_KEPT_MODULES says, of every shape that a recorded device has, every form and every tile.
TEST(MatrixProductTest, ModulesAreKeptForAValidator) {
  const char* folder = std::getenv("HEKLA_KEPT_MODULES");
  if (folder == nullptr) GTEST_SKIP() << "HEKLA_KEPT_MODULES names no folder";
  std::filesystem::create_directories(folder);
  Target target = a_target();
  int number = 0;
  const MatrixShape shapes[] = {
      {DType::kBF16, DType::kF32, 16, 16, 16}, {DType::kF16, DType::kF32, 16, 16, 16},
      {DType::kF16, DType::kF32, 8, 8, 8},     {DType::kI8, DType::kI32, 16, 16, 32},
      {DType::kUI8, DType::kUI32, 8, 8, 8},    {DType::kUI8, DType::kI32, 16, 16, 16}};
  for (const MatrixShape& shape : shapes) {
    target.matrix_shapes = {shape};
    target.matrix_subgroup_size = shape.rows == 8 ? 8 : 32;
    const auto keep_shader = [&](const Result<Shader>& shader) {
      ASSERT_TRUE(shader.ok()) << shader.status().message();
      std::ofstream file(std::filesystem::path(folder) / fmt::format("{:03}.spv", number++),
                         std::ios::binary);
      file.write(reinterpret_cast<const char*>(shader->words.data()),
                 static_cast<std::streamsize>(shader->words.size() * sizeof(uint32_t)));
      ASSERT_TRUE(file.good());
    };
    const auto keep = [&](const Contraction& c) { keep_shader(generate_product(c, target)); };
    target.matrix_tile = {};
    for (const testing::ProductCase& c : testing::product_cases(shape.operands)) {
      keep(c.contraction);
    }
    target.max_narrow_bytes = 0;
    keep(product(shape.operands, 100, 100, 100));
    target.max_narrow_bytes = a_target().max_narrow_bytes;
    for (const MatrixTile& tile : codegen::matrix_tiles(shape, target)) {
      target.matrix_tile = tile;
      keep(product(shape.operands, 256, 256, 256));
    }
    if (!is_float(shape.operands)) continue;
    for (const int32_t products : kPieceProducts) {
      const kernel::Pieces pieces{shape.operands, products};
      target.matrix_tile = {};
      for (const testing::ProductCase& c : testing::product_cases(shape.operands)) {
        if (products != 6 && c.name.find("30x70x45") == std::string::npos) continue;
        keep(testing::by_pieces(c.contraction, pieces));
      }
      for (const MatrixTile& tile : codegen::matrix_tiles(shape, target, pieces)) {
        target.matrix_tile = tile;
        keep(testing::by_pieces(product(shape.operands, 256, 256, 256), pieces));
      }
    }
    for (const testing::SumsCase& c : testing::sums_cases(shape)) {
      keep_shader(generate(testing::sums_kernel(c, target.matrix_subgroup_size, 1).kernel, target));
    }
  }
}

}  // namespace
}  // namespace hekla::vulkan
